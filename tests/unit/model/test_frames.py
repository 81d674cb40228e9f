"""Stacks compared: line jitter, how threads begin, groups of ranks."""

from firsttoken.model.frames import group, normalise
from firsttoken.model.stillness import Frame

BEGIN = (
    Frame("Thread.run", "threading.py", 982),
    Frame("Thread._bootstrap_inner", "threading.py", 1045),
    Frame("Thread._bootstrap", "threading.py", 1002),
)


def test_the_innermost_line_and_the_beginning_do_not_count() -> None:
    one = (Frame("poll", "a.py", 5), Frame("work", "b.py", 9), *BEGIN)
    other = (Frame("poll", "a.py", 6), Frame("work", "b.py", 9))
    assert normalise(one) == normalise(other) == (Frame("poll", "a.py", 0), Frame("work", "b.py", 9))


def test_the_line_of_a_caller_counts() -> None:
    assert normalise((Frame("poll", "a.py", 5), Frame("work", "b.py", 9))) != normalise(
        (Frame("poll", "a.py", 5), Frame("work", "b.py", 10))
    )


def test_addresses_of_native_frames_do_not_count() -> None:
    one = (Frame("0x7f10", "libc.so.6", 0, True), Frame("f", "a.py", 3))
    other = (Frame("0x7f99", "libc.so.6", 0, True), Frame("f", "a.py", 4))
    assert normalise(one) == normalise(other)


def test_a_function_of_ones_own_named_run_is_kept() -> None:
    assert normalise((Frame("run", "engine/server.py", 3),)) == (Frame("run", "engine/server.py", 0),)


def test_ranks_with_one_stack_form_a_group_the_largest_first() -> None:
    waits, sleeps = (Frame("all_reduce", "c.py", 1),), (Frame("acquire", "d.py", 2),)
    found = group({0: waits, 1: waits, 2: sleeps, 3: waits})
    assert [(ranks, frames[0].function) for ranks, frames in found] == [((0, 1, 3), "all_reduce"), ((2,), "acquire")]
