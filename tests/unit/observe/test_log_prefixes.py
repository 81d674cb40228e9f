"""Prefixes of wrappers and engines, in any nesting."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.knowledge.load import generic, profiles
from firsttoken.model.process import RankTag
from firsttoken.observe.log_prefixes import Peeled, Peeler, read_stamp


def peel(engine: str | None, text: str) -> Peeled:
    return Peeler(generic(), profiles()[engine] if engine else None, 2026).peel(text)


@pytest.mark.parametrize(
    ("engine", "line", "message", "tag"),
    [
        ("vllm", "(Worker_TP1 pid=9) INFO 11-29 18:36:08 [a.py:1] hi", "hi", RankTag(name="Worker", tp=1, pid=9)),
        ("vllm", "(Worker_DP0_PP1_PCP0_TP2_DCP0_EP3 pid=9) hi", "hi", RankTag(name="Worker", dp=0, pp=1, tp=2, ep=3, pid=9)),
        ("vllm", "(EngineCore_0 pid=9) INFO 11-29 18:36:08 [a.py:1] hi", "hi", RankTag(name="EngineCore", pid=9)),
        ("vllm", "(VllmWorker rank=1 pid=9) INFO 11-29 18:36:08 [a.py:1] hi", "hi", RankTag(name="VllmWorker", rank=1, pid=9)),
        ("vllm", "(VllmWorker-1 pid=9) hi", "hi", RankTag(name="VllmWorker", rank=1, pid=9)),
        ("vllm", "INFO 11-05 10:00:00 model_runner.py:1014] hi", "hi", None),
        ("vllm", "INFO 11-05 10:00:00 [v1/engine/utils.py:1262] hi", "hi", None),
        ("vllm", "(APIServer pid=1) (EngineCore_DP1 pid=68) ERROR 01-09 04:20:22 [c.py:1] hi", "hi",
         RankTag(name="EngineCore", dp=1, pid=68)),
        ("vllm", "(EngineCore pid=4) (RayWorkerWrapper pid=883, ip=10.0.0.12) INFO 08-03 02:41:03 [w.py:3] hi", "hi",
         RankTag(name="RayWorkerWrapper", pid=883)),
        ("vllm", "vllm-openai-1  | (Worker_TP0 pid=157) hi", "hi", RankTag(name="Worker", tp=0, pid=157)),
        ("sglang", "[2024-11-26 14:25:58 TP0] hi", "hi", RankTag(tp=0)),
        ("sglang", "[2025-12-26 08:58:40 DP1 PP0 TP5 EP5] hi", "hi", RankTag(dp=1, pp=0, tp=5, ep=5)),
        ("sglang", "[2025-12-26 08:58:40 DP1 TP5 PP0] hi", "hi", RankTag(dp=1, pp=0, tp=5)),
        ("sglang", "[2026-09-20 18:30:13,639 ATTN_CP1 MOE_DP2 TP3] hi", "hi", RankTag(tp=3)),
        ("sglang", "[gpu_id=3] hi", "hi", RankTag(tp=3)),
        ("sglang", "2025-08-28 21:19:34 ERROR 125765 [ DP10 TP10 EP10 scheduler.py:2655] hi", "hi",
         RankTag(dp=10, tp=10, ep=10, pid=125765)),
        ("sglang", "2025-12-10T13:50:14.788089Z  INFO model_runner.load_model: hi", "hi", None),
        ("sglang", "Dec 09 08:02:30 h0 sglang[45151]: [2025-12-09 08:02:31 TP0] hi", "hi", RankTag(tp=0)),
        ("sglang", "2024-07-11T09:40:00.137000510Z stderr F [2024-07-11 09:40:00 TP1] hi", "hi", RankTag(tp=1)),
        ("sglang", "[07:10:40] [2026-06-24 07:10:40] hi", "hi", None),
        ("sglang", "[2026-06-24 07:10:40] INFO:     hi", "INFO:     hi", None),
        (None, "3: hi", "hi", RankTag(rank=3)),
        (None, "[default7]:hi", "hi", RankTag(rank=7)),
        (None, "(RayWorkerWrapper pid=880, ip=10.0.0.1) hi", "hi", RankTag(name="RayWorkerWrapper", pid=880)),
        (None, "[Gloo] Rank 0 is connected", "[Gloo] Rank 0 is connected", None),
        (None, "", "", None),
    ],
)  # fmt: skip
def test_what_stands_before_the_message(engine: str | None, line: str, message: str, tag: RankTag | None) -> None:
    found = peel(engine, line)
    assert (found.message, found.tag) == (message, tag)


def unix(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc, arg-type]  # parts are the date's integers


def test_stamps_are_unix_time_as_if_utc() -> None:
    assert peel("vllm", "INFO 11-29 18:36:08 [a.py:1] hi").stamp == unix(2026, 11, 29, 18, 36, 8)
    assert peel("sglang", "[2025-12-26 08:58:40.250 TP1] hi").stamp == unix(2025, 12, 26, 8, 58, 40) + 0.25
    assert peel(None, "2024-07-11T09:40:00.5+02:00 hi").stamp == unix(2024, 7, 11, 7, 40) + 0.5
    assert peel(None, "Feb  9 08:02:30 h0 unit[1]: hi").stamp == unix(2026, 2, 9, 8, 2, 30)
    assert peel("vllm", "INFO 02-29 18:36:08 [a.py:1] hi").stamp is None, "2026 has no such day"


def test_the_engines_stamp_counts_and_the_wrappers_fills_in_on_its_clock() -> None:
    peeler = Peeler(generic(), profiles()["sglang"], 2026)
    both = peeler.peel("2026-06-24T07:10:40Z stderr F [2026-06-24 09:10:41] hi").stamp
    bar = peeler.peel("2026-06-24T07:10:50Z stderr F Loading shards").stamp
    assert both is not None
    assert bar is not None
    assert bar - both == 10 - 0, "the same two hours and a second apart"


def test_a_year_that_turns_during_a_start_does_not_turn_the_clock_back() -> None:
    peeler = Peeler(generic(), profiles()["vllm"], 2026)
    before = peeler.peel("INFO 12-31 23:59:59 [a.py:1] hi").stamp
    after = peeler.peel("INFO 01-01 00:00:01 [a.py:1] hi").stamp
    later = peeler.peel("INFO 01-01 00:00:05 [a.py:1] hi").stamp
    assert None not in (before, after, later)
    assert (after or 0) - (before or 0) == 2
    assert (later or 0) - (after or 0) == 4


@given(st.text(max_size=80))
def test_peeling_takes_any_text(text: str) -> None:
    for engine in (None, *profiles()):
        assert text.endswith(peel(engine, text).message)


@given(st.text(alphabet="0123456789-: T.,Z+JanDec", max_size=30))
def test_reading_a_stamp_takes_any_text(text: str) -> None:
    read_stamp(text, ("iso", "%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%b %d %H:%M:%S", "%H:%M:%S"), 2026)
