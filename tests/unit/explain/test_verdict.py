"""The verdict on dead files, one rule a test."""

from dataclasses import replace

import pytest
from attached_facts import TWO, error, facts, gpu, milestone, process, stack

from firsttoken.explain.verdict import Judgement, judge
from firsttoken.model.attached import Asked, Attached, GpuLine, ProbeLine, Probes
from firsttoken.model.collectives import Comparison, Disagreement, Discord
from firsttoken.model.plan import Budget, Plan, Sizes
from firsttoken.model.reading import Told
from firsttoken.model.result import PhaseRow
from firsttoken.model.words import Edge, Phase, Verdict
from firsttoken.survey.probes_text import read_probes

LOG = b"a line\n"
RANKS = {31: 0, 32: 1}


def test_an_answered_request_is_ready_whatever_else_is_said() -> None:
    told = (error("late complaint", fatal=True),)
    found = judge(facts(Attached(log=LOG, probes=read_probes("POST /v1/completions -> 200 (0.1 s)")), told=told))
    assert found.verdict is Verdict.READY


def test_a_fatal_error_has_failed() -> None:
    assert judge(facts(told=(error("ValueError: no", fatal=True),))).verdict is Verdict.FAILED


def test_a_death_by_signal_has_crashed() -> None:
    assert judge(facts(told=(error("Segmentation fault", "segfault", fatal=True),))).verdict is Verdict.CRASHED


def test_an_operation_that_the_device_refuses_is_no_crash() -> None:
    told = (
        error("CUDA error: operation not permitted when stream is capturing", "device-fault"),
        error("child failed", "child", fatal=True),
    )
    assert judge(facts(told=told)).verdict is Verdict.FAILED


def test_an_error_at_the_very_end_has_failed_even_if_it_need_not_be_fatal() -> None:
    assert judge(facts(Attached(log=b"ValueError: x\n"), told=(error("ValueError: x"),))).verdict is Verdict.FAILED


def test_an_error_that_the_start_went_on_after_is_none() -> None:
    told = (error("ValueError: x"), milestone(Phase.GRAPH_CAPTURE))
    assert judge(facts(told=told)).verdict is not Verdict.FAILED


def test_a_ready_line_after_an_error_is_ready() -> None:
    told = (error("x", fatal=True), milestone(Phase.LISTENING, ready=True))
    assert judge(facts(told=told, claims_ready=True)).verdict is Verdict.READY


def test_ready_and_a_request_without_an_answer_is_unserving() -> None:
    attached = Attached(log=LOG, probes=read_probes("GET /health -> 200\nPOST /v1/completions -> no answer after 60 s"))
    assert judge(facts(attached, claims_ready=True)).verdict is Verdict.UNSERVING


def test_loading_with_503_is_starting() -> None:
    attached = Attached(log=LOG, probes=read_probes("GET /health -> 200\nPOST /v1/completions -> 503"))
    assert judge(facts(attached)).verdict is Verdict.STARTING


def test_a_stopped_process_is_hung_and_singled_out() -> None:
    attached = Attached(log=LOG, processes=(process(31), process(32, "Tl")))
    found = judge(facts(attached, rank_of=RANKS))
    assert (found.verdict, found.behind) == (Verdict.HUNG, (1,))


def test_full_use_at_idle_power_is_hung_after_a_minute() -> None:
    attached = Attached(log=LOG, gpus=(gpu(100, 120.0), gpu(100, 118.0)))
    assert judge(facts(attached, idle=90.0, now=200.0)).verdict is Verdict.HUNG
    assert judge(facts(attached, idle=30.0, now=200.0)).verdict is not Verdict.HUNG


def test_full_use_at_full_power_is_work() -> None:
    attached = Attached(log=LOG, gpus=(gpu(100, 640.0),))
    assert judge(facts(attached, idle=90.0, now=100.0)).verdict is Verdict.STARTING


