"""Whether ranks wait in different collectives, by their attached stacks. Pure.

Key insight: who waits in a collective is found by name, and which collective it is by who called it. Lines and depths differ between ranks
that do the same (the source of a broadcast, a deeper layer); the first function outside of the library does not.
"""

from collections.abc import Iterable, Mapping

from firsttoken.knowledge.signs import Signs
from firsttoken.model.stillness import Frame

_WAITS = ("collective", "device")
_ONE_SIDED = ("recv", "send", "point_to_point", "rendezvous")
"""what ranks of a pipeline do at different ends of one transfer"""


def collectives_apart(stacks: Mapping[int, tuple[Frame, ...]], stage: int, signs: Signs) -> bool | None:
    """`stacks`: frames of the main thread by rank, `stage`: ranks of one pipeline stage. None where fewer than two ranks wait in a
    collective; False where one that was looked at does not, or where all called it from the same function."""
    callers = {rank: _caller(frames, signs) for rank, frames in stacks.items()}
    if sum(caller is not None for caller in callers.values()) < 2:
        return None
    if any(caller is None for caller in callers.values()):
        return False
    stages = {rank // max(stage, 1) for rank in callers}
    return any(len({callers[rank] for rank in callers if rank // max(stage, 1) == one}) > 1 for one in stages)


def _caller(frames: tuple[Frame, ...], signs: Signs) -> tuple[str, str] | None:
    """The innermost function outside of torch that called the collective which is waited in; None where no collective is."""
    for depth, frame in enumerate(frames):
        if _is_collective(frame, signs):
            return next(((f.function, _base(f.file)) for f in _outside(frames[depth + 1 :], signs)), None)
        if signs.of_frames((frame,)) not in (None, *_WAITS):
            return None
    return None


def _outside(frames: Iterable[Frame], signs: Signs) -> Iterable[Frame]:
    return (f for f in frames if not f.native and "/torch/" not in f"/{f.file}" and not _is_collective(f, signs))


def _is_collective(frame: Frame, signs: Signs) -> bool:
    return signs.of_frames((frame,)) == "collective" and not any(word in frame.function for word in _ONE_SIDED)


def _base(file: str) -> str:
    return file.rsplit("/", 1)[-1]
