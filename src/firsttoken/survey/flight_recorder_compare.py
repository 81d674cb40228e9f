"""Ranks' flight records side by side: who never entered a collective, on whom it does not end, and who does something else.

Sequence numbers of a group are the same on all its ranks, so two lists of them tell who is behind whom. In a hang nearly every rank misses
somewhere, since it waits elsewhere; the ranks to name are those that others wait for and that wait for nobody themselves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from firsttoken.model.collectives import Comparison, Disagreement, Discord, FlightRecord, Group, Operation

_SAME_SIZES = frozenset(
    {
        "all_reduce", "broadcast", "reduce", "_all_gather_base", "all_gather_single", "all_gather_into_tensor_coalesced",
        "_reduce_scatter_base", "reduce_scatter_single", "reduce_scatter_tensor_coalesced", "allreduce_coalesced",
    }
)  # fmt: skip
"""operations whose input has one shape on all ranks"""
_ONE_SIDED = frozenset({"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "scatter", "gather", "coalesced"})
"""operations that may end on one rank before another has entered them"""
_ALL = "default_pg"
_MOST_TOLD = 32


@dataclass(frozen=True, slots=True)
class _View:
    """One rank in one group. `head`: the first collective that it waits in; `entered`, `done`: its last ones, -1 for none."""

    by_seq: Mapping[int, Operation]
    head: int | None
    entered: int
    done: int


@dataclass(frozen=True, slots=True)
class _Team:
    """A group and those of its ranks whose records are here."""

    group: Group
    ranks: tuple[int, ...]
    views: Mapping[int, _View]

    @property
    def label(self) -> str:
        described = self.group.description
        return f"group {self.group.name}" + (f", {described}" if described and described != "undefined" else "")


def compare(records: Sequence[FlightRecord]) -> Comparison:
    """`behind` is empty where nobody can be singled out. Of several records of a rank the last counts; those without a rank do not."""
    by_rank = {record.rank: record for record in records if record.rank is not None}
    found: list[Disagreement] = []
    waits: dict[int, set[int]] = {}
    teams = _teams(by_rank)
    for team in teams:
        found += _missing(team, waits)
        found += _stuck(team)
        found += _mismatch(team, waits)
    found += _unanswered(by_rank, waits)
    named = {rank for one in found for rank in one.ranks}
    behind = {rank for rank in named if not waits.get(rank)}
    if named and not behind:
        behind = _circle(waits)
        if behind:
            text = f"{_list(sorted(behind))} entered their collectives in different orders: each waits for the other"
            found.insert(0, Disagreement(kind=Discord.ORDER, group="", seq=None, ranks=tuple(sorted(behind)), text=text))
    if not found:
        found = [one for team in teams if (one := _unfinished(team)) is not None]
    found.sort(key=lambda one: not behind & set(one.ranks))
    return Comparison(
        source="flight_recorder", ranks=tuple(sorted(by_rank)), behind=tuple(sorted(behind)), disagreements=tuple(found[:_MOST_TOLD])
    )


def _teams(by_rank: Mapping[int, FlightRecord]) -> list[_Team]:
    named: dict[str, list[int]] = {}
    for rank, record in by_rank.items():
        for name in record.groups:
            named.setdefault(name, []).append(rank)
    members: dict[tuple[str, tuple[int, ...]], tuple[Group, dict[int, _View]]] = {}
    for rank, record in by_rank.items():
        collectives: dict[str, list[Operation]] = {}
        for one in record.operations:
            if one.peers is None:
                collectives.setdefault(one.group, []).append(one)
        for name, group in record.groups.items():
            ranks = group.ranks or (tuple(sorted(by_rank)) if group.description == _ALL else tuple(sorted(named[name])))
            if len(ranks) > 1 and rank in ranks:
                members.setdefault((name, ranks), (group, {}))[1][rank] = _view(group, collectives.get(name, ()))
    return [_Team(group, ranks, views) for (_, ranks), (group, views) in members.items() if len(views) > 1]


def _view(group: Group, operations: Iterable[Operation]) -> _View:
    by_seq: dict[int, Operation] = {}
    for one in operations:
        by_seq.setdefault(one.seq, one)
    head = min((seq for seq, one in by_seq.items() if not one.completed), default=None)
    entered = max(by_seq, default=-1)
    entered = max(entered, group.enqueued if group.enqueued is not None else -1)
    return _View(by_seq, head, entered, entered if head is None else head - 1)


def _missing(team: _Team, waits: dict[int, set[int]]) -> list[Disagreement]:
    """For each set of ranks that are missing the first collective in which others wait for them."""
    found: dict[tuple[int, ...], tuple[int, list[int]]] = {}
    unseen = tuple(rank for rank in team.ranks if rank not in team.views)
    for rank, view in sorted(team.views.items()):
        seq = view.head
        if seq is None or _ended_elsewhere(team, rank, seq):
            continue
        late = tuple(other for other, its in sorted(team.views.items()) if its.entered < seq)
        if not late and 0 < len(unseen) < len(team.views):
            late = unseen
        if late:
            waits.setdefault(rank, set()).update(late)
            first, waiting = found.get(late, (seq, []))
            found[late] = (min(first, seq), [*waiting, rank])
    told = []
    for late, (seq, who) in found.items():
        operation = next(view.by_seq[seq].name for view in team.views.values() if seq in view.by_seq)
        hint = " (no record of it is here)" if set(late) <= set(unseen) else ""
        waits_in = f"{_list(who)} {'waits' if len(who) == 1 else 'wait'} in {operation} ({team.label}, number {seq})"
        text = f"{waits_in}; {_list(late)} {'has' if len(late) == 1 else 'have'} not entered it{hint}"
        told.append(Disagreement(kind=Discord.MISSING, group=team.group.name, seq=seq, ranks=late, others=tuple(who), text=text))
    return told


def _stuck(team: _Team) -> list[Disagreement]:
    """Ranks on which a collective does not end that ended elsewhere: their device, or the thread that watches it, stands still."""
    heads = {rank: view.head for rank, view in sorted(team.views.items()) if view.head is not None}
    stuck = {rank: head for rank, head in heads.items() if _ended_elsewhere(team, rank, head)}
    if not stuck:
        return []
    seq = min(stuck.values())
    ended = tuple(rank for rank, view in sorted(team.views.items()) if view.done >= seq and rank not in stuck)
    operation = next(view.by_seq[seq].name for view in team.views.values() if seq in view.by_seq)
    ranks = tuple(stuck)
    text = f"{operation} ({team.label}, number {seq}) ended on {_list(ended) or 'other ranks'} and does not end on {_list(ranks)}"
    return [Disagreement(kind=Discord.STUCK, group=team.group.name, seq=seq, ranks=ranks, others=ended, text=text)]


def _ended_elsewhere(team: _Team, rank: int, seq: int) -> bool:
    if team.views[rank].by_seq[seq].name in _ONE_SIDED:
        return False
    return any(view.done >= seq for other, view in team.views.items() if other != rank)


def _mismatch(team: _Team, waits: dict[int, set[int]]) -> list[Disagreement]:
    """The first open collective at which not all ranks do the same; the few are named, where they are fewer."""
    heads = [view.head for view in team.views.values() if view.head is not None]
    seqs = {seq for view in team.views.values() for seq in view.by_seq if heads and seq >= min(heads)}
    for seq in sorted(seqs):
        here = {rank: view.by_seq[seq] for rank, view in sorted(team.views.items()) if seq in view.by_seq}
        for kind, told in ((Discord.MISMATCH, _what), (Discord.SIZES, _sizes)):
            shown = {rank: told(one) for rank, one in here.items()}
            if len(set(shown.values())) < 2:
                continue
            counted = Counter(shown.values()).most_common()
            usual = counted[0][0]
            tie = counted[0][1] == counted[1][1]
            odd = tuple(rank for rank, value in shown.items() if tie or value != usual)
            rest = tuple(rank for rank in here if rank not in odd)
            if tie:
                for rank in odd:  # nobody to be singled out: each waits for the others
                    waits.setdefault(rank, set()).update(set(odd) - {rank})
            for rank in rest:
                waits.setdefault(rank, set()).update(odd)
            values = "; ".join(f"{_list([r for r, v in shown.items() if v == value])}: {value}" for value, _ in counted[:4])
            text = f"number {seq} of {team.label} is not the same on all ranks: {values}"
            return [Disagreement(kind=kind, group=team.group.name, seq=seq, ranks=odd, others=rest, text=text)]
    return []


def _what(one: Operation) -> str:
    return one.name


def _sizes(one: Operation) -> str:
    if one.name not in _SAME_SIZES:
        return one.name
    shapes = " ".join("×".join(map(str, shape)) or "()" for shape in one.inputs)
    return f"{one.name} of {shapes} {' '.join(dict.fromkeys(one.dtypes))}".rstrip()


def _unanswered(by_rank: Mapping[int, FlightRecord], waits: dict[int, set[int]]) -> list[Disagreement]:
    """Open sends and receives whose other side has none open with them."""
    open_pairs: dict[int, list[tuple[Operation, int, int]]] = {}
    for rank, record in by_rank.items():
        for one in record.operations:
            group = record.groups.get(one.group)
            if one.peers is not None and not one.completed and group is not None and max(one.peers) < len(group.ranks):
                open_pairs.setdefault(rank, []).append((one, group.ranks[one.peers[0]], group.ranks[one.peers[1]]))
    found = []
    for rank, pairs in sorted(open_pairs.items()):
        one, source, target = pairs[0]
        other = target if source == rank else source
        if other == rank or other not in by_rank:
            continue
        if any((there.group, *pair) == (one.group, source, target) for there, *pair in open_pairs.get(other, ())):
            continue
        waits.setdefault(rank, set()).add(other)
        sends, receives = f"sends to rank {other}, which does not receive", f"waits to receive from rank {other}, which does not send"
        text = f"rank {rank} {sends if source == rank else receives}"
        found.append(Disagreement(kind=Discord.MISSING, group=one.group, seq=one.seq, ranks=(other,), others=(rank,), text=text))
    return found


def _unfinished(team: _Team) -> Disagreement | None:
    """All its ranks are in the same collective."""
    heads = {view.head for view in team.views.values()}
    if len(heads) != 1 or None in heads or len(team.views) != len(team.ranks):
        return None
    seq = heads.pop()
    assert seq is not None
    operation = next(iter(team.views.values())).by_seq[seq].name
    text = f"all of {_list(team.ranks)} are in {operation} ({team.label}, number {seq}), and it does not end"
    return Disagreement(kind=Discord.UNFINISHED, group=team.group.name, seq=seq, ranks=(), others=tuple(sorted(team.ranks)), text=text)


def _circle(waits: Mapping[int, set[int]]) -> set[int]:
    """The ranks of the first circle of waits."""
    for start in sorted(waits):
        path, at = [start], start
        while True:
            after = sorted(rank for rank in waits.get(at, ()) if waits.get(rank))
            if not after:
                break
            at = after[0]
            if at in path:
                return set(path[path.index(at) :])
            path.append(at)
    return set()


def _list(ranks: Sequence[int]) -> str:
    if not ranks:
        return ""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    ranks = sorted(ranks)
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"