def test_all_ranks_in_a_collective_are_hung() -> None:
    attached = Attached(log=LOG, stacks=(stack(31, "all_reduce"), stack(32, "all_reduce")))
    found = judge(facts(attached, rank_of=RANKS))
    assert found.verdict is Verdict.HUNG
    assert found.behind == ()


def test_busy_compilers_below_a_rank_make_it_slow() -> None:
    attached = Attached(
        log=LOG,
        processes=(process(31), process(32), process(40, "R", 99.0, parent=32, title="/usr/local/cuda/nvvm/bin/cicc --c++17 x.cu")),
        stacks=(stack(31, "all_reduce"),),
    )
    found = judge(facts(attached, rank_of=RANKS, idle=1000.0, now=1200.0))
    assert (found.verdict, found.behind) == (Verdict.SLOW, (1,))


def test_everything_asleep_for_ten_minutes_is_hung_and_before_that_stalled() -> None:
    attached = Attached(log=LOG, processes=(process(31), process(32)))
    assert judge(facts(attached, rank_of=RANKS, idle=700.0, now=900.0)).verdict is Verdict.HUNG
    assert judge(facts(attached, rank_of=RANKS, idle=300.0, now=500.0)).verdict is Verdict.STALLED


def test_loading_may_be_silent_for_longer() -> None:
    attached = Attached(log=LOG)
    assert judge(facts(attached, phase=Phase.WEIGHTS, idle=200.0, now=250.0)).verdict is Verdict.STARTING
    assert judge(facts(attached, phase=Phase.WEIGHTS, idle=400.0, now=450.0)).verdict is Verdict.STALLED


def test_without_a_clock_nothing_is_claimed() -> None:
    assert judge(facts()).verdict is Verdict.STARTING


def test_nothing_attached_is_unknown() -> None:
    assert judge(facts(Attached())).verdict is Verdict.UNKNOWN


def test_ranks_in_an_earlier_phase_are_behind() -> None:
    places = {0: Phase.KV_CACHE, 1: Phase.WEIGHTS}
    attached = Attached(log=LOG, processes=(process(31), process(32)))
    assert judge(facts(attached, places=places, idle=700.0, now=900.0)).behind == (1,)


def test_the_rank_whose_own_error_is_unlike_the_others_died_first() -> None:
    told = (error("EADDRINUSE", fatal=True, rank=1), error("connection closed by peer", rank=0))
    assert judge(facts(told=told)).behind == (1,)


def test_an_error_of_all_ranks_singles_nobody_out() -> None:
    told = (error("ValueError: 25", fatal=True, rank=0), error("ValueError: 25", fatal=True, rank=1))
    assert judge(facts(told=told)).behind == ()


def test_who_times_out_waiting_is_not_the_one_behind() -> None:
    assert judge(facts(told=(error("Timed out waiting 60000ms", fatal=True, rank=0),))).behind == ()


def test_the_one_rank_that_does_not_complain_of_a_lost_peer_died_first() -> None:
    log = b"[rank0]:[W c10d] Broken pipe\n[rank2]:[W c10d] Broken pipe\nSegfault\n"
    three = Plan(engine="engine", sizes=Sizes(tp=3, world=3, ranks_here=3))
    assert judge(facts(Attached(log=log), plan=three, told=(error("Segfault", "segfault", fatal=True),))).behind == (1,)


def test_every_verdict_has_a_reason() -> None:
    for phase in Phase:
        assert judge(facts(phase=phase, told=(milestone(phase, Edge.INSIDE),))).reason


# requests


def claimed(*lines: ProbeLine, claims_ready: bool = False) -> Judgement:
    return judge(
        facts(Attached(log=LOG, probes=Probes(lines=lines)), claims_ready=claims_ready, told=(READY_LINE,) if claims_ready else ())
    )


def generated(status: int | None = None, **told: object) -> ProbeLine:
    return replace(ProbeLine(asked=Asked.GENERATE, url="/v1/completions", status=status, text="POST"), **told)  # type: ignore[arg-type]  # by name


HEALTHY = ProbeLine(asked=Asked.HEALTH, url="/health", status=200)
READY_LINE = milestone(Phase.LISTENING, ready=True)


