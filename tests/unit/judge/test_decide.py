"""Where verdicts begin and end, in seconds and in words: graces, budgets, which cause is told first, and what is not said."""

import signal
from dataclasses import replace

import pytest
from story import ROOT, Pose, Story, collective, key, lock_of, plan, polls, rank_pid, ranks, wait_for

from firsttoken.judge.decide import signal_name, weight_rate
from firsttoken.model.events import (
    Emptied,
    EngineCounters,
    Exited,
    HttpAnswer,
    Launched,
    LaunchFailed,
    LogLine,
    OomKill,
    Planned,
    SignalSent,
    StopAsked,
    Tick,
    WeightProgress,
)
from firsttoken.model.plan import Budget, Endpoint, Plan, Policy
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Edge, Phase, ProbeKind, Role, Verdict


def verdict(story: Story) -> Verdict:
    return story.state.decision.verdict


def reason(story: Story) -> str:
    return story.state.decision.reason


def at(story: Story, t: float) -> Story:
    story.t = t
    return story.tell(Tick())


def ready() -> Story:
    """Its first token came at 5 s."""
    return Story().launch().seconds(5, work=100_000).listen().ready_line().ask().answer().ask().answer()


def died(story: Story, pid: int = 107, number: int = signal.SIGKILL) -> Story:
    return story.tell(Exited(process=key(pid), signal=number))


def adopted(of: Plan | None = None, policy: Policy | None = None) -> Story:
    story = Story()
    return story.tell(Planned(plan=of or plan(), policy=policy or Policy()), Launched(process=ROOT, argv=("serve",), adopted=True))


# how it ended


def test_an_end_is_told_with_its_time_its_status_and_what_came_before() -> None:
    story = Story().launch().seconds(5, work=100_000).exit(code=3).seconds(20)
    assert (verdict(story), reason(story)) == (Verdict.FAILED, "ended with status 3 after 5.0 s, before its first token")
    after = ready().seconds(4, work=100_000).exit(code=1)
    assert reason(after) == "ended with status 1 after 9.0 s, 4.0 s after its first token"
    orderly = ready().seconds(4, work=100_000).exit(code=0).tell(Emptied())
    assert (verdict(orderly), reason(orderly)) == (Verdict.READY, "served its first token at 5.0 s; ended with status 0 after 9.0 s")


def test_an_end_without_an_error_is_told_with_the_last_line() -> None:
    story = Story().launch().seconds(1, log=1).exit(code=1)
    assert reason(story).endswith("; its last line: something new")


def test_a_command_that_cannot_be_started_says_why_whatever_else_is_known() -> None:
    story = Story().launch().tell(LaunchFailed(error="no such file")).exit(code=127)
    assert (verdict(story), reason(story)) == (Verdict.FAILED, "no such file")


def test_an_end_that_nobody_saw_is_told_as_such() -> None:
    story = adopted().seconds(4, work=100_000).tell(Emptied())
    assert (verdict(story), reason(story)) == (Verdict.UNKNOWN, "it ended after 4.0 s, before its first token, and how was not seen")
    told = adopted().error("a warning", fatal=False).tell(Emptied())
    assert (verdict(told), told.state.decision.proof) == (Verdict.UNKNOWN, ("a warning",))
    assert reason(told).endswith("how was not seen: a warning")
    served = ready().tell(Emptied())
    assert (verdict(served), reason(served)) == (
        Verdict.READY,
        "served its first token at 5.0 s; it ended after 5.0 s, and how was not seen",
    )
    fatal = ready().error("boom").tell(Emptied())
    assert (verdict(fatal), reason(fatal)) == (Verdict.FAILED, "ended after 5.0 s, 0.0 s after its first token: boom")
    killed = adopted().tell(OomKill(source="cgroup", pid=1), Emptied())
    assert (verdict(killed), reason(killed)) == (Verdict.CRASHED, "killed by the kernel's OOM killer (cgroup: 1) after 0.0 s")
    stopped = adopted().tell(StopAsked(by="stop"), Emptied())
    assert (verdict(stopped), reason(stopped)) == (Verdict.UNKNOWN, "stopped (stop) after 0.0 s, before its first token")


