"""Acceptance from what the engine itself counts: its metrics page, differenced over the run, or lines of its log.

Engines tell different things. Where the page counts drafts, drafted and accepted tokens, both the rate and the mean length follow. Where it
counts only the rounds, the length follows from the tokens that the client got. Never raises, whatever the page.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from firsttoken.model.speculation import Acceptance

_LINE = re.compile(r"([A-Za-z_:][\w:]*)(\{[^\n]*\})?[ \t]+(\S+)")
_POSITION = re.compile(r'[{,]position="(\d{1,3})"')
_MOST_POSITIONS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Since the server's start, or a difference. `by_position`: accepted drafts whose position is at least this one. None: not told."""

    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    by_position: tuple[float, ...] = ()

    def since(self, before: "Counts") -> "Counts":
        length = max(len(self.by_position), len(before.by_position))
        mine, theirs = (values + (0.0,) * (length - len(values)) for values in (self.by_position, before.by_position))
        return Counts(
            drafts=_less(self.drafts, before.drafts),
            drafted=_less(self.drafted, before.drafted),
            accepted=_less(self.accepted, before.accepted),
            by_position=tuple(max(0.0, one - other) for one, other in zip(mine, theirs, strict=True)),
        )

    @property
    def rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted and self.accepted is not None else None

    @property
    def known(self) -> bool:
        return self.drafts is not None or self.drafted is not None


def read(page: bytes, names: Mapping[str, str]) -> Counts:
    """`names`: metric names by the profile's `drafts`, `draft_tokens`, `accepted_tokens`, `accepted_by_position`."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    wanted = {names.get(ours) for ours in ("drafts", "draft_tokens", "accepted_tokens")} - {None}
    for line in page.decode("utf8", "replace").splitlines():
        if line.startswith("#") or (found := _LINE.match(line)) is None:
            continue
        name, labels = found[1], found[2] or ""
        if name not in wanted and name != names.get("accepted_by_position"):
            continue
        value = _float(found[3])
        if value is None:
            continue
        if name in wanted:
            sums[name] = sums.get(name, 0.0) + value
        elif (place := _POSITION.search(labels)) is not None and int(place[1]) < _MOST_POSITIONS:
            positions[int(place[1])] = positions.get(int(place[1]), 0.0) + value
    return Counts(
        drafts=sums.get(names.get("drafts", "")),
        drafted=sums.get(names.get("draft_tokens", "")),
        accepted=sums.get(names.get("accepted_tokens", "")),
        by_position=tuple(positions.get(place, 0.0) for place in range(max(positions, default=-1) + 1)),
    )


def total(counts: Iterable[Counts]) -> Counts:
    summed = Counts()
    for one in counts:
        length = max(len(summed.by_position), len(one.by_position))
        mine, theirs = (values + (0.0,) * (length - len(values)) for values in (summed.by_position, one.by_position))
        summed = Counts(
            drafts=_plus(summed.drafts, one.drafts),
            drafted=_plus(summed.drafted, one.drafted),
            accepted=_plus(summed.accepted, one.accepted),
            by_position=tuple(a + b for a, b in zip(mine, theirs, strict=True)),
        )
    return summed


def acceptance(
    counts: Counts, by_request: Sequence[Counts] = (), *, tokens: int, requests: int, draft_tokens: int | None
) -> Acceptance | None:
    """`tokens` that the client got in `requests` answers; `draft_tokens` a round where told. None: nothing was counted."""
    rates = [rate for one in by_request if (rate := one.rate) is not None]
    mean = sum(rates) / len(rates) if rates else None
    if counts.drafted and counts.accepted is not None:
        drafts = counts.drafts or None
        return Acceptance(
            source="the engine's counters",
            rate=counts.accepted / counts.drafted,
            length=1 + counts.accepted / drafts if drafts else None,
            by_position=tuple(value / drafts for value in counts.by_position) if drafts else (),
            drafts=round(drafts) if drafts else None,
            drafted=round(counts.drafted),
            accepted=round(counts.accepted),
            by_requests=mean,
            requests=len(rates),
        )
    if counts.drafts == 0:
        return Acceptance(source="the engine's counters", drafts=0, drafted=0, accepted=0)
    if counts.drafts:
        # an answer's first token comes from its prompt; each round after that brings the accepted ones and one more
        length = max(1.0, (tokens - requests) / counts.drafts)
        drafted = counts.drafts * draft_tokens if draft_tokens else None
        return Acceptance(
            source="the engine's count of rounds and the tokens that the client got",
            rate=min(1.0, (length - 1) / draft_tokens) if draft_tokens else None,
            length=length,
            drafts=round(counts.drafts),
            drafted=round(drafted) if drafted else None,
            accepted=round((length - 1) * counts.drafts),
        )
    return None


def from_lines(lines: Iterable[str], pattern: str) -> Acceptance | None:
    """From the engine's log, by a regex with some of the groups length, rate, accepted, drafted. Lines without counts weigh alike."""
    accepted = drafted = 0
    lengths: list[float] = []
    rates: list[float] = []
    seen = 0
    for line in lines:
        found = re.search(pattern, line)
        if found is None:
            continue
        seen += 1
        groups = found.groupdict()
        accepted += int(_float(groups.get("accepted")) or 0)
        drafted += int(_float(groups.get("drafted")) or 0)
        lengths += [value] if (value := _float(groups.get("length"))) is not None else []
        rates += [value] if (value := _float(groups.get("rate"))) is not None else []
    if not seen:
        return None
    mean = sum(rates) / len(rates) if rates else None
    return Acceptance(
        source=f"{seen} lines of the engine's log",
        rate=accepted / drafted if drafted else mean,
        length=sum(lengths) / len(lengths) if lengths else None,
        drafted=drafted or None,
        accepted=accepted if drafted else None,
    )


def from_stream(tokens: int, requests: int, events: int) -> Acceptance | None:
    """The last resort: engines send one piece of text a round, so tokens a piece is the mean length. None where nothing can be told so."""
    rounds = events - requests
    if rounds <= 0 or tokens <= events:
        return None
    return Acceptance(source="pieces of the stream, one a round (an estimate)", length=(tokens - requests) / rounds, drafts=rounds)


def _float(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _less(after: float | None, before: float | None) -> float | None:
    """A counter that began again counts from there."""
    if after is None:
        return None
    return after - before if before is not None and after >= before else after


def _plus(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
