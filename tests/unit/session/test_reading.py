"""Attached files as a run: clocks, phases, ranks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.model.attached import Attached, ProcessLine
from firsttoken.model.words import Phase
from firsttoken.session.reading import fold
from firsttoken.survey.probes_text import read_probes

COMMAND = ("python3", "-m", "sglang.launch_server", "--model-path", "/m/x", "--tp", "2")
LOG = b"".join(
    line + b"\n"
    for line in (
        b"[2026-03-04 08:00:00] server_args=ServerArgs(model_path='/m/x', port=30000)",
        b"[2026-03-04 08:00:10 TP0] Init torch distributed begin.",
        b"[2026-03-04 08:00:11 TP1] Init torch distributed begin.",
        b"[2026-03-04 08:00:20 TP0] Init torch distributed ends. mem usage=1.10 GB",
        b"[2026-03-04 08:00:20 TP1] Init torch distributed ends. mem usage=1.10 GB",
        b"[2026-03-04 08:00:21 TP0] Load weight begin. avail mem=78.10 GB",
        b"[2026-03-04 08:00:21 TP1] Load weight begin. avail mem=78.10 GB",
        b"Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:30<00:00,  7.50s/it]",
        b"[2026-03-04 08:00:51 TP0] Load weight end. type=X, dtype=torch.bfloat16, avail mem=40.00 GB, mem usage=38.10 GB.",
    )
)


def test_phases_last_from_their_first_begin_to_their_first_end() -> None:
    rows = {row.name: row.seconds for row in fold(Attached(argv=COMMAND, log=LOG)).reading.rows}
    assert rows[Phase.CONFIG] == 10
    assert rows[Phase.DISTRIBUTED_INIT] == 10
    assert rows[Phase.WEIGHTS] == 30


def test_a_rank_that_did_not_log_the_end_keeps_the_start_in_its_phase() -> None:
    reading = fold(Attached(argv=COMMAND, log=LOG)).reading
    assert reading.phase is Phase.WEIGHTS
    assert reading.places[1] is Phase.WEIGHTS
    assert reading.places[0] is not Phase.WEIGHTS


def test_the_bar_tells_shards_and_seconds() -> None:
    bar = fold(Attached(argv=COMMAND, log=LOG)).reading.weights
    assert (bar.shards, bar.done, bar.seconds) == (4, 4, 30.0)


def test_without_any_other_clock_the_last_line_claims_no_duration() -> None:
    reading = fold(Attached(argv=COMMAND, log=LOG)).reading
    assert reading.last_t == 51
    assert reading.now is None
    assert reading.idle is None


def test_the_age_of_the_first_process_is_a_clock() -> None:
    processes = (
        ProcessLine(pid=1, elapsed=651.0, title="python3"),
        ProcessLine(pid=2, parent=1, elapsed=640.0, title="sglang::scheduler_TP0"),
    )
    reading = fold(Attached(argv=COMMAND, log=LOG, processes=processes)).reading
    assert reading.now == 651
    assert reading.idle == 600


def test_what_the_reporter_says_of_the_time_wins() -> None:
    processes = (ProcessLine(pid=1, elapsed=100.0, title="python3"),)
    probes = read_probes("# report written 10 min after the last log line\n")
    reading = fold(Attached(argv=COMMAND, log=LOG, processes=processes, probes=probes)).reading
    assert reading.idle == 600


def test_lines_that_only_say_that_they_wait_are_a_clock_and_no_news() -> None:
    waiting = b'[2026-03-04 08:10:51] INFO:     10.0.0.4:50220 - "GET /health HTTP/1.1" 503\n'
    reading = fold(Attached(argv=COMMAND, log=LOG + waiting)).reading
    assert reading.idle == 600


def test_a_wrappers_clock_without_a_date_is_brought_to_the_day_of_the_others() -> None:
    lines = [b"[08:00:21] " + line for line in LOG.splitlines()]
    reading = fold(Attached(argv=COMMAND, log=b"\n".join(lines))).reading
    assert reading.last_t is not None
    assert reading.last_t < 120


def test_ranks_are_known_by_title_and_by_the_tags_of_the_log() -> None:
    processes = (ProcessLine(pid=7, title="sglang::scheduler_TP1"),)
    assert fold(Attached(argv=COMMAND, log=LOG, processes=processes)).reading.rank_of == {7: 1}


def test_the_engine_may_be_told_by_the_log_alone() -> None:
    assert fold(Attached(log=LOG)).reading.plan.engine == "sglang"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=800))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    fold(Attached(argv=COMMAND, log=LOG[:300] + data + LOG[300:]))


def test_a_date_among_the_probes_is_the_clock_unless_it_is_of_another_day() -> None:
    later = fold(Attached(argv=COMMAND, log=LOG, probes=read_probes("# 2026-03-04 08:20:51\n"))).reading
    assert (later.now, later.idle) == (1251.0, 1200.0)
    for text in ("# 2026-03-09 08:20:51\n", "# 2026-03-04 07:00:00\n"):
        assert fold(Attached(argv=COMMAND, log=LOG, probes=read_probes(text))).reading.now is None


def test_a_wrappers_whole_seconds_put_no_line_before_the_one_above_it() -> None:
    log = b"".join(
        b"Mar 04 %s host lmd[7]: %s\n" % line
        for line in (
            (b"08:00:00", b"2026-03-04 08:00:00,900 - lmdeploy - INFO - async_engine.py:260 - input backend=pytorch, backend_config=X()"),
            (
                b"08:00:30",
                b"2026-03-04 08:00:30,950 - lmdeploy - INFO - a.py:1 - Building GraphRunner and warmup ops, please waiting.",
            ),
            (b"08:00:30", b"INFO:     Uvicorn running on http://0.0.0.0:23333 (Press CTRL+C to quit)"),
        )
    )
    assert fold(Attached(argv=("lmdeploy", "serve", "api_server", "/m/x"), log=log)).reading.phase is Phase.LISTENING