def test_an_end_by_request_keeps_what_was_decided_and_says_by_whom() -> None:
    going = Story().launch().seconds(2, work=100_000).tell(StopAsked(by="stop"))
    assert (verdict(going), reason(going)) == (Verdict.STARTING, "process_start for 2.0 s: moving: bytes; being stopped (stop)")
    assert reason(going.exit(signal=15)) == "stopped (stop) after 2.0 s, before its first token"
    failed = Story().launch().error("boom").tell(StopAsked(by="stop")).exit(code=1)
    assert reason(failed) == "the engine reported an error it cannot go on from: boom; then stopped (stop) after 0.0 s"
    assert failed.state.decision.proof == ("boom",)
    served = ready().tell(StopAsked(by="SIGTERM")).exit(code=0).tell(Emptied())
    assert reason(served) == "served its first token at 5.0 s; ended after 5.0 s (SIGTERM)"


def test_a_hang_stays_told_with_its_ranks_while_it_is_stopped() -> None:
    fifo = Pose(where="read", waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),))
    story = Story().crew(2).watch(8, {ROOT.pid: polls(), rank_pid(0): collective(), rank_pid(1): fifo}).tell(StopAsked(by="stop"))
    assert (verdict(story), story.state.decision.behind) == (Verdict.HUNG, (1,))
    story.exit(signal=15)
    assert (verdict(story), story.state.decision.behind) == (Verdict.HUNG, (1,))


# crashes


@pytest.mark.parametrize(("number", "crashed"), [
    (signal.SIGKILL, True), (signal.SIGSEGV, True), (signal.SIGABRT, True), (signal.SIGBUS, True), (signal.SIGILL, True),
    (signal.SIGFPE, True), (signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGHUP, False),
])  # fmt: skip
def test_a_child_that_a_fatal_signal_ended_makes_its_parents_end_a_crash(number: int, crashed: bool) -> None:
    story = died(Story().launch(), number=number).exit(code=1)
    assert verdict(story) is (Verdict.CRASHED if crashed else Verdict.FAILED)
    status = Story().launch().exit(code=128 + number)
    assert verdict(status) is (Verdict.CRASHED if crashed else Verdict.FAILED)


def test_how_it_crashed_is_told_in_words() -> None:
    assert reason(died(Story().launch()).exit(code=1)).startswith("a process of the server was ended by SIGKILL after 0.0 s")
    assert reason(Story().launch().exit(signal=signal.SIGTERM)).startswith("ended by SIGTERM after")
    assert reason(Story().launch().exit(code=139)).startswith("ended with status 139 (SIGSEGV) after")
    assert verdict(Story().launch().exit(code=128)) is Verdict.FAILED
    assert verdict(Story().launch().exit(code=9)) is Verdict.FAILED
    assert (signal_name(9), signal_name(250)) == ("SIGKILL", "signal 250")


def test_a_helper_that_was_ended_before_hides_no_crash_and_what_its_server_then_kills_is_none() -> None:
    helper = died(Story().launch(), number=signal.SIGTERM)
    assert reason(died(helper, 108, signal.SIGSEGV).exit(code=1)).startswith("a process of the server was ended by SIGSEGV after")
    helper = died(Story().launch(), number=signal.SIGTERM)
    assert reason(helper.exit(signal=signal.SIGKILL)).startswith("ended by SIGKILL after")
    helper = died(Story().launch(), number=signal.SIGTERM)
    assert verdict(died(helper, 108).exit(code=1)) is Verdict.FAILED
    assert reason(died(died(Story().launch()), 108, signal.SIGABRT).exit(code=1)).startswith("a process of the server was ended by SIGKILL")


