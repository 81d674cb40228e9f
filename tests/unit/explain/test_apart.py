"""Different collectives by who called them: lines, depths and pipeline stages make no difference of their own."""

import pytest
from attached_facts import TWO, facts, process, stack

from firsttoken.explain.apart import collectives_apart
from firsttoken.knowledge.signs import signs
from firsttoken.model.attached import Attached
from firsttoken.model.stillness import Frame

LIBRARY = "torch/distributed/distributed_c10d.py"


def frames(*names: str) -> tuple[Frame, ...]:
    """`function@file` from the innermost on; a bare name is a frame of the library."""
    pairs = [name.partition("@") for name in names]
    return tuple(Frame(function, file or LIBRARY, 7) for function, _, file in pairs)


FORWARD = frames("all_reduce", "wrapper", "forward@engine/linear.py", "run@engine/runner.py")
TUNING = frames("all_reduce", "wrapper", "choose_one@tuner/autotuner.py", "forward@engine/linear.py", "run@engine/runner.py")


def apart(*stacks: tuple[Frame, ...], stage: int = 8) -> bool | None:
    return collectives_apart(dict(enumerate(stacks)), stage, signs())


def test_the_same_collective_called_from_elsewhere_is_another_one() -> None:
    assert apart(FORWARD, TUNING) is True
    assert apart(FORWARD, FORWARD) is False


def test_a_wait_for_the_device_below_the_call_counts_as_the_call() -> None:
    waits = frames("synchronize@torch/cuda/streams.py", "all_reduce@engine/pynccl.py", "forward@engine/linear.py")
    assert apart(waits, FORWARD) is False
    assert apart(waits, TUNING) is True


def test_another_line_of_the_same_function_is_no_difference() -> None:
    other = (FORWARD[0], FORWARD[1], Frame("forward", "engine/linear.py", 900))
    assert apart(FORWARD, other) is False


@pytest.mark.parametrize("elsewhere", [("acquire@filelock/_api.py",), ("run_ninja@jit/cpp_ext.py", "all_reduce"), ("poll@zmq/poll.py",)])
def test_a_rank_that_waits_for_something_else_decides_nothing(elsewhere: tuple[str, ...]) -> None:
    assert apart(FORWARD, TUNING, frames(*elsewhere)) is False
    assert apart(FORWARD, frames(*elsewhere)) is None


def test_stages_of_a_pipeline_may_differ_and_ranks_of_one_stage_may_not() -> None:
    assert apart(FORWARD, FORWARD, TUNING, TUNING, stage=2) is False
    assert apart(FORWARD, TUNING, TUNING, TUNING, stage=2) is True


def test_what_a_pipeline_sends_and_receives_is_no_collective() -> None:
    assert apart(frames("irecv", "recv@engine/pp.py"), frames("isend", "send@engine/pp.py")) is None


def test_native_frames_name_nobody() -> None:
    native = (Frame("ncclAllReduce", "libnccl.so.2", 0, native=True), Frame("c10d::run", "libtorch.so", 0, native=True))
    assert apart(native + FORWARD, native + FORWARD) is False
    assert apart(native, native) is None


def test_a_record_of_a_run_is_asked_for_its_own_fact_instead() -> None:
    shown = Attached(stacks=(stack(31, "all_reduce", "one"), stack(32, "all_reduce", "other")), processes=(process(31), process(32)))
    assert facts(shown, plan=TWO, rank_of={31: 0, 32: 1})["collectives_apart"] is True
    recorded = Attached(stacks=shown.stacks, processes=shown.processes, recorded=True)
    assert facts(recorded, plan=TWO, rank_of={31: 0, 32: 1})["collectives_apart"] is None
