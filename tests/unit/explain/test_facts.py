"""What attached files show, fact by fact: from where on something counts, and what is not known where nothing tells it."""

from dataclasses import replace

import pytest
from attached_facts import facts, gpu, milestone, process, stack

from firsttoken.explain.facts import last_generate
from firsttoken.model.attached import Asked, Attached, GpuLine, ProbeLine, Probes, ProcessLine
from firsttoken.model.collectives import Comparison, Disagreement, Discord
from firsttoken.model.plan import Plan
from firsttoken.model.reading import Bar
from firsttoken.model.words import Phase

RANKS = {31: 0, 32: 1}
COMPILER = "/usr/local/cuda/nvvm/bin/cicc --c++17 x.cu"


def of_processes(*lines: ProcessLine, name: str, ranked: bool = True) -> object:
    return facts(Attached(processes=lines), rank_of=RANKS if ranked else {})[name]


def of_gpus(*lines: GpuLine, name: str) -> object:
    return facts(Attached(gpus=lines))[name]


def of_probes(*lines: ProbeLine, name: str) -> object:
    return facts(Attached(probes=Probes(lines=lines)))[name]


def generated(status: int | None = 200, **told: object) -> ProbeLine:
    return replace(ProbeLine(asked=Asked.GENERATE, url="/v1/completions", status=status), **told)  # type: ignore[arg-type]  # by name


def health(status: int | None = 200, **told: object) -> ProbeLine:
    return replace(ProbeLine(asked=Asked.HEALTH, url="/health", status=status), **told)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("state", "cpu", "busy"), [("S", 2.9, False), ("S", 3.0, True), ("R", 0.0, True), ("D", 0.0, True), ("S", None, False)]
)
def test_compilers_that_run_or_took_processor_time_are_busy(state: str, cpu: float | None, busy: bool) -> None:
    compiler = replace(process(40, state, title=COMPILER), cpu=cpu)
    assert of_processes(process(31), compiler, name="compilers_busy") is busy
    assert of_processes(process(31), compiler, name="compilers_alive") is True


def test_without_compilers_none_is_alive() -> None:
    assert of_processes(process(31), name="compilers_alive") is False
    assert of_processes(process(31, "R", 99.0), name="compilers_busy") is False, "a rank is no compiler"


@pytest.mark.parametrize(("cpu", "name", "holds"), [
    (2.9, "all_quiet", True), (3.0, "all_quiet", False), (19.9, "rank_busy", False), (20.0, "rank_busy", True), (89.9, "ranks_spin", False),
    (90.0, "ranks_spin", True),
])  # fmt: skip
def test_processor_time_of_the_ranks_is_quiet_busy_or_a_spin(cpu: float, name: str, holds: bool) -> None:
    assert of_processes(process(31, cpu=cpu), process(32, cpu=cpu), name=name) is holds


def test_one_rank_that_is_at_work_is_enough_to_be_busy_and_too_few_for_a_spin_of_all() -> None:
    mixed = (process(31, cpu=99.0), process(32, cpu=0.0))
    assert of_processes(*mixed, name="rank_busy") is True
    assert of_processes(*mixed, name="ranks_spin") is False
    assert of_processes(*mixed, name="all_quiet") is False
    assert of_processes(*mixed, name="max_cpu") == 99.0


def test_without_a_column_for_the_processor_nobody_is_quiet_and_nobody_busy() -> None:
    blind = (replace(process(31), cpu=None), replace(process(32), cpu=None))
    for name in ("all_quiet", "rank_busy", "ranks_spin"):
        assert of_processes(*blind, name=name) is not True
    assert of_processes(*blind, name="max_cpu") is None


def test_without_a_process_list_nothing_is_said_of_processes() -> None:
    nothing = facts(Attached(log=b"x\n"))
    for name in ("stopped", "zombie", "all_quiet", "compilers_busy", "orphans", "disk_wait", "driver_wait", "max_memory"):
        assert nothing[name] is None
    assert nothing["has_processes"] is False


@pytest.mark.parametrize(("state", "name"), [("T", "stopped"), ("tl", "stopped"), ("Zs", "zombie"), ("Dl", "disk_wait")])
def test_states_are_told_by_their_first_letter(state: str, name: str) -> None:
    assert of_processes(process(31), process(32, state), name=name) is True
    assert of_processes(process(31), process(32, "Sl"), name=name) is False


