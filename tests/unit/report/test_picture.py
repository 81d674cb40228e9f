"""One look, in words."""

from dataclasses import replace

import pytest

from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import Frame, Wait, WaitKind
from firsttoken.report.picture import Group, Picture, Seen, picture_text, wait_line

ME, OTHER = ProcessKey("a", 123, 1), ProcessKey("a", 7, 1)
RANK = Seen(process=ME, title="engine::rank3", label="rank 3 (pid 123)", rank=3, state="S")
LOCK = Wait(waiter=ME, tid=123, kind=WaitKind.FILE_LOCK, what="/cache/lock", to=OTHER, to_title="python other.py")


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        (LOCK, "rank 3 (pid 123) waits for the file lock /cache/lock held by pid 7 (python other.py)"),
        (replace(LOCK, kind=WaitKind.CHILD, what="its end"), "rank 3 (pid 123) waits for its child its end, pid 7 (python other.py)"),
        (
            replace(LOCK, kind=WaitKind.SOCKET, what="10.0.0.2:99", to=None, observable=False),
            "rank 3 (pid 123) waits for data from 10.0.0.2:99, whose other end cannot be seen from here",
        ),
        (
            replace(LOCK, kind=WaitKind.FIFO, what="/w", to=None, nobody=True),
            "rank 3 (pid 123) waits for the FIFO /w, and nobody has its other end",
        ),
        (
            replace(LOCK, kind=WaitKind.PIPE, what="p", to=ME),
            "rank 3 (pid 123) waits for the pipe p, which only its own other threads can end",
        ),
        (
            replace(LOCK, kind=WaitKind.SIGNAL, what="a signal", to=None, timeout_s=0.5),
            "rank 3 (pid 123) waits for a signal (looks again every 0.5 s)",
        ),
    ],
)
def test_a_wait_is_one_sentence(wait: Wait, said: str) -> None:
    assert wait_line(RANK, wait) == said


def test_long_stacks_are_cut_what_runs_and_what_has_no_stack_is_named() -> None:
    frames = tuple(Frame(f"f{i}", "a.py", i) for i in range(20))
    group = Group(pids=(123,), labels=(RANK.label,), ranks=(3,), frames=frames, main=False, thread="worker")
    refused = Seen(process=OTHER, title="nvcc", label="nvcc (pid 7)", state="R", error="is no Python process (nvcc)")
    text = picture_text(Picture(of="run x", seen=(RANK, refused), groups=(group,)))
    assert "rank 3 (pid 123), thread worker: no known signature fits\n    f0 (a.py)\n    f1 (a.py:1)" in text
    assert "    … 6 more" in text
    assert "running: nvcc (pid 7)" in text
    assert text.endswith("no Python stack of:\n  nvcc (pid 7) [R] nvcc: is no Python process (nvcc)")
