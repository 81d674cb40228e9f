"""GPUs between two samples: what is work, what only spins, and what the result tells of each card."""

from dataclasses import replace

import pytest

from firsttoken.judge.gpu import GpuWatch, Spin, noted, notes, rows, spin
from firsttoken.model.events import Gpus
from firsttoken.model.gpu import GpuProcess, GpuSample

MIB = 1 << 20
OURS, THEIRS = 200, 9999
QUIET = GpuSample(
    index=0, busy=1.0, memory_busy=0.0, dram=0.0, power=100.0, power_limit=700.0, memory_used=10_000 * MIB, pcie_rx=0.0, pcie_tx=0.0,
    processes=(GpuProcess(OURS, 9_000 * MIB),),
)  # fmt: skip
"""a card that only spins"""


def card(index: int = 0, *, pid: int = OURS, **changes: object) -> GpuSample:
    return replace(QUIET, **{"index": index, "processes": (GpuProcess(pid, None),), **changes})  # type: ignore[arg-type]  # by name


def watched(
    *rounds: tuple[GpuSample, ...], every: float = 2.0, interval: float = 2.0, ours: tuple[int, ...] = (OURS, OURS + 1)
) -> GpuWatch:
    watch = GpuWatch()
    for number, samples in enumerate(rounds):
        watch = noted(watch, Gpus(interval=interval, samples=samples), number * every, ours)
    return watch


def spun(*samples: GpuSample, **told: float) -> float | None:
    return watched(*[(one,) for one in samples], **told).spun.get(0)  # type: ignore[arg-type]  # times by name


def moved(old: GpuSample, new: GpuSample) -> tuple[str, ...]:
    return watched((old,), (new,)).moved


@pytest.mark.parametrize(("change", "signal"), [
    ({"memory_used": 10_008 * MIB}, ("gpu memory",)),
    ({"memory_used": 9_992 * MIB}, ("gpu memory",)),
    ({"memory_used": 10_008 * MIB - 1}, ()),
    ({"memory_used": None}, ()),
    ({"pcie_rx": 32e6}, ("gpu traffic",)),
    ({"pcie_tx": 32e6}, ("gpu traffic",)),
    ({"nvlink_rx": 32e6}, ("gpu traffic",)),
    ({"nvlink_tx": 32e6}, ("gpu traffic",)),
    ({"nvlink_tx": 31e6, "pcie_rx": 31e6}, ()),
    ({"dram": 0.02}, ("gpu work",)),
    ({"dram": 0.019, "memory_busy": 0.9}, ()),
    ({"dram": None, "memory_busy": 0.05}, ("gpu work",)),
    ({"dram": None, "memory_busy": 0.049}, ()),
    ({"dram": None, "memory_busy": None}, ()),
    ({"memory_used": 0, "pcie_rx": 1e9, "dram": 0.5}, ("gpu memory", "gpu traffic", "gpu work")),
])  # fmt: skip
def test_memory_traffic_and_use_of_memory_are_work_from_a_bar_on(change: dict[str, object], signal: tuple[str, ...]) -> None:
    assert moved(card(), card(**change)) == signal  # type: ignore[arg-type]  # by name


def test_the_first_sample_tells_no_growth_but_traffic() -> None:
    assert watched((card(),)).moved == ()
    assert watched((card(pcie_rx=1e9),)).moved == ("gpu traffic",)
    assert moved(card(memory_used=None), card()) == ()


def test_signals_of_several_cards_are_told_once() -> None:
    assert watched((card(pcie_rx=1e9), card(1, pcie_rx=1e9, dram=0.5))).moved == ("gpu traffic", "gpu work")


def test_a_neighbours_traffic_counts_only_where_no_card_tells_its_processes() -> None:
    busy = card(1, pid=THEIRS, pcie_rx=1e9)
    assert watched((card(), busy)).moved == ()
    assert watched((card(), replace(busy, processes=()))).moved == ()
    assert watched((replace(busy, processes=None),)).moved == ("gpu traffic",)
    assert watched((busy,)).moved == (), "the card of somebody else, where processes are told"


def test_a_card_stays_ours_after_our_process_is_no_longer_listed() -> None:
    watch = watched((card(),), (card(pid=THEIRS, pcie_rx=1e9),))
    assert (watch.own, watch.moved) == (frozenset({0}), ("gpu traffic",))
    assert watch.spun == {}


