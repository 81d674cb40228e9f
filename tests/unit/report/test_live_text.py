"""What the live view says, at the widths that people have."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from firsttoken.model.result import EndpointRow, EngineRef, ExitRow, PhaseRow, RankGroup, RanksRow, Result, TimerRow, WeightsRow
from firsttoken.model.words import Phase, Verdict
from firsttoken.report.live_text import Moment, live_lines, ranks_text, seconds_left, span

LOADING = Result(
    run="20261129-181145-sglang-7f3a",
    engine=EngineRef(name="sglang", version="0.5.23"),
    world_size=8,
    verdict=Verdict.SLOW,
    reason="weights takes 22.0 s (usually up to 10.0 s): 12 of 64 shards, 61.0 GB of 320.0 GB, 2.9 GB/s",
    phase=Phase.WEIGHTS,
    elapsed_s=31.0,
    still_s=0.0,
    eta_s=89.0,
    phases=(
        PhaseRow(name=Phase.PROCESS_START, began_s=0.0, seconds=4.2, ranks_done=8),
        PhaseRow(name=Phase.CONFIG, began_s=4.2, seconds=1.1, ranks_done=8),
        PhaseRow(name=Phase.DISTRIBUTED_INIT, began_s=5.3, seconds=3.7, ranks_done=8),
        PhaseRow(name=Phase.WEIGHTS, began_s=9.0, seconds=None, ranks_done=0),
    ),
    weights=WeightsRow(shards_done=12, shards=64, bytes=320_000_000_000, bytes_done=61_000_000_000, bytes_per_s=2.9e9),
    timers=(
        TimerRow(name="watchdog-timeout", seconds=300, fires_in_s=278.0),
        TimerRow(name="dist-timeout", seconds=600, fires_in_s=None),
    ),
)
BUSY = Moment(
    since_s=0.4,
    cores=3.2,
    child_cores=0.4,
    bytes_per_s=2.9e9,
    signals=("bytes", "log", "weights"),
    places=(RankGroup(ranks=(0, 1, 2, 4, 5, 6, 7), where="weights"), RankGroup(ranks=(3,), where="distributed_init")),
    last_line="[2026-11-29 18:12:16 TP0] Loading safetensors checkpoint shards",
    open_line="Loading safetensors checkpoint shards:  19% Completed | 12/64 [00:22<01:29,  1.7s/it]",
    usual={Phase.WEIGHTS: 24.0, Phase.KV_CACHE: 3.0, Phase.GRAPH_CAPTURE: 14.0},
)
HUNG = replace(
    LOADING,
    verdict=Verdict.HUNG,
    reason="graph_capture: rank 3 waits for a file lock that rank 2 holds, and rank 2 waits for rank 3",
    proof=("rank 3 is in flock(2) on /tmp/kernel.lock", "no strong signal for 14.0 s"),
    ranks=RanksRow(behind=(3,), groups=(RankGroup(ranks=(0, 1, 2), where="all_reduce"), RankGroup(ranks=(3,), where="flock"))),
)
STILL = replace(
    LOADING, verdict=Verdict.STALLED, still_s=14.2, reason="graph_capture: nothing moved for 14.2 s", ranks=HUNG.ranks, eta_s=None
)


def text(result: Result, moment: Moment, *, width: int, height: int = 14, unicode: bool = True) -> list[str]:
    return [line.plain.rstrip() for line in live_lines(result, moment, width=width, height=height, unicode=unicode)]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_start_that_loads_weights_looks_like_this(width: int, snapshot: SnapshotAssertion) -> None:
    assert text(LOADING, BUSY, width=width) == snapshot


def test_without_unicode_every_line_is_ascii(snapshot: SnapshotAssertion) -> None:
    lines = text(LOADING, BUSY, width=80, unicode=False)
    assert all(line.isascii() for line in lines)
    assert lines == snapshot


@pytest.mark.parametrize("result", [HUNG, STILL], ids=["hung", "stalled"])
def test_a_start_that_stands_still_names_the_ranks_that_differ(result: Result, snapshot: SnapshotAssertion) -> None:
    lines = text(result, Moment(last_line="Capturing graphs"), width=80)
    assert lines == snapshot
    assert "3" in "".join(lines)


def test_a_server_that_is_ready_tells_where(snapshot: SnapshotAssertion) -> None:
    endpoint = EndpointRow(url="http://127.0.0.1:30000", model="qwen3")
    assert text(replace(LOADING, verdict=Verdict.READY, reason="a real token came", endpoint=endpoint), BUSY, width=80) == snapshot


def test_what_matters_most_stays_when_there_is_room_for_three_lines() -> None:
    lines = text(LOADING, BUSY, width=80, height=4)
    assert any("weights takes 22.0 s" in line for line in lines)
    assert any(line.startswith("phase  weights 22.4 s") for line in lines)


def test_time_goes_on_between_two_events() -> None:
    lines = text(LOADING, replace(BUSY, since_s=3.0), width=100)
    assert "34.0 s" in lines[0]
    assert any("weights in 86.0 s" in line for line in lines)
    assert any("watchdog-timeout 300 s ends it in 4 min 35 s" in line for line in lines)


def test_an_observer_that_says_nothing_any_more_is_named() -> None:
    assert any("no news from the observer for 9.0 s" in line for line in text(LOADING, replace(BUSY, since_s=9.0), width=80))


def test_the_clock_of_a_server_that_ended_stands() -> None:
    ended = replace(LOADING, verdict=Verdict.FAILED, reason="ended with status 1", exit=ExitRow(code=1))
    assert "31.0 s" in text(ended, replace(BUSY, since_s=100.0), width=80)[0]


def test_weights_at_their_present_rate_count_for_the_time_that_is_left() -> None:
    assert seconds_left(LOADING, replace(BUSY, since_s=0.0)) == 89.0 + 3.0 + 14.0
    assert seconds_left(LOADING, Moment()) is None


def test_a_line_with_control_characters_and_markup_is_shown_as_it_reads() -> None:
    lines = text(LOADING, Moment(last_line="\x1b[31m[bold]red[/bold]\x07 tail"), width=80)
    assert any("[31m[bold]red[/bold]  tail" in line for line in lines)


def test_ranks_and_times_read_like_people_say_them() -> None:
    assert ranks_text([7, 0, 1, 2, 4]) == "0-2, 4, 7"
    assert [span(9.44), span(725), span(7500)] == ["9.4 s", "12 min 05 s", "2 h 05 min"]


@given(
    width=st.integers(8, 220),
    height=st.integers(1, 40),
    unicode=st.booleans(),
    result=st.sampled_from([LOADING, HUNG, STILL, Result()]),
    said=st.text(max_size=300),
)
def test_no_line_is_wider_and_there_are_never_more(width: int, height: int, unicode: bool, result: Result, said: str) -> None:
    lines = live_lines(
        replace(result, reason=said), replace(BUSY, last_line=said, open_line=said), width=width, height=height, unicode=unicode
    )
    assert 1 <= len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    assert unicode or all(line.plain.isascii() for line in lines)
    assert not any("\n" in line.plain or "\x1b" in line.plain for line in lines)
