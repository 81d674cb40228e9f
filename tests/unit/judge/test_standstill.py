"""After ready, second by second: from when on a standstill is suspected, what a look must show, and what takes it back."""

from dataclasses import replace

import pytest
from story import ROOT, Pose, key, thread

from firsttoken.judge.closeup import Closeup, Look
from firsttoken.judge.hang import Proof, Scene
from firsttoken.judge.motion import Motion
from firsttoken.judge.standstill import Standstill, halted, looked_at, proven, sampled, told
from firsttoken.model.events import Counters, EngineCounters
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, RankTag, Sample
from firsttoken.model.result import RankGroup

SAYS = EngineCounters(generation_tokens=40.0, prompt_tokens=7.0, running=1.0, waiting=0.0)


def after(*bodies: EngineCounters, every: float = 10.0) -> Standstill:
    standstill = Standstill()
    for number, body in enumerate(bodies):
        standstill = told(standstill, body, number * every)
    return standstill


def still(seconds: float = 40.0, motion: float = 40.0, body: EngineCounters = SAYS) -> Standstill:
    """So long without a token, from 100 s on."""
    return Standstill(told=body, told_at=100.0 + seconds, since=100.0, motion=Motion(still=motion))


def member(pid: int, rank: int | None = None, *, tagged: bool = True) -> Member:
    process = ROOT if pid == ROOT.pid else key(pid)
    return Member(process=process, parent=1, title="engine", tag=RankTag(rank=rank) if tagged else None)


def scene(
    poses: dict[int, Pose] | None = None, *, at: float = 130.0, stopped: dict[int, float] | None = None, members: tuple[Member, ...] = ()
) -> Scene:
    known = members or (member(ROOT.pid, tagged=False), member(200, 0), member(201, 1))
    looks = {
        one.process.pid: (Look(round=3, at=at, places=pose.places(one.process, 3), stacks=pose.stack(one.process, 3)),)
        for one in known
        if (pose := (poses or {}).get(one.process.pid)) is not None
    }
    return Scene(members={one.process.pid: one for one in known}, sizes=Sizes(tp=2, world=2, ranks_here=2), still=40.0, root_pid=ROOT.pid,
                 closeup=Closeup(looks=looks, round=3, at=at if looks else None), stopped=stopped or {})  # fmt: skip


def shown(standstill: Standstill, of: Scene) -> Proof:
    found = proven(standstill, of, 140.0)
    assert found is not None
    return found[1]


REST = Pose(doing="queue", where="get")


def test_a_standstill_begins_with_the_first_of_two_times_that_tell_the_same() -> None:
    assert after(SAYS).since is None
    found = after(SAYS, SAYS, SAYS)
    assert (found.since, found.seconds) == (0.0, 20.0)


@pytest.mark.parametrize("change", [
    {"generation_tokens": 41.0}, {"prompt_tokens": 8.0}, {"steps": 1.0}, {"running": 0.0}, {"running": None},
])  # fmt: skip
def test_any_token_any_step_and_an_idle_engine_end_it(change: dict[str, float | None]) -> None:
    assert after(SAYS, SAYS, replace(SAYS, **change)).since is None  # type: ignore[arg-type]  # fields by name
    assert after(SAYS, SAYS, replace(SAYS, **change), SAYS).since is None  # type: ignore[arg-type]  # fields by name


def test_requests_that_only_wait_are_requests_too() -> None:
    waiting = replace(SAYS, running=0.0, waiting=1.0)
    assert after(waiting, waiting).since == 0.0
    assert after(waiting, waiting).busy
    assert not after(replace(SAYS, running=None, waiting=None)).busy
    assert not Standstill().busy


def test_counters_that_could_not_be_had_leave_what_was_known() -> None:
    found = after(SAYS, SAYS, EngineCounters(error="late"))
    assert (found.since, found.seconds, found.failed, found.available, found.asked_at) == (0.0, 10.0, True, True, 20.0)
    assert not after(EngineCounters(error="gone", available=False)).available
    assert not after(EngineCounters(error="late"), SAYS).failed


@pytest.mark.parametrize(("second", "serves"), [
    ({"generation_tokens": 41.0}, True), ({"steps": 2.0}, True), ({"generation_tokens": 39.0}, False), ({"generation_tokens": None}, False),
    ({}, False),
])  # fmt: skip
def test_tokens_between_two_times_are_made_for_others_where_requests_were_there(second: dict[str, float | None], serves: bool) -> None:
    first = replace(SAYS, steps=1.0)
    assert after(first, replace(first, **second)).serves_others is serves  # type: ignore[arg-type]  # fields by name
    assert not after(replace(first, running=0.0), replace(first, **second)).serves_others  # type: ignore[arg-type]  # fields by name
    assert after(first, replace(first, generation_tokens=41.0), replace(SAYS, running=0.0)).serves_others, "once is enough"


@pytest.mark.parametrize(("seconds", "motion", "suspicious"), [(30.0, 30.0, True), (29.9, 60.0, False), (60.0, 29.9, False)])
def test_it_is_suspicious_after_half_a_minute_without_tokens_and_without_motion(seconds: float, motion: float, suspicious: bool) -> None:
    assert still(seconds, motion).suspicious is suspicious