@pytest.mark.parametrize(("status", "verdict"), [
    (200, Verdict.READY), (299, Verdict.READY), (300, Verdict.STARTING), (199, Verdict.STARTING), (399, Verdict.STARTING),
    (400, Verdict.UNKNOWN), (499, Verdict.UNKNOWN), (500, Verdict.UNSERVING), (502, Verdict.UNSERVING), (503, Verdict.STARTING),
])  # fmt: skip
def test_the_status_of_the_last_request_decides(status: int, verdict: Verdict) -> None:
    assert claimed(generated(status)).verdict is verdict
    assert claimed(generated(200), generated(status)).verdict is verdict


def test_an_error_status_beside_a_page_that_is_still_loading_is_not_yet() -> None:
    assert claimed(replace(HEALTHY, status=503), generated(500)).verdict is Verdict.STARTING
    assert claimed(replace(HEALTHY, status=503), generated(404)).verdict is Verdict.UNKNOWN


def test_a_request_in_vain_is_unserving_where_somebody_listens() -> None:
    assert claimed(generated(timed_out=True)).verdict is Verdict.UNSERVING
    refused = replace(HEALTHY, status=None, refused=True)
    assert claimed(refused, generated(timed_out=True)).verdict is not Verdict.UNSERVING
    assert claimed(refused, HEALTHY, generated(timed_out=True)).verdict is Verdict.UNSERVING
    assert claimed(refused, generated(timed_out=True), claims_ready=True).verdict is Verdict.UNSERVING
    assert claimed(generated()).verdict is Verdict.STARTING


def test_a_ready_line_is_believed_unless_nobody_listens() -> None:
    found = claimed(claims_ready=True)
    assert (found.verdict, found.proof) == (Verdict.READY, (READY_LINE.line.text,))
    refused = replace(HEALTHY, status=None, refused=True)
    assert claimed(refused, claims_ready=True).verdict is not Verdict.READY
    assert claimed(refused, HEALTHY, claims_ready=True).verdict is Verdict.READY
    assert claimed(HEALTHY).verdict is not Verdict.READY, "a health page is no ready line"


def test_a_ready_server_with_a_stopped_process_does_not_serve() -> None:
    shown = facts(Attached(log=LOG, processes=(process(31, "T"),)), claims_ready=True)
    assert judge(shown).verdict is Verdict.UNSERVING


def test_requests_without_tokens_as_the_last_words_are_unserving_and_once_or_long_ago_are_not() -> None:
    said = b"1 running, 0 tokens/s\n"

    def serving(*offsets: int, after: int) -> Judgement:
        log = said * 2 + b"more\n" * after
        return judge(facts(Attached(log=log), told=tuple(error("0 tokens/s", "no-tokens", offset=at) for at in offsets), claims_ready=True))

    found = serving(0, len(said), after=7)
    assert (found.verdict, found.proof) == (Verdict.UNSERVING, ("0 tokens/s", "0 tokens/s"))
    assert serving(0, len(said), after=8).verdict is Verdict.READY
    assert serving(len(said), after=0).verdict is Verdict.READY


# deaths


def test_a_kill_beside_an_error_of_its_own_is_the_engines_clean_up() -> None:
    kill = error("worker was killed", "killed", fatal=True)
    assert judge(facts(told=(kill,))).verdict is Verdict.CRASHED
    found = judge(facts(told=(error("ValueError: x", fatal=True), kill)))
    assert (found.verdict, found.reason) == (Verdict.FAILED, "ended with an error: ValueError: x")
    assert judge(facts(told=(error("ValueError: x", fatal=True), error("boom", "segfault")))).reason == "ended with an error: boom"


def test_only_an_error_after_the_last_ready_line_ended_the_server() -> None:
    boom, ready = error("boom", fatal=True), milestone(Phase.LISTENING, ready=True)
    assert judge(facts(told=(ready, boom), claims_ready=True)).verdict is Verdict.FAILED
    assert judge(facts(told=(boom, ready), claims_ready=True)).verdict is Verdict.READY


