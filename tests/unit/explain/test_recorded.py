"""Facts that a run's record tells, and what they decide."""

from dataclasses import replace

import pytest
from attached_facts import facts

from firsttoken.explain.findings import findings
from firsttoken.explain.recorded import recorded_facts
from firsttoken.knowledge.causes import causes
from firsttoken.knowledge.signs import signs
from firsttoken.model.attached import Attached, Dead
from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import ThreadStack, Wait, WaitKind
from firsttoken.model.words import Phase, Verdict

HERE = "n"
A, B, C = ProcessKey(HERE, 11, 1), ProcessKey(HERE, 12, 1), ProcessKey(HERE, 99, 1)


def waits_for(kind: WaitKind, waiter: ProcessKey = A, to: ProcessKey | None = None, **told: object) -> Wait:
    return replace(Wait(waiter=waiter, tid=waiter.pid, kind=kind, what="/cache/lock", to=to), **told)  # type: ignore[arg-type]  # fields by name


def facts_of(*waits: Wait, stacks: tuple[ThreadStack, ...] = ()) -> dict[str, bool | float | str | None]:
    return recorded_facts(Attached(recorded=True, waits=waits), stacks, signs().of_title)


def stands(doing: str | None, where: str = "x") -> ThreadStack:
    return ThreadStack(tid=1, main=True, doing=doing, where=where)


def told(attached: Attached, verdict: Verdict, phase: Phase = Phase.WEIGHTS) -> dict[str, float]:
    return {one.cause.id: one.confidence for one in findings(facts(attached, phase=phase), causes(), verdict)}


def test_files_of_a_report_tell_none_of_it() -> None:
    assert set(recorded_facts(Attached(), (), signs().of_title).values()) == {None}


def test_a_record_in_which_no_place_was_looked_at_tells_no_waits() -> None:
    found = recorded_facts(Attached(recorded=True), (), signs().of_title)
    assert found["lock_held_outside"] is None
    assert found["oom_kill"] is False


def test_a_lock_that_a_process_outside_holds_is_told_with_its_holder() -> None:
    found = facts_of(waits_for(WaitKind.FILE_LOCK, to=C, to_title="python -m other.job, started 8 s ago, asleep"))
    assert found["lock_held_outside"] is True
    assert found["lock_holder"] == "/cache/lock is held by python -m other.job, started 8 s ago, asleep, pid 99"
    assert found["lock_holder_builds"] is False
    assert found["lock_cycle"] is False


def test_a_compiler_that_holds_the_lock_builds() -> None:
    assert facts_of(waits_for(WaitKind.FILE_LOCK, to=C, to_title="ninja -v -C /x, started 8 s ago, asleep"))["lock_holder_builds"] is True


def test_a_lock_within_the_run_is_nobody_elses() -> None:
    found = facts_of(waits_for(WaitKind.FILE_LOCK, to=B, in_run=True))
    assert found["lock_held_outside"] is False
    assert found["lock_holder"] is None


def test_two_that_hold_each_others_locks_are_a_cycle_and_a_queue_is_none() -> None:
    first = waits_for(WaitKind.FILE_LOCK, A, B, in_run=True)
    assert facts_of(first, waits_for(WaitKind.FILE_LOCK, B, A, in_run=True))["lock_cycle"] is True
    assert facts_of(first, waits_for(WaitKind.FILE_LOCK, B, C))["lock_cycle"] is False
    assert facts_of(waits_for(WaitKind.FILE_LOCK, A, A))["lock_cycle"] is False


def test_three_in_a_ring_are_a_cycle_also_where_one_waits_outside_of_it() -> None:
    ring = [waits_for(WaitKind.FILE_LOCK, one, to, in_run=True) for one, to in ((A, B), (B, C), (C, A))]
    tail = waits_for(WaitKind.FILE_LOCK, ProcessKey(HERE, 7, 1), A, in_run=True)
    assert facts_of(tail, *ring)["lock_cycle"] is True


