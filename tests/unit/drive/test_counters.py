"""Acceptance from metrics pages, logs and streams of several engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.drive.counters import Counts, acceptance, from_lines, from_stream, read, total
from firsttoken.knowledge.load import profiles

VLLM = b"""# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 189.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 567.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 85.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="2"} 1.7e9
"""
NAMES = profiles()["vllm"].counters


def test_drafts_are_counted_by_position_and_over_all_engines() -> None:
    one = read(VLLM, NAMES)
    assert one == Counts(drafts=189, drafted=567, accepted=85, by_position=(60, 20, 5))
    assert read(VLLM + VLLM.replace(b'engine="0"', b'engine="1"'), NAMES).drafted == 2 * 567


def test_a_difference_counts_the_run_alone_and_a_restarted_counter_from_zero() -> None:
    after = read(VLLM, NAMES)
    assert after.since(after) == Counts(drafts=0, drafted=0, accepted=0, by_position=(0, 0, 0))
    assert after.since(Counts(drafts=89, drafted=267, accepted=85, by_position=(60,))).by_position == (0, 20, 5)
    assert Counts(drafts=5.0).since(Counts(drafts=100.0)).drafts == 5


def test_the_rate_of_all_tokens_and_the_mean_over_requests_are_told_apart() -> None:
    single = [Counts(drafts=10, drafted=30, accepted=30), Counts(drafts=90, drafted=270, accepted=27)]
    found = acceptance(total(single), single, tokens=157, requests=2, draft_tokens=3)
    assert found is not None
    assert found.rate == pytest.approx(57 / 300)
    assert found.by_requests == pytest.approx((1 + 0.1) / 2)
    assert found.length == pytest.approx(1.57)


def test_where_only_rounds_are_counted_the_length_follows_from_the_client_tokens() -> None:
    names = profiles()["sglang"].counters
    counts = read(b'sglang:spec_verify_calls_total{model_name="m"} 100\n', names)
    found = acceptance(counts, tokens=147, requests=2, draft_tokens=3)
    assert found is not None
    assert (found.length, found.rate) == (pytest.approx(1.45), pytest.approx(0.15))
    unknown = acceptance(counts, tokens=147, requests=2, draft_tokens=None)
    assert unknown is not None
    assert unknown.rate is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_the_sample_lines_of_each_engine_tell_acceptance(engine: str) -> None:
    spec = profiles()[engine].speculation
    assert spec is not None
    assert spec.log is not None
    found = from_lines([*spec.samples, "something else"], spec.log)
    assert found is not None
    assert found.rate is not None
    assert from_lines(["something else"], spec.log) is None


def test_pieces_of_a_stream_give_a_length_and_nothing_more() -> None:
    found = from_stream(tokens=128, requests=2, events=44)
    assert found is not None
    assert (found.length, found.rate) == (3.0, None)
    assert from_stream(tokens=128, requests=2, events=128) is None


@given(st.binary(max_size=400))
def test_no_page_makes_it_fail(page: bytes) -> None:
    read(page, NAMES)
    read(VLLM + page, NAMES)
