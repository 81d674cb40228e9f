"""Stack dumps of py-spy and pystack."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.survey.stacks_text import read_stacks

_PY_SPY = """\
Process 31: worker rank 0
Python v3.12.3 (/usr/bin/python3.12)

Thread 40 (idle): "reader"
    wait (threading.py:327)
Thread 31 (active): "MainThread"
    poll (libc.so.6)
    all_reduce (engine/comm.py:163)
        Arguments:
            tensor: <Tensor at 0x7f>
    <module> (<string>:1)
"""
_PYSTACK = """\
Traceback for thread 31 (server) [] (most recent call last):
    (Python) File "/x/serve.py", line 10, in main
        run()
    (C) File "./nptl/lock.c", line 49, in __lll_lock_wait (/lib/libc.so.6)
"""


def test_the_main_thread_comes_first_and_frames_innermost_first() -> None:
    (dump,) = read_stacks(_PY_SPY)
    assert dump.pid == 31
    assert dump.title == "worker rank 0"
    main, other = dump.threads
    assert main.main
    assert [frame.function for frame in main.frames] == ["poll", "all_reduce", "<module>"]
    assert other.name == "reader"
    assert dump.active == {31}


def test_native_frames_are_known_by_their_library() -> None:
    (dump,) = read_stacks(_PY_SPY)
    poll, reduce, _ = dump.threads[0].frames
    assert poll.native
    assert (reduce.native, reduce.line) == (False, 163)


def test_pystack_prints_the_other_way_round() -> None:
    (dump,) = read_stacks(_PYSTACK, pid=31)
    assert [frame.function for frame in dump.threads[0].frames] == ["__lll_lock_wait", "main"]
    assert dump.threads[0].frames[0].native


def test_several_dumps_in_one_file_are_told_apart() -> None:
    dumps = read_stacks(_PY_SPY + _PY_SPY)
    assert [dump.taken for dump in dumps] == [0, 1]


def test_a_file_without_a_process_is_nobodys() -> None:
    assert read_stacks('Thread 1 (idle): "MainThread"\n    f (a.py:1)\n') == ()


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    read_stacks(_PY_SPY + data.decode("utf8", "replace"), pid=1)