def test_a_lock_that_was_left_behind_is_told() -> None:
    assert facts_of(waits_for(WaitKind.FILE_LOCK, nobody=True))["lock_of_nobody"] is True
    assert facts_of(waits_for(WaitKind.FILE_LOCK, to=C))["lock_of_nobody"] is False


def test_only_a_fifo_without_another_end_is_never_ready() -> None:
    assert facts_of(waits_for(WaitKind.FIFO, nobody=True))["fifo_path"] == "/cache/lock"
    assert facts_of(waits_for(WaitKind.FIFO, to=C))["fifo_path"] is None


def test_an_address_that_is_connected_to_is_told() -> None:
    assert facts_of(waits_for(WaitKind.CONNECT, what="10.0.0.9:29500"))["address"] == "10.0.0.9:29500"


@pytest.mark.parametrize(
    ("stacks", "apart"),
    [
        ((stands("collective"), stands("collective")), False),
        ((stands("collective"), stands("queue")), True),
        ((stands("collective"), stands("rendezvous")), True),
        ((stands("collective", "all_reduce"), stands("collective", "barrier")), True),
        ((stands("collective"), stands("compile")), False),
        ((stands("collective"), stands("lock")), False),
        ((stands("collective"), stands(None)), None),
        ((stands("queue"), stands("idle")), False),
        ((stands("collective"),), None),
    ],
)
def test_ranks_are_apart_where_one_waits_elsewhere_and_nobody_works(stacks: tuple[ThreadStack, ...], apart: bool | None) -> None:
    assert facts_of(stacks=stacks)["ranks_apart"] is apart


def test_ranks_are_not_apart_where_one_waits_for_what_nobody_can_end() -> None:
    pipe = waits_for(WaitKind.PIPE, A, A)
    assert facts_of(pipe, stacks=(stands("collective"), stands("queue")))["ranks_apart"] is False


def test_a_kill_from_outside_is_told_only_by_signals_that_come_from_outside() -> None:
    def signal(number: int) -> object:
        return recorded_facts(Attached(recorded=True, dead=(Dead(pid=1, signal=number),)), (), signs().of_title)["death_signal"]

    assert signal(9) == 9.0
    assert signal(15) == 15.0
    assert signal(11) is None


def test_a_foreign_lock_is_the_cause_and_its_holder_the_evidence() -> None:
    waits = (waits_for(WaitKind.FILE_LOCK, to=C, to_title="python -m other.job, started 8 s ago, asleep"),)
    assert told(Attached(recorded=True, waits=waits), Verdict.WAITING)["foreign-lock-holder"] > 0.9


def test_a_lock_that_a_builder_holds_is_none_of_a_foreign_process() -> None:
    attached = Attached(recorded=True, waits=(waits_for(WaitKind.FILE_LOCK, to=C, to_title="ninja -v -C /x, started 8 s ago, asleep"),))
    assert "foreign-lock-holder" not in told(attached, Verdict.WAITING)


def test_a_cycle_of_locks_is_the_cause_while_it_lasts_only() -> None:
    waits = (waits_for(WaitKind.FILE_LOCK, A, B, in_run=True), waits_for(WaitKind.FILE_LOCK, B, A, in_run=True))
    assert told(Attached(recorded=True, waits=waits), Verdict.HUNG)["lock-cycle"] > 0.9
    assert "lock-cycle" not in told(Attached(recorded=True, waits=waits), Verdict.READY)


def test_an_address_without_an_answer_is_the_cause_unless_it_failed_otherwise() -> None:
    attached = Attached(recorded=True, waits=(waits_for(WaitKind.CONNECT, what="10.0.0.9:29500"),))
    assert told(attached, Verdict.WAITING)["address-unreachable"] >= 0.7
    assert "address-unreachable" not in told(attached, Verdict.FAILED)