def test_a_helpers_wait_for_the_disk_is_not_that_of_the_ranks() -> None:
    assert of_processes(process(31), process(50, "D", title="bash -c sync"), name="disk_wait") is False
    assert of_processes(process(31), process(50, title="[python3] <defunct>"), name="defunct") is True
    assert of_processes(process(31), name="defunct") is False


def test_a_launchers_wait_is_that_of_the_ranks_only_where_no_rank_is_known() -> None:
    launcher, worker = process(30, "D", title="engine serve", wchan="fifo_open"), process(31, parent=30)
    for name in ("disk_wait", "fifo_wait"):
        assert facts(Attached(processes=(launcher, worker)), rank_of={31: 0})[name] is False
        assert facts(Attached(processes=(launcher, process(50, title="bash", parent=30))))[name] is True


@pytest.mark.parametrize(("wchan", "name"), [("os_acquire_mutex", "driver_wait"), ("uvm_wait", "driver_wait"), ("fifo_open", "fifo_wait")])
def test_places_in_the_kernel_tell_a_driver_and_a_fifo(wchan: str, name: str) -> None:
    assert of_processes(process(31, wchan=wchan), name=name) is True
    assert of_processes(process(31, wchan="futex_wait"), name=name) is False
    assert of_processes(process(31), name=name) is False


def test_a_fifo_that_only_a_helper_waits_for_is_none_of_the_ranks() -> None:
    assert of_processes(process(31), process(50, title="bash", wchan="fifo_open"), name="fifo_wait") is False


def test_ranks_whose_parent_is_gone_are_orphans_where_there_are_several() -> None:
    assert of_processes(process(31), process(32), name="orphans") is True
    assert of_processes(process(31), process(32, parent=31), name="orphans") is True
    assert of_processes(process(31, parent=7), process(32, parent=7), name="orphans") is False
    assert of_processes(process(31), name="orphans") is False, "the one process of a server was started by init: usual in a container"


def test_the_largest_share_of_memory_is_that_of_the_engines_own_processes() -> None:
    lines = (replace(process(31), memory=40.0), replace(process(32), memory=41.0), replace(process(50, title=COMPILER), memory=90.0))
    assert of_processes(*lines, name="max_memory") == 41.0


# which processes are taken for ranks


def test_where_nothing_names_ranks_the_launcher_its_compilers_and_helpers_are_none() -> None:
    found = facts(Attached(processes=(
        process(30, title="engine serve"), process(31, parent=30), process(32, parent=30), process(40, title=COMPILER, parent=32),
        process(50, title="bash -c tail"),
    )))  # fmt: skip
    assert [seen.process.pid for seen in found.ranks if seen.process is not None] == [31]
    assert found.ranks[0].rank is None


def test_a_launcher_whose_stack_was_taken_and_a_process_that_is_alone_count() -> None:
    both = (process(30, title="engine serve"), process(31, parent=30))
    assert [seen.process for seen in facts(Attached(processes=both, stacks=(stack(30, "all_reduce"),))).ranks] == list(both)
    alone = process(30, parent=30)
    assert [seen.process for seen in facts(Attached(processes=(alone,))).ranks] == [alone]


def test_compilers_deep_below_a_rank_are_its_own_and_a_ring_of_parents_ends() -> None:
    chain = [process(31), process(32)] + [process(40 + i, title="sh -c x", parent=32 if i == 0 else 39 + i) for i in range(12)]
    seen = facts(Attached(processes=(*chain, process(60, title=COMPILER, parent=51))), rank_of=RANKS)
    assert [(one.rank, one.compiling) for one in seen.ranks] == [(0, False), (1, True)]
    ring = (process(31), process(70, title=COMPILER, parent=71), process(71, title="sh", parent=70))
    assert [one.compiling for one in facts(Attached(processes=ring), rank_of=RANKS).ranks] == [False]


def test_a_recorded_stack_that_says_what_it_does_is_believed_before_its_frames() -> None:
    dump = stack(31, "all_reduce")
    told = replace(dump, threads=(replace(dump.threads[0], doing="file_read"),))
    assert [seen.sign for seen in facts(Attached(stacks=(dump,)), rank_of=RANKS).ranks] == ["collective"]
    assert [seen.sign for seen in facts(Attached(stacks=(told,)), rank_of=RANKS).ranks] == ["read"]


