"""The ranks behind: the strongest sign wins, and nobody is named where all are alike."""

from dataclasses import replace

import pytest
from attached_facts import TWO, error, facts, gpu, milestone, process, stack

from firsttoken.explain.behind import behind
from firsttoken.explain.facts import Facts
from firsttoken.model.attached import Attached
from firsttoken.model.collectives import Comparison
from firsttoken.model.plan import Plan, Sizes
from firsttoken.model.reading import Told
from firsttoken.model.words import Phase, Verdict

RANKS = {31: 0, 32: 1, 33: 2}
ONE = Plan(engine="engine")
THREE = Plan(engine="engine", sizes=Sizes(tp=3, world=3, ranks_here=3))


def hung(shown: Facts) -> tuple[int, ...]:
    return behind(shown, Verdict.HUNG)


def cpus(*of: float | None, wchans: tuple[str | None, ...] = ()) -> tuple[int, ...]:
    """Ranks with so much processor time, named by the list of processes alone."""
    lines = tuple(replace(process(31 + i, wchan=wchans[i] if i < len(wchans) else None), cpu=cpu) for i, cpu in enumerate(of))
    return hung(facts(Attached(processes=lines), plan=THREE, rank_of=RANKS))


def died(*told: Told, plan: Plan = TWO, log: bytes = b"x\n") -> tuple[int, ...]:
    return behind(facts(Attached(log=log), plan=plan, told=told), Verdict.FAILED)


def test_a_ready_server_has_nobody_behind() -> None:
    stopped = facts(Attached(processes=(process(31), process(32, "T"))), rank_of=RANKS)
    assert behind(stopped, Verdict.READY) == ()
    assert behind(stopped, Verdict.UNSERVING) == (1,)


def test_a_stopped_rank_is_behind_whatever_a_recorder_and_the_log_say() -> None:
    told = Comparison(source="flight_recorder", ranks=(0, 1), behind=(0,))
    shown = Attached(processes=(process(31), process(32, "t")), flight_recorder=told)
    assert hung(facts(shown, rank_of=RANKS)) == (1,)
    assert hung(facts(replace(shown, processes=(process(31), process(32))), rank_of=RANKS)) == (0,)


def test_a_process_without_a_rank_is_not_named_though_it_is_stopped() -> None:
    assert hung(facts(Attached(processes=(process(31, "T"), process(32))))) == ()


@pytest.mark.parametrize(("named", "plan", "told"), [((1,), TWO, (1,)), ((2,), TWO, ()), ((1, 2), TWO, ()), ((3,), ONE, (3,))])
def test_a_recorder_names_ranks_of_this_world_and_where_the_world_is_not_told_any(
    named: tuple[int, ...], plan: Plan, told: tuple[int, ...]
) -> None:
    comparison = Comparison(source="flight_recorder", ranks=(0, 1), behind=named)
    assert hung(facts(Attached(flight_recorder=comparison), plan=plan)) == told


def test_a_rank_whose_compilers_are_busy_is_behind_unless_all_compile() -> None:
    def below(*parents: int) -> tuple[int, ...]:
        compilers = tuple(process(40 + n, "R", 99.0, parent=parent, title="/usr/bin/ninja -v") for n, parent in enumerate(parents))
        return hung(facts(Attached(processes=(process(31), process(32), *compilers)), rank_of=RANKS))

    assert below(32) == (1,)
    assert below(31, 32) == ()
    assert below(7) == ()


def test_an_earlier_phase_is_behind_and_one_that_the_profile_leaves_out_is_the_earliest() -> None:
    places = {0: Phase.KV_CACHE, 1: Phase.WEIGHTS, 2: Phase.WEIGHTS}
    assert hung(facts(plan=THREE, places=places)) == (1, 2)
    short = replace(TWO, phases=(Phase.PROCESS_START, Phase.WEIGHTS))
    assert hung(facts(plan=short, places={0: Phase.WEIGHTS, 1: Phase.COMPILE})) == (1,)
    assert hung(facts(plan=short, places={0: Phase.PROCESS_START, 1: Phase.COMPILE})) == ()
    assert hung(facts(places={})) == ()


def test_the_log_tells_more_than_processor_time() -> None:
    lines = (process(31, cpu=99.0), process(32, cpu=0.0))
    places = {0: Phase.KV_CACHE, 1: Phase.WEIGHTS}
    assert hung(facts(Attached(processes=lines), rank_of=RANKS, places=places)) == (1,)