@pytest.mark.parametrize(("change", "spins"), [
    ({}, True),
    ({"busy": 0.95}, True),
    ({"busy": 0.94}, False),
    ({"busy": None}, False),
    ({"power": 314.9}, True),
    ({"power": 315.0}, False),
    ({"power": None}, False),
    ({"power": 0.0}, False),
    ({"power_limit": None}, False),
    ({"dram": None}, True),
    ({"memory_busy": None}, True),
    ({"dram": None, "memory_busy": None}, False),
    ({"pcie_rx": 1e9}, False),
    ({"pid": THEIRS}, False),
])  # fmt: skip
def test_full_use_without_work_and_at_little_power_spins(change: dict[str, object], spins: bool) -> None:
    assert spun(card(), card(**change)) == (2.0 if spins else None)  # type: ignore[arg-type]  # by name


def test_spinning_is_counted_in_sampled_seconds_from_the_second_sample_on_and_ends_with_work() -> None:
    assert spun(card()) is None
    assert spun(card(), card(), card()) == 4.0
    quick = watched((card(),), (card(),), every=0.5)
    assert (spin_of(quick).seconds, rows(quick, (OURS,))[0]["doing"]) == (0.5, "spinning"), "from its first moment on"
    assert spun(card(), card(), card(dram=0.5)) is None
    assert spun(card(), card(), card(dram=0.5), card()) == 2.0
    assert spun(card(), card(), every=600.0) == 4.0, "our own pause is not spinning: twice the interval at most"
    assert spun(card(), card(), every=3.0) == 3.0
    assert spun(card(), card(), card(), every=-1.0) == 0.0


def test_the_last_errors_are_kept_in_their_order() -> None:
    watch = watched(*[(card(xids=(number,)),) for number in range(25)])
    assert watch.xids == tuple((0, number) for number in range(5, 25))


def test_the_driver_once_told_stays_told() -> None:
    watch = noted(GpuWatch(), Gpus(interval=2.0, samples=(), driver="580.1"), 0.0, ())
    assert noted(watch, Gpus(interval=2.0, samples=(), source="nvidia-smi"), 2.0, ()).driver == "580.1"


# ranks