def test_stacks_are_alike_or_not_where_there_are_two_and_unknown_where_there_is_one() -> None:
    def alike(*functions: str) -> object:
        return facts(Attached(stacks=tuple(stack(31 + i, name) for i, name in enumerate(functions))), rank_of=RANKS)["stacks_alike"]

    assert alike("all_reduce", "all_gather") is True
    assert alike("all_reduce", "synchronize") is False
    assert alike("all_reduce") is None
    assert alike("all_reduce", "who_knows") is None


def test_a_sign_that_no_stack_shows_is_no_and_without_stacks_unknown() -> None:
    shown = facts(Attached(stacks=(stack(31, "all_reduce"), stack(32, "clock_nanosleep"))), rank_of=RANKS)
    assert (shown["stack_collective"], shown["stack_sleep"], shown["stack_device"]) == (True, True, False)
    assert facts()["stack_collective"] is None
    assert (shown["has_stacks"], facts()["has_stacks"]) == (True, False)


# GPUs


@pytest.mark.parametrize(
    ("busy", "watts", "spins"), [(95.0, 314.0, True), (94.9, 100.0, False), (100.0, 315.0, False), (100.0, 314.9, True)]
)
def test_a_card_spins_at_full_use_and_little_of_its_power(busy: float, watts: float, spins: bool) -> None:
    assert of_gpus(gpu(busy, watts), name="gpu_spin") is spins


def test_a_limit_that_the_card_tells_counts_before_that_of_its_model_and_an_unknown_card_has_a_fixed_one() -> None:
    assert of_gpus(replace(gpu(100, 200.0), power_limit=400.0), name="gpu_spin") is False
    assert of_gpus(replace(gpu(100, 179.0), power_limit=400.0), name="gpu_spin") is True
    assert of_gpus(gpu(100, 149.0, name="Some Card"), name="gpu_spin") is True
    assert of_gpus(gpu(100, 150.0, name="Some Card"), name="gpu_spin") is False
    assert of_gpus(replace(gpu(100, 0.0), power=None), name="gpu_spin") is False, "without its power nothing is known"


def test_one_spinning_card_of_several_is_a_spin() -> None:
    assert of_gpus(gpu(100, 650.0), gpu(100, 120.0), name="gpu_spin") is True
    assert of_gpus(gpu(50, 300.0), gpu(95, 650.0), name="gpu_high") is True
    assert of_gpus(gpu(50, 300.0), gpu(94.9, 650.0), name="gpu_high") is False


def test_all_cards_must_be_idle_and_one_busy_beside_an_idle_one_is_uneven() -> None:
    assert of_gpus(gpu(10, 70.0), gpu(0, 70.0), name="gpus_idle") is True
    assert of_gpus(gpu(10.1, 70.0), gpu(0, 70.0), name="gpus_idle") is False
    assert of_gpus(gpu(95, 70.0), gpu(10, 70.0), name="gpus_uneven") is True
    assert of_gpus(gpu(95, 70.0), gpu(10.1, 70.0), name="gpus_uneven") is False
    assert of_gpus(gpu(94.9, 70.0), gpu(0, 70.0), name="gpus_uneven") is False


def test_a_table_without_utilisation_tells_no_spin_and_no_idleness() -> None:
    blind = replace(gpu(0, 100.0), utilisation=None)
    for name in ("gpu_spin", "gpu_high", "gpus_idle"):
        assert of_gpus(blind, name=name) is None
        assert of_gpus(name=name) is None
    assert of_gpus(blind, gpu(0, 70.0), name="gpus_idle") is True