def test_a_signal_that_we_sent_ourselves_is_no_crash() -> None:
    sent = SignalSent(signal=signal.SIGKILL, pid=107, why="ladder")
    assert verdict(died(Story().launch().tell(sent)).exit(code=1)) is Verdict.FAILED
    assert verdict(died(Story().launch().tell(sent), number=signal.SIGSEGV).exit(code=1)) is Verdict.CRASHED


def test_the_engines_own_word_on_a_dead_rank_comes_before_what_was_seen() -> None:
    story = Story().launch(ranks(2)).error("worker died", exit_code=-9, rank=1).exit(signal=signal.SIGTERM)
    assert reason(story).startswith("rank 1 was ended by SIGKILL after")
    assert story.state.decision.behind == (1,)
    nameless = Story().launch().error("worker died", exit_code=-11).exit(code=1)
    assert reason(nameless).startswith("a process of the server was ended by SIGSEGV after")
    for orderly in (1, 0):
        assert verdict(Story().launch().error("worker died", exit_code=orderly).exit(code=1)) is Verdict.FAILED
    assert verdict(Story().launch().error("worker died", exit_code="-9").exit(code=1)) is Verdict.FAILED


def test_the_rank_whose_end_the_server_reported_died_first_else_the_one_that_was_seen_to() -> None:
    story = Story().crew(3)
    for rank in (2, 1):
        died(story, rank_pid(rank))
    assert at(story, story.t + 5).state.decision.behind == (2,)
    assert story.error("a worker died", exit_code=1, rank=0).exit(code=1).state.decision.behind == (0,)
    assert Story().launch().error("boom", rank=1).exit(code=1).state.decision.behind == (), "its words, not its end"


def test_a_server_that_waits_on_without_a_dead_rank_is_told_after_three_seconds() -> None:
    story = died(Story().crew(2), rank_pid(1))
    began = story.t
    assert verdict(at(story, began + 2.9)) is Verdict.STARTING
    assert verdict(at(story, began + 3.0)) is Verdict.CRASHED
    assert reason(story) == f"rank 1 (pid {rank_pid(1)}) was ended by SIGKILL and the server waits on without it"
    assert story.state.decision.behind == (1,)


def test_a_dead_process_of_the_engine_without_a_rank_is_told_without_one() -> None:
    story = Story().crew(2)
    member = story.state.members[rank_pid(1)]
    assert member.tag is not None
    story.state = replace(
        story.state, members={**story.state.members, rank_pid(1): replace(member, tag=replace(member.tag, rank=None, name="W"))}
    )
    story = at(died(story, rank_pid(1)), story.t + 3.0)
    assert reason(story).startswith(f"a process of the server (pid {rank_pid(1)}) was ended")
    assert story.state.decision.behind == ()


# errors


def line(text: str, offset: int = 0, *, fatal: bool = False, **values: str | float) -> LogLine:
    return LogLine(offset=offset, length=1, text=text, error="e", fatal=fatal, values=values)


def test_fatal_errors_are_told_before_others_and_what_announces_a_traceback_last() -> None:
    story = (
        Story()
        .launch()
        .tell(
            line("Traceback (most recent call last):", fatal=True),
            line("a warning"),
            line("fatal one", fatal=True),
            line("fatal two", fatal=True),
        )
    )
    assert reason(story) == "the engine reported an error it cannot go on from: fatal one"
    assert story.state.decision.proof == ("fatal one", "fatal two", "a warning", "Traceback (most recent call last):")


def test_an_error_that_is_not_fatal_ends_nothing_and_explains_an_end() -> None:
    story = Story().launch().tell(line("a warning"))
    assert verdict(story) is Verdict.STARTING
    assert reason(story.exit(code=1)) == "ended with status 1 after 0.0 s, before its first token: a warning"


def test_a_few_errors_are_proof_enough() -> None:
    story = Story().launch().tell(*[line(f"e{n}", fatal=True) for n in range(9)])
    assert story.state.decision.proof == ("e0", "e1", "e2", "e3", "e4")
    assert story.exit(code=1).state.decision.proof == ("e0", "e1", "e2", "e3", "e4")