def test_the_proof_of_a_death_is_each_fatal_text_once_and_a_few_of_them() -> None:
    told = (*[error(f"boom {n}", fatal=True) for n in (1, 1, 2, 3)], error("boom 4", fatal=True), error("a warning"))
    assert judge(facts(told=told)).proof == ("boom 1", "boom 2", "boom 3")
    long = judge(facts(told=(error("x" * 900, fatal=True),)))
    assert (len(long.proof[0]), len(long.reason)) == (300, 300 + len("ended with an error: "))


# what can no longer move


def xid(number: object) -> Told:
    one = error("NVRM: Xid", "xid")
    return one._replace(line=replace(one.line, values={"xid": number}))  # type: ignore[dict-item]  # a number


@pytest.mark.parametrize("number", [48, 79, 95, 119, 145])
def test_a_fatal_xid_is_hung_and_an_application_error_is_not(number: int) -> None:
    found = judge(facts(told=(xid(number),)))
    assert (found.verdict, found.proof) == (Verdict.HUNG, ("NVRM: Xid",))
    for harmless in (13, 31, 43):
        assert judge(facts(told=(xid(harmless),))).verdict is Verdict.STARTING
    other = error("x")
    assert (
        judge(facts(told=(milestone(Phase.WEIGHTS), other._replace(line=replace(other.line, values={"xid": 79})), READY_LINE))).verdict
        is not Verdict.HUNG
    )


def test_a_minute_of_silence_makes_a_spin_a_hang_and_without_a_clock_it_is_believed() -> None:
    spins = Attached(log=LOG, gpus=(gpu(100, 120.0), replace(gpu(100, 120.0), power=None)))
    assert judge(facts(spins, idle=60.0)).verdict is Verdict.HUNG
    assert judge(facts(spins, idle=59.0)).verdict is not Verdict.HUNG
    assert judge(facts(spins)).proof == ("GPU 0: 100 %, 120 W",)


def test_compilers_at_work_are_no_hang_whatever_the_gpus_show() -> None:
    compiler = process(40, "R", 99.0, title="/usr/bin/ninja -v")
    assert (
        judge(facts(Attached(log=LOG, gpus=(gpu(100, 120.0),), processes=(process(31), compiler)), idle=90.0)).verdict is not Verdict.HUNG
    )
    idle_compiler = process(40, parent=31, title="/usr/bin/ninja -v")
    below = Attached(log=LOG, gpus=(gpu(100, 120.0),), processes=(process(31), idle_compiler))
    assert judge(facts(below, rank_of={31: 0}, idle=90.0)).verdict is not Verdict.HUNG


def stacked(*functions: str, idle: float | None = 90.0, file: str = "engine/x.py") -> Judgement:
    dumps = tuple(stack(31 + n, name, file=file) for n, name in enumerate(functions))
    return judge(facts(Attached(log=LOG, stacks=dumps), rank_of=RANKS, idle=idle, now=200.0))


def test_ranks_that_wait_are_hung_unless_one_is_at_work_or_downloads_or_something_was_said() -> None:
    found = stacked("all_reduce", "init_process_group")
    assert (found.verdict, found.proof) == (
        Verdict.HUNG, ("rank 0: all_reduce (engine/x.py:1)", "rank 1: init_process_group (engine/x.py:1)"),
    )  # fmt: skip
    assert "wait (collective, connect)" in found.reason
    assert stacked("all_reduce", "who_knows").verdict is Verdict.HUNG
    assert stacked("all_reduce", "safetensors_weights_iterator").verdict is not Verdict.HUNG
    assert stacked("all_reduce", "build_and_load").verdict is not Verdict.HUNG
    assert stacked("all_reduce", "snapshot_download").verdict is not Verdict.HUNG
    assert stacked("all_reduce", "all_reduce", idle=59.0).verdict is not Verdict.HUNG
    assert stacked("all_reduce", "all_reduce", idle=60.0).verdict is Verdict.HUNG
    assert stacked("who_knows", "who_knows").verdict is not Verdict.HUNG
    assert stacked("clock_nanosleep", "clock_nanosleep").verdict is not Verdict.HUNG


