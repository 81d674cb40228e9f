"""Comparing stacks: what two looks, or two ranks, must have in common to stand in the same place."""

from collections.abc import Mapping, Sequence

from firsttoken.model.stillness import Frame

_STARTERS = (
    "importlib/",
    "<frozen importlib",
    "<frozen runpy",
    "runpy.py",
    "threading.py",
    "multiprocessing/",
    "concurrent/futures/thread.py",
)
_STARTING = frozenset(
    {
        "_bootstrap", "_bootstrap_inner", "run", "_run_module_as_main", "_run_code", "_call_with_frames_removed", "_find_and_load",
        "_find_and_load_unlocked", "_load_unlocked", "exec_module", "spawn_main", "_main", "_worker", "_handle_fromlist", "_launch",
    }
)  # fmt: skip
"""functions by which a thread, a process or a module begins"""


def normalise(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Innermost first, without native addresses, without how the thread or module began, and without the line of the innermost Python
    frame: a loop that polls stands now on one of its lines, now on another."""
    kept: list[Frame] = []
    innermost = True
    for frame in frames:
        if frame.function.rsplit(".", 1)[-1] in _STARTING and frame.file.startswith(_STARTERS):
            continue
        if frame.native:
            kept.append(Frame("?" if frame.function.startswith("0x") else frame.function, frame.file, 0, True))
            continue
        kept.append(Frame(frame.function, frame.file, 0 if innermost else frame.line))
        innermost = False
    return tuple(kept)


def group(stacks: Mapping[int, Sequence[Frame]]) -> tuple[tuple[tuple[int, ...], tuple[Frame, ...]], ...]:
    """Ranks with one normalised stack, the largest group first, among equals the one with the lowest rank."""
    found: dict[tuple[Frame, ...], list[int]] = {}
    for rank, frames in stacks.items():
        found.setdefault(normalise(frames), []).append(rank)
    groups = [(tuple(sorted(ranks)), frames) for frames, ranks in found.items()]
    return tuple(sorted(groups, key=lambda one: (-len(one[0]), one[0])))