def test_the_exception_before_the_report_of_a_death_says_why() -> None:
    cause, report = line("ValueError: no", 10, error="ValueError"), line("worker died", 20, fatal=True, exit_code=1)
    assert reason(Story().launch().tell(cause, report)).endswith(": ValueError: no")
    assert reason(Story().launch().tell(replace(cause, offset=20), report)).endswith(": worker died"), "it came after it"
    assert reason(Story().launch().tell(line("a warning", 10), report)).endswith(": worker died"), "a warning is no exception"
    last = line("KeyError: k", 15, error="KeyError")
    assert reason(Story().launch().tell(cause, last, report)).endswith(": KeyError: k")
    own = line("boom", 20, fatal=True)
    assert reason(Story().launch().tell(cause, own)).endswith(": boom"), "a fatal error that reports nobody's death is the cause"


def test_long_errors_are_cut() -> None:
    assert reason(Story().launch().tell(line("x" * 300, fatal=True))).endswith(": " + "x" * 300)
    assert reason(Story().launch().tell(line("x" * 301, fatal=True))).endswith(": " + "x" * 297 + "…")


# answers


def wrong(status: int | None, error: str | None = None, body: str | None = None) -> Story:
    return Story().launch().listen().ready_line().ask().answer(status, tokens=0, error=error, body=body)


def test_one_wrong_answer_tells_after_fifteen_seconds_and_two_after_five() -> None:
    assert verdict(at(wrong(500), 14.9)) is Verdict.STARTING
    assert verdict(at(wrong(500), 15.0)) is Verdict.UNSERVING
    assert verdict(at(wrong(500).ask().answer(500, tokens=None), 4.9)) is Verdict.STARTING
    assert verdict(at(wrong(500).ask().answer(500, tokens=None), 5.0)) is Verdict.UNSERVING


@pytest.mark.parametrize(("status", "error", "told"), [
    (500, None, "status 500"), (500, "broken", "status 500"), (200, "no text", "no text"), (None, "reset", "reset"),
    (None, None, "no answer"),
    (200, None, "status 200"),
])  # fmt: skip
def test_what_came_in_place_of_a_token_is_told(status: int | None, error: str | None, told: str) -> None:
    story = at(wrong(status, error, "its body"), 15.0)
    assert reason(story) == f"listens, but http://127.0.0.1:8000/v1/completions brought no token: {told}"
    assert story.state.decision.proof == ("its body",)


def test_the_last_of_several_wrong_answers_is_told() -> None:
    story = at(wrong(500).ask().answer(502, tokens=None), 15.0)
    assert reason(story).endswith("status 502")


@pytest.mark.parametrize(("status", "key_source", "hint"), [(401, None, True), (403, None, True), (404, None, False), (401, "env", False)])
def test_a_refusal_for_want_of_a_key_says_how_to_give_one(status: int, key_source: str | None, hint: bool) -> None:
    answer = HttpAnswer(probe=ProbeKind.COMPLETION, url="http://x", status=status, key_source=key_source, body="no")
    story = Story().launch().listen().ready_line().ask().tell(answer)
    assert verdict(story) is Verdict.UNKNOWN
    assert ("--api-key-env" in reason(story)) is hint
    assert reason(story).endswith(": no")


def test_ready_is_told_with_when_the_token_came_and_what_it_said() -> None:
    story = ready()
    assert reason(story) == "a real token came 0.50 s after it was asked for, 5.0 s after launch, and a second request was answered too"
    assert story.state.decision.proof == ("completion http://127.0.0.1:8000/v1/completions: ' the'",) * 2
    known = adopted().listen().ready_line().seconds(2).ask().answer().ask().answer()
    assert "2.0 s after the server began" in reason(known)
    embeds = Story().launch().listen().ready_line()
    for _ in range(2):
        embeds.tell(HttpAnswer(probe=ProbeKind.EMBEDDING, url="http://x", status=200))
    assert (reason(embeds)[:23], embeds.state.decision.proof) == ("a real token came, 0.0 ", ())