def test_what_moves_is_judged_by_the_processes_behind_the_one_that_answers() -> None:
    front, rank = Sample(100, 1, "S", 0, 0, 0, 0, 0, 0, 0, 1, 1), Sample(200, 1, "S", 0, 0, 0, 0, 0, 0, 0, 1, 1)

    def after_a_second(fronts: frozenset[int], *moved: Sample) -> float:
        standstill = sampled(Standstill(), Counters(interval=1.0, samples=(front, rank)), fronts, 0.0)
        return sampled(standstill, Counters(interval=1.0, samples=moved), fronts, 1.0).motion.still

    busy_front, busy_rank = front._replace(rw_bytes=10**6), rank._replace(rw_bytes=10**6)
    assert after_a_second(frozenset({100}), busy_front, rank) == 1.0
    assert after_a_second(frozenset({100}), front, busy_rank) == 0.0
    assert after_a_second(frozenset({100, 200}), busy_front, rank) == 0.0, "where there is nobody behind, the front counts itself"


# a look


def test_a_look_must_come_after_the_standstill_began_and_be_whole() -> None:
    of = scene({ROOT.pid: REST, 200: REST})
    assert looked_at(of.closeup, still())
    assert not looked_at(of.closeup, Standstill())
    assert not looked_at(scene({200: REST}, at=100.0).closeup, still()), "the look was what came before"
    assert looked_at(scene({200: REST}, at=100.1).closeup, still())
    assert not looked_at(scene().closeup, still())
    (look,) = of.closeup.looks[200]
    half = replace(of.closeup, looks={**of.closeup.looks, 200: (replace(look, stacks=None),)})
    assert not looked_at(half, still())
    older = replace(of.closeup, looks={**of.closeup.looks, 200: (replace(look, stacks=None, round=2),)})
    assert looked_at(older, still()), "who was not looked at this time is not waited for"
    assert not looked_at(replace(of.closeup, round=4), still())


def test_a_look_that_shows_rest_proves_it_and_tells_where_each_process_stands() -> None:
    found = shown(still(body=replace(SAYS, running=2.0, waiting=3.0)), scene({ROOT.pid: REST, 200: REST, 201: Pose(where="all_reduce")}))
    assert found.reason == "2 running and 3 waiting requests, no token for 40 s, and nothing moves"
    assert found.facts == (
        "rank 0 (pid 200): S in get", "rank 1 (pid 201): S in all_reduce", f"the main process (pid {ROOT.pid}): S in get",
    )  # fmt: skip
    assert found.groups == (RankGroup(ranks=(0,), where="get"), RankGroup(ranks=(1,), where="all_reduce"))
    assert "0 running and 3 waiting" in shown(still(body=replace(SAYS, running=None, waiting=3.0)), scene({200: REST})).reason
    assert "1 running and 0 waiting" in shown(still(body=replace(SAYS, waiting=None)), scene({200: REST})).reason


def test_many_processes_are_not_all_told() -> None:
    members = tuple(member(200 + n, n) for n in range(12))
    assert len(shown(still(), scene({200 + n: REST for n in range(12)}, members=members)).facts) == 8


@pytest.mark.parametrize("doing", ["compile", "file_read", "compute", "capture", "import"])
def test_a_look_that_shows_work_takes_the_suspicion_back(doing: str) -> None:
    assert proven(still(), scene({200: REST, 201: Pose(doing=doing)}), 140.0) is None


def test_a_thread_that_compiles_is_work_and_one_that_reads_is_not() -> None:
    assert proven(still(), scene({200: replace(REST, threads=(thread(901, doing="compile"),))}), 140.0) is None
    assert proven(still(), scene({200: replace(REST, threads=(thread(901, doing="file_read"),))}), 140.0) is not None


def test_what_a_helper_does_is_not_the_engines_work() -> None:
    members = (member(200, 0), member(300, tagged=False))
    found = shown(still(), scene({200: REST, 300: Pose(doing="compile")}, members=members))
    assert found.facts == ("rank 0 (pid 200): S in get",)
    only = scene({300: Pose(doing="compile")}, members=(member(300, tagged=False),))
    assert proven(still(), only, 140.0) is None, "where titles tell none, all are the engine's"


def test_without_a_look_it_is_told_twenty_seconds_later_and_never_without_suspicion() -> None:
    assert proven(still(49.9), scene(), 140.0) is None
    assert shown(still(50.0), scene()).facts == ("no stack and no place could be read",)
    assert proven(still(29.0, 90.0), scene({200: REST}), 140.0) is None
    assert proven(replace(still(), told=None), scene({200: REST}), 140.0) is None


# stopped


@pytest.mark.parametrize(("seconds", "told"), [(5.9, False), (6.0, True)])
def test_a_process_of_the_engine_that_is_stopped_for_six_seconds_is_told(seconds: float, told: bool) -> None:
    found = halted(scene(stopped={201: seconds}))
    assert (found is not None) is told
    if found is not None:
        assert found[1].behind == (1,)


def test_the_main_process_counts_and_a_helper_or_a_process_that_is_gone_does_not() -> None:
    found = halted(scene(stopped={ROOT.pid: 9.0}))
    assert found is not None
    who = f"the main process (pid {ROOT.pid}) has been stopped or traced for 9 s"
    assert (found[1].behind, found[0]) == ((), f"{who}; if nobody debugs it, kill -CONT {ROOT.pid} continues it")
    assert found[1].root is not None
    assert (found[1].root.state, found[1].root.where) == ("T", "stopped")
    assert halted(scene(stopped={300: 9.0}, members=(member(300, tagged=False), member(200, 0)))) is None
    assert halted(scene(stopped={999: 9.0})) is None
    both = halted(scene(stopped={999: 9.0, 201: 9.0, 200: 9.0}))
    assert both is not None
    assert both[1].behind == (0,)
