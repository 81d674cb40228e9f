"""What became of each shard, from look to look: not opened, held, done. Pure: knows files by path and size, touches nothing.

A file that is opened for a moment only (engines read the headers of all shards while they configure) is not taken for read: it must have
been seen with a tenth of it read, or in two looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firsttoken.observe.shards import ShardSet

_PART = 10
_LEAST, _MOST = 128 << 10, 16 << 20
"""a tenth of the file within these bounds is more than a header"""


@dataclass(slots=True)
class _Set:
    """`place`: real path → place in the order of loading. `ordered`: so far its files were opened in that order."""

    paths: tuple[str, ...]
    place: dict[str, int]
    given: bool
    opened: bool = False
    ordered: bool = True


@dataclass(slots=True)
class _File:
    path: str
    size: int
    read: int = 0
    looks: int = 0
    how: str = ""
    held: bool = False
    done: bool = False

    @property
    def whole(self) -> bool:
        return self.done or 0 < self.size <= self.read

    @property
    def proven(self) -> bool:
        return self.looks >= 2 or self.read >= min(max(self.size // _PART, _LEAST), _MOST) or 0 < self.size == self.read


@dataclass(slots=True)
class ShardBook:
    """`how` and `bytes_done` as in the event; `held` rows are path, size, bytes read. Sizes and counts are of the sets in force: those with
    a file that was opened, and given ones while of their files none and of others none was."""

    _sets: list[_Set] = field(default_factory=list)
    _files: dict[str, _File] = field(default_factory=dict)
    _floor: int = 0
    _counted: int = 0
    shards: int = 0
    shards_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    how: str = ""
    held: tuple[tuple[str, int, int], ...] = ()

    def __contains__(self, real: str) -> bool:
        return real in self._files

    def size(self, real: str) -> int:
        file = self._files.get(real)
        return 0 if file is None else file.size

    def add(self, found: ShardSet) -> bool:
        """A set that shares files with an earlier one takes its place (more of them have come). False where nothing is new."""
        reals = tuple(dict.fromkeys(shard.real for shard in found.shards))
        if not reals or all(shard.real in self._files and self._files[shard.real].size == shard.size for shard in found.shards):
            return False
        for shard in found.shards:
            self._files.setdefault(shard.real, _File(shard.path, shard.size)).size = shard.size
        group = _Set(reals, {real: place for place, real in enumerate(reals)}, found.given)
        for old in [old for old in self._sets if not old.place.keys().isdisjoint(reals)]:
            self._sets.remove(old)
            group.given, group.opened, group.ordered = group.given or old.given, group.opened or old.opened, group.ordered and old.ordered
        self._sets.append(group)
        self._sum()
        return True

    def look(self, furthest: Mapping[str, tuple[int, str]], *, counted: int = 0) -> None:
        """`furthest`: for each shard that is open or mapped now, the bytes read of it and how that is known. `counted`: bytes that
        processes which hold shards have read since before they held any."""
        for group in self._sets:
            self._advance(group, furthest)
        self._counted = counted
        self._sum()

    def _advance(self, group: _Set, furthest: Mapping[str, tuple[int, str]]) -> None:
        before = [group.place[real] for real in group.paths if (file := self._files[real]).held or file.done]
        fresh = [group.place[real] for real in group.paths if real in furthest and not (file := self._files[real]).held and not file.done]
        if before and fresh and min(fresh) < max(before):
            group.ordered = False
        for real in group.paths:
            file = self._files[real]
            if real in furthest:
                read, how = furthest[real]
                if read > file.read:
                    file.read, file.how = read, how
                file.held, file.looks = True, file.looks + 1
            elif file.held:
                file.held = False
                if file.proven:
                    file.done, file.how = True, "closed"
                else:
                    file.read = file.looks = 0
        held = [group.place[real] for real in group.paths if self._files[real].held]
        proven = any(self._files[real].held and self._files[real].proven for real in group.paths)
        if group.ordered and proven:
            for real in group.paths[: min(held)]:
                if not self._files[real].done:
                    self._files[real].done, self._files[real].how = True, "order"
        group.opened = group.opened or any(self._files[real].proven or self._files[real].done for real in group.paths)

    def _sum(self) -> None:
        opened = [group for group in self._sets if group.opened]
        files = [self._files[real] for group in opened or [group for group in self._sets if group.given] for real in group.paths]
        self.shards = len(files)
        self.bytes = sum(file.size for file in files)
        done = [file for file in files if file.whole]
        held = [file for file in files if file.held and not file.whole]
        self.shards_done = len(done)
        whole = sum(file.size for file in done)
        read = whole + sum(file.read for file in held)
        # counters see other reads too: they may fill up what is open now, and never more
        counted = min(self._counted, whole + sum(file.size for file in held))
        hows = {file.how for file in done} | {file.how for file in held if file.read}
        if held and counted > read:
            read = counted
            hows = {how for how in hows if how in ("closed", "order")} | {"counters"}
        self._floor = min(max(read, self._floor), self.bytes)
        self.bytes_done = self._floor
        self.how = " + ".join(sorted(hows - {""}))
        self.held = tuple((file.path, file.size, file.read) for file in files if file.held)