def test_the_first_answer_tells_how_long_the_first_token_took() -> None:
    answers = [HttpAnswer(probe=ProbeKind.CHAT, url="http://x", status=200, tokens=1, first_token_s=seconds) for seconds in (2.5, 0.1)]
    story = Story().launch().listen().ready_line().tell(*answers)
    assert reason(story).startswith("a real token came 2.50 s after it was asked for")


def test_a_server_for_others_that_answered_us_too_is_ready_by_our_own_token() -> None:
    story = adopted().listen().tell(*[EngineCounters(generation_tokens=tokens, running=1.0) for tokens in (1.0, 2.0)])
    assert reason(story.ask().answer()).startswith("a real token came")


def test_the_last_answer_tells_whether_the_text_is_sane() -> None:
    odd = Story().launch().listen().ready_line().ask().answer(sane=True).ask().answer(sane=False)
    assert "the text is not sane" in reason(odd)
    for first, second in ((False, True), (True, True), (None, None)):
        assert "sane" not in reason(Story().launch().listen().ready_line().ask().answer(sane=first).ask().answer(sane=second))


def test_a_server_for_others_is_ready_only_if_somebody_else_started_it() -> None:
    def serves(story: Story) -> Story:
        return story.tell(*[EngineCounters(generation_tokens=tokens, running=1.0) for tokens in (1.0, 2.0)])

    assert verdict(serves(adopted().listen())) is Verdict.READY
    assert "so none of ours was sent" in reason(serves(adopted().listen()))
    assert verdict(serves(Story().launch().listen())) is not Verdict.READY


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE, Role.ROUTER, Role.SERVES])
def test_a_health_page_is_enough_only_where_no_token_can_be_asked_for(role: Role) -> None:
    story = Story().launch(plan(role=role)).listen().ready_line()
    assert verdict(story) is Verdict.STARTING
    story.tell(HttpAnswer(probe=ProbeKind.HEALTH, url="http://x/health", status=200))
    assert verdict(story) is (Verdict.STARTING if role is Role.SERVES else Verdict.READY)


def test_a_follower_has_joined_when_what_its_profile_knows_of_is_done_or_it_says_so() -> None:
    def follower(*phases: Phase) -> Story:
        return Story().launch(plan(role=Role.FOLLOWER, phases=(Phase.PROCESS_START, *phases, Phase.LISTENING)))

    both = follower(Phase.DISTRIBUTED_INIT, Phase.WEIGHTS).line(Phase.WEIGHTS).line(Phase.WEIGHTS, Edge.END)
    assert verdict(both) is Verdict.STARTING, "it has not joined"
    assert verdict(both.line(Phase.DISTRIBUTED_INIT, Edge.END)) is Verdict.READY
    assert verdict(follower(Phase.WEIGHTS).line(Phase.WEIGHTS).line(Phase.WEIGHTS, Edge.END)) is Verdict.READY
    assert verdict(follower(Phase.WEIGHTS).line(Phase.WEIGHTS)) is Verdict.STARTING
    assert verdict(follower(Phase.WEIGHTS).ready_line()) is Verdict.READY
    assert verdict(Story().launch().line(Phase.DISTRIBUTED_INIT, Edge.END).line(Phase.WEIGHTS, Edge.END)) is Verdict.STARTING, (
        "it must serve"
    )


def test_without_a_probe_a_server_of_somebody_else_is_unknown_once_it_has_listened_a_while() -> None:
    silent = Policy(probe=False)
    story = adopted(policy=silent).listen()
    assert verdict(at(story, 2.9)) is Verdict.STARTING
    assert verdict(at(story, 3.0)) is Verdict.UNKNOWN
    assert "since no token was asked for" in reason(story)
    assert verdict(at(adopted(plan(listens_before_load=True), silent).listen(), 9.0)) is Verdict.STARTING
    assert verdict(at(adopted(policy=silent), 9.0)) is Verdict.STARTING
    assert verdict(at(Story().launch(policy=silent).listen(), 9.0)) is Verdict.STARTING, "one of ours has a log that will say so"
    assert verdict(at(adopted().listen(), 9.0)) is Verdict.STARTING