def test_a_kill_is_from_outside_or_for_memory_as_the_kernel_counted() -> None:
    killed = Attached(recorded=True, log=b"", dead=(Dead(rank=1, pid=12, signal=9),))
    assert told(killed, Verdict.CRASHED)["stopped-from-outside"] > 0.6
    for_memory = told(replace(killed, oom=True), Verdict.CRASHED)
    assert "stopped-from-outside" not in for_memory
    assert for_memory["host-oom"] >= 0.9


def test_a_log_that_tells_of_sigkill_is_no_kill_for_memory_where_the_kernel_counted_none() -> None:
    log = b"Scheduler hit exit code: -9\n"
    assert told(Attached(log=log), Verdict.CRASHED).get("host-oom", 0.0) >= 0.5
    assert told(Attached(log=log, recorded=True), Verdict.CRASHED).get("host-oom", 0.0) < 0.5


def test_a_long_ring_of_locks_is_a_cycle_also_where_many_wait_in_line_for_it() -> None:
    keys = [ProcessKey(HERE, 20 + n, 1) for n in range(6)]
    ring = [waits_for(WaitKind.FILE_LOCK, one, to, in_run=True) for one, to in zip(keys, (*keys[1:], keys[0]), strict=True)]
    assert facts_of(*ring)["lock_cycle"] is True
    line = [waits_for(WaitKind.FILE_LOCK, one, to, in_run=True) for one, to in zip(keys, (*keys[1:], A), strict=True)]
    assert facts_of(*line)["lock_cycle"] is False
    assert (
        facts_of(*line, waits_for(WaitKind.FILE_LOCK, A, B, in_run=True), waits_for(WaitKind.FILE_LOCK, B, A, in_run=True))["lock_cycle"]
        is True
    )


def test_only_locks_are_told_as_locks() -> None:
    pipes = [waits_for(WaitKind.PIPE, A, B, in_run=True), waits_for(WaitKind.PIPE, B, A, in_run=True)]
    assert facts_of(*pipes)["lock_cycle"] is False
    assert facts_of(waits_for(WaitKind.PIPE, to=C))["lock_held_outside"] is False
    assert facts_of(waits_for(WaitKind.FIFO, nobody=True))["lock_of_nobody"] is False
    assert facts_of(waits_for(WaitKind.FILE_LOCK, nobody=True))["fifo_path"] is None
    assert facts_of(waits_for(WaitKind.SOCKET, what="10.0.0.9:1"))["address"] is None


def test_a_lock_of_which_no_holder_is_seen_has_none_outside() -> None:
    found = facts_of(waits_for(WaitKind.FILE_LOCK))
    assert (found["lock_held_outside"], found["lock_holder"], found["lock_holder_builds"]) == (False, None, False)
    assert facts_of(waits_for(WaitKind.FILE_LOCK, to=C))["lock_holder"] == "/cache/lock is held by another process, pid 99"


def test_ranks_are_not_apart_by_a_stack_that_says_nothing_or_where_nobody_is_in_a_collective() -> None:
    assert facts_of(stacks=(stands("collective"), stands("queue"), stands(None)))["ranks_apart"] is None
    assert facts_of(stacks=(stands("queue"), stands("event_loop")))["ranks_apart"] is False
    assert facts_of(stacks=(stands("rendezvous"), stands("queue")))["ranks_apart"] is True
    nobody = waits_for(WaitKind.FIFO, nobody=True)
    assert facts_of(nobody, stacks=(stands("collective"), stands("queue")))["ranks_apart"] is False
    assert facts_of(waits_for(WaitKind.FILE_LOCK, to=C), stacks=(stands("collective"), stands("queue")))["ranks_apart"] is True


def test_the_first_death_by_a_signal_from_outside_is_told() -> None:
    dead = (Dead(pid=1, signal=11), Dead(pid=2, signal=15), Dead(pid=3, signal=9))
    assert recorded_facts(Attached(recorded=True, dead=dead), (), signs().of_title)["death_signal"] == 15.0
    assert recorded_facts(Attached(dead=dead), (), signs().of_title)["death_signal"] is None
