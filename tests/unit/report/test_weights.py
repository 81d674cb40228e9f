"""Weights for people and for scripts: the texts are a contract."""

from dataclasses import replace

from syrupy.assertion import SnapshotAssertion

from firsttoken.model.weights import Bound, Forecast, Limit, LoadRow, Rate, Source
from firsttoken.report.weights import forecast_document, forecast_text, load_document, load_text

BEFORE = Forecast(
    path="/models/m",
    engine="engine",
    shards=64,
    bytes=300_000_000_000,
    cached=120_000_000_000,
    place="/models (ext4 on nvme0n1)",
    storage=Rate(bytes_per_s=3e9, how="remembered", age_s=7200),
    warm=Rate(bytes_per_s=14e9, how="runs"),
    cold_s=121.4,
    warm_s=21.4,
    now_s=81.4,
    limit=Limit(what=Bound.STORAGE, bytes_per_s=3e9),
    room=200_000_000_000,
    problems=("a/b.safetensors is empty",),
)
AFTER = LoadRow(
    bytes=300_000_000_000,
    seconds=22.0,
    bytes_per_s=13.6e9,
    source=Source.PAGE_CACHE,
    cached_share=1.0,
    storage_bytes_per_s=3e9,
    next_cold_s=100.0,
    reasons=("cpu",),
    says=("22 s for 300 GB is 14 GB/s, your disk gives 3.0 GB/s: it came from memory; the next cold start takes 100 s", "it was busy"),
)


def test_a_forecast_is_a_screenful(snapshot: SnapshotAssertion) -> None:
    assert forecast_text(BEFORE) == snapshot


def test_what_is_not_known_is_said_so(snapshot: SnapshotAssertion) -> None:
    assert forecast_text(Forecast(path="/m", shards=1, bytes=5_000_000)) == snapshot
    fresh = replace(BEFORE, storage=Rate(bytes_per_s=3e9, how="measured"), warm=Rate(bytes_per_s=9e9, how="measured"), network=True)
    assert forecast_text(replace(fresh, limit=Limit(what=Bound.NETWORK, bytes_per_s=3e9))) == snapshot


def test_the_documents_have_every_key(snapshot: SnapshotAssertion) -> None:
    assert forecast_document(BEFORE) == snapshot
    assert load_document(AFTER, "20261129-181145-engine-7f3a") == snapshot


def test_a_load_is_told_in_sentences() -> None:
    assert load_text(AFTER).splitlines() == [AFTER.says[0], "  why: it was busy"]
    assert "not loaded to the end" in load_text(LoadRow())