# a request without an answer


def mute(
    seconds: int, *, ticks: int = 0, policy: Policy | None = None, of: Plan | None = None, poses: dict[int, Pose] | None = None
) -> Story:
    story = Story().launch(of, policy).listen().ready_line().ask()
    return story.watch(seconds, poses) if poses else story.seconds(seconds, ticks=ticks)


def test_an_idle_machine_and_a_request_without_a_token_are_unserving_after_twelve_seconds() -> None:
    assert verdict(mute(12)) is Verdict.STARTING
    story = mute(13)
    assert (verdict(story), reason(story)) == (Verdict.UNSERVING, "accepts a request and brings no token: 13.0 s so far, and nothing moves")
    assert story.state.decision.proof == ("no strong signal for 12.0 s",)
    assert verdict(mute(13, policy=Policy(still_after=5.0))) is Verdict.UNSERVING
    assert verdict(mute(12, policy=Policy(still_after=5.0))) is Verdict.UNSERVING, "it need not be still for longer than it must wait"
    assert verdict(mute(11, policy=Policy(still_after=5.0))) is not Verdict.UNSERVING


def test_a_request_is_mute_at_an_open_port_or_behind_a_ready_line_and_nowhere_else() -> None:
    assert verdict(Story().launch().listen().ask().seconds(14)) is Verdict.UNSERVING
    assert verdict(Story().launch(plan(endpoint=Endpoint())).ready_line().ask().seconds(14)) is Verdict.UNSERVING
    assert verdict(Story().launch().ask().seconds(14)) is Verdict.STALLED
    assert verdict(Story().launch().listen().ready_line().seconds(14)) is Verdict.STALLED, "nobody has asked"


def test_a_busy_machine_has_the_time_of_a_first_token_and_never_less_than_an_idle_one() -> None:
    assert verdict(mute(59, ticks=50)) is not Verdict.UNSERVING
    assert verdict(mute(60, ticks=50)) is Verdict.UNSERVING
    assert verdict(mute(20, ticks=49)) is Verdict.UNSERVING
    quick = plan(budgets=(Budget(phase=Phase.FIRST_TOKEN, seconds=5.0, source="profile"),))
    assert verdict(mute(12, ticks=100, of=quick)) is not Verdict.UNSERVING
    assert verdict(mute(13, ticks=100, of=quick)) is Verdict.UNSERVING
    slow = plan(
        budgets=(
            Budget(phase=Phase.FIRST_TOKEN, seconds=90.0, source="profile"),
            Budget(phase=Phase.WEIGHTS, seconds=500.0, source="profile"),
        )
    )
    assert verdict(mute(89, ticks=100, of=slow)) is not Verdict.UNSERVING
    assert verdict(mute(90, ticks=100, of=slow)) is Verdict.UNSERVING


def test_a_hang_behind_a_request_is_told_with_it_after_six_seconds_and_not_as_a_hang() -> None:
    def asked(seconds: int) -> Story:
        fifo = Pose(where="read", waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),))
        story = Story().crew(2).listen().ready_line().ask()
        return story.watch(seconds, {ROOT.pid: polls(), rank_pid(0): collective(), rank_pid(1): fifo})

    assert verdict(asked(5)) is Verdict.STARTING
    story = asked(7)
    assert (verdict(story), story.state.decision.behind) == (Verdict.UNSERVING, (1,))
    assert "nothing moves; rank 0 waits for rank 1 in all_reduce" in reason(story)


# what goes on


