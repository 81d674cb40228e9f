"""Reads shell text well enough to find the simple commands in it, without running anything.

One pass in the order of execution, so `MODEL=x` two lines up is known in `exec server "$MODEL" "$@"`. Command substitutions, loop
variables and assignments in a branch become `UNKNOWN` inside their words, and the reader of the word decides. Text beyond this grammar
gives the commands that could be read, or none.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from firsttoken.plan.lexer import Reader, Variables, Word
from firsttoken.plan.world import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """One command as the shell would start it. `env`: what it is given beside the shell's own environment. `folders`: what was changed
    into before, in order. `certain`: in no branch or loop, and not behind `||`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folders: tuple[str, ...] = ()
    certain: bool = True


def commands(
    text: str, env: Mapping[str, str], args: Sequence[str] = (), read_text: Callable[[str], str | None] = lambda _path: None
) -> tuple[SimpleCommand, ...]:
    """All simple commands of a script or a `-c` string, in order, builtins left out. `args`: `$0`, `$1`, …. `read_text` serves `source`."""
    shell = _Shell(env=env, variables=Variables.of(env, args), exported=set(env), read_text=read_text)
    return tuple(shell.run(text)) if len(text) <= _LIMIT else ()


_LIMIT = 200_000  # characters; what is longer is a program, not a wrapper
_SOURCED = 4  # depth of `source` within `source`
_INTO = frozenset({"if", "while", "until", "for", "select", "case"})
_OUT_OF = frozenset({"fi", "done", "esac"})
_GLUE = frozenset({"then", "else", "elif", "do", "{", "}", "!", "time", "function", "coproc"})
_DECLARE = frozenset({"export", "declare", "typeset", "local", "readonly"})
_SILENT = frozenset({
    ":", "[", "[[", "((", "test", "true", "false", "trap", "ulimit", "umask", "shopt", "wait", "return", "exit", "break", "eval",
})  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Shell:
    env: Mapping[str, str]
    variables: Variables
    exported: set[str]
    read_text: Callable[[str], str | None]
    export_all: bool = False
    depth: int = 0
    sourced: int = 0
    folders: list[str] = field(default_factory=list)

    def run(self, text: str) -> Iterator[SimpleCommand]:
        reader = Reader(text, self.variables)
        doubtful = False
        while True:
            words, end = reader.command()
            words = self._keywords(words)
            if words:
                yield from self._command(words, certain=self.depth == 0 and not doubtful)
            if end is None:
                return
            doubtful = end == "||"

    def _keywords(self, words: list[Word]) -> list[Word]:
        """The words without the keywords in front; empty where the rest is a loop's head."""
        while words and (keyword := words[0].keyword) and keyword in _INTO | _OUT_OF | _GLUE:
            words = words[1:]
            self.depth = max(0, self.depth + (keyword in _INTO) - (keyword in _OUT_OF))
            if keyword in ("for", "select", "case"):
                if keyword != "case" and words:
                    self.variables.values[words[0].head] = UNKNOWN
                return []
        return words

    def _command(self, words: list[Word], *, certain: bool) -> Iterator[SimpleCommand]:
        given: dict[str, str] = {}
        while words and (name := words[0].assigns):
            given[name[1]] = self._assigned(name, words[0])
            words = words[1:]
        if not words:
            for key, value in given.items():
                self._keep(key, value, certain)
            return
        argv = [one for word in words for one in word.fields]
        while argv and argv[0] in ("exec", "command", "builtin"):
            argv = argv[1:]
            while argv and argv[0].startswith("-"):
                argv = argv[2:] if argv[0] == "-a" else argv[1:]
        if not argv or argv[0] in _SILENT:
            return
        if argv[0] in ("source", "."):
            text = self.read_text(argv[1]) if len(argv) > 1 and self.sourced < _SOURCED else None
            self.sourced += 1
            yield from self.run(text or "")
            self.sourced -= 1
        elif not self._builtin(argv, words, certain):
            values = self.variables.values
            changed = {key: values[key] for key in self.exported if key in values and self.env.get(key) != values[key]}
            yield SimpleCommand(argv=tuple(argv), env=changed | given, folders=tuple(self.folders), certain=certain)

    def _assigned(self, name: re.Match[str], word: Word) -> str:
        key, adds = name[1], bool(name[2])
        if word.array is not None:
            self.variables.arrays[key] = (self.variables.arrays.get(key, []) if adds else []) + list(word.array)
            return " ".join(self.variables.arrays[key][:1])
        value = " ".join(word.fields)[name.end() :]
        return self.variables.values.get(key, "") + value if adds else value

    def _keep(self, key: str, value: str, certain: bool) -> None:
        values = self.variables.values
        values[key] = value if certain or values.get(key, "") == value else UNKNOWN
        if not certain and key in self.variables.arrays:
            self.variables.arrays[key].append(UNKNOWN)
        if self.export_all:
            self.exported.add(key)

    def _builtin(self, argv: list[str], words: list[Word], certain: bool) -> bool:
        """True where the shell does it itself."""
        match argv[0]:
            case declare if declare in _DECLARE:
                for word in words[1:]:
                    if name := word.assigns:
                        self._keep(name[1], self._assigned(name, word), certain)
                    if declare == "export" or "-x" in argv:
                        self.exported.update([name[1]] if name else word.fields)
            case "unset":
                for one in argv[1:]:
                    self.variables.values.pop(one, None)
                    self.variables.arrays.pop(one, None)
            case "cd" | "pushd":
                self.folders.append(argv[-1] if certain and len(argv) > 1 else UNKNOWN)
            case "shift":
                count = int(argv[1]) if argv[1:] and argv[1].isdecimal() else 1
                del self.variables.args[1 : 1 + count]
            case "set":
                self.export_all |= any(re.fullmatch(r"-\w*a\w*", one) for one in argv[1:])
                if "--" in argv:
                    self.variables.args[1:] = argv[argv.index("--") + 1 :]
            case _:
                return False
        return True
