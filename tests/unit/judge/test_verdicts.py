"""Each verdict of the first form, by the story that leads to it."""

import signal

import pytest
from story import ROOT, Story, key, plan, rank_pid, ranks

from firsttoken.judge.wants import wants
from firsttoken.model.events import Emptied, Exited, HttpAnswer, LaunchFailed, MemberSeen, OomKill, SignalSent, StopAsked, Tick
from firsttoken.model.plan import Budget, Policy
from firsttoken.model.process import Member, ProcessKey
from firsttoken.model.requests import AskForToken, AskHealth
from firsttoken.model.words import Edge, Phase, ProbeKind, Role, Verdict


def verdict(story: Story) -> Verdict:
    return story.state.decision.verdict


def test_a_start_that_moves_within_its_budget_is_starting() -> None:
    assert verdict(Story().launch().seconds(30, work=100_000)) is Verdict.STARTING


def test_a_start_that_moves_beyond_its_budget_is_slow_and_says_at_what() -> None:
    story = Story().launch(plan(budgets=(Budget(phase=Phase.WEIGHTS, seconds=10, source="profile"),)))
    story.line(Phase.WEIGHTS).seconds(30, work=5_000_000)
    assert verdict(story) is Verdict.SLOW
    assert "reading" in story.state.decision.reason


def test_a_start_in_which_nothing_moves_is_stalled_within_seconds() -> None:
    story = Story().launch().seconds(5, work=100_000).seconds(13)
    assert verdict(story) is Verdict.STALLED
    assert story.state.motion.still == pytest.approx(13)


def test_cpu_time_alone_is_no_progress() -> None:
    assert verdict(Story().launch().seconds(5, work=100_000).seconds(13, ticks=100)) is Verdict.STALLED


def test_a_keep_alive_line_a_minute_with_its_few_bytes_is_no_progress() -> None:
    assert verdict(Story().launch().seconds(5, work=100_000).seconds(13, work=269)) is Verdict.STALLED


def test_fresh_log_text_is_progress() -> None:
    assert verdict(Story().launch().seconds(60, log=1)) is Verdict.STARTING


def test_a_new_process_is_progress() -> None:
    story = Story().launch().seconds(11)
    story.tell(MemberSeen(member=Member(process=ProcessKey("node", 101, 5), parent=100, title="cc1plus"))).seconds(3)
    assert verdict(story) is Verdict.STARTING


def test_our_own_pause_is_not_stillness() -> None:
    story = Story().launch().seconds(3, work=100_000)
    story.t += 600
    story.seconds(1)
    assert story.state.motion.still <= 2
    assert verdict(story) is not Verdict.STALLED


def test_a_runnable_process_that_gets_no_cpu_is_starved_not_still() -> None:
    story = Story().launch().seconds(3, work=100_000)
    story.sample = story.sample._replace(state="R")
    story.seconds(30)
    assert verdict(story) is Verdict.STARTING
    assert "no CPU" in story.state.decision.reason


def test_two_real_tokens_make_it_ready_and_one_does_not() -> None:
    story = Story().launch().seconds(5, work=100_000).listen().ready_line().ask().answer()
    assert verdict(story) is not Verdict.READY
    story.ask().answer()
    assert verdict(story) is Verdict.READY


def test_a_ready_line_and_an_open_port_are_claims_not_proof() -> None:
    story = Story().launch().seconds(5, work=100_000).listen().ready_line()
    assert verdict(story) is Verdict.STARTING
    assert AskForToken(number=1) in wants(story.state, Policy())


def test_text_that_is_not_sane_leaves_it_ready_and_is_told() -> None:
    story = Story().launch().listen().ready_line().ask().answer(sane=False).ask().answer(sane=False)
    assert verdict(story) is Verdict.READY
    assert "not sane" in story.state.decision.reason


def test_an_error_status_that_lasts_is_unserving() -> None:
    story = Story().launch().listen().ready_line().ask().answer(500, tokens=None).seconds(2, work=100_000)
    assert verdict(story) is not Verdict.UNSERVING, "it may be dying of it"
    story.ask().answer(500, tokens=None).seconds(5, work=100_000)
    assert verdict(story) is Verdict.UNSERVING


def test_a_server_that_dies_on_its_first_request_is_failed_never_ready() -> None:
    story = Story().launch().listen().ready_line().ask().answer(500, tokens=None)
    story.error("RuntimeError: no kernel").seconds(1).exit(code=1).tell(Emptied())
    assert verdict(story) is Verdict.FAILED
    assert "no kernel" in story.state.decision.reason