def test_the_proof_of_a_stack_is_its_innermost_frame_that_is_no_native_one() -> None:
    dump = stack(31, "ncclAllReduce", "all_reduce")
    frames = dump.threads[0].frames
    native = replace(dump, threads=(replace(dump.threads[0], frames=(frames[0]._replace(native=True), frames[1])),))
    assert judge(facts(Attached(log=LOG, stacks=(native,)), rank_of=RANKS)).proof == ("rank 0: all_reduce (engine/x.py:1)",)
    only = replace(dump, threads=(replace(dump.threads[0], frames=(frames[0]._replace(native=True),)),))
    assert judge(facts(Attached(log=LOG, stacks=(only,)))).proof == ("process 31: ncclAllReduce (engine/x.py:1)",)


def recorder(*texts: str, named: tuple[int, ...] = ()) -> Attached:
    told = tuple(Disagreement(kind=Discord.MISSING, group="0", seq=1, ranks=named, text=text) for text in texts)
    return Attached(log=LOG, flight_recorder=Comparison(source="flight_recorder", ranks=(0, 1), behind=named, disagreements=told))


def test_a_recorder_that_saw_ranks_disagree_is_believed_after_a_minute_of_silence() -> None:
    many = judge(facts(recorder(*"abcdef", named=(0, 1)), idle=60.0))
    assert (many.verdict, many.reason) == (Verdict.HUNG, "by torch's flight recorder, the others wait for ranks 0, 1: a")
    assert many.proof == ("a", "b", "c", "d")
    assert judge(facts(recorder("a"), idle=60.0)).reason == "by torch's flight recorder, a"
    assert judge(facts(recorder("a"), idle=59.0)).verdict is not Verdict.HUNG
    assert judge(facts(recorder(named=(1,)), idle=60.0)).verdict is not Verdict.HUNG
    reads = replace(recorder("a"), stacks=(stack(31, "safetensors_weights_iterator"),))
    assert judge(facts(reads, rank_of=RANKS, idle=60.0)).verdict is not Verdict.HUNG
    loads = replace(recorder("a"), stacks=(stack(31, "snapshot_download"),))
    assert judge(facts(loads, rank_of=RANKS, idle=60.0)).verdict is not Verdict.HUNG


def asleep(idle: float, *, cpu: float = 0.0, of: GpuLine | None = None, phase: Phase = Phase.GRAPH_CAPTURE) -> Judgement:
    shown = Attached(log=LOG, processes=(process(31, cpu=cpu), process(32, cpu=0.0)), gpus=(of,) if of is not None else None)
    return judge(facts(shown, rank_of=RANKS, idle=idle, now=idle + 100.0, phase=phase))


def test_all_asleep_is_hung_after_ten_minutes_unless_a_gpu_is_in_use() -> None:
    assert asleep(600.0).verdict is Verdict.HUNG
    assert "for 10 min" in asleep(600.0).reason
    assert asleep(599.0).verdict is Verdict.STALLED
    assert asleep(600.0, of=gpu(5, 70.0)).verdict is Verdict.HUNG
    assert asleep(600.0, of=gpu(50, 500.0)).verdict is Verdict.STALLED
    download = Attached(log=LOG, processes=(process(31), process(32)), stacks=(stack(31, "snapshot_download"),))
    assert judge(facts(download, rank_of=RANKS, idle=700.0, now=900.0)).verdict is Verdict.STALLED


@pytest.mark.parametrize(("cpu", "idle", "phase", "verdict"), [
    (90.0, 600.0, Phase.GRAPH_CAPTURE, Verdict.HUNG),
    (89.0, 600.0, Phase.GRAPH_CAPTURE, Verdict.SLOW),
    (90.0, 599.0, Phase.GRAPH_CAPTURE, Verdict.SLOW),
    (90.0, 600.0, Phase.WEIGHTS, Verdict.SLOW),
    (90.0, 600.0, Phase.COMPILE, Verdict.SLOW),
])  # fmt: skip
def test_a_rank_that_spins_while_the_others_sleep_is_hung_after_ten_minutes_where_nothing_is_loaded_or_built(
    cpu: float, idle: float, phase: Phase, verdict: Verdict
) -> None:
    assert asleep(idle, cpu=cpu, phase=phase).verdict is verdict