def test_memory_is_empty_below_a_twentieth_on_all_cards_and_full_where_every_card_is() -> None:
    def card(used: float | None, total: float | None = 1000.0) -> GpuLine:
        return replace(gpu(0, 70.0), memory_used=used, memory_total=total)

    assert of_gpus(card(49.0), card(0.0), name="gpu_memory_empty") is True
    assert of_gpus(card(0.0), card(50.0), name="gpu_memory_empty") is False
    assert of_gpus(card(851.0), card(900.0), name="gpu_memory_full") is True
    assert of_gpus(card(850.0), card(900.0), name="gpu_memory_full") is False
    assert of_gpus(card(100.0), card(900.0), name="gpu_memory_share") == 0.9
    assert of_gpus(card(None), card(5.0, None), name="gpu_memory_empty") is None
    assert of_gpus(card(1023.0, None), card(5.0, None), name="gpu_memory_empty") is True
    assert of_gpus(card(1024.0, None), card(5.0, None), name="gpu_memory_empty") is False
    assert of_gpus(card(None), card(5.0, 0.0), name="gpu_memory_full") is None


def test_links_are_narrow_by_their_lanes_and_slow_by_their_generation_only_at_full_load() -> None:
    card = replace(gpu(95.0, 300.0), link_width=16, link_width_most=16, link_generation=5, link_generation_most=5)
    assert of_gpus(card, name="pcie_narrow") is False
    assert of_gpus(card, replace(card, link_width=8), name="pcie_narrow") is True
    assert of_gpus(card, name="pcie_slow") is False
    assert of_gpus(card, replace(card, link_generation=4), name="pcie_slow") is True
    assert of_gpus(replace(card, link_generation=4, utilisation=94.9), name="pcie_slow") is None
    assert of_gpus(replace(card, link_width_most=None), name="pcie_narrow") is None


def test_reasons_that_slow_a_card_and_its_errors_are_told_once_and_sorted() -> None:
    cards = (replace(gpu(9, 9.0), throttled=("power", "heat"), xids=(94, 31)), replace(gpu(9, 9.0), throttled=("heat",), xids=(31,)))
    assert of_gpus(*cards, name="gpu_throttle") == "heat, power"
    assert of_gpus(*cards, name="gpu_throttled") is True
    assert of_gpus(*cards, name="gpu_xid") == "31, 94"
    assert of_gpus(replace(gpu(9, 9.0), throttled=()), name="gpu_throttled") is False
    assert of_gpus(gpu(9, 9.0), name="gpu_throttled") is None
    assert (of_gpus(gpu(9, 9.0), name="gpu_xid"), of_gpus(gpu(9, 9.0), name="gpu_throttle")) == (None, None)


@pytest.mark.parametrize(("kind", "mismatch", "unfinished"), [
    (Discord.MISMATCH, True, False), (Discord.SIZES, True, False), (Discord.ORDER, True, False), (Discord.UNFINISHED, False, True),
    (Discord.MISSING, False, False),
])  # fmt: skip
def test_a_recorder_tells_what_kind_of_disagreement_it_saw(kind: Discord, mismatch: bool, unfinished: bool) -> None:
    told = Comparison(source="flight_recorder", ranks=(0, 1), disagreements=(Disagreement(kind=kind, group="0", seq=1, ranks=(1,)),))
    found = facts(Attached(flight_recorder=told))
    assert (found["recorder_mismatch"], found["recorder_unfinished"], found["recorder_behind"]) == (mismatch, unfinished, False)
    assert facts()["recorder_unfinished"] is None
    assert facts(Attached(flight_recorder=replace(told, behind=(1,))))["recorder_behind"] is True


# answers


@pytest.mark.parametrize(("status", "answered", "server_error"), [
    (200, True, False), (299, True, False), (300, False, False), (199, False, False), (499, False, False), (500, False, True),
    (503, False, False), (504, False, True), (None, False, False),
])  # fmt: skip
def test_an_answer_is_good_a_servers_error_or_neither(status: int | None, answered: bool, server_error: bool) -> None:
    assert of_probes(generated(status), name="answered") is answered
    assert of_probes(generated(status), name="server_error") is server_error


def test_a_health_page_is_ok_with_200_only_and_a_good_answer_to_it_is_no_token() -> None:
    assert of_probes(health(200), health(503), name="health_ok") is True
    assert of_probes(health(204), name="health_ok") is False
    assert of_probes(generated(200), name="health_ok") is None
    assert of_probes(health(200), name="answered") is False
    assert of_probes(health(500), name="server_error") is False
    assert of_probes(health(503), name="loading_503") is True
    assert of_probes(health(200), name="loading_503") is False


