"""Cuts shell text into words and operators, expanding variables as they stand at that point.

What cannot be known without running becomes `UNKNOWN` inside its word. Never raises, never loops: whatever the text, each step moves on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from firsttoken.plan.world import UNKNOWN

ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")


@dataclass(slots=True)
class Variables:
    """A shell's memory. `args`: `$0`, `$1`, …"""

    values: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, env: Mapping[str, str], args: Sequence[str]) -> "Variables":
        return cls(values=dict(env), args=list(args))

    def expand(self, name: str) -> str | list[str]:
        if name in ("@", "*"):
            return self.args[1:]
        if name.isdecimal():
            return self.args[int(name)] if len(name) < 4 and int(name) < len(self.args) else ""
        return self.values.get(name, "") if name.isidentifier() else UNKNOWN


@dataclass(frozen=True, slots=True)
class Word:
    """`fields`: what the word becomes after expansion and splitting (none at all for an empty variable). `head`: its text up to the first
    quote or expansion, `plain`: there was none, so it may be a keyword. `array`: the items of `NAME=(…)`."""

    fields: tuple[str, ...]
    head: str
    plain: bool
    array: tuple[str, ...] | None = None

    @property
    def keyword(self) -> str | None:
        return self.head if self.plain else None

    @property
    def assigns(self) -> re.Match[str] | None:
        return ASSIGN.match(self.head)


_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;|()\n]|&(?!>)")
_REDIRECT = re.compile(r"(?:\d+|&)?(?:<<<|<<-?|>>|>&|<&|>\||<>|>|<)(?!\()")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!\-]")
_BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*|\d+|[@*])(?P<index>\[[@*]\])?(?P<operator>:?[-=?+])?")


class Reader:
    def __init__(self, text: str, variables: Variables) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.variables = variables
        self.heredocs: list[str] = []

    def command(self) -> tuple[list[Word], str | None]:
        """The words up to the next operator, and that operator (None at the end of the text)."""
        words: list[Word] = []
        in_test = False
        while True:
            self._take(_BLANKS)
            if self.at >= len(self.text):
                return words, None
            if redirect := self._take(_REDIRECT):
                self._redirect(redirect[0])
            elif operator := self._take(_OPERATOR):
                if operator[0] == "\n":
                    self._skip_heredocs()
                if not in_test or operator[0] == "\n":
                    return words, operator[0]
            else:
                words.append(self._word())
                in_test = words[0].keyword == "[[" and words[-1].keyword != "]]"

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def _redirect(self, operator: str) -> None:
        self._take(_BLANKS)
        if self.at < len(self.text) and self.text[self.at] not in "\n;|&()":
            target = self._word()
            if operator.lstrip("0123456789") in ("<<", "<<-") and target.fields:
                self.heredocs.append(target.fields[0])

    def _skip_heredocs(self) -> None:
        for delimiter in self.heredocs:
            end = re.compile(rf"^\t*{re.escape(delimiter)}$\n?", re.M).search(self.text, self.at)
            self.at = end.end() if end else len(self.text)
        self.heredocs = []

    def _word(self) -> Word:
        fields = [""]
        head, plain, something = "", True, False
        begin = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(" and plain and ASSIGN.fullmatch(head):
                return Word((head,), head, True, self._array())
            if char in " \t\n;|()&<>" and self.at > begin:
                break
            self.at += 1
            if char == "\\":
                fields[-1] += self.text[self.at : self.at + 1].replace("\n", "")
                self.at += 1
                something, plain = True, False
            elif char == "'":
                fields[-1] += self._until("'")
                something, plain = True, False
            elif char == '"':
                something = self._quoted(fields) or something
                plain = False
            elif char in "$`":
                self._expand(char, fields, split=ASSIGN.match(head) is None)
                plain = False
            else:
                fields[-1] += char
                head += char if plain else ""
        return Word(tuple(fields) if something or fields != [""] else (), head, plain)

    def _array(self) -> tuple[str, ...]:
        self.at += 1
        items: list[str] = []
        while True:
            self._take(_BLANKS)
            char = self.text[self.at : self.at + 1]
            if char in ("", ")"):
                self.at += 1
                return tuple(items)
            if char == "\n":
                self.at += 1
            else:
                items += self._word().fields

    def _until(self, quote: str) -> str:
        begin, end = self.at, self.text.find(quote, self.at)
        end = len(self.text) if end < 0 else end
        self.at = end + 1
        return self.text[begin:end]

    def _quoted(self, fields: list[str]) -> bool:
        """The rest of a double-quoted string. False where all of it was an empty `"$@"`, which leaves no word."""
        begin = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                break
            if char == "\\" and self.text[self.at : self.at + 1] in ("$", "`", '"', "\\", "\n"):
                fields[-1] += self.text[self.at].replace("\n", "")
                self.at += 1
            elif char in "$`":
                self._expand(char, fields, split=False)
            else:
                fields[-1] += char
        return fields != [""] or "@" not in self.text[begin : self.at]

    def _expand(self, char: str, fields: list[str], *, split: bool) -> None:
        """Appends the expansion that begins with `char` (`$` or a backquote, already passed)."""
        after = self.text[self.at : self.at + 1]
        if char == "`":
            self._until("`")
            fields[-1] += UNKNOWN
        elif after == "(":
            self._balanced("(", ")")
            fields[-1] += UNKNOWN
        elif after == "{":
            begin = self.at
            self._balanced("{", "}")
            _append(fields, self._braced(self.text[begin + 1 : self.at - 1]), split)
        elif after == "'":
            self.at += 1
            fields[-1] += self._until("'")
        elif name := self._take(_NAME):
            _append(fields, self.variables.expand(name[0]), split)
        else:
            fields[-1] += "$"

    def _balanced(self, opens: str, closes: str) -> None:
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 2 if char == "\\" else 1
            if char == "'" and opens == "(":
                self._until("'")
            depth += (char == opens) - (char == closes)
            if depth == 0:
                return

    def _braced(self, inside: str) -> str | list[str]:
        found = _BRACED.match(inside)
        if found is None or (found["operator"] is None and found.end() < len(inside)):
            return UNKNOWN
        name, operator, rest = found["name"], found["operator"], inside[found.end() :]
        arrays = self.variables.arrays
        value = list(arrays[name]) if found["index"] and name in arrays else self.variables.expand(name)
        if operator is None:
            return value
        missing = not value if operator[0] == ":" else name not in self.variables.values
        if operator[-1] == "+":
            return "" if missing else self._fallback(rest)
        if not missing:
            return value
        if operator[-1] == "=":
            self.variables.values[name] = self._fallback(rest)
        return UNKNOWN if operator[-1] == "?" else self._fallback(rest)

    def _fallback(self, text: str) -> str:
        fields = [""]
        Reader(text.strip("\"'"), self.variables)._quoted(fields)
        return " ".join(fields)


def _append(fields: list[str], value: str | list[str], split: bool) -> None:
    parts = value if isinstance(value, list) else re.split(r"[ \t\n]+", value) if split else [value]
    fields[-1] += parts[0] if parts else ""
    fields += parts[1:]