def test_a_spinning_rank_is_at_work_where_another_is_neither_busy_nor_asleep_or_where_it_is_late_itself() -> None:
    def spinning(third: float, **reading: object) -> Verdict:
        lines = tuple(process(31 + n, cpu=cpu) for n, cpu in enumerate((99.0, 0.0, third)))
        return judge(facts(Attached(log=LOG, processes=lines), rank_of={31: 0, 32: 1, 33: 2}, idle=700.0, now=900.0, **reading)).verdict  # type: ignore[arg-type]  # by name

    assert spinning(0.0) is Verdict.HUNG
    assert spinning(2.9) is Verdict.HUNG
    assert spinning(3.0) is Verdict.SLOW
    assert spinning(99.0) is Verdict.HUNG
    late = {0: Phase.KV_CACHE, 1: Phase.GRAPH_CAPTURE}
    assert spinning(0.0, places=late) is Verdict.SLOW
    assert spinning(0.0, places={0: Phase.GRAPH_CAPTURE, 1: Phase.KV_CACHE}) is Verdict.HUNG


# what works, and silence


def test_silence_is_a_stall_from_two_minutes_on_and_from_five_where_it_is_usual() -> None:
    def silent(idle: float, phase: Phase = Phase.GRAPH_CAPTURE, of: Attached | None = None) -> Judgement:
        return judge(facts(of or Attached(log=LOG), phase=phase, idle=idle, now=idle, last_t=0.0, rank_of=RANKS))

    assert silent(119.0).verdict is Verdict.STARTING
    assert silent(119.0).reason == "graph_capture for 119 s: the log goes on"
    assert silent(120.0).verdict is Verdict.STALLED
    assert silent(120.0).reason == "graph_capture: nothing new was said for 2 min"
    for phase in (Phase.WEIGHTS, Phase.COMPILE):
        assert silent(299.0, phase).verdict is Verdict.STARTING
        assert silent(300.0, phase).verdict is Verdict.STALLED
    download = Attached(log=LOG, stacks=(stack(31, "snapshot_download"),))
    assert silent(299.0, of=download).verdict is Verdict.STARTING
    assert silent(300.0, of=download).verdict is Verdict.STALLED


def test_work_without_a_word_is_slow_from_two_minutes_on() -> None:
    works = Attached(log=LOG, processes=(process(31, "R", 50.0),))
    assert judge(facts(works, rank_of=RANKS, idle=119.0, now=200.0)).verdict is Verdict.STARTING
    found = judge(facts(works, rank_of=RANKS, idle=120.0, now=200.0))
    assert (found.verdict, found.reason) == (Verdict.SLOW, "graph_capture takes 3 min: processes are computing")


def test_a_phase_beyond_its_budget_is_slow_and_its_time_runs_from_its_begin() -> None:
    planned = replace(TWO, budgets=(Budget(phase=Phase.GRAPH_CAPTURE, seconds=50.0, source="profile"),))
    rows = (PhaseRow(name=Phase.GRAPH_CAPTURE, began_s=100.0, seconds=None, ranks_done=0),)
    assert judge(facts(plan=planned, rows=rows, now=150.0, last_t=150.0)).verdict is Verdict.STARTING
    found = judge(facts(plan=planned, rows=rows, now=151.0, last_t=150.0))
    assert (found.verdict, found.reason) == (Verdict.SLOW, "graph_capture takes 51 s: the log goes on")
    assert judge(facts(plan=planned, rows=rows, last_t=151.0)).verdict is Verdict.SLOW, "the last line is as late as is known"
    assert judge(facts(now=300.0, last_t=300.0)).verdict is Verdict.STARTING
    assert judge(facts(now=301.0, last_t=300.0)).verdict is Verdict.SLOW