def test_a_request_that_is_accepted_and_brings_nothing_is_unserving() -> None:
    story = Story().launch().listen().ready_line().seconds(2).ask().seconds(16)
    assert verdict(story) is Verdict.UNSERVING


def test_a_first_request_that_compiles_is_waited_for() -> None:
    story = Story().launch().listen().ready_line().seconds(2).ask().seconds(50, work=1_000_000)
    assert verdict(story) in (Verdict.STARTING, Verdict.SLOW)


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_refusal_of_our_request_is_unknown_with_its_body(status: int) -> None:
    story = Story().launch().listen().ready_line().ask().answer(status, tokens=None, body='{"error":"no"}')
    assert verdict(story) is Verdict.UNKNOWN
    assert '{"error":"no"}' in story.state.decision.reason


def test_loading_is_not_an_error() -> None:
    story = (
        Story()
        .launch(plan(listens_before_load=True))
        .listen()
        .seconds(4, work=100_000)
        .ask()
        .answer(503, tokens=None)
        .seconds(10, work=100_000)
    )
    assert verdict(story) is Verdict.STARTING


def test_an_exit_before_ready_is_failed_with_the_engines_own_message() -> None:
    story = Story().launch().error("error: unrecognized arguments: --no-such-flag").exit(code=2)
    assert verdict(story) is Verdict.FAILED
    assert "unrecognized arguments" in story.state.decision.reason


def test_exit_zero_before_ready_is_failed_once_nothing_is_left() -> None:
    story = Story().launch().exit(code=0)
    assert verdict(story) is Verdict.STARTING, "a launcher may leave its server behind"
    assert verdict(story.tell(Emptied())) is Verdict.FAILED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_death_by_signal_is_crashed_and_the_signal_named(number: int) -> None:
    story = Story().launch().seconds(3, work=100_000).exit(signal=number)
    assert verdict(story) is Verdict.CRASHED
    assert signal.Signals(number).name in story.state.decision.reason


def test_a_wrapper_that_ends_with_128_plus_the_signal_is_crashed() -> None:
    assert verdict(Story().launch().exit(code=137)) is Verdict.CRASHED


def test_a_rank_killed_first_makes_the_orderly_end_of_the_parent_a_crash() -> None:
    story = Story().launch().tell(Exited(process=ProcessKey("node", 107, 9), signal=signal.SIGKILL)).exit(code=1)
    assert verdict(story) is Verdict.CRASHED


def test_a_child_that_the_engine_itself_terminated_is_no_crash() -> None:
    story = Story().launch().error("ValueError: bad").tell(Exited(process=ProcessKey("node", 107, 9), signal=signal.SIGTERM)).exit(code=1)
    assert verdict(story) is Verdict.FAILED


def test_a_rank_that_the_engine_reports_dead_by_a_signal_is_crashed() -> None:
    assert verdict(Story().launch().error("rank 3 died", exit_code=-9).exit(code=1)) is Verdict.CRASHED


def test_an_oom_kill_is_crashed() -> None:
    story = Story().launch().tell(OomKill(source="cgroup", pid=100)).exit(signal=signal.SIGKILL)
    assert verdict(story) is Verdict.CRASHED
    assert "OOM" in story.state.decision.reason


def test_a_command_that_cannot_be_started_is_failed() -> None:
    assert verdict(Story().tell(LaunchFailed(error="engine: not found", code=127))) is Verdict.FAILED


def test_a_stop_before_the_first_token_says_so_and_blames_nobody() -> None:
    story = Story().launch().tell(StopAsked(by="stop"), SignalSent(signal=15, pid=100, why="ladder")).exit(signal=15)
    assert verdict(story) is Verdict.UNKNOWN
    assert "stopped" in story.state.decision.reason


def test_what_was_decided_before_a_stop_stays() -> None:
    story = Story().launch().error("ValueError: no such model").tell(StopAsked(by="run --until ready")).exit(signal=15)
    assert verdict(story) is Verdict.FAILED
    assert "no such model" in story.state.decision.reason


def test_a_server_that_was_ready_and_was_stopped_stays_ready() -> None:
    story = Story().launch().listen().ready_line().ask().answer().ask().answer().tell(StopAsked(by="SIGTERM")).exit(code=0)
    assert verdict(story) is Verdict.READY


def test_a_server_that_crashes_after_ready_is_crashed() -> None:
    story = Story().launch().listen().ready_line().ask().answer().ask().answer().exit(signal=signal.SIGSEGV)
    assert verdict(story) is Verdict.CRASHED
    assert "after its first token" in story.state.decision.reason


