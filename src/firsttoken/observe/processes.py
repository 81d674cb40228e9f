"""Which processes belong to the run: its tree, what carries its mark, what was adopted.

Membership is for life: a process that was once in stays in until it is gone, so a re-parented or scrubbed one is not lost. Each scan lists
/proc once and reads `stat` of members and of pids not seen before only; a full pass over all processes every few seconds mends what pid
reuse may have hidden. `/proc/PID/task/*/children` is not used: with 20 threads a process it costs more than listing /proc does.
Titles and environments are read in a thread that can be left behind, since both block on the target's mmap lock.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.model.events import Exited, MemberGone, MemberSeen, Missed
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.redact import mask_argv
from firsttoken.observe.errands import Errands

TITLE_CAP = 1000
_PATIENCE = 0.25
_TITLES_KEPT = 1024
_FULL_SHARE = 0.01
"""a full pass takes at most this share of the time"""
_KERNEL_THREAD = 0x00200000
_UNSETTLED = -1


class ProcessWatcher:
    """`exclude` holds bare pids that are never members (keeper, observer, face), `sessions` those in which none is (observers' own, with
    their children); both may be changed between scans.

    An excluded root is not told, but what it inherited is a member where it carries the mark (or where no mark is set): give the keeper
    as a root and as excluded. A daemon that left tree and environment behind is nobody's member, though the subreaper became its
    parent. `mask` takes the secrets out of the arguments before they become a title.
    """

    def __init__(
        self,
        procfs: Procfs,
        node: str,
        title_patterns: Sequence[re.Pattern[str]] = (),
        *,
        exclude: Iterable[int] = (),
        mask: Callable[[tuple[str, ...]], tuple[str, ...]] = mask_argv,
        full_every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.exclude = set(exclude)
        self.sessions: frozenset[int] = frozenset()
        self.title_patterns = tuple(title_patterns)
        """may be replaced when the engine is recognised; members whose tag changes are told again"""
        self._procfs = procfs
        self._node = node
        self._mask = mask
        self._full_every = full_every
        self._clock = clock
        self._full_at = 0.0
        self._wanted: object = None
        self._members: dict[int, Member] = {}
        self._known: dict[int, int] = {}
        self._errands = Errands("firsttoken-titles")
        self._early: set[int] = set()
        self._told_stuck: frozenset[int] = frozenset()
        self._missed: list[Missed] = []
        self._titles: dict[tuple[str, ...], str] = {}
        self._tagged: dict[str, Sequence[re.Pattern[str]]] = {}
        """titles that were searched for a rank's tag, and with which patterns"""
        self._buried: set[tuple[int, int]] = set()

    @property
    def members(self) -> tuple[Member, ...]:
        """All members after the last scan, oldest first."""
        return tuple(sorted(self._members.values(), key=lambda member: (member.process.start, member.process.pid)))

    def missed(self) -> list[Missed]:
        """What could not be seen since this was last asked."""
        told, self._missed = self._missed, []
        return told

    def scan(
        self, roots: Iterable[ProcessKey], *, mark: bytes | None = None, extra: Iterable[ProcessKey] = ()
    ) -> list[MemberSeen | MemberGone | Exited]:
        """What changed since the last scan; those that are gone first. `mark` is a whole entry, `NAME=value`; `extra` are adopted ones.

        A process that is dead but not reaped counts as gone; where its parent is not excluded and the kernel tells its wait status,
        an `Exited` comes before it (a rank that was killed, while its parent waits on).
        """
        self._tell_stuck()
        tops = (*roots, *extra)
        listed = frozenset(self._procfs.pids())
        if not listed:
            self._missed.append(Missed(request="processes", reason=f"{self._procfs.root} could not be listed: nothing was scanned"))
            return []
        stats = self._look(listed, frozenset(tops), mark)
        events: list[MemberSeen | MemberGone | Exited] = []
        for pid, member in list(self._members.items()):
            stat = stats.get(pid)
            if stat is None and pid in listed:
                continue  # went just now, or we are out of descriptors: the next scan tells
            if stat is None or stat.start != member.process.start or stat.dead:
                del self._members[pid]
                self._buried.add((pid, member.process.start))
                if stat is not None and stat.start == member.process.start and (how := self._how(member.process, stat)) is not None:
                    events.append(how)
                events.append(MemberGone(process=member.process))
        newcomers = self._newcomers(tops, stats, mark)
        titles = self._errands.each(self._procfs.cmdline, (*self._members, *newcomers), seconds=_PATIENCE)
        for pid, stat in sorted(newcomers.items(), key=lambda item: (item[1].start, item[0])):
            title = self._title(titles.get(pid, ())) or f"[{stat.comm}]"
            key = ProcessKey(self._node, pid, stat.start)
            member = Member(process=key, parent=stat.ppid, title=title, tag=tag_of(title, self.title_patterns))
            self._members[pid] = member
            events.append(MemberSeen(member=member))
        events += self._ended_before(stats)
        for pid, member in self._members.items():
            if pid in stats and pid not in newcomers and (changed := self._changed(member, stats[pid], titles)) is not None:
                self._members[pid] = changed
                events.append(MemberSeen(member=changed))
        return events

    def _look(self, listed: frozenset[int], tops: frozenset[ProcessKey], mark: bytes | None) -> dict[int, Stat]:
        """`stat` of all members and of what is new; of everything when a full pass is due or something else is wanted than before."""
        began = self._clock()
        wanted = (tops, mark)
        if wanted != self._wanted:
            self._wanted = wanted
            self._known.clear()
        full = not self._known or began >= self._full_at
        look = listed if full else (listed - self._known.keys()) | self._members.keys()
        stats = {pid: stat for pid in look if (stat := self._procfs.stat(pid)) is not None}
        self._known = {pid: start for pid, start in self._known.items() if pid in listed}
        if full:
            now = self._clock()
            self._full_at = now + max(self._full_every, (now - began) / _FULL_SHARE)
        return stats

    def _newcomers(self, tops: tuple[ProcessKey, ...], stats: Mapping[int, Stat], mark: bytes | None) -> dict[int, Stat]:
        named = {top.pid for top in tops}
        barred = self.exclude - named
        fresh = {
            pid: stat
            for pid, stat in stats.items()
            if not (pid in self._members or pid in barred or stat.sid in self.sessions or stat.flags & _KERNEL_THREAD or stat.dead)
            and (stat.ppid not in barred or pid in named)
        }
        parents = {pid: member.process.start for pid, member in self._members.items()}
        found: dict[int, Stat] = {}
        for top in tops:
            if (start := stats[top.pid].start if top.pid in stats else self._known.get(top.pid)) == top.start:
                if mark is None or top.pid not in self.exclude:
                    parents[top.pid] = start
                if top.pid in fresh:
                    found[top.pid] = fresh[top.pid]
        found.update(_descend(parents, fresh))
        strangers = {pid: stat for pid, stat in fresh.items() if pid not in found and self._known.get(pid) != stat.start}
        if mark is not None and strangers:
            marked = self._marked(strangers, mark)
            found.update(marked)
            found.update(_descend({pid: stat.start for pid, stat in marked.items()}, fresh))
        early = {pid for pid in strangers if pid not in found and not self._listed(strangers[pid].ppid, stats)}
        for pid, stat in stats.items():
            if pid in found or pid in early - self._early:
                # a member; or its parent is not there, maybe since it came after the listing: looked at again once
                self._known.pop(pid, None)
            elif pid not in strangers or mark is None:
                self._known[pid] = stat.start
        self._early = early
        return {pid: stat for pid, stat in found.items() if pid not in self.exclude}

    def _listed(self, pid: int, stats: Mapping[int, Stat]) -> bool:
        return pid == 0 or pid in stats or pid in self._known or pid in self._members

    def _marked(self, strangers: Mapping[int, Stat], mark: bytes) -> dict[int, Stat]:
        """Each environment is read once. It is empty for a moment in exec, or may not be read in time: then again in the next full pass."""
        environs = self._errands.each(self._procfs.environ, strangers, seconds=_PATIENCE)
        entry = b"\0" + mark + b"\0"
        found: dict[int, Stat] = {}
        for pid, stat in strangers.items():
            raw = environs.get(pid, b"")
            self._known[pid] = _UNSETTLED if raw == b"" else stat.start
            if raw and entry in b"\0" + raw + b"\0":
                found[pid] = stat
        return found

    def _changed(self, member: Member, stat: Stat, titles: Mapping[int, tuple[str, ...]]) -> Member | None:
        title = self._title(titles.get(member.process.pid, ())) or member.title
        if title == member.title and self._tagged.get(title) is self.title_patterns:
            return None
        if len(self._tagged) >= _TITLES_KEPT:
            self._tagged.clear()
        self._tagged[title] = self.title_patterns
        tag = tag_of(title, self.title_patterns)
        if title == member.title and tag == member.tag:
            return None
        return replace(member, title=title, tag=tag, parent=stat.ppid)

    def _title(self, arguments: tuple[str, ...]) -> str:
        """Masking costs, and most titles are those of the scan before."""
        title = self._titles.get(arguments)
        if title is None:
            title = " ".join(self._mask(arguments)).strip()[:TITLE_CAP]
            if len(self._titles) >= _TITLES_KEPT:
                self._titles.clear()
            self._titles[arguments] = title
        return title

    def _ended_before(self, stats: Mapping[int, Stat]) -> list[Exited]:
        """Children of members that a signal had ended before they were seen alive: the first scan of a quick start may come late."""
        self._buried = {key for key in self._buried if key[0] in stats or key[0] in self._known}
        found: list[Exited] = []
        for pid, stat in stats.items():
            if stat.dead and stat.ppid in self._members and (pid, stat.start) not in self._buried:
                self._buried.add((pid, stat.start))
                how = self._how(ProcessKey(self._node, pid, stat.start), stat)
                found += [how] if how is not None and how.signal is not None else []
        return found

    def _how(self, process: ProcessKey, stat: Stat) -> Exited | None:
        """0 is not told: the kernel shows it also to those who may not know."""
        status = stat.exit_status
        if status <= 0 or stat.ppid in self.exclude:
            return None
        signal = status & 0x7F
        return Exited(process=process, signal=signal) if signal else Exited(process=process, code=status >> 8 & 0xFF)

    def _tell_stuck(self) -> None:
        """Reads that hang since the last scan: one that was merely late has come back by now."""
        stuck = self._errands.stuck
        for pid in sorted(stuck - self._told_stuck):
            reason = f"reading the title or environment of pid {pid} hangs: a thread of it holds its memory-map lock"
            self._missed.append(Missed(request="processes", reason=reason))
        self._told_stuck = stuck


def tag_of(title: str, patterns: Iterable[re.Pattern[str]]) -> RankTag | None:
    """From the first pattern that matches; its named groups name, rank, dp, pp, tp, ep are used."""
    for pattern in patterns:
        match = pattern.search(title)
        if match is not None:
            groups = match.groupdict()
            numbers = {name: _number(groups.get(name)) for name in ("rank", "dp", "pp", "tp", "ep")}
            return RankTag(name=groups.get("name"), **numbers)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _descend(parents: Mapping[int, int], stats: Mapping[int, Stat]) -> dict[int, Stat]:
    """Those of `stats` that descend from `parents` (pid → start). A child is never older than its parent: else the pid was reused."""
    below: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        below.setdefault(stat.ppid, []).append(pid)
    found: dict[int, Stat] = {}
    todo = list(parents.items())
    while todo:
        parent, start = todo.pop()
        for pid in below.get(parent, ()):
            if pid not in found and stats[pid].start >= start:
                found[pid] = stats[pid]
                todo.append((pid, stats[pid].start))
    return found