def test_a_phase_is_slow_once_it_takes_longer_than_its_budget() -> None:
    known = plan(
        budgets=(Budget(phase=Phase.WEIGHTS, seconds=10.0, source="profile"), Budget(phase=Phase.CONFIG, seconds=90.0, source="profile"))
    )
    story = Story().launch(known).seconds(7, work=100_000).line(Phase.WEIGHTS)
    assert verdict(story.seconds(10, work=100_000)) is Verdict.STARTING
    assert reason(story) == "weights for 10.0 s: moving: bytes"
    assert verdict(story.seconds(1, work=100_000)) is Verdict.SLOW
    assert reason(story) == "weights takes 11.0 s (usually up to 10.0 s): moving: bytes"
    assert story.state.decision.detail == "moving: bytes"


def test_a_phase_without_a_budget_has_ten_minutes() -> None:
    story = Story().launch().seconds(1, work=100_000)
    assert verdict(at(story, 600.0)) is Verdict.STARTING
    assert verdict(at(story, 600.1)) is Verdict.SLOW
    assert "takes 600 s (usually up to 600 s)" in reason(story)


def test_large_weights_have_the_time_that_plain_storage_takes() -> None:
    known = plan(budgets=(Budget(phase=Phase.WEIGHTS, seconds=10.0, source="profile"),))
    story = Story().launch(known).line(Phase.WEIGHTS).seconds(1, work=100_000)
    story.tell(WeightProgress(shards=1, shards_done=0, bytes=5_000_000_000, bytes_done=1))
    assert verdict(at(story, 20.0)) is Verdict.STARTING
    assert verdict(at(story, 20.1)) is Verdict.SLOW
    small = (
        Story()
        .launch(known)
        .line(Phase.WEIGHTS)
        .tell(WeightProgress(shards=1, shards_done=0, bytes=5_000_000, bytes_done=1))
        .seconds(1, work=100_000)
    )
    assert verdict(at(small, 10.1)) is Verdict.SLOW


def test_how_long_an_adopted_server_has_listened_says_nothing_about_its_start() -> None:
    brief = plan(
        budgets=(
            Budget(phase=Phase.LISTENING, seconds=5.0, source="profile"),
            Budget(phase=Phase.FIRST_TOKEN, seconds=5.0, source="profile"),
        )
    )
    assert verdict(at(adopted(brief).listen().seconds(1, work=100_000), 60.0)) is Verdict.STARTING
    assert verdict(at(Story().launch(brief).listen().seconds(1, work=100_000), 60.0)) is Verdict.SLOW
    story = at(adopted(brief).listen().seconds(1, work=100_000), 60.0).ask()
    assert verdict(at(story, 65.0)) is Verdict.STARTING
    assert verdict(at(story, 65.1)) is Verdict.SLOW, "our own request counts from when it was sent"
    assert reason(story).endswith("our request has been waiting for 5.1 s")


def test_nothing_that_moves_for_twelve_seconds_is_stalled_with_the_last_line() -> None:
    story = Story().launch().seconds(1, log=1).seconds(11)
    assert verdict(story) is Verdict.STARTING
    story.seconds(1)
    assert (verdict(story), reason(story)) == (Verdict.STALLED, "process_start: nothing moved for 12.0 s; last new line: something new")
    assert story.state.decision.proof == ("no new log text, bytes, faults, children or weights for 12.0 s (cores busy: 0.0)",)
    assert reason(Story().launch().seconds(14)).endswith("nothing moved for 13.0 s")
    assert verdict(Story().launch(policy=Policy(still_after=5.0)).seconds(6)) is Verdict.STALLED


def test_a_proof_of_waiting_is_told_before_the_stall_and_one_that_proves_nothing_only_with_it() -> None:
    def stands(pose: Pose, seconds: int) -> Story:
        return Story().crew(2).watch(seconds, {ROOT.pid: polls(), rank_pid(0): collective(), rank_pid(1): pose})

    waits = stands(lock_of(key(4242)), 6)
    assert verdict(waits) is Verdict.WAITING
    assert waits.state.decision.proof[0].startswith("no strong signal for 6.0 s (cores busy: 0.0)")
    busy = Pose(state="R", where="native call")
    assert verdict(stands(busy, 11)) is Verdict.STARTING
    assert verdict(stands(busy, 12)) is Verdict.STALLED
    assert "busy in native call" in reason(stands(busy, 12))


