"""The prober against real, small servers: what proves a token, what does not, and what it says then."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fake_http_server import HEALTHY, MODELS, NO_ROUTE, SECONDS, FakeServer, Request, http, js, said, sse

from firsttoken.model.events import Body, HttpAnswer, HttpAsked, Missed
from firsttoken.model.plan import Routes
from firsttoken.model.words import ProbeKind
from firsttoken.observe.http import FirstTokenProber, first_http
from firsttoken.observe.http_target import Target


def asked_twice(replies: dict[str, Any], /, **more: Any) -> tuple[list[HttpAnswer], list[Body], list[Request]]:
    """Both answers, all events and all requests of a prober that asks with two prompts."""

    async def go() -> tuple[list[HttpAnswer], list[Body], list[Request]]:
        events: list[Body] = []
        async with FakeServer(replies) as server:
            prober = server.prober(events, **more)
            return [await prober.ask(1), await prober.ask(2)], events, server.requests

    return asyncio.run(asyncio.wait_for(go(), SECONDS))


def asked_once(replies: dict[str, Any], /, **more: Any) -> HttpAnswer:
    return asked_twice(replies, **more)[0][0]


def in_time(scenario: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        await asyncio.wait_for(scenario(), SECONDS)

    asyncio.run(go())


def test_two_streamed_completions_prove_the_server_ready() -> None:
    answers, events, requests = asked_twice(HEALTHY)
    for answer in answers:
        assert (answer.probe, answer.status, answer.error, answer.model) == (ProbeKind.COMPLETION, 200, None, "tiny")
        assert answer.text == " Paris, a city of"
        assert answer.tokens == 5
        assert answer.sane is True
        assert answer.first_token_s is not None
        assert answer.body is None
    kinds = [type(event) for event in events]
    assert kinds == [HttpAsked, HttpAnswer] * 3
    assert [request.path for request in requests] == ["/v1/models", "/v1/completions", "/v1/completions"]
    first, second = (request.json for request in requests[1:])
    assert (first["model"], first["max_tokens"], first["temperature"], first["stream"]) == ("tiny", 8, 0, True)
    assert first["prompt"] != second["prompt"]
    assert "logprobs" not in first.keys() | second.keys(), "they may have to be compiled for"
    assert requests[1].headers["user-agent"].startswith("firsttoken/")


def test_the_first_token_is_timed_when_it_comes_and_not_at_the_end() -> None:
    async def scenario() -> None:
        more = asyncio.Event()

        async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(sse({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, *said("one")[:1], done=False))
            await writer.drain()
            await more.wait()
            await asyncio.sleep(0.2)
            writer.write(b"data: [DONE]\n\n")

        async with FakeServer({**HEALTHY, "/v1/completions": slowly}) as server:
            question = asyncio.create_task(server.prober().ask(1))
            await server.asked("/v1/completions")
            more.set()
            answer = await question
        assert answer.first_token_s is not None
        assert answer.first_token_s < answer.seconds - 0.15

    in_time(scenario)


def test_a_server_that_ignores_stream_is_read_whole() -> None:
    whole = js({"choices": [{"text": " Paris and", "finish_reason": "length"}], "usage": {"completion_tokens": 8}})
    answer = asked_once({**HEALTHY, "/v1/completions": whole})
    assert (answer.text, answer.tokens, answer.error, answer.first_token_s) == (" Paris and", 8, None, None)


def test_a_server_that_refuses_to_stream_is_asked_without() -> None:
    def either(request: Request) -> bytes:
        if request.json["stream"]:
            return js({"error": {"message": "stream is not supported"}}, 400)
        return js({"choices": [{"text": " some words came back"}]})

    answers, _, _ = asked_twice({**HEALTHY, "/v1/completions": either})
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[1].sane is True


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "application/json"])
def test_events_under_another_content_type_are_events_still(kind: str) -> None:
    answer = asked_once({**HEALTHY, "/v1/completions": sse(*said("a", "b"), kind=kind)})
    assert (answer.text, answer.tokens) == ("ab", 2)
    assert answer.first_token_s is not None


def test_plain_json_that_is_called_a_stream_is_read_too() -> None:
    body = http(200, json.dumps({"choices": [{"text": "hi"}]}), "text/event-stream")
    assert asked_once({**HEALTHY, "/v1/completions": body}).text == "hi"


def test_a_server_with_chat_alone_is_asked_by_chat() -> None:
    chunks = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        *({"choices": [{"delta": {"content": t}}]} for t in ("Pa", "ris")),
    ]
    answers, events, requests = asked_twice({"/v1/models": MODELS, "/v1/chat/completions": sse(*chunks)})
    assert [answer.probe for answer in answers] == [ProbeKind.CHAT] * 2
    assert answers[0].text == "Paris"
    assert [request.path for request in requests][1:] == ["/v1/completions", "/v1/chat/completions", "/v1/chat/completions"]
    assert sum(isinstance(event, HttpAnswer) and event.probe is not ProbeKind.MODELS for event in events) == 2


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_tokens(name: str) -> None:
    chunks = [{"choices": [{"delta": {name: word, "content": None}}]} for word in ("The ", "user ", "asks ", "me ")]
    answer = asked_once({"/v1/models": MODELS, "/v1/chat/completions": sse(*chunks)})
    assert (answer.text, answer.tokens, answer.sane) == ("The user asks me ", 4, True)


def test_a_native_route_is_the_last_resort_and_its_growing_texts_are_joined() -> None:
    routes = Routes(completions=None, chat=None, native="/generate")
    chunks = [{"text": text, "meta_info": {"completion_tokens": i + 1}} for i, text in enumerate(("a", "a b", "a b c", "a b c d"))]
    native = {"text": "$prompt", "sampling_params": {"max_new_tokens": "$tokens"}, "stream": True}
    answers, _, requests = asked_twice({"/v1/models": MODELS, "/generate": sse(*chunks)}, routes=routes, native_body=native)
    assert (answers[0].probe, answers[0].text, answers[0].tokens, answers[0].sane) == (ProbeKind.NATIVE, "a b c d", 4, True)
    assert "$prompt" not in requests[1].json["text"]
    assert requests[1].json["sampling_params"] == {"max_new_tokens": 8}


def test_native_json_lines_are_read() -> None:
    lines = "\n".join(json.dumps({"response": word, "done": word == ""}) for word in ("one", " two", ""))
    routes = Routes(completions=None, chat=None, native="/api/generate")
    answer = asked_once({"/v1/models": MODELS, "/api/generate": http(200, lines)}, routes=routes, native_body={"prompt": "$prompt"})
    assert answer.text == "one two"


def test_an_embedding_model_is_proved_by_its_vector() -> None:
    vector = js({"data": [{"embedding": [0.1, -0.2, 0.3], "index": 0}]})
    answers, _, requests = asked_twice({"/v1/models": MODELS, "/v1/embeddings": vector}, task="embed")
    assert (answers[0].probe, answers[0].text, answers[0].sane, answers[0].error) == (ProbeKind.EMBEDDING, "3 numbers", True, None)
    assert "input" in requests[1].json


def test_a_vector_that_is_not_finite_is_not_sane() -> None:
    answer = asked_once({"/v1/embeddings": http(200, '{"data":[{"embedding":[NaN,1.0]}]}')}, task="embed")
    assert (answer.status, answer.sane) == (200, False)


def test_an_embedding_route_that_brings_no_numbers_is_no_proof() -> None:
    answer = asked_once({"/v1/models": MODELS, "/v1/embeddings": js({"data": []})}, task="embed")
    assert (answer.status, answer.error) == (200, "the answer holds no vector and no score")


def test_a_completions_route_that_says_embedding_model_leads_to_embeddings() -> None:
    refused = js({"error": {"message": "This model is an embedding model and cannot generate"}}, 400)
    routes = {"/v1/models": MODELS, "/v1/completions": refused, "/v1/embeddings": js({"data": [{"embedding": [1, 2]}]})}
    assert asked_once(routes).probe is ProbeKind.EMBEDDING


def test_a_completions_route_that_says_chat_model_leads_to_chat() -> None:
    refused = js({"error": {"message": "This is a chat model and not supported in the v1/completions endpoint"}}, 400)
    chat = js({"choices": [{"message": {"content": "hello you there again"}}]})
    answer = asked_once({"/v1/models": MODELS, "/v1/completions": refused, "/v1/chat/completions": chat})
    assert (answer.probe, answer.text) == (ProbeKind.CHAT, "hello you there again")


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/score"])
def test_a_reranker_is_proved_by_its_scores(path: str) -> None:
    answer = asked_once({"/v1/models": MODELS, path: js({"results": [{"index": 0, "relevance_score": 0.9}]})}, task="rerank")
    assert (answer.probe, answer.status, answer.sane) == (ProbeKind.RERANK, 200, True)


def test_the_served_name_is_asked_for_where_it_is_listed_and_else_the_first() -> None:
    models = js({"data": [{"id": "base"}, {"id": "mine"}]})
    for served, expected in (("mine", "mine"), ("other", "base"), (None, "base")):
        assert asked_once({**HEALTHY, "/v1/models": models}, served_model=served).model == expected


def test_without_a_list_of_models_the_served_name_is_asked_for() -> None:
    _, _, requests = asked_twice({"/v1/completions": HEALTHY["/v1/completions"]}, served_model="mine")
    assert next(request for request in requests if request.method == "POST").json["model"] == "mine"


def test_a_missing_model_is_an_answer_and_no_missing_route() -> None:
    missing = js({"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}}, 404)
    answers, _, requests = asked_twice({**HEALTHY, "/v1/completions": missing})
    assert answers[0].status == 404
    assert "does not exist" in (answers[0].body or "")
    assert "/v1/chat/completions" not in [request.path for request in requests]


def test_a_server_without_any_route_is_told_by_a_404() -> None:
    answer = asked_once({})
    assert (answer.status, answer.tokens) == (404, None)
    assert "Not Found" in (answer.body or "")


def test_a_locked_server_is_asked_with_the_key_and_without_it_says_401() -> None:
    def locked(request: Request) -> bytes:
        if request.headers.get("authorization") != "Bearer s3cret-key":
            return js({"error": "Unauthorized, got " + request.headers.get("authorization", "nothing")}, 401)
        return HEALTHY[request.path]

    routes = {"/v1/models": locked, "/v1/completions": locked}
    assert asked_once(routes).status == 401
    wrong = asked_once(routes, key="wr0ng-key", key_source="--api-key")
    assert wrong.status == 401
    assert "wr0ng-key" not in (wrong.body or "")
    right = asked_once(routes, key="s3cret-key", key_source="--api-key")
    assert (right.status, right.tokens, right.key_source) == (200, 5, "--api-key")


def test_secrets_in_a_body_are_masked() -> None:
    answer = asked_once({**HEALTHY, "/v1/completions": js({"error": "bad token hf_abcdefghijklmnopqrstuvwx"}, 400)})
    assert "hf_abcdef" not in (answer.body or "")


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "nul\0", "ключ"])
def test_a_key_that_fits_in_no_header_is_said_and_not_shown(key: str) -> None:
    answer = asked_once(HEALTHY, key=key)
    assert answer.status is None
    assert answer.error is not None
    assert key not in answer.error
    assert "key" in answer.error


def test_an_error_500_is_told_once_and_not_tried_again() -> None:
    async def scenario() -> None:
        async with FakeServer({**HEALTHY, "/v1/completions": js({"error": {"message": "CUDA error"}}, 500)}) as server:
            answer = await server.prober().ask(1)
            assert (answer.status, answer.tokens) == (500, None)
            assert "CUDA error" in (answer.body or "")
            assert len(server.requests) == 2

    in_time(scenario)


def test_a_server_that_still_loads_answers_503() -> None:
    loading = js({"error": {"message": "Loading model", "code": 503}}, 503)
    answer = asked_once({"/v1/models": loading, "/v1/completions": loading})
    assert answer.status == 503
    assert "Loading model" in (answer.body or "")


def test_an_error_inside_a_stream_is_no_token() -> None:
    error = {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}}
    answer = asked_once({**HEALTHY, "/v1/completions": sse(error)})
    assert (answer.status, answer.tokens) == (200, 0)
    assert "EngineCore" in (answer.error or "")


def test_a_stream_that_ends_without_a_token_says_so() -> None:
    answer = asked_once({**HEALTHY, "/v1/completions": sse()})
    assert (answer.status, answer.tokens, answer.error) == (200, 0, "the answer ended without a token")


def test_an_end_token_at_once_is_a_short_answer_and_not_a_false_one() -> None:
    answer = asked_once({**HEALTHY, "/v1/completions": sse({"choices": [{"text": "", "finish_reason": "stop"}]})})
    assert (answer.tokens, answer.sane, answer.error) == (1, None, None)


def test_a_server_that_closes_in_mid_stream_keeps_its_tokens_and_its_fault() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b'data: {"choices":[{"text":"half"}]}\n\n'
    answer = asked_once({**HEALTHY, "/v1/completions": head + f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"})
    assert (answer.status, answer.text, answer.tokens) == (200, "half", 1)
    assert "broke off in mid-answer" in (answer.error or "")


@pytest.mark.parametrize("value", ["NaN", "null", "-Infinity", "-9999.0"])
def test_log_probabilities_that_are_no_numbers_are_not_sane(value: str) -> None:
    chunk = '{"choices":[{"text":" word","logprobs":{"tokens":[" word"],"token_logprobs":[V],"top_logprobs":[null]}}]}'.replace("V", value)
    answers, _, _ = asked_twice({**HEALTHY, "/v1/completions": sse(chunk, *said(" and", " some", " more"))})
    assert answers[1].tokens
    assert answers[1].sane is False


def test_one_token_for_ever_is_not_sane_and_still_an_answer() -> None:
    answers, _, _ = asked_twice({**HEALTHY, "/v1/completions": sse(*said(*"!!!!!!!!"))})
    assert [(answer.status, answer.tokens, answer.sane, answer.error) for answer in answers] == [(200, 8, False, None)] * 2


def test_a_mute_server_keeps_the_question_open_and_can_be_asked_for_its_health() -> None:
    async def scenario() -> None:
        async def mute(request: Request, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(3600)

        events: list[Body] = []
        async with FakeServer({**HEALTHY, "/v1/completions": mute}) as server:
            prober = server.prober(events)
            question = asyncio.create_task(prober.ask(1))
            await server.asked("/v1/completions")
            assert (await prober.health()).status == 200
            assert not question.done()
            assert HttpAsked(probe=ProbeKind.COMPLETION, url=f"http://127.0.0.1:{server.port}/v1/completions") in events
            question.cancel()
            await asyncio.wait({question})

    in_time(scenario)


def test_models_and_health_have_a_deadline() -> None:
    async def scenario() -> None:
        async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"X")
                await asyncio.sleep(0.01)

        async with FakeServer({"/v1/models": drip, "/health": drip}) as server:
            prober = server.prober(routes=Routes(health="/health"))
            for answer in (await prober.models(deadline=0.1), await prober.health(deadline=0.1)):
                assert answer.status is None
                assert answer.error == "no whole answer within 0.1 s"

    in_time(scenario)


def test_nobody_listens_is_said_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        answer = asyncio.run(FirstTokenProber(Target(host="127.0.0.1", port=port), lambda _: None).ask(1))
    assert answer.status is None
    assert answer.error is not None
    assert answer.error.startswith("could not connect to http://127.0.0.1:")
    assert "refused" in answer.error


def _reset(request: Request, writer: asyncio.StreamWriter) -> Awaitable[None]:
    async def go() -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return go()


@pytest.mark.parametrize(
    "reply",
    [b"", b"\x00\xff\x16\x03garbage\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", _reset],
    ids=["closes", "garbage", "ssh", "half", "reset"],
)
def test_what_is_no_http_is_told_and_never_looks_like_a_failed_connect(reply: Any) -> None:
    answer = asked_once({"/v1/models": reply, "/v1/completions": reply, "/v1/chat/completions": reply})
    assert answer.error
    assert "connect" not in answer.error.lower()
    assert not answer.tokens


def test_a_huge_answer_is_cut() -> None:
    async def scenario() -> None:
        async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()

        async with FakeServer({**HEALTHY, "/v1/completions": flood}) as server:
            answer = await server.prober().ask(1)
        assert answer.error is not None
        assert "bigger than 1 MiB" in answer.error
        assert len(answer.body or "") <= 2000

    in_time(scenario)


def test_a_stream_without_an_end_is_a_token_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firsttoken.observe.http.GOES_ON_S", 0.1)

    async def scenario() -> None:
        gone = asyncio.Event()

        async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(sse(done=False))
            try:
                while True:
                    writer.write(b'data: {"choices": [{"index": 0, "text": " word"}]}\n\n')
                    await writer.drain()
                    await asyncio.sleep(0.02)
            except ConnectionError:
                gone.set()

        events: list[Body] = []
        async with FakeServer({**HEALTHY, "/v1/completions": endless}) as server:
            answer = await server.prober(events).ask(1)
            assert (answer.status, answer.error) == (200, None)
            assert answer.text is not None
            assert answer.text.startswith(" word word")
            assert [event.request for event in events if isinstance(event, Missed)] == ["the end of the answer"]
            assert not gone.is_set(), "it is read on, and not cancelled"

    in_time(scenario)


def test_a_flood_of_tokens_is_a_token_too() -> None:
    async def scenario() -> None:
        async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(sse(done=False))
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b'data: {"choices": [{"index": 0, "text": " word"}]}\n\n' * 1000)
                    await writer.drain()

        async with FakeServer({**HEALTHY, "/v1/completions": flood}) as server:
            answer = await server.prober().ask(1)
        assert (answer.status, answer.error) == (200, None)
        assert (answer.tokens or 0) > 1000

    in_time(scenario)


def test_a_compressed_answer_is_not_unpacked() -> None:
    answer = asked_once({**HEALTHY, "/v1/completions": http(200, b"\x1f\x8b", "application/json", "Content-Encoding: gzip\r\n")})
    assert "compressed" in (answer.error or "")


def test_redirects_are_not_followed() -> None:
    answer = asked_once({**HEALTHY, "/v1/completions": http(307, "", extra="Location: http://10.0.0.1/steal\r\n")})
    assert answer.status == 307
    assert "http://10.0.0.1/steal" in (answer.error or "")


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert asked_once(HEALTHY).tokens == 5


def test_a_server_on_a_unix_socket_is_asked_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "s")
        async with FakeServer(HEALTHY, path=path) as server:
            target = Target(unix_socket=path, key="s3cret", key_source="--api-key")
            answer = await FirstTokenProber(target, lambda _: None).ask(1)
            assert (answer.tokens, answer.url) == (5, f"unix:{path}:/v1/completions")
            assert server.requests[0].headers["authorization"] == "Bearer s3cret"
        gone = await FirstTokenProber(Target(unix_socket=str(tmp_path / ("x" * 200))), lambda _: None).ask(1)
        assert gone.error is not None

    in_time(scenario)


def test_a_root_path_goes_in_front_unless_the_server_does_not_know_it() -> None:
    behind = {f"/root{path}": reply for path, reply in HEALTHY.items()}
    assert asked_once(behind, root_path="/root/").url.endswith("/root/v1/completions")
    answer = asked_once(HEALTHY, root_path="/root")
    assert answer.tokens == 5
    assert "/root" not in answer.url


def test_among_several_ports_the_one_that_lists_models_is_found() -> None:
    async def scenario() -> None:
        async with FakeServer({"/v1/models": b"garbage"}) as first, FakeServer({}) as other, FakeServer(HEALTHY) as server:
            candidates = [first.target(), other.target(), server.target()]
            assert await first_http(candidates) == server.target()
            assert await first_http(candidates[:2]) == other.target()
            assert await first_http(candidates[:1], deadline=0.5) is None
            assert await first_http([]) is None

    in_time(scenario)


def test_a_broken_list_of_models_does_not_stop_the_question() -> None:
    for reply in (
        NO_ROUTE,
        http(200, "<html>"),
        js([]),
        js({"data": None}),
        js({"data": [{"id": 3}]}),
        js(None),
        js("x"),
        http(500, "oops"),
    ):
        assert asked_once({**HEALTHY, "/v1/models": reply}).tokens == 5
