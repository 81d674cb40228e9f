"""The verdict on dead files, one rule a test."""

from attached_facts import error, facts, gpu, milestone, process, stack

from firsttoken.explain.verdict import judge
from firsttoken.model.attached import Attached
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
    from firsttoken.model.plan import Plan, Sizes

    three = Plan(engine="engine", sizes=Sizes(tp=3, world=3, ranks_here=3))
    assert judge(facts(Attached(log=log), plan=three, told=(error("Segfault", "segfault", fatal=True),))).behind == (1,)


def test_every_verdict_has_a_reason() -> None:
    for phase in Phase:
        assert judge(facts(phase=phase, told=(milestone(phase, Edge.INSIDE),))).reason