def test_nothing_asked_is_not_the_same_as_nothing_answered() -> None:
    assert of_probes(name="answered") is None
    assert facts()["refused"] is None
    assert of_probes(generated(None, timed_out=True), name="unanswered") is True
    assert of_probes(health(None, timed_out=True), name="unanswered") is False
    assert of_probes(health(None, refused=True), name="refused") is True
    assert of_probes(health(), name="refused") is False


def test_the_slowest_good_health_page_is_told() -> None:
    lines = (health(seconds=0.2), health(seconds=1.5), health(503, seconds=9.0), generated(seconds=30.0), health())
    assert of_probes(*lines, name="slowest_health_s") == 1.5
    assert of_probes(health(503, seconds=9.0), name="slowest_health_s") is None


def test_the_first_answer_is_slower_where_it_takes_half_as_long_again_as_the_quickest_later_one() -> None:
    def slower(*seconds: float) -> object:
        return of_probes(*[generated(seconds=one) for one in seconds], name="first_slower")

    assert slower(3.1, 2.0, 4.0) is True
    assert slower(3.0, 2.0, 4.0) is False
    assert slower(9.0) is False
    assert slower(2.0, 3.1) is False


def test_only_an_answer_that_came_is_insane() -> None:
    assert of_probes(generated(sane=False), generated(sane=True), name="answers_insane") is True
    assert of_probes(generated(500, sane=False), generated(sane=None), name="answers_insane") is False


def test_the_last_request_for_tokens_counts() -> None:
    asked = facts(Attached(probes=Probes(lines=(generated(500), generated(200), health(503)))))
    assert last_generate(asked) == generated(200)
    assert last_generate(facts(Attached(probes=Probes(lines=(health(),))))) is None
    assert last_generate(facts()) is None


# the machine, the ranks and the load


@pytest.mark.parametrize("text", ["$ nproc\n4\n", "CPU(s): 4\n"])
def test_ranks_that_take_nearly_all_cores_with_several_each_fight_over_them(text: str) -> None:
    def over(*cpus: float | None, told: str = text) -> object:
        lines = tuple(replace(process(31 + i), cpu=cpu) for i, cpu in enumerate(cpus))
        return facts(Attached(processes=lines, probes=Probes(text=told)), rank_of=RANKS)["cpu_over_cores"]

    assert over(200.0, 160.0) is True
    assert over(200.0, 159.0) is False
    assert over(199.0, 199.0) is False, "each takes less than two cores"
    assert over(200.0, 200.0, told="nothing") is None
    assert over(None, None) is None


def test_ranks_are_missing_until_the_log_or_the_process_list_has_shown_all() -> None:
    seen = (milestone(Phase.WEIGHTS, rank=0),)
    assert facts(told=seen)["ranks_missing"] is True
    assert facts(told=seen, rank_of={32: 1})["ranks_missing"] is False
    assert facts(told=seen, rank_of={31: 0})["ranks_missing"] is True
    assert facts(plan=Plan(engine="engine"))["ranks_missing"] is False, "one rank need not name itself"


@pytest.mark.parametrize(("bar", "slow"), [
    (Bar(shards=10, done=2, seconds=20.0), True),
    (Bar(shards=10, done=2, seconds=19.9), False),
    (Bar(shards=100, done=50, seconds=300.0), True),
    (Bar(shards=100, done=50, seconds=299.0), False),
    (Bar(shards=10, done=1, seconds=300.0), False),
    (Bar(shards=10, done=10, seconds=300.0), False),
    (Bar(shards=10, done=9, seconds=300.0), True),
    (Bar(shards=10, done=5), False),
    (Bar(), False),
])  # fmt: skip
def test_a_load_is_slow_by_its_shards_or_by_minutes_without_an_end(bar: Bar, slow: bool) -> None:
    assert facts(weights=bar)["load_slow"] is slow


def test_a_bar_is_full_where_all_its_shards_are_done() -> None:
    assert facts(weights=Bar(shards=4, done=4))["load_bar_full"] is True
    assert facts(weights=Bar(shards=4, done=3))["load_bar_full"] is False
    assert facts()["load_bar_full"] is False


def test_time_is_that_of_the_report_else_that_of_the_last_line() -> None:
    assert facts(now=90.0, last_t=60.0)["elapsed_s"] == 90.0
    assert facts(last_t=60.0)["elapsed_s"] == 60.0