def spinning(seconds: int, *others: GpuSample, two: bool = False) -> GpuWatch:
    """Card 0 spins for so many seconds (and card 1, of rank 1, as well), the others are as given."""
    first = (card(), card(1, pid=OURS + 1)) if two else (card(),)
    return watched(*[(*first, *others)] * (seconds // 2 + 1))


def spin_of(watch: GpuWatch, ranks: dict[int, int] | None = None) -> Spin:
    found = spin(watch, ranks or {OURS: 0})
    assert found is not None
    return found


def test_nobody_spins_where_no_rank_is_seen_or_nothing_was_sampled_twice() -> None:
    assert spin(GpuWatch(), {OURS: 0}) is None
    assert spin(spinning(0), {OURS: 0}) is None
    assert spin(spinning(10), {THEIRS: 0}) is None
    assert spin(watched((card(processes=None),), (card(processes=None),)), {OURS: 0}) is None
    assert spin_of(spinning(2)).seconds == 2.0


@pytest.mark.parametrize(("seconds", "two", "proven"), [(58, False, False), (60, False, True), (28, True, False), (30, True, True)])
def test_spinning_is_proven_after_half_a_minute_on_several_ranks_and_after_a_whole_one_on_one(
    seconds: int, two: bool, proven: bool
) -> None:
    assert spin_of(spinning(seconds, two=two), {OURS: 0, OURS + 1: 1} if two else None).proven is proven


def test_it_is_not_proven_while_a_rank_does_not_spin() -> None:
    found = spin_of(spinning(90), {OURS: 0, OURS + 1: 1})
    assert (found.proven, found.ranks, found.idle) == (False, (0,), ())


@pytest.mark.parametrize(("busy", "idle"), [(0.049, (1,)), (0.05, ()), (None, ())])
def test_a_rank_whose_card_does_nothing_is_idle(busy: float | None, idle: tuple[int, ...]) -> None:
    found = spin_of(spinning(10, card(1, pid=OURS + 1, busy=busy)), {OURS: 0, OURS + 1: 1})
    assert found.idle == idle


def test_a_rank_with_one_idle_card_of_two_is_not_idle_and_with_one_that_spins_it_spins() -> None:
    others = (card(1, pid=OURS + 1, busy=0.0), card(2, pid=OURS + 1, busy=0.5))
    assert spin_of(spinning(10, *others), {OURS: 0, OURS + 1: 1}).idle == ()
    found = spin_of(spinning(10, card(1, busy=0.5)))
    assert (found.ranks, found.text[:11]) == ((0,), "GPU 0 is fu")


def test_the_shortest_spin_counts() -> None:
    late = card(1, pid=OURS + 1)
    watch = watched((card(),), (card(),), (card(), late), (card(), late))
    assert spin_of(watch, {OURS: 0, OURS + 1: 1}).seconds == 2.0


@pytest.mark.parametrize(("watts", "told"), [(100.9, "101 W of 700 W"), (101.0, "100 to 101 W of 700 W")])
def test_the_power_of_several_cards_is_told_as_one_figure_where_it_is(watts: float, told: str) -> None:
    watch = watched(*[(card(), card(1, pid=OURS + 1, power=watts))] * 3)
    use = f"2 GPUs are fully used without memory, PCIe or link traffic, at {told}, for 4 s: a kernel that only waits"
    assert spin_of(watch, {OURS: 0, OURS + 1: 1}).text == use


# what the result tells


def doing(*samples: GpuSample) -> object:
    return rows(watched(*[(one,) for one in samples]), (OURS,))[0]["doing"]


def test_what_a_card_does_is_told_in_a_word_and_nothing_where_it_cannot_be_told() -> None:
    assert doing(card(), card()) == "spinning"
    assert doing(card(), card(lost=True)) == "lost"
    assert doing(card(), card(dram=0.5)) == "working"
    assert doing(card(), card(busy=0.0)) == "idle"
    assert doing(card(), card(busy=0.5)) is None
    assert doing(card()) is None
    assert doing(card(pid=THEIRS), card(pid=THEIRS)) is None


def test_a_row_tells_shares_in_per_cent_memory_in_mib_and_traffic_of_both_directions() -> None:
    of = card(
        busy=0.1234, memory_busy=None, dram=0.5, memory_used=1536 * MIB + MIB // 2, memory_total=None, pcie_rx=1.0, pcie_tx=2.0,
        nvlink_rx=None, nvlink_tx=3.0, xids=(31,), throttled=("heat",), name="X", temperature=60.0, link_width=8, link_width_most=16,
        processes=(GpuProcess(OURS, 3 * MIB), GpuProcess(THEIRS, None)),
    )  # fmt: skip
    watch = watched((of, card(1, pid=THEIRS, pcie_rx=None, pcie_tx=None, nvlink_rx=None, xids=(43,))))
    first, second = rows(watch, (OURS,))
    assert (first["utilisation"], first["memory_busy"], first["dram_busy"]) == (12.3, None, 50.0)
    assert (first["memory_used_mib"], first["memory_total_mib"]) == (1536.5, None)
    assert (first["pcie_bytes_per_s"], first["nvlink_bytes_per_s"]) == (3.0, 3.0)
    assert (second["pcie_bytes_per_s"], second["nvlink_bytes_per_s"]) == (None, None)
    assert (first["xids"], second["xids"]) == ([31], [43])
    assert (first["in_run"], second["in_run"]) == (True, False)
    assert first["processes"] == [
        {"pid": OURS, "memory_mib": 3.0, "in_run": True}, {"pid": THEIRS, "memory_mib": None, "in_run": False},
    ]  # fmt: skip
    assert (first["uuid"], first["name"], second["name"]) == (None, "X", None)
    assert first["link"] == {"generation": None, "generation_most": None, "lanes": 8, "lanes_most": 16}


def test_notes_are_of_the_runs_own_cards_and_of_any_that_was_lost() -> None:
    hurt = {"throttled": ("heat", "power"), "link_width": 8, "link_width_most": 16}
    assert notes(watched((card(**hurt), card(1, pid=THEIRS, **hurt)))) == (  # type: ignore[arg-type]  # by name
        "GPU 0 is slowed down: heat, power", "GPU 0 has 8 of 16 PCIe lanes",
    )  # fmt: skip
    assert notes(watched((card(), card(1, pid=THEIRS, lost=True)))) == ("GPU 1 does not answer its driver any more",)
    assert notes(watched((card(link_width=16, link_width_most=16),))) == ()
    assert notes(watched((card(link_width=8),))) == ()
    assert notes(watched((card(xids=(31, 31)),), (card(xids=(31, 79)),))) == ("GPU 0 reported Xid 31", "GPU 0 reported Xid 79")
