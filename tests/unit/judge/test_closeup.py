"""Looks and postures: what counts as the same place, and how rounds are kept."""

from dataclasses import replace

from story import Pose, Story, key, polls, rank_pid, sleeps, thread, wait_for

from firsttoken.judge.closeup import (
    KEPT,
    Closeup,
    Look,
    forget,
    main_place,
    main_stack,
    main_waits,
    noted,
    posture,
    same_for,
    stack_of,
    works_beside,
)
from firsttoken.model.events import Places, Stacks
from firsttoken.model.stillness import Frame, ThreadPlace, ThreadStack, WaitKind
from firsttoken.model.words import Verdict

P = key(200)


def look(pose: Pose, number: int = 1) -> Look:
    return Look(round=number, at=float(number), places=pose.places(P, number), stacks=pose.stack(P, number))


def native(*frames: Frame) -> Look:
    return Look(round=1, at=1.0, stacks=Stacks(process=P, round=1, threads=(ThreadStack(tid=1, main=True, frames=frames),)))


def test_places_and_stacks_of_one_round_make_one_look() -> None:
    pose = Pose()
    closeup = noted(noted(Closeup(), pose.places(P, 1), 5.0), pose.stack(P, 1), 5.5)
    (only,) = closeup.looks[P.pid]
    assert (only.round, only.at) == (1, 5.0)
    assert only.places is not None
    assert only.stacks is not None
    assert (closeup.round, closeup.at) == (1, 5.0)


def test_the_order_of_places_and_stacks_does_not_matter() -> None:
    pose = Pose()
    one = noted(noted(Closeup(), pose.places(P, 1), 5.0), pose.stack(P, 1), 5.0)
    assert one == noted(noted(Closeup(), pose.stack(P, 1), 5.0), pose.places(P, 1), 5.0)


def test_only_the_last_rounds_are_kept_oldest_first() -> None:
    closeup = Closeup()
    for number in range(1, 12):
        closeup = noted(noted(closeup, Pose().places(P, number), float(number)), Pose().stack(P, number), float(number))
    assert [one.round for one in closeup.looks[P.pid]] == list(range(12 - KEPT, 12))
    assert (closeup.round, closeup.at) == (11, 11.0)


def test_a_round_counts_once_it_is_whole() -> None:
    a, b, closeup = key(200), key(201), Closeup()
    for body in (Pose().places(a, 1), Pose().places(b, 1), Pose().stack(a, 1)):
        closeup = noted(closeup, body, 1.0)
        assert closeup.looks == {}
    assert set(noted(closeup, Pose().stack(b, 1), 1.0).looks) == {200, 201}


def test_the_time_of_a_round_is_that_of_its_first_event() -> None:
    closeup = noted(noted(Closeup(), Pose().places(P, 3), 7.0), Pose().places(key(201), 3), 9.0)
    assert closeup.at == 7.0


def test_forgetting_keeps_the_number_of_the_round() -> None:
    closeup = forget(noted(Closeup(), Pose().places(P, 4), 1.0))
    assert (closeup.looks, closeup.round, closeup.at) == ({}, 4, None)
    assert noted(closeup, Pose().places(P, 4), 8.0).at == 8.0


def test_the_innermost_line_and_the_tool_do_not_change_a_posture() -> None:
    assert posture(look(Pose(), 1)) == posture(look(Pose(), 2))


def test_another_line_further_out_another_function_or_another_depth_is_another_posture() -> None:
    usual = posture(look(Pose()))
    assert posture(look(Pose(line=2))) != usual
    assert posture(look(Pose(where="elsewhere"))) != usual
    assert posture(native(Frame("inner", "a.py", 1))) != posture(native(Frame("inner", "a.py", 1), Frame("main", "c.py", 3)))


def test_moving_native_leaves_are_another_posture() -> None:
    assert posture(native(Frame("dgemm", "libblas.so", 0, True))) != posture(native(Frame("memcpy", "libc.so", 0, True)))


def test_without_a_stack_the_place_in_the_kernel_is_the_posture() -> None:
    blind = Pose(stacks=False, wchan="pipe_read")
    assert posture(look(blind)) == posture(look(blind, 2))
    assert posture(look(blind)) != posture(look(replace(blind, wchan="futex_wait")))
    assert posture(look(blind)) != posture(look(replace(blind, state="R")))


def test_with_a_stack_the_place_does_not_matter() -> None:
    """A loop that polls is now asleep and now awake."""
    assert posture(look(Pose(state="S"))) == posture(look(Pose(state="R")))


