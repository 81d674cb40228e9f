"""Which words a line must hold for a regex to match it: the key to reading 100,000 lines a second against a hundred patterns.

A pattern `Loading weights took (?P<seconds>[\\d.]+) seconds` can only match lines with the word `weights`. One set lookup over a
line's words tells for all patterns at once that none can match, which is so for nearly every line. The reading of regexes here is
conservative: what it does not understand gives no word; a pattern without a word falls back to a substring, and without one is tried
on every new line.
"""

from dataclasses import dataclass, field
from functools import lru_cache

_NOT_LETTERS = frozenset("dsAZ")
_ZERO_WIDTH = ("(?=", "(?!", "(?<=", "(?<!")


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A line that matches holds one of `words` (whole runs of ASCII letters) and one of `parts` (substrings). Empty: unknown."""

    words: frozenset[str] = field(default_factory=frozenset)
    parts: frozenset[str] = field(default_factory=frozenset)


@lru_cache(maxsize=4096)
def anchor(pattern: str) -> Anchor:
    words = _required(pattern, left=False, right=False, whole=True)
    parts = _required(pattern, left=False, right=False, whole=False)
    return Anchor(words=words or frozenset(), parts=parts or frozenset())


@dataclass(frozen=True, slots=True)
class _Item:
    """`text`: a literal character; `inner`: a required group; `edge`: surely no letter here; none of them: anything or nothing."""

    text: str = ""
    inner: str | None = None
    edge: bool = False


def _required(pattern: str, *, left: bool, right: bool, whole: bool) -> frozenset[str] | None:
    """One of these must occur; None where nothing is certain. `left`, `right`: no letter can stand directly beside the pattern."""
    found: set[str] = set()
    for alternative in _alternatives(pattern):
        best = _best(_items(alternative), left=left, right=right, whole=whole)
        if best is None:
            return None
        found |= best
    return frozenset(found)


def _best(items: list[_Item], *, left: bool, right: bool, whole: bool) -> frozenset[str] | None:
    options: list[frozenset[str]] = []
    index = 0
    while index < len(items):
        item = items[index]
        before = _closed(items, index - 1, left)
        if item.inner is not None:
            inner = _required(item.inner, left=before, right=_closed(items, index + 1, right), whole=whole)
            if inner:
                options.append(inner)
            index += 1
            continue
        stop = index
        while stop < len(items) and items[stop].text and (not whole or _letter(items[stop].text)):
            stop += 1
        run = "".join(item.text for item in items[index:stop])
        if run and (not whole or (before and _closed(items, stop, right))) and run.strip():
            options.append(frozenset({run}))
        index = max(stop, index + 1)
    usable = [option for option in options if min(map(len, option)) >= 2]
    return max(usable, key=lambda option: (min(map(len, option)), -len(option)), default=None)


def _closed(items: list[_Item], index: int, outside: bool) -> bool:
    """Whether the place `index` surely holds no letter; beyond either end `outside` tells."""
    if not 0 <= index < len(items):
        return outside
    item = items[index]
    return item.edge or (bool(item.text) and not _letter(item.text))


def _letter(char: str) -> bool:
    return char.isascii() and char.isalpha()


def _alternatives(pattern: str) -> list[str]:
    parts, depth, start, index = [], 0, 0, 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif char == "[":
            index = _class_end(pattern, index)
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(pattern[start:index])
            start = index + 1
        index += 1
    return [*parts, pattern[start:]]


def _items(sequence: str) -> list[_Item]:
    items: list[_Item] = []
    index = 0
    while index < len(sequence):
        item, index = _item(sequence, index)
        optional, repeated, index = _quantifier(sequence, index)
        if optional:
            items.append(_Item())
        elif repeated and item.text and _letter(item.text):
            items.extend((item, _Item()))
        elif repeated and item.text:
            items.append(_Item(edge=True))
        else:
            items.append(item)
    return items


def _item(sequence: str, index: int) -> tuple[_Item, int]:
    char = sequence[index]
    if char == "\\":
        following = sequence[index + 1 : index + 2]
        if following.isalpha():
            return _Item(edge=following in _NOT_LETTERS or following == "b"), index + 2
        return (_Item() if following.isdigit() else _Item(text=following)), index + 2
    if char == "[":
        end = _class_end(sequence, index)
        return _Item(), end + 1
    if char == "(":
        end = _group_end(sequence, index)
        return _group(sequence[index : end + 1]), end + 1
    if char in "^$":
        return _Item(edge=True), index + 1
    return (_Item() if char == "." else _Item(text=char)), index + 1


def _group(text: str) -> _Item:
    if text.startswith("(?P<"):
        return _Item(inner=text[text.index(">") + 1 : -1])
    if text.startswith("(?:"):
        return _Item(inner=text[3:-1])
    if text.startswith(_ZERO_WIDTH) or text.startswith("(?"):
        return _Item()
    return _Item(inner=text[1:-1])


def _quantifier(sequence: str, index: int) -> tuple[bool, bool, int]:
    """Whether what stands before may be absent, whether it may repeat, and where reading goes on."""
    char = sequence[index : index + 1]
    optional = repeated = False
    if char and char in "?*+":
        optional, repeated = char in "?*", char in "*+"
        index += 1
    elif char == "{" and (end := sequence.find("}", index)) > 0:
        low = sequence[index + 1 : end].split(",")[0]
        optional, repeated = low in ("", "0"), True
        index = end + 1
    if (optional or repeated) and sequence[index : index + 1] in ("?", "+"):
        index += 1
    return optional, repeated, index


def _class_end(text: str, start: int) -> int:
    index = start + 1
    if text[index : index + 1] == "^":
        index += 1
    if text[index : index + 1] == "]":
        index += 1
    while index < len(text) and text[index] != "]":
        index += 2 if text[index] == "\\" else 1
    return index


def _group_end(text: str, start: int) -> int:
    depth, index = 0, start
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 1
        elif char == "[":
            index = _class_end(text, index)
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return len(text) - 1
