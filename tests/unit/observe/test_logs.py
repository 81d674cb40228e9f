"""The log reader: events of matching lines, and how much of the rest is new."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.knowledge.load import profiles
from firsttoken.model.codec import decode, encode
from firsttoken.model.events import Event, LogActivity, LogLine
from firsttoken.model.process import RankTag
from firsttoken.model.words import Edge, Phase
from firsttoken.observe.logs import MAX_EVENTS, MAX_TEXT, LogReader

SAMPLES = sorted((Path(__file__).parents[2] / "knowledge" / "logs").glob("*.log"))
VLLM = "(APIServer pid=1) INFO 11-29 17:57:23 [api_utils.py:347] █  version {}\n"


def reader(engine: str | None = "vllm") -> LogReader:
    return LogReader(profiles(), engine, year=2026)


def read(log: LogReader, *texts: str) -> list[LogLine]:
    found: list[LogLine] = []
    for text in texts:
        found += log.feed(text.encode(), log._splitter.end, 0.0)
    return found


def fresh(log: LogReader) -> int:
    told = log.activity()
    return told.fresh if told is not None else 0


def test_a_milestone_carries_place_stamp_tag_and_values() -> None:
    log = reader()
    read(log, "noise\n")
    [line] = read(log, "(Worker_TP1 pid=9) INFO 11-29 18:36:09 [default_loader.py:501] Loading weights took 71.31 seconds\n")
    assert (line.offset, line.length) == (6, 97)
    assert line.text == "Loading weights took 71.31 seconds"
    assert line.tag == RankTag(name="Worker", tp=1, pid=9)
    assert line.stamp == datetime(2026, 11, 29, 18, 36, 9, tzinfo=UTC).timestamp()
    assert (line.milestone, line.phase, line.edge, line.scope) == ("weights_read", Phase.WEIGHTS, Edge.INSIDE, "rank")
    assert line.values == {"seconds": 71.31}
    assert (line.error, line.claims_ready) == (None, False)


def test_numbers_become_numbers_and_gib_become_bytes() -> None:
    log = reader()
    [size, *_] = read(log, "INFO 05-11 19:03:50 [kv.py:1] GPU KV cache size: 131,072 tokens\n")
    assert size.values == {"tokens": 131072.0}
    [memory] = read(log, "INFO 05-11 19:03:50 [w.py:1] Available KV cache memory: 9.5 GiB\n")
    assert memory.values == {"bytes": 9.5 * 2**30}
    [banner] = read(log, VLLM.format("0.32.0"))
    assert banner.values == {"version": "0.32.0"}
    assert log.version == "0.32.0"


def test_one_line_may_end_a_phase_and_begin_the_next() -> None:
    events = read(reader(), "(Worker_TP0 pid=1) INFO 05-11 19:01:57 [monitor.py:53] torch.compile took 18.21 s in total\n")
    assert [(event.phase, event.edge) for event in events] == [(Phase.COMPILE, Edge.END), (Phase.KV_CACHE, Edge.BEGIN)]
    assert len({event.offset for event in events}) == 1


@pytest.mark.parametrize(
    ("version", "file", "scope"),
    [("0.11.0", "gpu_model_runner", "rank"), ("0.20.1", "gpu_model_runner", "one"), ("0.32.0", "cpu_model_runner", "rank")],
)
def test_the_version_decides_which_ranks_a_line_speaks_for(version: str, file: str, scope: str) -> None:
    log = reader()
    read(log, VLLM.format(version))
    events = read(log, f"(Worker_TP0 pid=1) INFO 05-11 19:00:25 [{file}.py:4741] Starting to load model m...\n")
    assert {event.scope for event in events if event.phase is Phase.WEIGHTS} == {scope}


def test_an_error_is_told_once_by_the_engines_own_name() -> None:
    [line] = read(
        reader(), "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    assert (line.error, line.fatal, line.values) == ("engine-init-failed", True, {"procs": "{}"})


@pytest.mark.parametrize(
    ("text", "error", "fatal"),
    [
        ("vllm: error: unrecognized arguments: --tp 2", "usage", True),
        ("ValueError: The model does not fit", "python-error", False),
        ("[rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure", "device-fault", False),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "device-out-of-memory", False),
        ("OSError: [Errno 98] Address already in use", "address-in-use", True),
        ("Segmentation fault (core dumped)", "segfault", True),
        ("Killed", "killed", False),
        ("Fatal Python error: Aborted", "abort", True),
        ("Dec 09 08:02:30 h0 kernel: NVRM: Xid (PCI:0000:3b:00): 62, 2321f8ee", "xid", False),
    ],
)  # fmt: skip
def test_errors_that_any_engine_can_have(text: str, error: str, fatal: bool) -> None:
    for engine in (None, *profiles()):
        [line] = read(reader(engine), text + "\n")
        assert (line.error, line.fatal) == (error, fatal)


def test_secrets_never_reach_an_event() -> None:
    log = reader()
    [line] = read(log, "INFO 05-01 10:00:00 [api_server.py:1044] args: Namespace(api_key='sk-abcdefghijklmnop1234567890', port=8000)\n")
    assert "sk-abcdef" not in line.text
    read(log, "using the token hf_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef\n")
    told = log.activity()
    assert told is not None
    assert "hf_ABC" not in told.last


def test_a_line_that_another_process_wrote_behind_a_bar_is_read() -> None:
    bar = "\rCapturing CUDA graphs (PIECEWISE):   7%|█ | 5/67 [00:02<00:29, 2.10it/s]"
    end = "\x1b[1;36m(Worker_TP1 pid=9)\x1b[0m INFO 05-11 19:04:01 [g.py:1] Graph capturing finished in 11 secs, took 1.10 GiB\n"
    for engine in ("vllm", None):
        log = reader(engine)
        events = read(log, VLLM.format("0.11.0"), bar + end)
        assert [event.milestone for event in events][-2:] == ["graph_bar", "graph_end"]
        assert events[-1].tag == RankTag(name="Worker", tp=1, pid=9)
        assert events[-1].offset == len((VLLM.format("0.11.0") + bar).encode())


def test_an_unknown_engine_is_recognised_and_what_came_before_is_read_again() -> None:
    log = reader(None)
    before = read(log, "[2026-02-17 09:41:10] Load balance is off\n", "[2026-02-17 09:41:11] KV Cache is allocated. #tokens: 5\n")
    assert before == []
    assert log.engine is None
    events = read(log, "[2026-02-17 09:41:16] server_args=ServerArgs(model_path='/models/m', port=1)\n")
    assert log.engine == "sglang"
    assert [event.milestone for event in events] == ["kv_allocated", "arguments"]


def test_an_unknown_engine_stays_unknown_and_errors_are_told_all_the_same() -> None:
    log = reader("no such engine")
    assert log.engine is None
    assert [event.error for event in read(log, "hello\nRuntimeError: no\n")] == ["python-error"]


def test_an_error_before_the_recognition_is_told_once() -> None:
    log = reader(None)
    first = read(log, "RuntimeError: no\n")
    second = read(log, "[2026-02-17 09:41:16] server_args=ServerArgs(model_path='/models/m', port=1)\n")
    assert [event.error for event in first] == ["python-error"]
    assert [event.error for event in second] == [None]


def test_requests_before_the_server_is_ready_and_repeated_ones_are_no_events() -> None:
    log = reader()
    post = 'INFO:     127.0.0.1:42290 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    assert read(log, post) == []
    [ready] = read(log, "INFO:     Application startup complete.\n")
    assert ready.claims_ready
    assert [event.phase for event in read(log, post, post, post)] == [Phase.FIRST_TOKEN]
    assert read(log, post.replace("42290", "1")) == []


def test_repeats_chatter_redrawn_bars_and_probes_say_nothing_new() -> None:
    log = reader()
    read(
        log,
        "INFO:     Application startup complete.\n",
        "some line 17 of text\n",
        "bar\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:33]\r",
    )
    assert fresh(log) == 4
    read(
        log,
        "some line 99 of text\n",
        "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:39]\r",
        "(EngineCore pid=2) INFO 11-29 17:59:14 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds.\n",
        "(EngineCore pid=2) INFO 11-29 18:00:14 [shm_broadcast.py:871] No available shared memory broadcast block found in 120 seconds.\n",
        "(APIServer pid=1) DEBUG 11-29 17:59:14 [utils.py:1] Waiting for 1 local, 0 remote core engine proc(s) to start.\n",
        'INFO:     10.0.0.4:50220 - "GET /health HTTP/1.1" 200 OK\n',
        "Waiting for 3 peers\n",
        "waiting for 2 peers\n",
        "id 3fa9 \n",
        "id 77bc \n",
    )
    told = log.activity()
    assert told is not None
    assert (told.lines, told.fresh, told.last) == (10, 1, "id 3fa9"), "the first id is new text, another one is not"


def test_numbers_that_move_are_new() -> None:
    log = reader()
    bar = "Loading safetensors checkpoint shards:  {}% Completed | {}/4 [00:33]\r"
    assert len(read(log, bar.format(25, 1), bar.format(50, 2), bar.format(50, 2), bar.format(75, 3))) == 3
    assert fresh(log) == 3
    any_bar = "Fetching 12 files:  {}%|██▌       | {}/12 [00:10<00:31,  3.46s/it]\r"
    assert read(log, any_bar.format(25, 3), any_bar.format(25, 3), any_bar.format(33, 4)) == []
    assert fresh(log) == 2
    rank = "(Worker_TP{} pid=9) INFO 11-29 18:36:09 [w.py:1] Available KV cache memory: 9.5 GiB\n"
    assert len(read(log, rank.format(0), rank.format(1), rank.format(1))) == 2
    assert fresh(log) == 2


def test_a_storm_of_matching_lines_is_no_storm_of_events() -> None:
    log = reader()
    lines = "".join(f"ValueError: number {number}\n" for number in range(MAX_EVENTS + 500))
    assert len(read(log, lines)) == MAX_EVENTS


def test_activity_tells_what_came_since_it_was_asked() -> None:
    log = reader()
    assert log.activity() is None
    read(log, "one\ntwo")
    assert log.activity() == LogActivity(bytes=7, lines=1, fresh=1, offset=7, last="one")
    assert log.activity() is None
    assert log.flush() == []
    assert log.activity() == LogActivity(bytes=0, lines=1, fresh=1, offset=7, last="two")


def test_long_lines_are_capped() -> None:
    log = reader()
    [line] = read(log, "ValueError: " + "x " * 50_000 + "\n")
    assert len(line.text) <= MAX_TEXT
    assert line.length == 100_012


def test_events_survive_their_coding() -> None:
    events = LogReader(profiles(), None, year=2026).feed(SAMPLES[-1].read_bytes(), 0, 0.0)
    assert events
    for line in events:
        event = Event(seq=1, t=0.0, wall=0.0, node="n", body=line)
        assert decode(encode(event)) == event


TEXTS = st.sampled_from(
    [
        "[2026-02-17 09:41:16] server_args=ServerArgs(model_path='/m', port=1)\n",
        "[2026-02-17 09:42:05 TP3] Load weight end. type=X, avail mem=1 GB\n",
        "\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:33<00:36, 18.44s/it]",
        "[2026-02-17 09:41:41 TP5] Init torch distributed ends. mem usage=1.61 GB\n",
        "[2026-02-17 09:42:05] The server is fired up and ready to roll!\n",
        "RuntimeError: no\n",
        "Waiting for 3 peers\n",
        'INFO: "POST /generate HTTP/1.1" 200 OK\n',
        VLLM.format("0.32.0"),
        "\x1b[36m(Worker_TP1 pid=9)\x1b[0m ",
        "\n",
    ]
).map(str.encode)


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS | st.binary(max_size=30), max_size=14), st.data(), st.sampled_from([None, "vllm", "sglang"]))
def test_the_same_bytes_give_the_same_events_however_they_were_cut(parts: list[bytes], data: st.DataObject, engine: str | None) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    one, many = reader(engine), reader(engine)
    expected = [*one.feed(whole, 0, 0.0), *one.flush()]
    found: list[LogLine] = []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += many.feed(whole[begin:end], begin, 0.0)
    found += many.flush()
    assert found == expected
    assert many.activity() == one.activity()
    assert (many.engine, many.version) == (one.engine, one.version)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_whole_log_reads_alike_in_pieces(path: Path, size: int) -> None:
    whole = path.read_bytes()
    one, many = reader(None), reader(None)
    expected = [*one.feed(whole, 0, 0.0), *one.flush()]
    found = [line for at in range(0, len(whole), size) for line in many.feed(whole[at : at + size], at, 0.0)]
    assert [*found, *many.flush()] == expected
    assert many.activity() == one.activity()


def test_memory_stays_bounded_on_text_that_is_always_new() -> None:
    log = reader()
    letters = "ghijklmnopqrstuvwxyz"
    for block in range(40):
        text = "".join(
            f"{letters[a]}{letters[b]}{letters[c]}{letters[block % 20]} x\n" for a in range(20) for b in range(20) for c in range(3)
        )
        read(log, text.replace("x", letters[block // 20] * 3))
    assert len(log._shapes) <= 2 * 16384 + 1
    assert len(log._said._memory) <= 2 * 16384 + 1


def test_a_shape_that_began_with_other_numbers_is_tried_again() -> None:
    log = reader()
    read(log, VLLM.format("0.25.0"))
    rates = "Avg prompt throughput: {0} tokens/s, Avg generation throughput: {0} tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
    said = "(APIServer pid=1) INFO 11-29 18:36:09 [loggers.py:1] Engine 000: " + rates
    assert [line.error for line in read(log, said.format("12.5"))] == []
    assert [line.error for line in read(log, said.format("0.0"))] == ["no-tokens"]