def test_a_loop_that_tries_again_and_again_stands_in_one_posture() -> None:
    outer = tuple(Frame(f"outer {n}", "a.py", n) for n in range(1, 8))

    def trying(*inner: Frame) -> Look:
        stack = ThreadStack(tid=1, main=True, frames=(*inner, *outer), doing="network")
        return Look(round=1, at=1.0, stacks=Stacks(process=P, round=1, threads=(stack,)))

    assert posture(trying(Frame("create_connection", "socket.py", 9))) == posture(trying(Frame("sleep", "b.py", 1)))
    assert posture(trying()) != posture(native(*outer))


def test_the_same_for_counts_the_last_looks_only() -> None:
    a, b = look(Pose()), look(Pose(line=9))
    assert same_for((b, a, a), 2)
    assert not same_for((a, a, b), 2)
    assert not same_for((b, a, a), 3)
    assert not same_for((a,), 2)
    assert not same_for((), 1)


def test_the_main_threads_own_waits_come_before_those_of_others() -> None:
    mine, other = wait_for(WaitKind.FILE_LOCK, "/lock"), wait_for(WaitKind.POLL, "events", tid=901)
    assert [wait.what for wait in main_waits(look(Pose(waits=(other, mine), threads=(thread(901),))))] == ["/lock"]
    assert [wait.what for wait in main_waits(look(Pose(waits=(other,), threads=(thread(901),))))] == ["events"]


def test_what_was_not_looked_at_has_no_place_no_stack_and_no_waits() -> None:
    nothing = Look(round=1, at=1.0)
    assert (main_place(nothing), main_stack(nothing), main_waits(nothing)) == (None, None, ())
    empty = Look(round=1, at=1.0, places=Places(process=P, round=1), stacks=Stacks(process=P, round=1))
    assert (main_place(empty), main_stack(empty), main_waits(empty)) == (None, None, ())


def test_a_stack_without_frames_is_none() -> None:
    assert main_stack(Look(round=1, at=1.0, stacks=Stacks(process=P, round=1, threads=(ThreadStack(tid=1, main=True),)))) is None


def test_a_thread_that_is_not_the_main_one_tells_no_place() -> None:
    assert main_place(Look(round=1, at=1.0, places=Places(process=P, round=1, threads=(ThreadPlace(tid=5),)))) is None


def test_looks_that_saw_nothing_are_not_the_same_place() -> None:
    blind = look(Pose(blind=True))
    unreadable = look(Pose(stacks=False, wchan=None))
    assert not same_for((blind, blind, blind), 2)
    assert not same_for((unreadable, unreadable, unreadable), 2)


def test_a_rank_that_is_not_done_with_a_command_is_behind_those_that_are() -> None:
    idle = Pose(doing="queue", where="command queue", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2).watch(20, {100: polls(), rank_pid(0): idle, rank_pid(1): sleeps()})
    assert (story.state.decision.verdict, story.state.decision.behind) == (Verdict.HUNG, (1,))
    assert "rank 0 waits for rank 1 in command queue" in story.state.decision.reason


def test_ranks_that_are_all_done_are_not_behind() -> None:
    idle = Pose(doing="queue", where="command queue", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2).watch(8, {100: polls(), rank_pid(0): idle, rank_pid(1): idle})
    assert story.state.decision.behind == ()


def at(pose: Pose, seconds: float) -> Look:
    return replace(look(pose), at=seconds)


def test_the_same_for_counts_the_time_between_the_first_and_the_last_look_that_is_needed() -> None:
    a, b = Pose(), Pose(line=9)
    assert same_for((at(a, 0.0), at(a, 1.0), at(a, 2.5)), 2, 2.5)
    assert not same_for((at(a, 0.1), at(a, 1.0), at(a, 2.5)), 2, 2.5)
    assert same_for((at(a, 0.0), at(a, 0.5), at(a, 1.0)), 2, 0.5)
    assert same_for((at(b, 0.0), at(a, 0.5), at(a, 1.0)), 2, 0.5), "what was before that does not matter"
    assert not same_for((at(b, 0.0), at(a, 0.5), at(a, 1.0)), 2, 0.6)
    assert same_for((at(a, 0.0), at(a, 1.0)), 2, 1.0), "the very first look counts too"


def test_two_processes_that_had_one_pid_do_not_stand_in_one_place() -> None:
    anew = Look(round=2, at=2.0, places=Pose().places(key(200, "other"), 2), stacks=Pose().stack(key(200, "other"), 2))
    assert not same_for((look(Pose()), anew), 2)
    only_stacks = replace(look(Pose()), places=None), replace(anew, places=None)
    assert not same_for(only_stacks, 2)
    assert same_for((only_stacks[0], only_stacks[0]), 2)


