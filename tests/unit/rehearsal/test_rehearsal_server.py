"""A healthy server, end to end: start, HTTP, speculation, stop."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

RANK_PHASES = ("Distributed init", "Load weight", "Post load", "KV cache", "Compile", "Capture graphs", "Warm-up", "Request loop")


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_two_ranks_start_serve_stream_and_stop(start: Callable[..., Any]) -> None:
    run = start("--ranks", "2")
    assert run.ask("/health")[0] == 200
    for phase in RANK_PHASES:
        for rank in (0, 1):
            assert re.search(rf"TP{rank}\] {phase} begin\.", run.log), run.log
            assert re.search(rf"TP{rank}\] {phase} end\..* elapsed=\d+\.\d\d s", run.log), run.log
    assert re.search(r"^\[[\d: .-]+\] rehearsal 1\.0\.0 args=\{.*\} elapsed=", run.log, re.MULTILINE)
    assert "\rLoading safetensors checkpoint shards: 100% Completed | 3/3" in run.log

    assert json.loads(run.ask("/v1/models")[1])["data"][0]["id"] == "rehearsal"
    wish = {"model": "rehearsal", "prompt": "Hello there", "max_tokens": 12}
    whole = json.loads(run.ask("/v1/completions", wish | {"logprobs": 2})[1])
    text = whole["choices"][0]["text"]
    assert whole["usage"] == {"prompt_tokens": 6, "completion_tokens": 12, "total_tokens": 18}
    assert "".join(whole["choices"][0]["logprobs"]["tokens"]) == text
    streamed = events_of(run.ask("/v1/completions", wish | {"stream": True, "stream_options": {"include_usage": True}})[1])
    assert "".join(event["choices"][0]["text"] for event in streamed[:-1]) == text
    assert streamed[-1]["usage"]["completion_tokens"] == 12
    assert streamed[-2]["choices"][0]["finish_reason"] == "length"

    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    said = json.loads(run.ask("/v1/chat/completions", chat)[1])["choices"][0]
    assert len(said["logprobs"]["content"]) == 6
    deltas = [
        event["choices"][0]["delta"].get("content", "") for event in events_of(run.ask("/v1/chat/completions", chat | {"stream": True})[1])
    ]
    assert "".join(deltas) == said["message"]["content"]

    stop = text[7:10]
    stopped = json.loads(run.ask("/v1/completions", wish | {"stop": stop})[1])["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == (text[: text.index(stop)], "stop")

    metrics = run.ask("/metrics")[1]
    assert re.search(r'rehearsal:generation_tokens_total\{model_name="rehearsal"\} [1-9]', metrics)
    assert re.search(r"rehearsal:time_to_first_token_seconds_count\{.*\} 5", metrics)
    assert run.log.count("First token end.") == 2

    assert len(run.members()) >= 2
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(10) == 0
    run.assert_nothing_left()
    assert "All ranks have ended." in run.wait_for("All ranks have ended.")[0]


def test_what_a_client_gets_wrong_is_said_with_a_status(start: Callable[..., Any]) -> None:
    run = start("--api-key", "sesame", "--no-graphs")
    assert run.ask("/health")[0] == 200
    assert "Capture graphs" not in run.log
    assert "sesame" not in run.log
    assert "TP0" not in run.log
    assert run.ask("/v1/completions", {"prompt": "x"})[0] == 401
    for body, status in (
        (b"{", 400),
        (b"[1]", 400),
        ({"prompt": "x", "model": "gpt"}, 404),
        ({"prompt": 5}, 400),
        ({"prompt": "x", "max_tokens": 0}, 400),
        ({"prompt": "x", "max_tokens": 5000}, 400),
        ({"prompt": "x", "temperature": "hot"}, 400),
        ({"prompt": "x", "stop": [1]}, 400),
        ({"prompt": "x", "n": 2}, 400),
        ({"prompt": [1, 2, 3], "max_tokens": 1}, 200),
    ):
        answer = run.ask("/v1/completions", body, key="sesame")
        assert answer[0] == status, (body, answer)
        assert status == 200 or json.loads(answer[1])["error"]["message"].endswith(".")
    assert run.ask("/v1/chat/completions", {"messages": "hi"}, key="sesame")[0] == 400
    assert run.ask("/nowhere", key="sesame")[0] == 404
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(10) == 130


def test_a_taken_port_is_named_and_ends_the_start(start: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = start("--port", str(port))
        assert run.process.wait(30) == 1
    run.wait_for(rf"Error: cannot listen on 127\.0\.0\.1:{port}: Address already in use")


def test_a_poor_drafter_slows_serving_and_a_good_one_speeds_it_up(start: Callable[..., Any]) -> None:
    seconds = {}
    texts = set()
    for quality in ("none", "0.15", "1"):
        run = start(*(() if quality == "none" else ("--speculative", "draft", "--draft-quality", quality)))
        wish = {"prompt": "draft this", "max_tokens": 40}
        texts.add(json.loads(run.ask("/v1/completions", wish)[1])["choices"][0]["text"])
        began = time.monotonic()
        run.ask("/v1/completions", wish)
        seconds[quality] = time.monotonic() - began
        drafted = re.search(r"spec_decode_num_draft_tokens_total\{.*\} (\d+)", run.ask("/metrics")[1])
        assert drafted
        assert (int(drafted[1]) > 0) is (quality != "none")
        run.end()
    assert len(texts) == 1
    assert seconds["1"] < seconds["none"] < seconds["0.15"], seconds


def test_help_and_usage_errors_need_no_engine() -> None:
    helped = subprocess.run(
        [sys.executable, "-m", "firsttoken.rehearsal", "--help"], capture_output=True, text=True, check=False, env=_env()
    )
    assert helped.returncode == 0
    assert "--fault KIND@PHASE" in helped.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "firsttoken.rehearsal", "--fault", "mute@weights"], capture_output=True, text=True, check=False, env=_env()
    )
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[-1].startswith("firsttoken rehearse: error: mute@weights makes no sense")


@pytest.mark.parametrize("fault", ["none", "lock@compile", "jit@post_load", "stop@weights"])
def test_when_main_is_killed_nothing_is_left(start: Callable[..., Any], fault: str) -> None:
    run = start("--ranks", "2", *(() if fault == "none" else ("--fault", fault)))
    if fault == "none":
        run.url()
    else:
        run.fault()
    assert len(run.members()) >= 2
    run.process.kill()
    run.process.wait(5)
    run.assert_nothing_left()


def _env() -> dict[str, str]:
    from pathlib import Path

    return os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3] / "src")}