@pytest.mark.parametrize(("of", "told"), [
    ((90.0, 4.9, 4.9), (0,)),
    ((89.9, 0.0, 0.0), ()),
    ((99.0, 5.0, 0.0), ()),
    ((99.0, 99.0, 0.0), (0, 1)),
    ((99.0, None, 0.0), (0,)),
    ((99.0, 99.0, 99.0), ()),
    ((0.0, 0.0, 0.0), ()),
    ((99.0, 50.0, 0.0), ()),
])  # fmt: skip
def test_ranks_that_burn_a_core_beside_calm_ones_are_behind_and_any_in_between_leaves_it_open(
    of: tuple[float | None, ...], told: tuple[int, ...]
) -> None:
    assert cpus(*of) == told


def test_ranks_that_sleep_or_wait_for_a_lock_beside_others_are_behind() -> None:
    assert cpus(0.1, 0.1, 0.1, wchans=(None, "hrtimer_nanosleep")) == (1,)
    assert cpus(99.0, 0.1, 0.1, wchans=(None, "hrtimer_nanosleep")) == (1,), "who sleeps tells more than who burns a core"
    assert cpus(0.1, 0.1, 0.1, wchans=("hrtimer_nanosleep",) * 3) == ()
    locked = Attached(stacks=(stack(31, "all_reduce"), stack(32, "acquire", file="x/filelock/_api.py")))
    assert hung(facts(locked, rank_of=RANKS)) == (1,)


def test_a_lone_rank_is_behind_nobody() -> None:
    assert hung(facts(Attached(processes=(process(31, wchan="hrtimer_nanosleep"),)), rank_of=RANKS)) == ()
    both = (process(31, cpu=99.0), process(32, cpu=0.0))
    assert hung(facts(Attached(processes=both), rank_of=RANKS)) == (0,)


def test_gpus_alone_name_no_rank() -> None:
    assert hung(facts(Attached(gpus=(gpu(100, 100.0), gpu(0, 70.0))), rank_of=RANKS)) == ()


# deaths


def test_the_rank_that_the_engine_names_with_its_exit_code_died_first() -> None:
    named = error("a worker died")
    named = named._replace(line=replace(named.line, values={"rank": 1.0, "code": -9.0}))
    assert died(error("boom", rank=0), named) == (1,)
    without = named._replace(line=replace(named.line, values={"rank": 1.0}))
    assert died(error("boom", rank=0), without) == (0,)
    unreadable = named._replace(line=replace(named.line, values={"rank": "one", "code": -9.0}))
    assert died(error("boom", rank=0), unreadable) == (0,)


def test_without_an_error_or_a_rank_or_others_nobody_is_named() -> None:
    assert died() == ()
    assert died(milestone(Phase.WEIGHTS, rank=1)) == ()
    assert died(error("boom")) == ()
    assert died(error("boom", rank=0), plan=ONE) == ()
    assert died(error("boom", rank=0)) == (0,)


def test_a_timeout_among_the_next_lines_means_that_others_were_waited_for_and_a_later_one_does_not() -> None:
    boom, late = error("boom", rank=1), error("store timed out", rank=0)
    other = error("connection reset", rank=0)
    assert died(boom, other, late) == ()
    assert died(boom, other, other, late) == (1,)


def test_errors_that_differ_in_numbers_only_are_alike() -> None:
    assert died(error("ValueError: rank 0 at 0x1f", rank=0), error("ValueError: rank 1 at 0x2f", rank=1)) == ()
    assert died(error("ValueError: no file", rank=0), error("ValueError: no memory", rank=1)) == (0,)
    assert died(error("boom", rank=0), error("boom", "other", rank=1)) == (0,)


def test_the_far_end_of_a_long_text_makes_no_difference() -> None:
    same = "ValueError: " + "x" * 200
    assert died(error(same + "here", rank=0), error(same + "there", rank=1)) == ()


@pytest.mark.parametrize(("lost", "told"), [((0, 2), (1,)), ((1, 2), (0,)), ((0,), ()), ((0, 1, 2), ())])
def test_the_one_rank_without_a_lost_peer_is_named_only_where_all_others_lost_theirs(lost: tuple[int, ...], told: tuple[int, ...]) -> None:
    log = "".join(f"[rank{rank}]:[W c10d] recvBytes failed\n" for rank in lost).encode()
    assert died(error("worker died"), plan=THREE, log=log) == told


def test_one_lost_peer_of_two_ranks_singles_nobody_out() -> None:
    assert died(error("worker died"), log=b"[rank0]:[W c10d] Broken pipe\n") == ()