# what it is at


def doing(story: Story) -> str | None:
    return story.state.decision.detail


@pytest.mark.parametrize(("changes", "told"), [
    ({"child_ticks": 11}, "child processes at work (0.1 cores reaped)"),
    ({"child_ticks": 250}, "child processes at work (2.5 cores reaped)"),
    ({"child_ticks": 10}, "moving: children"),
    ({"child_ticks": 10, "rw_bytes": 1_000_001}, "reading and writing 1.0 MB/s"),
    ({"rw_bytes": 1_000_000}, "moving: bytes"),
    ({"rw_bytes": 1_000_000, "ticks": 50}, "computing (0.5 cores)"),
    ({"rw_bytes": 100_000, "ticks": 49}, "moving: bytes"),
    ({"rw_bytes": 2_500_000_000, "ticks": 100}, "reading and writing 2.5 GB/s"),
    ({"rw_bytes": 100_000, "faults": 100}, "moving: bytes, faults"),
])  # fmt: skip
def test_the_strongest_signal_of_the_last_second_is_told(changes: dict[str, int], told: str) -> None:
    story = Story().launch().seconds(1)
    story.sample = story.sample._replace(**changes)  # type: ignore[arg-type]  # fields by name
    assert doing(story.seconds(1)) == told


def test_where_nothing_moves_it_is_told_after_two_seconds() -> None:
    assert doing(Story().launch()) == "just begun"
    story = Story().launch().seconds(1).seconds(1, work=100_000)
    assert doing(story.seconds(2)) == "moving: bytes"
    assert doing(story.seconds(1)) == "nothing has moved for 3.0 s"


def weights(story: Story, done: int, *, shards: int = 4, shards_done: int = 1, total: int = 4_000_000_000) -> Story:
    return story.tell(WeightProgress(shards=shards, shards_done=shards_done, bytes=total, bytes_done=done))


def test_a_load_is_told_in_shards_bytes_and_rate_with_the_engines_own_bar_before_what_is_seen() -> None:
    story = weights(Story().launch().line(Phase.WEIGHTS), 500_000)
    assert doing(story) == "1 of 4 shards, 500.0 kB of 4.0 GB"
    story.t = 10.0
    assert doing(weights(story, 1_000_500_000)) == "1 of 4 shards, 1.0 GB of 4.0 GB, 100.0 MB/s"
    assert doing(story.line(Phase.WEIGHTS, shards=8, shards_done=3)) == "3 of 8 shards, 1.0 GB of 4.0 GB, 100.0 MB/s"
    assert doing(Story().launch().tell(WeightProgress(shards=4, shards_done=1, bytes=4, bytes_done=1))) == "just begun", "not in that phase"
    assert doing(weights(Story().launch().line(Phase.WEIGHTS), 999, shards_done=0)) == "0 of 4 shards, 999 B of 4.0 GB"
    assert doing(weights(Story().launch().line(Phase.WEIGHTS), 0, shards=0)) == "just begun"


def test_the_rate_is_that_of_the_last_half_minute_and_never_negative() -> None:
    story = Story().launch()
    assert weight_rate(story.state) == 0.0
    assert weight_rate(weights(story, 5_000).state) == 0.0
    story.t = 10.0
    assert weight_rate(weights(story, 6_000).state) == 100.0
    story.t = 40.0
    assert weight_rate(weights(story, 9_000).state) == 100.0
    story.t = 41.0
    assert weight_rate(weights(story, 9_100).state) == 100.0, "from 40 s on"
    assert weight_rate(weights(story, 0).state) == 0.0
    at_once = weights(weights(Story().launch(), 1), 500)
    assert weight_rate(at_once.state) == 0.0


def test_seconds_are_told_with_a_tenth_below_a_hundred() -> None:
    story = Story().launch().seconds(1, work=100_000)
    assert "99.9 s" in reason(at(story, 99.9))
    assert "for 100 s:" in reason(at(story, 100.0))