def test_without_times_in_the_log_no_duration_is_told() -> None:
    assert judge(facts()).reason == "graph_capture: no times in the log, so no duration can be told"
    assert judge(facts(Attached(processes=(process(31),)), now=5.0)).reason == "graph_capture for 5 s: the log goes on"


@pytest.mark.parametrize(("of", "doing"), [
    (Attached(log=LOG, processes=(process(40, "R", 99.0, title="/usr/bin/ninja -v"),)), "compilers are at work"),
    (Attached(log=LOG, stacks=(stack(31, "build_and_load"),)), "a kernel is being compiled"),
    (Attached(log=LOG, processes=(process(31, cpu=20.0),)), "processes are computing"),
    (Attached(log=LOG, processes=(process(31, "D"),)), "a process waits for storage (state D)"),
    (Attached(log=LOG, processes=(process(31, "D", wchan="nv_wait"),)), "the log goes on"),
    (Attached(log=LOG, processes=(process(31, cpu=19.0),)), "the log goes on"),
    (Attached(log=LOG, processes=(process(31, cpu=20.0),), gpus=(gpu(100, 100.0),)), "the log goes on"),
])  # fmt: skip
def test_what_is_seen_at_work_is_said(of: Attached, doing: str) -> None:
    assert judge(facts(of, rank_of=RANKS, idle=10.0, now=20.0, last_t=10.0)).reason == f"graph_capture for 20 s: {doing}"


@pytest.mark.parametrize(("phase", "idle", "verdict"), [
    (Phase.WARMUP, 599.0, Verdict.SLOW), (Phase.WARMUP, 600.0, Verdict.STALLED), (Phase.DISTRIBUTED_INIT, 600.0, Verdict.STALLED),
    (Phase.LISTENING, 600.0, Verdict.STALLED), (Phase.WEIGHTS, 600.0, Verdict.SLOW), (Phase.GRAPH_CAPTURE, 600.0, Verdict.SLOW),
])  # fmt: skip
def test_processor_time_is_no_progress_where_no_phase_takes_that_long(phase: Phase, idle: float, verdict: Verdict) -> None:
    works = Attached(log=LOG, processes=(process(31, "R", 50.0), process(32, "R", 50.0)))
    assert judge(facts(works, rank_of=RANKS, phase=phase, idle=idle, now=idle)).verdict is verdict


def test_the_last_milestone_is_the_proof_of_a_start_that_goes_on() -> None:
    told = (milestone(Phase.WEIGHTS), milestone(Phase.KV_CACHE), error("a warning"))
    assert judge(facts(told=told[:2])).proof == ("last milestone: kv_cache begin",)
    assert judge(facts(told=told)).verdict is Verdict.FAILED
    assert judge(facts()).proof == ()


def test_any_part_that_shows_the_start_is_enough_to_judge_by() -> None:
    assert judge(facts(Attached(processes=()))).verdict is Verdict.STARTING
    assert judge(facts(Attached(stacks=(stack(31, "who_knows"),)))).verdict is Verdict.STARTING
    assert judge(facts(Attached(gpus=(gpu(0, 70.0),)))).verdict is Verdict.UNKNOWN


def test_a_stopped_process_is_named_in_the_reason() -> None:
    shown = Attached(log=LOG, processes=(process(31), process(32, "Tl", title="engine worker")))
    assert judge(facts(shown, rank_of=RANKS)).reason == "process 32 (engine worker) is stopped (state Tl)"


def test_a_proof_shows_a_few_lines_and_a_few_ranks() -> None:
    assert len(judge(facts(told=(xid(79),) * 5)).proof) == 3
    stacks = tuple(stack(31 + n, "all_reduce") for n in range(10))
    assert len(judge(facts(Attached(log=LOG, stacks=stacks), rank_of={31 + n: n for n in range(10)})).proof) == 8
    assert len(judge(facts(Attached(log=LOG, gpus=(gpu(100, 120.0),) * 10))).proof) == 8
