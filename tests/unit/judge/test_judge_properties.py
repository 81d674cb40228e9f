"""Properties of the judge: numbering, order and chunking do not matter, and no list of events makes it raise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from story import ROOT, Pose, Story, collective, key, lock_of, plan, polls, rank_pid, sleeps, thread, wait_for

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.outcome import result
from firsttoken.judge.wants import wants
from firsttoken.model import events as ev
from firsttoken.model.codec import decode, encode
from firsttoken.model.collectives import Comparison, Disagreement, Discord
from firsttoken.model.gpu import GpuProcess, GpuSample
from firsttoken.model.plan import Budget, Endpoint, Plan, Policy, Sizes, Timer
from firsttoken.model.process import ListenSocket, Member, ProcessKey, RankTag, Sample, ShardFile
from firsttoken.model.requests import AskForToken, AskHealth, LookClosely
from firsttoken.model.stillness import Frame, ThreadPlace, ThreadStack, WaitKind
from firsttoken.model.words import OPEN_VERDICTS, Edge, Phase, ProbeKind, Role, Verdict

# the same stories, told in another way

KINDS = (
    "all_reduce",
    "rendezvous",
    "lock",
    "bystander",
    "fifo",
    "sleep",
    "busy",
    "spin",
    "connect",
    "beside",
    "blind",
    "child",
)
Stand = tuple[str, int]
"""a kind of pose, and the rank that it is for where it is for one"""


def pose(stand: Stand, number: Sequence[int]) -> Pose:
    kind, target = stand
    peer = key(rank_pid(number[target % len(number)]))
    return {
        "all_reduce": collective("all_reduce"),
        "rendezvous": Pose(doing="rendezvous", where="store wait", waits=(wait_for(WaitKind.SOCKET, "store", ROOT),)),
        "lock": lock_of(peer),
        "bystander": lock_of(key(4242)),
        "fifo": Pose(doing="file_read", where="read", waits=(wait_for(WaitKind.FIFO, "/fifo", nobody=True),)),
        "sleep": sleeps(),
        "busy": Pose(state="R", where="native call"),
        "spin": Pose(state="R", doing="cuda_sync", where="synchronize"),
        "retry": replace(sleeps(), doing="network", where="download"),
        "connect": Pose(where="connect", waits=(wait_for(WaitKind.CONNECT, "10.0.0.9:1", observable=False),)),
        "beside": Pose(where="result", waits=(wait_for(WaitKind.FUTEX, "a lock"),), threads=(thread(901, state="R"),)),
        "blind": Pose(blind=True),
        "child": Pose(where="wait", waits=(wait_for(WaitKind.CHILD, "a child", peer),)),
    }[kind]


def told(stands: Sequence[Stand], number: Sequence[int]) -> dict[int, Pose]:
    """Rank i of the story is told as rank `number[i]`."""
    return {ROOT.pid: polls()} | {rank_pid(number[i]): pose(stand, number) for i, stand in enumerate(stands)}


stands = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4)), min_size=1, max_size=5)


def shuffled(of: Sequence[Stand]) -> st.SearchStrategy[tuple[list[Stand], list[int]]]:
    return st.tuples(st.just(list(of)), st.permutations(range(len(of))))


def watched(poses: Mapping[int, Pose], n: int, **how: Any) -> Story:
    return Story().crew(n, order=how.pop("members", None)).watch(how.pop("seconds", 16), poses, **how)


@settings(max_examples=15, deadline=None)
@given(stands.flatmap(shuffled))
def test_a_verdict_does_not_depend_on_how_ranks_are_numbered(drawn: tuple[list[Stand], list[int]]) -> None:
    of, number = drawn
    usual, renumbered = (watched(told(of, by), len(of)) for by in (range(len(of)), number))
    a, b = usual.state.decision, renumbered.state.decision
    assert a.verdict is b.verdict
    assert sorted(number[rank] for rank in a.behind) == list(b.behind)
    assert groups(usual, number) == groups(renumbered, range(len(of)))


def groups(story: Story, number: Sequence[int]) -> set[tuple[frozenset[int], str]]:
    hang = story.state.decision.hang
    return set() if hang is None else {(frozenset(number[rank] for rank in one.ranks), one.where) for one in hang.groups}


@settings(max_examples=15, deadline=None)
@given(stands.flatmap(shuffled), st.booleans())
def test_the_order_of_events_within_a_round_does_not_matter(drawn: tuple[list[Stand], list[int]], mixed: bool) -> None:
    of, number = drawn
    poses = told(of, range(len(of)))
    usual = watched(poses, len(of))
    order = [*(rank_pid(i) for i in number), ROOT.pid]
    other = watched(poses, len(of), members=number, order=order, mixed=mixed)
    a, b = result(usual.state), result(other.state)
    assert (a.verdict, a.ranks.behind) == (b.verdict, b.ranks.behind)
    assert sorted(map(str, a.waits)) == sorted(map(str, b.waits))
    assert sorted(map(str, a.ranks.groups)) == sorted(map(str, b.ranks.groups))


@settings(max_examples=15, deadline=None)
@given(stands, st.lists(st.integers(0, 400), max_size=6))
def test_folding_in_any_pieces_and_from_the_record_gives_the_same_decision(of: list[Stand], cuts: list[int]) -> None:
    story = watched(told(of, range(len(of))), len(of))
    lines = [encode(event) for event in story.events]
    state = initial()
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(lines)], strict=True):
        for line in lines[begin:end]:
            event = decode(line)
            assert event is not None
            state = advance(state, event)
    assert state == story.state


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("busy", "retry", "connect", "bystander")), st.integers(0, 4)), min_size=1, max_size=5))
def test_ranks_that_may_go_on_by_themselves_are_never_hung(of: list[Stand]) -> None:
    story = watched(told(of, range(len(of))), len(of), seconds=30)
    assert story.state.decision.verdict in (Verdict.WAITING, Verdict.STALLED)


@settings(max_examples=8, deadline=None)
@given(stands)
def test_moving_counters_are_never_anything_but_a_start(of: list[Stand]) -> None:
    story = Story().crew(len(of))
    for _ in range(20):
        story.seconds(1, work=100_000)
        assert not any(isinstance(request, LookClosely) for request in wants(story.state, Policy()))
        story.look(told(of, range(len(of))))
        assert story.state.decision.verdict is Verdict.STARTING


# arbitrary events

NODES = st.sampled_from(["node", "other", ""])
PIDS = st.sampled_from([0, -1, 1, 100, 200, 201, 4242])
KEYS = st.builds(ProcessKey, NODES, PIDS, st.sampled_from([1, 200, 201, 4242, -1]))
FLOATS = st.one_of(st.floats(-100, 1e7), st.sampled_from([0.0, float("inf"), float("-inf"), float("nan"), 1e300, -1e300]))
FINITE = st.one_of(st.floats(-100, 1e5), st.sampled_from([0.0, 1e12, -1e12]))
RANKS = st.one_of(st.none(), st.integers(-2, 6))
TEXT = st.sampled_from(["", "x", "connect", "0", "é" * 400])
TAGS = st.one_of(st.none(), st.builds(RankTag, rank=RANKS, dp=RANKS, pp=RANKS, tp=RANKS, ep=RANKS, pid=st.one_of(st.none(), PIDS)))
VALUES = st.dictionaries(
    st.sampled_from(["seconds", "shards", "shards_done", "rank", "pid", "exit_code", "bytes", "version", "port", "url"]),
    st.one_of(TEXT, FINITE),
    max_size=4,
)
COUNTS = st.sampled_from([-1, 0, 1, 4096, 10**9, 10**15])
STATES = st.sampled_from(["R", "S", "D", "T", "t", "Z", "?", "", "X"])
SIGNALS = st.one_of(st.none(), st.sampled_from([0, 9, 11, 15, 64, 200, -3]))
FRAMES = st.builds(Frame, TEXT, TEXT, st.integers(-1, 3), st.booleans())
DOINGS = st.one_of(
    st.none(), st.sampled_from(["collective", "rendezvous", "cuda_sync", "spin", "network", "sleep_retry", "compile", "queue"])
)
THREADS = st.builds(
    ThreadStack,
    tid=PIDS,
    main=st.booleans(),
    frames=st.lists(FRAMES, max_size=2).map(tuple),
    doing=DOINGS,
    where=st.one_of(st.none(), TEXT),
)
SPOTS = st.builds(
    ThreadPlace, tid=PIDS, main=st.booleans(), state=STATES, wchan=st.one_of(st.none(), TEXT), syscall=st.one_of(st.none(), TEXT)
)
WAITS = st.builds(
    lambda **k: replace(wait_for(k.pop("kind")), **k),
    kind=st.sampled_from(WaitKind),
    waiter=KEYS,
    tid=PIDS,
    to=st.one_of(st.none(), KEYS),
    in_run=st.booleans(),
    observable=st.booleans(),
    nobody=st.booleans(),
    to_title=st.one_of(st.none(), TEXT),
    timeout_s=st.one_of(st.none(), FLOATS),
)
SAMPLES = st.builds(Sample, PIDS, st.sampled_from([1, 200]), STATES, *[COUNTS] * 9)
SIZES = st.builds(
    Sizes, tp=st.integers(0, 4), pp=st.integers(0, 2), dp=st.integers(0, 2), world=st.integers(-1, 8), ranks_here=st.integers(-1, 8)
)
PHASES = st.sampled_from(Phase)
PLANS = st.builds(
    Plan,
    engine=st.one_of(st.none(), TEXT),
    role=st.sampled_from(Role),
    sizes=SIZES,
    listens_before_load=st.booleans(),
    phases=st.lists(PHASES, min_size=1, unique=True).map(tuple),
    ended_by_line=st.lists(PHASES, max_size=3).map(tuple),
    budgets=st.lists(st.builds(Budget, phase=PHASES, seconds=FINITE, source=TEXT), max_size=2).map(tuple),
    timers=st.lists(st.builds(Timer, name=TEXT, seconds=FINITE, phases=st.lists(PHASES, max_size=2).map(tuple)), max_size=2).map(tuple),
    endpoint=st.builds(
        Endpoint,
        host=st.one_of(st.none(), TEXT),
        port=st.one_of(st.none(), st.sampled_from([0, 8000])),
        unix_socket=st.one_of(st.none(), TEXT),
    ),
)
PROBES = st.sampled_from(ProbeKind)
ANSWERS = st.builds(
    ev.HttpAnswer,
    probe=PROBES,
    url=TEXT,
    status=st.sampled_from([None, 0, 200, 401, 404, 500, 503]),
    first_token_s=st.one_of(st.none(), FLOATS),
    tokens=st.sampled_from([None, -1, 0, 8]),
    text=st.one_of(st.none(), TEXT),
    error=st.one_of(st.none(), TEXT),
    body=st.one_of(st.none(), TEXT),
)
LINES = st.builds(
    ev.LogLine,
    offset=COUNTS,
    length=COUNTS,
    text=TEXT,
    tag=TAGS,
    milestone=st.one_of(st.none(), TEXT),
    phase=st.one_of(st.none(), PHASES),
    edge=st.one_of(st.none(), st.sampled_from(Edge)),
    error=st.one_of(st.none(), TEXT),
    scope=st.sampled_from(["one", "rank", "main", "?"]),
    fatal=st.booleans(),
    claims_ready=st.booleans(),
    values=VALUES,
)
NUMBERS = st.one_of(st.none(), FINITE)
GPUS = st.builds(
    GpuSample,
    index=st.integers(-1, 4),
    busy=NUMBERS,
    memory_busy=NUMBERS,
    dram=NUMBERS,
    memory_used=st.one_of(st.none(), COUNTS),
    power=NUMBERS,
    power_limit=NUMBERS,
    pcie_rx=NUMBERS,
    nvlink_tx=NUMBERS,
    throttled=st.lists(TEXT, max_size=2).map(tuple),
    xids=st.lists(COUNTS, max_size=2).map(tuple),
    processes=st.one_of(st.none(), st.lists(st.builds(GpuProcess, pid=PIDS, memory=st.one_of(st.none(), COUNTS)), max_size=2).map(tuple)),
    lost=st.booleans(),
)
RANKS = st.lists(st.integers(-1, 9), max_size=3).map(tuple)
DISAGREEMENTS = st.builds(Disagreement, kind=st.sampled_from(Discord), group=TEXT, seq=st.none(), ranks=RANKS, text=TEXT)
COMPARISONS = st.builds(
    Comparison,
    source=st.sampled_from(("flight_recorder", "nccl_ras", "another")),
    ranks=RANKS,
    behind=RANKS,
    disagreements=st.lists(DISAGREEMENTS, max_size=2).map(tuple),
)
BODIES: st.SearchStrategy[ev.Body] = st.one_of(
    st.builds(ev.Planned, plan=PLANS, policy=st.builds(Policy, probe=st.booleans(), still_after=FINITE, answer_budget=FINITE)),
    st.builds(ev.Launched, process=KEYS, argv=st.just(()), adopted=st.booleans()),
    st.builds(ev.LaunchFailed, error=TEXT),
    st.builds(ev.MemberSeen, member=st.builds(Member, process=KEYS, parent=PIDS, title=TEXT, tag=TAGS)),
    st.builds(ev.MemberGone, process=KEYS),
    st.builds(ev.Exited, process=KEYS, code=SIGNALS, signal=SIGNALS, root=st.booleans()),
    st.builds(ev.Emptied),
    st.builds(ev.OomKill, source=TEXT, pid=st.one_of(st.none(), PIDS)),
    LINES,
    st.builds(ev.LogActivity, bytes=COUNTS, lines=COUNTS, fresh=COUNTS, offset=COUNTS, last=TEXT),
    st.builds(ev.Counters, interval=st.sampled_from([0.0, 1.0, -1.0, 10.0]), samples=st.lists(SAMPLES, max_size=4).map(tuple)),
    st.builds(
        ev.Listening,
        sockets=st.lists(st.builds(ListenSocket, PIDS, TEXT, st.sampled_from([None, 8000]), st.one_of(st.none(), TEXT)), max_size=2).map(
            tuple
        ),
    ),
    st.builds(
        ev.WeightProgress, shards=COUNTS, shards_done=COUNTS, bytes=COUNTS, bytes_done=COUNTS, files=st.just((ShardFile("", 0, -1),))
    ),
    st.builds(ev.WeightStorage, shards=COUNTS, bytes=COUNTS, cached=st.one_of(st.none(), COUNTS), place=TEXT, bytes_per_s=FINITE),
    st.builds(ev.LoadSample, seconds=FINITE, user_s=FINITE, major_faults=COUNTS, reads=COUNTS, read_bytes=COUNTS, stored_bytes=COUNTS),
    st.builds(ev.Prefetched, bytes=COUNTS, done=COUNTS, read=COUNTS, seconds=FINITE, ended=st.one_of(st.none(), TEXT)),
    st.builds(ev.Memory, unique=COUNTS, shared=COUNTS),
    st.builds(ev.HttpAsked, probe=PROBES, url=TEXT),
    ANSWERS,
    st.builds(
        ev.EngineCounters,
        running=st.one_of(st.none(), FINITE),
        waiting=st.one_of(st.none(), FINITE),
        generation_tokens=st.one_of(st.none(), FINITE),
        error=st.one_of(st.none(), TEXT),
        available=st.booleans(),
    ),
    st.builds(
        ev.Stacks,
        process=KEYS,
        round=st.integers(-1, 8),
        threads=st.lists(THREADS, max_size=3).map(tuple),
        error=st.one_of(st.none(), TEXT),
    ),
    st.builds(
        ev.Places,
        process=KEYS,
        round=st.integers(-1, 8),
        threads=st.lists(SPOTS, max_size=3).map(tuple),
        waits=st.lists(WAITS, max_size=3).map(tuple),
    ),
    st.builds(ev.Gpus, interval=FINITE, samples=st.lists(GPUS, max_size=3).map(tuple)),
    st.builds(ev.Collectives, comparison=COMPARISONS),
    st.builds(ev.Checked, checks=st.just(()), seconds=FINITE),
    st.builds(ev.Installed, versions=st.dictionaries(TEXT, TEXT, max_size=2)),
    st.builds(ev.Missed, request=TEXT, reason=TEXT),
    st.builds(ev.StopAsked, by=TEXT),
    st.builds(ev.SignalSent, signal=st.integers(-1, 70), pid=PIDS, why=TEXT),
    st.builds(ev.Tick),
    st.builds(ev.Gap, what=TEXT, amount=COUNTS, reason=TEXT),
    st.builds(ev.SecretsInLog, ranges=st.just(((0, 4),))),
    st.builds(ev.RecordingStopped, reason=TEXT),
    st.builds(ev.ObserverStarted, pid=PIDS),
    st.builds(ev.ObserverLost, pid=PIDS, status=TEXT),
    st.builds(ev.Judged, verdict=st.sampled_from(Verdict), phase=PHASES, reason=TEXT),
    st.builds(ev.UnknownEvent, original=TEXT),
)
EVENTS = st.builds(
    ev.Event, seq=st.integers(0, 9), t=FINITE, wall=st.one_of(FINITE, st.sampled_from([1e18, -1e18])), node=NODES, body=BODIES
)


def test_every_kind_of_event_is_among_the_arbitrary_ones() -> None:
    assert len(BODIES.branches) == len(ev.Body.__args__)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(EVENTS, max_size=25))
def test_no_list_of_events_makes_the_judge_raise(told: list[ev.Event]) -> None:
    state, was_ready = initial(), False
    for event in told:
        state = advance(state, event)
        requests = wants(state, state.policy)
        assert len(requests) == len({type(request) for request in requests})
        assert not was_ready or not any(isinstance(one, AskForToken | AskHealth) for one in requests), "it has shown its tokens"
        document = result(state)
        assert document.verdict is state.decision.verdict
        assert (document.still_s is None) == (state.decision.verdict not in OPEN_VERDICTS)
        was_ready = was_ready or state.ready_at is not None


def still_run(after: list[ev.Event]) -> None:
    story = Story().launch(plan(sizes=Sizes(tp=2, world=2, ranks_here=2))).member(ROOT.pid)
    for rank in (0, 1):
        story.member(rank_pid(rank), rank=rank)
    story.seconds(30)
    state = story.state
    for event in after:
        state = advance(state, event)
        result(state)
        wants(state, state.policy)


LOOKS = st.one_of(
    st.builds(
        ev.Stacks,
        process=st.sampled_from([ROOT, key(200), key(201)]),
        round=st.integers(1, 6),
        threads=st.lists(THREADS, max_size=3).map(tuple),
    ),
    st.builds(
        ev.Places,
        process=st.sampled_from([ROOT, key(200), key(201)]),
        round=st.integers(1, 6),
        threads=st.lists(SPOTS, max_size=3).map(tuple),
        waits=st.lists(WAITS, max_size=3).map(tuple),
    ),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.builds(ev.Event, seq=st.just(1), t=st.floats(30, 90), wall=FINITE, node=NODES, body=LOOKS), max_size=30))
def test_no_looks_at_a_still_run_make_the_judge_raise(told: list[ev.Event]) -> None:
    still_run(sorted(told, key=lambda event: getattr(event.body, "round", 0)))
