"""Whole logs, real ones and such as GPUs print, through the reader: phases come in the profile's order and last as long as the log says."""

from pathlib import Path

import pytest

from firsttoken.knowledge.load import profiles
from firsttoken.model.events import LogLine
from firsttoken.model.words import Edge, Phase
from firsttoken.observe.logs import LogReader

LOGS = Path(__file__).parent / "logs"

# first begin (or, where none is told, the first line inside) to first end, in seconds; counted by hand from the logs' own stamps
SECONDS = {
    "vllm-0.32-cpu-tp2.log": {"weights": 1, "kv_cache": 0},
    "vllm-0.32-cpu-compile.log": {"weights": 1, "compile": 107, "kv_cache": 0},
    "vllm-0.28-gpu.log": {"distributed_init": 2, "weights": 23, "compile": 41, "kv_cache": 5},
    "vllm-0.11-gpu-tp4-compose.log": {"distributed_init": 2, "weights": 78, "compile": 58, "kv_cache": 5},
    "rehearsal-1.0-tp2.log": {"distributed_init": 0, "weights": 0.3, "compile": 0.2, "graph_capture": 0.2, "warmup": 0.1},
    "sglang-0.5.23-cpu.log": {"distributed_init": 0, "weights": 0, "warmup": 1},
    "sglang-0.5-gpu-tp8-journald.log": {"distributed_init": 5, "weights": 125, "graph_capture": 28, "warmup": 3},
    "sglang-0.5-gpu-tp8-kubernetes.log": {"distributed_init": 5, "weights": 67, "graph_capture": 19, "warmup": 3},
}
FILES = sorted(LOGS.glob("*.log"), key=lambda path: path.name)


def read(path: Path, engine: str | None = None) -> tuple[LogReader, list[LogLine]]:
    reader = LogReader(profiles(), engine, year=2026)
    events = reader.feed(path.read_bytes(), 0, 0.0)
    return reader, [*events, *reader.flush()]


def test_each_engine_has_a_sample_log_and_each_log_its_seconds() -> None:
    assert {path.name for path in FILES} == set(SECONDS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_engine_and_its_version_are_recognised(path: Path) -> None:
    reader, events = read(path)
    engine, version = path.stem.split("-")[:2]
    assert reader.engine == engine
    assert events == read(path, engine)[1]
    if engine != "sglang":  # which does not log its version
        assert reader.version is not None
        assert reader.version.startswith(version)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_phases_begin_in_the_order_of_the_profile(path: Path) -> None:
    reader, events = read(path)
    order = profiles()[reader.engine or ""].order
    seen: list[Phase] = []
    for event in events:
        if event.phase is not None and event.phase not in seen:
            seen.append(event.phase)
    # the server's own request may be answered just before it says that it is ready
    begun = [phase for phase in seen if phase not in (Phase.LISTENING, Phase.FIRST_TOKEN)]
    assert begun == sorted(begun, key=order.index)
    assert Phase.LISTENING in seen
    assert sum(event.claims_ready for event in events) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_phases_last_as_long_as_the_log_says(path: Path) -> None:
    _, events = read(path)
    clock, begins, ends = 0.0, {}, {}
    for event in events:
        clock = event.stamp if event.stamp is not None else clock
        if event.phase is None:
            continue
        begins.setdefault(event.phase, clock)
        if event.edge is Edge.END:
            ends.setdefault(event.phase, clock)
    for phase, seconds in SECONDS[path.name].items():
        assert ends[Phase(phase)] - begins[Phase(phase)] == pytest.approx(seconds, abs=1.1), phase


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_healthy_start_shows_no_error(path: Path) -> None:
    assert not [event for event in read(path)[1] if event.error is not None]
