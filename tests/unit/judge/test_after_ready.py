"""After ready: a stopped process, and requests without tokens; a busy, an idle and a compiling engine are left in peace."""

from dataclasses import replace

import pytest
from story import ROOT, Story, plan

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.wants import wants
from firsttoken.model.events import Counters, EngineCounters, Exited, MemberSeen, Places, Stacks
from firsttoken.model.plan import Policy, Routes
from firsttoken.model.process import ListenSocket, Member, ProcessKey, RankTag, Sample
from firsttoken.model.requests import AskCounters, LookClosely, Request
from firsttoken.model.stillness import Frame, ThreadPlace, ThreadStack
from firsttoken.model.words import Verdict

RANK = ProcessKey("node", 200, 5)
WITH_METRICS = plan(routes=Routes(metrics="/metrics"))


def serving() -> Story:
    """Ready at 5 s, with one rank behind the process that listens."""
    story = Story().launch(WITH_METRICS).tell(MemberSeen(member=Member(process=ROOT, parent=0, title="engine serve")))
    story.tell(MemberSeen(member=Member(process=RANK, parent=100, title="engine::rank0", tag=RankTag(rank=0))))
    story.seconds(5, work=100_000).listen().ready_line()
    for _ in range(2):
        story.ask().answer()
    assert verdict(story) is Verdict.READY
    return story


def ten_seconds(story: Story, *, state: str = "S", front: int = 0, behind: int = 0) -> None:
    """One round of counters as after ready; `front` and `behind`: bytes moved by the process that listens and by the rank."""
    story.t += 10
    root, rank = story.sample, story.state.motion.samples.get(RANK.pid, Sample(200, 5, "S", 0, 0, 0, 0, 0, 0, 0, 1000, 4))
    story.sample = root._replace(rw_bytes=root.rw_bytes + front)
    rank = rank._replace(rw_bytes=rank.rw_bytes + behind, state=state)
    story.tell(Counters(interval=10.0, samples=(story.sample, rank)))


def told(tokens: float, running: float = 1.0, steps: float | None = None) -> EngineCounters:
    return EngineCounters(generation_tokens=tokens, prompt_tokens=7.0, running=running, waiting=0.0, steps=steps)


def verdict(story: Story) -> Verdict:
    return story.state.decision.verdict


def asks(story: Story) -> tuple[Request, ...]:
    return wants(story.state, Policy())


def look(story: Story, doing: str | None) -> None:
    frames = (Frame("step", "engine/rank.py", 10),)
    number = story.state.closeup.round + 1
    for key in (ROOT, RANK):
        place = ThreadPlace(tid=key.pid, main=True, state="S", wchan="futex_wait_queue")
        story.tell(Places(process=key, round=number, threads=(place,)))
    for key in (ROOT, RANK):
        stack = ThreadStack(tid=key.pid, main=True, frames=frames, doing=doing if key == RANK else "event_loop", where="step")
        story.tell(Stacks(process=key, round=number, threads=(stack,), tool="py-spy"))


def stands_still(story: Story, rounds: int = 5) -> None:
    for _ in range(rounds):
        ten_seconds(story, front=1_000_000)
        story.tell(told(40))


def test_an_engine_that_serves_is_asked_for_its_counters_every_ten_seconds() -> None:
    story = serving()
    assert asks(story) == ()
    ten_seconds(story)
    assert asks(story) == (AskCounters(),)
    story.tell(told(1))
    assert asks(story) == ()
    ten_seconds(story)
    assert asks(story) == (AskCounters(),)


def test_counters_that_did_not_come_in_time_are_asked_for_seldom_and_a_page_that_is_not_there_never_again() -> None:
    story = serving()
    ten_seconds(story)
    story.tell(EngineCounters(error="/metrics: no whole answer within 5 s"))
    for _ in range(5):
        ten_seconds(story)
        assert asks(story) == ()
    ten_seconds(story)
    assert asks(story) == (AskCounters(),)
    story.tell(EngineCounters(error="/metrics: HTTP 404", available=False))
    for _ in range(20):
        ten_seconds(story)
    assert asks(story) == ()
    assert verdict(story) is Verdict.READY


@pytest.mark.parametrize("of", [plan(), WITH_METRICS])
def test_no_counters_without_a_metrics_page_or_after_the_end(of: object) -> None:
    story = serving()
    story.state = replace(story.state, plan=of)  # type: ignore[arg-type]  # a plan
    if of == WITH_METRICS:
        story.tell(Exited(process=ROOT, code=0, root=True))
    ten_seconds(story)
    assert AskCounters() not in asks(story)


