"""A server's output into events: only lines that match a pattern become one; of all others it is counted whether they say something new.

Reading is pure: the same bytes give the same events, however they were cut. Most lines cost one dictionary lookup: a line's *shape*
(its text without digits) decides which patterns may match it, and shapes repeat. `LogLine.text` is the masked message without prefixes.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from firsttoken.knowledge.load import generic
from firsttoken.knowledge.profile import ErrorLine, Fact, Milestone, Profile
from firsttoken.model.events import LogActivity, LogLine
from firsttoken.model.process import RankTag
from firsttoken.model.redact import mask_text
from firsttoken.model.words import Edge
from firsttoken.observe.log_lines import BAR_ENDS, Line, LineSplitter, strip_ansi, unglue
from firsttoken.observe.log_memory import Memory, Seen
from firsttoken.observe.log_prefixes import Peeled, Peeler
from firsttoken.observe.log_rules import DIGITS, Kind, Rule, RuleBook, engine_rules, rules_of, values_of
from firsttoken.observe.log_versions import in_range

MAX_TEXT = 1000
"""Characters of a line that an event carries."""
MAX_EVENTS = 2000
"""Events that one pattern may make in a run; a storm of matching lines must not become a storm of events."""
_BACKLOG = 400
_SHAPES = 16384

_VARIES = b"0123456789abcdefABCDEF \t#" + bytes(range(128, 256))
"""What varies between lines that say the same: numbers, hexadecimal ids, padding, the blocks of a bar."""
_NONE: tuple[Rule, ...] = ()


class LogReader:
    """Feed it a log's bytes in order. `engine` None: to be recognised from the lines; what was read before is then read again."""

    def __init__(self, profiles: Mapping[str, Profile], engine: str | None, *, year: int) -> None:
        self._profiles = profiles
        self._splitter = LineSplitter()
        self._common = generic()
        self._peeler = Peeler(self._common, None, year)
        self._backlog: deque[Line] | None = None
        self._told: deque[tuple[int, str | None]] = deque(maxlen=_BACKLOG)
        self._spent: dict[int, int] = {}
        self._seen_ids: set[str] = set()
        self._said = Seen(_SHAPES)
        self._bytes = self._lines = self._fresh = 0
        self._last: bytes = b""
        self.engine: str | None = None
        """the engine whose profile is used"""
        self.version: str | None = None
        """as the log tells it"""
        self._use(engine)
        if self.engine is None:
            self._backlog = deque(maxlen=_BACKLOG)

    def feed(self, data: bytes, offset: int, wall: float) -> list[LogLine]:
        """Events of the lines that `data`, at byte `offset` of the log, finishes. Never raises. `wall` is when it came, Unix seconds."""
        self._bytes += len(data)
        return self._read(self._splitter.feed(data, offset))

    def flush(self) -> list[LogLine]:
        """Events of an unfinished last line: for the end of a file, and for a log that has gone quiet in the middle of a line."""
        return self._read(self._splitter.flush())

    def activity(self) -> LogActivity | None:
        """What came since it was asked last; None where nothing did."""
        if not self._bytes and not self._lines:
            return None
        last = mask_text(self._peel(self._last).message[:MAX_TEXT]) if self._last else ""
        told = LogActivity(bytes=self._bytes, lines=self._lines, fresh=self._fresh, offset=self._splitter.end, last=last)
        self._bytes = self._lines = self._fresh = 0
        self._last = b""
        return told

    def _read(self, lines: list[Line]) -> list[LogLine]:
        found: list[LogLine] = []
        shapes, backlog = self._shapes, self._backlog
        self._lines += len(lines)
        one, two = BAR_ENDS
        if any(one in line[2] or two in line[2] for line in lines):
            lines = [part for line in lines for part in (unglue(line) if one in line[2] or two in line[2] else (line,))]
        for line in lines:
            if backlog is not None:
                backlog.append(line)
            content = line[2]
            shape = hash(content.translate(None, DIGITS))
            rules = shapes.get(shape)
            if rules is None or rules:
                if rules is None:
                    self._meet(line, shape, found)
                else:
                    kept, _ = self._match(line, strip_ansi(content), rules, found)
                    if kept != rules and shapes is self._shapes:
                        shapes.put(shape, kept)
                shapes, backlog = self._shapes, self._backlog
        return found

    def _meet(self, line: Line, shape: int, found: list[LogLine]) -> None:
        """A shape that was not seen before, or not for long."""
        content = strip_ansi(line[2])
        new = self._said.first(hash(content.translate(None, _VARIES)))
        rules: tuple[Rule, ...] = tuple(self._book.candidates(content))
        if rules:
            book = self._book
            rules, quiet = self._match(line, content, rules, found)
            if self._book is not book:
                return
            new = new and not quiet
        self._shapes.put(shape, rules)
        if new:
            self._count(content)

    def _match(self, line: Line, content: bytes, rules: tuple[Rule, ...], found: list[LogLine]) -> tuple[tuple[Rule, ...], bool]:
        """The rules worth trying on the next line of this shape, and whether the line is counted already or is chatter."""
        peeled = self._peel(content)
        hits = [(rule, match) for rule in rules if (match := rule.search(peeled.message)) is not None]
        if any(rule.kind is Kind.CHATTER for rule, _ in hits):
            return _without_lone_chatter(rule for rule in rules if rule.exact), True
        for rule, _ in hits:
            if rule.kind is Kind.ENGINE and self.engine is None:
                self._recognised(rule.name, found)
                return _NONE, True
        values = {rule: values_of(match) for rule, match in hits}
        moved = {rule for rule, told in values.items() if self._moves(rule, peeled.tag, told)}
        if moved:
            self._count(content)
        found.extend(self._events(line, peeled, values, moved))
        return _without_lone_chatter(rule for rule in rules if (rule in values or rule.exact) and not self._is_over(rule)), bool(moved)

    def _events(self, line: Line, peeled: Peeled, values: Mapping[Rule, dict[str, str | float]], moved: set[Rule]) -> list[LogLine]:
        facts: dict[str, str | float] = {}
        milestones: dict[str, tuple[Rule, Milestone]] = {}
        error: tuple[Rule, ErrorLine] | None = None
        named = False
        for rule, told in values.items():
            item = rule.item
            if isinstance(item, Milestone):
                news = item.edge is not Edge.INSIDE or rule in moved
                if news and self._applies(item, peeled) and not self._is_spent(rule):
                    milestones.setdefault(item.id, (rule, item))
            elif isinstance(item, ErrorLine):
                error = error or (rule, item)
            elif isinstance(item, Fact) and rule in moved and not item.quiet and not self._is_spent(rule):
                self._spend(rule)
                named = True
                facts |= {**told, **({"detail": item.detail} if item.detail else {})}
        if not milestones and error is None and not named:
            return []  # most lines of a bar: what moved is counted, and a text that nobody reads is not masked
        base = LogLine(
            offset=line[0], length=line[1], text=mask_text(peeled.message[:MAX_TEXT]), stamp=peeled.stamp, tag=peeled.tag, values=facts
        )
        events: list[LogLine] = []
        for rule, item in milestones.values():
            self._spend(rule)
            told = {**facts, **values[rule], **({"detail": item.detail} if item.detail else {})}
            events.append(
                replace(
                    base,
                    milestone=item.id,
                    phase=item.phase,
                    edge=item.edge,
                    scope=item.scope,
                    claims_ready=item.ready,
                    values=told,
                )
            )
        self._seen_ids.update(milestones)
        if error is not None and not self._is_spent(error[0]):
            self._spend(error[0])
            events.append(replace(base, error=error[1].id, fatal=error[1].fatal, values={**facts, **values[error[0]]}))
            if self._backlog is not None:
                self._told.append((line[0], error[1].id))
        if not events and named:
            events.append(base)
        self._learn_version(events)
        return events

    def _applies(self, item: Milestone, peeled: Peeled) -> bool:
        if item.after is not None and item.after not in self._seen_ids:
            return False
        if item.file is not None and (peeled.file is None or item.file not in peeled.file):
            return False
        return in_range(self.version, item.since, item.until) or not self._alternatives.get(item.id)

    def _learn_version(self, events: list[LogLine]) -> None:
        for event in events:
            told = event.values.get("version")
            if self.engine is not None and isinstance(told, str):
                self.version = told

    def _moves(self, rule: Rule, tag: RankTag | None, told: dict[str, str | float]) -> bool:
        """Whether a matched line says something new: the first of this rule from this rank, or another value."""
        if isinstance(rule.item, Milestone) and rule.item.after is not None and rule.item.after not in self._seen_ids:
            return False
        key = (rule.number, tag)
        if self._moved.get(key) == told:
            return False
        self._moved.put(key, told)
        return True

    def _count(self, content: bytes) -> None:
        self._fresh += 1
        self._last = content

    def _spend(self, rule: Rule) -> None:
        self._spent[rule.number] = self._spent.get(rule.number, 0) + 1

    def _is_spent(self, rule: Rule) -> bool:
        item = rule.item
        limit = 1 if isinstance(item, Milestone | Fact) and item.once else MAX_EVENTS
        return self._spent.get(rule.number, 0) >= limit

    def _is_over(self, rule: Rule) -> bool:
        """Whether the rule need not be tried any more; one that made its share of events still tells what moves."""
        return isinstance(rule.item, Milestone | Fact) and rule.item.once and self._is_spent(rule)

    def _peel(self, content: bytes) -> Peeled:
        return self._peeler.peel(content.decode("utf8", "replace").rstrip())

    def _use(self, engine: str | None) -> None:
        """Takes an engine's patterns into force; an unknown name is as none."""
        profile = self._profiles.get(engine) if engine is not None else None
        own = rules_of(profile, 0) if profile is not None else engine_rules(self._profiles, 0)
        self.engine = profile.name if profile is not None else None
        self._spent.clear()
        self._seen_ids.clear()
        self._moved: Memory[tuple[int, RankTag | None], dict[str, str | float]] = Memory(4096)
        self._book = RuleBook([*own, *rules_of(self._common, 100_000)])
        self._shapes: Memory[int, tuple[Rule, ...]] = Memory(_SHAPES)
        self._peeler.engine(self._common, profile)
        ids = [milestone.id for milestone in profile.milestones] if profile is not None else []
        self._alternatives = {name: ids.count(name) > 1 for name in ids}

    def _recognised(self, engine: str, found: list[LogLine]) -> None:
        """Reads the last lines again with the profile of the engine that they named; an error that was told already is not told twice."""
        backlog, self._backlog = list(self._backlog or ()), None
        fresh, told = self._fresh, set(self._told)
        self._use(engine)
        again: list[LogLine] = []
        for line in backlog:
            content = strip_ansi(line[2])
            self._match(line, content, tuple(self._book.candidates(content)), again)
        found.extend(event for event in again if event.error is None or (event.offset, event.error) not in told)
        self._fresh = fresh + 1


def _without_lone_chatter(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Chatter only silences other rules: by itself there is no need to look for it again."""
    kept = tuple(rules)
    return kept if any(rule.kind is not Kind.CHATTER for rule in kept) else _NONE
