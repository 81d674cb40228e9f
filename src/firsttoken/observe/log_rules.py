"""A profile's patterns as rules that are found fast: by the words of a line, then by the regex on its message."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from re import Match, sub

from firsttoken.knowledge.profile import Chatter, ErrorLine, Fact, Milestone, Profile, compiled
from firsttoken.observe.log_anchors import anchor

Item = Milestone | Fact | ErrorLine | Chatter

DIGITS = b"0123456789" + bytes(range(128, 256))
"""Lines that differ in these only have one shape, whose rules are looked up once: no rule may be ruled out by them."""

_TEXTS = frozenset({"version", "model", "url", "name", "what", "text", "error", "detail", "program", "nccl", "filesystem", "process"})
"""Values that stay text though they may look like numbers."""


class Kind(StrEnum):
    MILESTONE = "milestone"
    FACT = "fact"
    ERROR = "error"
    CHATTER = "chatter"
    ENGINE = "engine"


@dataclass(frozen=True, eq=False)
class Rule:
    """One pattern. `number` orders rules as the profile does; `name` is the item's id, or the engine that it names."""

    number: int
    kind: Kind
    name: str
    pattern: str
    item: Item | None = None

    @cached_property
    def exact(self) -> bool:
        """Whether digits in the text may decide a match, so that lines which differ only in digits must be tried one by one."""
        plain = sub(r"\\.|0-9|\{[\d,]+\}|\(\?P<\w+>", "", self.pattern)
        return any(char.isdigit() for char in plain) or "(?!" in self.pattern

    def search(self, message: str) -> Match[str] | None:
        return compiled(self.pattern).search(message)


class RuleBook:
    """The rules that are in force, with the index that finds those which may match a line."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_word: dict[bytes, list[tuple[Rule, tuple[bytes, ...]]]] = {}
        self._by_part: list[tuple[bytes, Rule]] = []
        self._always: list[Rule] = []
        for rule in rules:
            found = anchor(rule.pattern)
            parts = tuple(part.encode().translate(None, DIGITS) for part in sorted(found.parts))
            parts = parts if all(parts) else ()
            for word in found.words:
                self._by_word.setdefault(word.encode(), []).append((rule, parts))
            if not found.words and parts:
                self._by_part.extend((part, rule) for part in parts)
            if not found.words and not parts:
                self._always.append(rule)
        self._words = frozenset(self._by_word)

    def candidates(self, content: bytes) -> list[Rule]:
        """All rules that may match this line or another that differs from it in digits only, in their order; nearly always none."""
        words = content.translate(_LETTERS).split()
        content = content.translate(None, DIGITS)
        found = list(self._always)
        if not self._words.isdisjoint(words):
            for word in self._words.intersection(words):
                for rule, parts in self._by_word[word]:
                    if not parts or any(part in content for part in parts):
                        found.append(rule)
        for part, rule in self._by_part:
            if part in content:
                found.append(rule)
        return sorted(set(found), key=lambda rule: rule.number) if len(found) > 1 else found


def rules_of(profile: Profile, start: int) -> list[Rule]:
    """A profile's patterns as rules, numbered from `start`."""
    sources: list[tuple[Kind, Item]] = [
        *((Kind.CHATTER, item) for item in profile.chatter),
        *((Kind.MILESTONE, item) for item in profile.milestones),
        *((Kind.ERROR, item) for item in profile.errors),
        *((Kind.FACT, item) for item in profile.facts),
    ]
    return [
        Rule(number=start + index, kind=kind, name=item.id, pattern=item.pattern, item=item) for index, (kind, item) in enumerate(sources)
    ]


def engine_rules(profiles: Mapping[str, Profile], start: int) -> list[Rule]:
    """What names an engine in a log, for a log of an unknown one."""
    lines = [(profile.name, line) for profile in profiles.values() for line in profile.recognise.lines]
    return [Rule(number=start + index, kind=Kind.ENGINE, name=name, pattern=line) for index, (name, line) in enumerate(lines)]


def values_of(match: Match[str]) -> dict[str, str | float]:
    """Named groups as values: numbers where they look like one (`65,536` too), `gib` as bytes."""
    values: dict[str, str | float] = {}
    for name, text in match.groupdict().items():
        if text is None:
            continue
        number = None if name in _TEXTS else _number(text)
        if name == "gib" and number is not None:
            values["bytes"] = number * 2**30
        else:
            values[name] = text if number is None else number
    return values


def _number(text: str) -> float | None:
    plain = text.replace(",", "")
    if not plain.isascii() or len(plain) > 30 or plain.strip("+-.0123456789"):
        return None
    try:
        return float(plain)
    except ValueError:
        return None


_LETTERS = bytes(code if chr(code).isalpha() and code < 128 else 32 for code in range(256))