def test_a_stack_alone_or_a_place_alone_tells_where_it_stands() -> None:
    no_place = replace(look(Pose()), places=None)
    assert same_for((no_place, no_place), 2)
    no_stack = look(Pose(stacks=False))
    assert same_for((no_stack, no_stack), 2)
    stopped = look(Pose(stacks=False, wchan=None, state="T"))
    assert same_for((stopped, stopped), 2), "a state other than sleep tells by itself"
    seen = look(Pose(stacks=False, wchan=None))
    assert seen.places is not None
    by_call = replace(seen, places=replace(seen.places, threads=(replace(seen.places.threads[0], syscall="futex"),)))
    assert same_for((by_call, by_call), 2)


def test_a_line_further_out_counts_and_only_the_innermost_may_jitter() -> None:
    assert posture(native(Frame("a", "x.py", 1), Frame("b", "x.py", 5))) == posture(native(Frame("a", "x.py", 2), Frame("b", "x.py", 5)))
    assert posture(native(Frame("a", "x.py", 1), Frame("b", "x.py", 5))) != posture(native(Frame("a", "x.py", 1), Frame("b", "x.py", 6)))


def running(*tids: int, main: bool = False) -> Look:
    threads = (ThreadPlace(tid=200, main=True, state="R" if main else "S"), *(ThreadPlace(tid=tid, state="R") for tid in tids))
    return Look(round=1, at=1.0, places=Places(process=P, round=1, threads=(*threads, ThreadPlace(tid=999, state="S"))))


def test_a_thread_that_ran_in_both_of_the_last_two_looks_is_at_work() -> None:
    assert works_beside((running(901), running(901, 902)))
    assert not works_beside((running(901), running(902))), "one after the other had a moment"
    assert not works_beside((running(901),))
    assert not works_beside((running(main=True), running(main=True))), "that is the main thread"
    assert not works_beside((running(901), running(901), running()))
    assert works_beside((running(), running(901), running(901)))
    assert not works_beside((running(901), Look(round=2, at=2.0))), "what was not looked at did not run"


def test_a_main_thread_that_waits_for_another_thread_waits_for_the_file_that_one_hangs_at() -> None:
    inward = wait_for(WaitKind.FUTEX, "a lock in its own memory")
    file, socket = wait_for(WaitKind.FIFO, "/f", nobody=True, tid=901), wait_for(WaitKind.SOCKET, "far", tid=902)
    pose = Pose(waits=(inward, file, socket), threads=(thread(901), thread(902)))
    assert [wait.what for wait in main_waits(look(pose))] == ["a lock in its own memory", "/f"]
    other = replace(pose, waits=(wait_for(WaitKind.FUTEX, "a lock of rank 1", key(201)), file, socket))
    assert [wait.what for wait in main_waits(look(other))] == ["a lock of rank 1"], "its own threads have nothing to do with it"
    polls_too = replace(pose, waits=(inward, wait_for(WaitKind.POLL, "events"), file))
    assert [wait.what for wait in main_waits(look(polls_too))] == ["a lock in its own memory", "events"]


def test_a_look_of_a_round_before_the_last_one_comes_too_late() -> None:
    closeup = noted(noted(Closeup(), Pose().places(P, 3), 1.0), Pose().stack(P, 3), 1.0)
    assert noted(closeup, Pose(line=9).stack(P, 2), 2.0) == closeup


def test_a_round_that_never_became_whole_is_dropped_with_the_next_one() -> None:
    closeup = noted(Closeup(), Pose().places(key(201), 1), 1.0)
    closeup = noted(noted(closeup, Pose().places(P, 2), 2.0), Pose().stack(P, 2), 2.0)
    assert (set(closeup.looks), closeup.at) == ({200}, 2.0)


def test_a_process_that_was_gone_before_its_place_was_read_does_not_hold_up_the_others() -> None:
    closeup = noted(noted(Closeup(), Pose().places(P, 1), 1.0), Pose().stack(P, 1), 1.0)
    gone = Stacks(process=key(201), round=1, error="gone")
    assert set(noted(closeup, gone, 1.0).looks) == {200, 201}
    unplaced = noted(closeup, Pose().stack(key(202), 1), 1.0)
    assert set(unplaced.looks) == {200}, "its place is still to come"


def test_the_stack_of_a_thread_is_found_by_its_number_and_an_empty_one_is_none() -> None:
    seen = look(Pose(threads=(thread(901, where="read"),)))
    found = stack_of(seen, 901)
    assert found is not None
    assert found.where == "read"
    assert stack_of(seen, 902) is None
    assert stack_of(replace(seen, stacks=None), 901) is None
    empty = Look(round=1, at=1.0, stacks=Stacks(process=P, round=1, threads=(ThreadStack(tid=901),)))
    assert stack_of(empty, 901) is None