def test_requests_without_tokens_and_without_motion_behind_the_front_are_unserving_after_one_look() -> None:
    story = serving()
    stands_still(story)
    assert verdict(story) is Verdict.READY
    assert LookClosely(number=1) in asks(story)
    look(story, "collective")
    decision = story.state.decision
    assert decision.verdict is Verdict.UNSERVING
    assert "1 running and 0 waiting requests, no token for 40 s" in decision.reason
    assert "rank 0 (pid 200): S in step" in decision.proof
    ten_seconds(story)
    story.tell(told(40))
    assert not any(isinstance(one, LookClosely) for one in asks(story))
    assert story.state.ready_at == 5.0


def test_a_look_that_is_not_whole_decides_nothing() -> None:
    story = serving()
    stands_still(story)
    story.tell(Places(process=RANK, round=1, threads=(ThreadPlace(tid=200, main=True, state="S"),)))
    assert verdict(story) is Verdict.READY
    assert not any(isinstance(one, LookClosely) for one in asks(story))


def test_it_is_ready_again_when_tokens_come() -> None:
    story = serving()
    stands_still(story)
    look(story, "collective")
    story.t += 1
    story.tell(told(41))
    assert verdict(story) is Verdict.READY
    assert story.state.ready_at == 5.0


def test_an_engine_that_compiles_for_a_new_shape_is_left_in_peace_and_looked_at_again_later() -> None:
    story = serving()
    stands_still(story)
    look(story, "compile")
    assert verdict(story) is Verdict.READY
    stands_still(story, 2)
    assert not any(isinstance(one, LookClosely) for one in asks(story))
    stands_still(story, 1)
    assert LookClosely(number=2) in asks(story)


@pytest.mark.parametrize(
    ("tokens", "running", "steps", "behind"),
    [(1, 1, 0, 0), (0, 0, 0, 0), (0, 1, 1, 0), (0, 1, 0, 100_000)],
    ids=["tokens move", "idle", "steps move", "the ranks move"],
)
def test_nothing_is_suspected_and_nobody_looked_at(tokens: int, running: int, steps: int, behind: int) -> None:
    story = serving()
    for i in range(12):
        ten_seconds(story, behind=behind)
        story.tell(told(tokens * i, running=running, steps=float(steps * i)))
        assert not any(isinstance(one, LookClosely) for one in asks(story))
    assert verdict(story) is Verdict.READY


def test_where_no_look_can_be_had_it_is_said_a_little_later() -> None:
    story = serving()
    stands_still(story, 5)
    assert verdict(story) is Verdict.READY
    stands_still(story, 2)
    assert verdict(story) is Verdict.UNSERVING
    assert "no stack and no place could be read" in story.state.decision.proof


def test_a_stopped_rank_is_named_after_two_samples_and_ready_again_when_it_goes_on() -> None:
    story = serving()
    ten_seconds(story)
    ten_seconds(story, state="T")
    assert verdict(story) is Verdict.READY
    ten_seconds(story, state="T")
    decision = story.state.decision
    assert decision.verdict is Verdict.UNSERVING
    assert "rank 0 (pid 200) has been stopped or traced for 10 s" in decision.reason
    assert decision.behind == (0,)
    ten_seconds(story)
    assert verdict(story) is Verdict.READY


def test_a_stopped_helper_that_is_none_of_the_engines_own_processes_is_no_matter() -> None:
    story = serving()
    story.tell(MemberSeen(member=Member(process=RANK, parent=100, title="tail -f log")))
    for _ in range(4):
        ten_seconds(story, state="T")
    assert verdict(story) is Verdict.READY


def test_the_same_events_give_the_same_verdicts() -> None:
    story = serving()
    story.tell(MemberSeen(member=Member(process=RANK, parent=100, title="engine::rank0", tag=RankTag(rank=0))))
    stands_still(story)
    look(story, "collective")
    story.tell(told(50), replace(told(50), waiting=None), EngineCounters())
    state = initial()
    again = []
    for event in story.events:
        state = advance(state, event)
        again.append(state.decision.verdict)
    assert state.decision == story.state.decision
    assert Verdict.UNSERVING in again


def test_a_unix_socket_without_a_pid_is_no_front() -> None:
    story = serving()
    story.state = replace(story.state, sockets=(ListenSocket(0, "127.0.0.1", 8000, None),))
    stands_still(story)
    assert not story.state.standstill.suspicious
