"""A start as it stands, in the lines at the foot of a terminal: a pure function of the result, the moment and the terminal's size.

What matters most stays when room is short: the verdict and its reason first, then the phases that are open, ranks that differ, what moves.
No line is wider than `width`, there are never more than `height`, and with `unicode` off nothing but ASCII is in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from rich.text import Text

from firsttoken.model.result import PhaseRow, RankGroup, Result
from firsttoken.model.words import OPEN_VERDICTS, Phase, Verdict

SILENCE = 5.0
"""Seconds without an event, of which there is one a second, after which the view says so."""
_LABEL = 7
_NARROW = 60
_MOST_ROWS = 3
_STYLES = {
    Verdict.STARTING: "bold cyan",
    Verdict.SLOW: "bold yellow",
    Verdict.WAITING: "bold yellow",
    Verdict.STALLED: "bold magenta",
    Verdict.READY: "bold green",
    Verdict.UNKNOWN: "bold yellow",
}
_BAD = "bold red"
_ASCII = {
    "…": "...",
    "·": "-",
    "—": "-",
    "–": "-",
    "─": "-",
    "→": "->",
    "█": "#",
    "░": ".",
    "≈": "~",
    "×": "x",
    "“": '"',
    "”": '"',
    "’": "'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a result does not hold, since it is gone a second later.

    `since_s`: seconds since the result's last event. `cores`, `child_cores`: CPU seconds a second of live and of reaped processes.
    `signals`: what moved last. `places`: ranks by the phase that they are in. `last_line`: the log's last line that said something new;
    `open_line`: the line that the server has not ended yet. `usual`: mean seconds of the phases of earlier runs of the like.
    """

    since_s: float = 0.0
    cores: float = 0.0
    child_cores: float = 0.0
    bytes_per_s: float = 0.0
    signals: tuple[str, ...] = ()
    places: tuple[RankGroup, ...] = ()
    last_line: str = ""
    open_line: str = ""
    usual: Mapping[Phase, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    """`rank`: rows with the highest go first when there is no room. The label is shown where it differs from that of the row above."""

    rank: int
    text: Text
    label: str | None = None


def live_lines(result: Result, moment: Moment, *, width: int, height: int, unicode: bool = True) -> list[Text]:
    """The lines, top to bottom, none wider than `width` cells."""
    open_ = result.verdict in OPEN_VERDICTS
    rows = [_Row(1, _head(result, moment, width)), *_verdict(result, width)]
    if open_:
        rows += [*_done(result, width), *_open(result, moment, width)]
    if result.verdict is Verdict.READY and result.endpoint.url:
        rows.append(_Row(2, Text(f"{result.endpoint.url}  model {result.endpoint.model or 'not told'}", style="bold"), "url"))
    if result.verdict is not Verdict.READY:
        rows += _ranks(result, moment)
    rows += _pulse(result, moment, width, open_)
    if open_:
        rows += [*_log(moment), *_left(result, moment, width), *_timers(result, moment, width)]
    elif result.verdict is not Verdict.READY:
        rows += [_Row(6, Text(_plain(fact)), "proof") for fact in result.proof[:2]]
    return [_cut(text, width, unicode) for text in _labelled(_fitting(rows, height))]


def span(seconds: float) -> str:
    """`9.4 s`, `12 min 05 s`, `2 h 05 min`"""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def ranks_text(ranks: Iterable[int]) -> str:
    """`0-2, 4-7`"""
    runs = [[rank for _, rank in group] for _, group in groupby(enumerate(sorted(ranks)), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def seconds_left(result: Result, moment: Moment) -> float | None:
    """Until ready, as earlier runs went; weights at the present rate where it is known. None without earlier runs."""
    if not moment.usual:
        return None
    spent = {row.name: (row.seconds, _spent(result, moment, row)) for row in result.phases}
    left = 0.0
    for phase, usual in moment.usual.items():
        seconds, so_far = spent.get(phase, (None, 0.0))
        if phase is Phase.WEIGHTS and result.eta_s is not None:
            left += max(result.eta_s - moment.since_s, 0.0)
        elif seconds is None:
            left += max(usual - so_far, 0.0)
    return left


def _head(result: Result, moment: Moment, width: int) -> Text:
    version = f" {result.engine.version}" if result.engine.version else ""
    name = f"{result.engine.name or 'engine not known yet'}{version}"
    left = f"── {name} " if width < _NARROW else f"── firsttoken · {name} "
    right = f" {span(_elapsed(result, moment))} ──"
    return Text(left + "─" * max(width - len(left) - len(right), 1) + right, style="dim")


def _verdict(result: Result, width: int) -> list[_Row]:
    """The reason is never cut where two lines (three on a narrow terminal) hold it."""
    word = result.verdict.upper()
    lines = _wrapped(f"{word}  {_plain(result.reason)}", width, 3 if width < _NARROW else 2)
    first = Text(lines[0])
    first.stylize(_STYLES.get(result.verdict, _BAD), 0, len(word))
    return [_Row(0, first), *(_Row(2, Text(line)) for line in lines[1:])]


def _done(result: Result, width: int) -> list[_Row]:
    """The latest last; of several lines the last are kept."""
    parts = [f"{row.name} {span(row.seconds)}" for row in result.phases if row.seconds is not None]
    lines = _spread(parts, width, " · ")[-_MOST_ROWS:]
    return [_Row(8 + len(lines) - number, Text(line, style="green"), "done") for number, line in enumerate(lines)]


def _open(result: Result, moment: Moment, width: int) -> list[_Row]:
    """`weights 22.0 s ███░░░ 19%  12/64 shards, 1.2 GB of 3.4 GB, 120.0 MB/s`; what does not fit goes below."""
    rows = []
    for row in [row for row in result.phases if row.seconds is None][:_MOST_ROWS]:
        share, parts = _share(result, row)
        spent, usual = _spent(result, moment, row), moment.usual.get(row.name)
        if usual is not None:
            parts.append(f"usually {span(usual)}")
            share = spent / usual if share is None and spent < usual else share  # beyond it nothing tells how much is left
        text = Text(f"{row.name} {span(spent)}")
        if share is not None:
            room = width - _LABEL - text.cell_len - len(" 100%") - 1
            cells = max(min(10 if width < _NARROW else 20 if width < 120 else 40, room), 0)
            full = round(cells * min(max(share, 0.0), 1.0))
            text.append(" ").append("█" * full, style="cyan").append("░" * (cells - full), style="dim").append(f" {share:4.0%}")
        beside = f"  {', '.join(parts)}" if parts else ""
        if text.cell_len + len(beside) <= width - _LABEL:
            rows.append(_Row(3, text.append(beside), "phase"))
            continue
        rows.append(_Row(3, text, "phase"))
        rows += [_Row(5, Text(line), "phase") for line in _spread(parts, width, ", ")[:2]]
    return rows


def _share(result: Result, row: PhaseRow) -> tuple[float | None, list[str]]:
    """How much of the phase is done, 0 to 1, where it can be told, and in words."""
    w, world = result.weights, result.world_size or 1
    if row.name is Phase.WEIGHTS and (w.shards or w.bytes):
        share = (w.shards_done or 0) / w.shards if w.shards else None
        parts = [f"{w.shards_done or 0}/{w.shards} shards"] if w.shards else []
        if w.bytes and w.bytes_done is not None:
            share = w.bytes_done / w.bytes
            parts.append(f"{_size(w.bytes_done)} of {_size(w.bytes)}")
        return share, [*parts, f"{_size(w.bytes_per_s)}/s"] if w.bytes_per_s else parts
    if world > 1 and row.ranks_done:
        return row.ranks_done / world, [f"{row.ranks_done} of {world} ranks are done"]
    return None, []


def _ranks(result: Result, moment: Moment) -> list[_Row]:
    """Groups by their stacks where they were taken, else by phase; the smallest group, the odd one out, first."""
    found = result.ranks.groups if len(result.ranks.groups) > 1 else moment.places if len(moment.places) > 1 else ()
    behind = set(result.ranks.behind)
    rows = []
    if behind:
        rows.append(_Row(4, Text(f"{ranks_text(behind)} {'is' if len(behind) == 1 else 'are'} behind", style=_BAD), "ranks"))
    for number, group in enumerate(sorted(found, key=lambda group: (len(group.ranks), group.ranks))[:4]):
        odd = behind & set(group.ranks) or (not behind and number == 0)
        text = Text(f"{ranks_text(group.ranks)}: {_plain(group.where)}", style="bold" if odd else "")
        rows.append(_Row(5 if number < 2 else 11, text, "ranks"))
    return rows


def _pulse(result: Result, moment: Moment, width: int, open_: bool) -> list[_Row]:
    if _has_ended(result):
        return []
    if open_ and moment.since_s > SILENCE:
        return [_Row(4, Text(f"no news from the observer for {span(moment.since_s)}", style="yellow"), "pulse")]
    parts = [f"{moment.cores:.1f} cores busy", f"{_size(moment.bytes_per_s)}/s"]
    if moment.child_cores >= 0.05:
        parts.append(f"children {moment.child_cores:.1f} cores")
    still = result.still_s or 0.0
    if still >= 2:
        parts.append(f"nothing moved for {span(still)}")
    elif open_ and moment.signals:
        parts.append(f"moving: {' '.join(moment.signals)}")
    return [_Row(6 if number == 0 else 9, Text(line), "pulse") for number, line in enumerate(_spread(parts, width, ", ")[:2])]


def _log(moment: Moment) -> list[_Row]:
    lines = ((7, "log", moment.last_line), (10, "line", moment.open_line))
    return [_Row(rank, Text(_plain(line)), label) for rank, label, line in lines if _plain(line)]


def _left(result: Result, moment: Moment, width: int) -> list[_Row]:
    """Nothing where nothing moves: what took as long before says nothing then."""
    if result.verdict not in (Verdict.STARTING, Verdict.SLOW):
        return []
    parts = []
    if result.eta_s is not None:
        parts.append(f"weights in {span(max(result.eta_s - moment.since_s, 0.0))}")
    left = seconds_left(result, moment)
    if left is not None:
        parts.append(f"token in {span(left)} by earlier runs" if left > 0 else "earlier runs took less")
    return [_Row(9, Text(line), "left") for line in _spread(parts, width, ", ")]


def _timers(result: Result, moment: Moment, width: int) -> list[_Row]:
    running = [(max(timer.fires_in_s - moment.since_s, 0.0), timer) for timer in result.timers if timer.fires_in_s is not None]
    soonest = sorted(running, key=lambda pair: pair[0])[:2]
    parts = [f"{timer.name} {timer.seconds:.0f} s ends it in {span(left)}" for left, timer in soonest]
    return [_Row(9 + number, Text(line), "timer") for number, line in enumerate(_spread(parts, width, ", "))]


def _has_ended(result: Result) -> bool:
    return result.exit.code is not None or result.exit.signal is not None


def _elapsed(result: Result, moment: Moment) -> float:
    return (result.elapsed_s or 0.0) + (0.0 if _has_ended(result) else moment.since_s)


def _spent(result: Result, moment: Moment, row: PhaseRow) -> float:
    return row.seconds if row.seconds is not None else max(_elapsed(result, moment) - row.began_s, 0.0)


def _labelled(rows: list[_Row]) -> Iterable[Text]:
    above: str | None = None
    for row in rows:
        shown = "" if row.label == above else row.label or ""
        yield row.text if row.label is None else Text.assemble((f"{shown:<{_LABEL}}", "dim"), row.text)
        above = row.label


def _spread(parts: list[str], width: int, between: str) -> list[str]:
    """Joined, and broken between parts only, so that numbers are not cut where there is a line for them."""
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}{between}{part}" if lines else part
        if lines and len(joined) <= width - _LABEL:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _fitting(rows: list[_Row], height: int) -> list[_Row]:
    kept = list(rows)
    while len(kept) > max(height, 1):
        worst = max(row.rank for row in kept)
        del kept[max(number for number, row in enumerate(kept) if row.rank == worst)]
    return kept


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """At words; what does not fit into `most` lines hangs over the last, where it is cut."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if len(joined) > width and lines[-1] and len(lines) < most:
            lines.append(f"  {word}")
        else:
            lines[-1] = joined
    return lines


def _cut(text: Text, width: int, unicode: bool) -> Text:
    if not unicode:
        text = _ascii(text)
    if text.cell_len <= width:
        return text
    dots = "…" if unicode else "..."
    text.truncate(max(width - len(dots), 0), overflow="crop")
    return text.append(dots[:width])


def _ascii(text: Text) -> Text:
    """The same with its styles, piece by piece: a replacement may be longer than what it replaces."""
    out = Text(style=text.style)
    for number, char in enumerate(text.plain):
        styles = [span_.style for span_ in text.spans if span_.start <= number < span_.end]
        plain = _ASCII.get(char, char) if not char.isascii() else char
        out.append(plain if plain.isascii() else "?", style=styles[-1] if styles else None)
    return out


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _size(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