def test_a_follower_is_ready_once_it_joined_and_loaded_and_is_never_asked() -> None:
    story = Story().launch(plan(role=Role.FOLLOWER)).line(Phase.DISTRIBUTED_INIT).line(Phase.DISTRIBUTED_INIT, Edge.END)
    assert verdict(story) is Verdict.STARTING
    story.line(Phase.WEIGHTS).line(Phase.WEIGHTS, Edge.END).listen().ready_line()
    assert verdict(story) is Verdict.READY
    assert wants(story.state, Policy()) == ()


def test_a_prefill_server_is_asked_for_its_health_only() -> None:
    story = Story().launch(plan(role=Role.PREFILL)).listen().ready_line()
    assert wants(story.state, Policy()) == (AskHealth(number=1),)
    story.tell(HttpAnswer(probe=ProbeKind.HEALTH, url="http://x/health", status=200))
    assert verdict(story) is Verdict.READY


def test_without_a_probe_a_claim_stays_unproven() -> None:
    story = Story().launch(policy=Policy(probe=False)).listen().ready_line()
    assert verdict(story) is Verdict.UNKNOWN
    assert wants(story.state, Policy(probe=False)) == ()


def test_no_second_request_is_wanted_while_one_is_under_way() -> None:
    story = Story().launch().listen().ready_line().ask().seconds(3)
    assert not any(isinstance(request, AskForToken) for request in wants(story.state, Policy()))


def test_a_port_without_a_ready_line_is_asked_after_a_few_seconds() -> None:
    story = Story().launch().listen()
    assert wants(story.state, Policy()) == ()
    story.seconds(4, work=100_000)
    assert wants(story.state, Policy()) == (AskForToken(number=1),)


def test_a_containers_port_is_asked_once_its_ready_line_came_though_its_socket_is_out_of_sight() -> None:
    story = Story().launch(plan(contained=True)).seconds(5, work=100_000)
    assert wants(story.state, Policy()) == ()
    assert AskForToken(number=1) in wants(story.ready_line().state, Policy())


def test_the_verdict_does_not_depend_on_how_ranks_are_numbered() -> None:
    def told(order: list[int]) -> tuple[str, str]:
        story = Story().launch(ranks(4))
        for rank in order:
            story.line(Phase.DISTRIBUTED_INIT, rank=rank)
        for rank in order[:3]:
            story.line(Phase.DISTRIBUTED_INIT, Edge.END, rank=rank).line(Phase.WEIGHTS, rank=rank)
        story.seconds(20)
        return story.state.decision.verdict, story.state.decision.phase

    assert told([0, 1, 2, 3]) == told([3, 1, 0, 2]) == (Verdict.STALLED, Phase.DISTRIBUTED_INIT)


def test_a_tick_alone_lets_time_pass() -> None:
    story = Story().launch(plan(budgets=(Budget(phase=Phase.PROCESS_START, seconds=10, source="profile"),))).seconds(2, work=100_000)
    story.t = 60
    assert verdict(story.tell(Tick())) is Verdict.SLOW


def test_root_is_the_launched_process() -> None:
    assert Story().launch().state.root == ROOT


def test_a_rank_whose_line_is_read_only_after_its_death_is_named() -> None:
    """The reader of the log may be behind."""
    story = Story().launch(ranks(2)).member(rank_pid(1)).tell(Exited(process=key(rank_pid(1)), signal=signal.SIGKILL))
    assert story.state.rank_deaths == ()
    story.line(Phase.DISTRIBUTED_INIT, rank=1, pid=rank_pid(1)).seconds(5, work=100_000)
    assert (verdict(story), story.state.decision.behind) == (Verdict.CRASHED, (1,))


def test_a_rank_that_died_before_it_was_seen_is_named_by_what_the_log_told() -> None:
    story = Story().launch(ranks(2)).line(Phase.DISTRIBUTED_INIT, rank=1, pid=rank_pid(1))
    story.tell(Exited(process=key(rank_pid(1)), signal=signal.SIGKILL)).seconds(5, work=100_000)
    assert (verdict(story), story.state.decision.behind) == (Verdict.CRASHED, (1,))


def test_a_rank_that_dies_of_a_stop_is_no_crash() -> None:
    story = Story().crew(2).tell(StopAsked(by="stop"), Exited(process=key(rank_pid(1)), signal=signal.SIGKILL)).seconds(9, work=100_000)
    assert verdict(story) is not Verdict.CRASHED
