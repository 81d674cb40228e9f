"""What a client sees of a stream, and in which form a server takes requests."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fake_streams import Fake, Script, Told, fake, text_events

from firsttoken.drive.asking import settled
from firsttoken.drive.client import LoadError, Server, ask, choices
from firsttoken.drive.load import figures, stretch
from firsttoken.drive.prompts import Prompt
from firsttoken.model.speculation import Sampling

PROMPT = Prompt(name="p", text="hello")
WORDS = ["one", " two", " three"]


def at(script: Script, work: Callable[[httpx.AsyncClient, Server, Fake], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with fake(script) as made:
            server = Server(url=made.url)
            async with server.client() as client:
                return await work(client, server, made)

    return asyncio.run(run())


def answers(usage: int | None = 7) -> Script:
    return lambda path, body: Told(events=text_events(WORDS, chat="chat" in path, usage=usage))


@pytest.mark.parametrize("as_chat", [True, False])
def test_tokens_are_those_that_the_server_counts_and_pieces_are_counted_where_it_does_not(as_chat: bool) -> None:
    async def work(client: httpx.AsyncClient, server: Server, _: Fake) -> Any:
        return await ask(client, replace(server, as_chat=as_chat), PROMPT, tokens=7, temperature=0, seed=1)

    told = at(answers(), work)
    assert (told.text, told.tokens, told.counted, told.events) == ("one two three", 7, True, 3)
    assert told.asked <= told.first <= told.last
    guessed = at(answers(None), work)
    assert (guessed.tokens, guessed.counted) == (3, False)


def test_thoughts_are_tokens_too() -> None:
    events = ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, {"choices": [{"delta": {"content": "x"}}]}, "[DONE]")
    reply = at(
        lambda path, body: Told(events=events), lambda client, server, _: ask(client, server, PROMPT, tokens=2, temperature=0, seed=1)
    )
    assert reply.text == "hmx"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (Told(status=503, body={"error": "busy"}), "answered 503"),
        (Told(events=({"error": {"message": "engine died"}},)), "engine died"),
        (Told(events=({"choices": [{"delta": {"content": "x"}}]},), breaks=True), "connection broke"),
        (Told(events=("[DONE]",)), "no token"),
        (Told(events=("nonsense", "[1, 2]", "[DONE]")), "no token"),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_says_so(told: Told, says: str) -> None:
    with pytest.raises(LoadError, match=says):
        at(lambda path, body: told, lambda client, server, _: ask(client, server, PROMPT, tokens=2, temperature=0, seed=1))


def test_a_server_without_a_chat_template_is_asked_for_completions_and_its_model_is_found() -> None:
    def script(path: str, body: dict[str, Any]) -> Told:
        if path == "/v1/models":
            return Told(body={"data": [{"id": "m"}]})
        if "chat" in path:
            return Told(status=400, body={"error": "no chat template"})
        return Told(events=text_events(WORDS, chat=False, usage=3))

    found = at(script, lambda client, server, _: settled(client, server, {"ignore_eos": True}))
    assert (found.model, found.as_chat, found.route, dict(found.body)) == ("m", False, "/v1/completions", {"ignore_eos": True})


def test_a_server_that_refuses_the_field_for_fixed_lengths_is_asked_without_it_and_the_other_one_likewise() -> None:
    def script(path: str, body: dict[str, Any]) -> Told:
        if path == "/v1/models":
            return Told(status=404, body={})
        if "ignore_eos" in body:
            return Told(status=422, body={"error": "extra field"})
        return Told(events=text_events(WORDS, chat="chat" in path, usage=3))

    found = at(script, lambda client, server, _: settled(client, server, {"ignore_eos": True}))
    assert (found.as_chat, dict(found.body)) == (True, {})
    with pytest.raises(LoadError):
        at(script, lambda client, server, _: settled(client, server, {"ignore_eos": True}, like=replace(found, body={"ignore_eos": True})))


def test_what_both_shapes_of_probabilities_say_about_the_next_best_token() -> None:
    chat = {"content": [{"token": "a", "top_logprobs": [{"logprob": -0.1}, {"logprob": -2.6}]}, {"token": "b", "top_logprobs": []}]}
    plain = {"tokens": ["a", "b"], "top_logprobs": [{"a": -0.1, "c": -2.6}, None]}

    def script(path: str, body: dict[str, Any]) -> Told:
        return Told(body={"choices": [{"logprobs": chat if "chat" in path else plain}]})

    for as_chat in (True, False):

        async def work(client: httpx.AsyncClient, server: Server, _: Fake, as_chat: bool = as_chat) -> Any:
            return await choices(client, replace(server, as_chat=as_chat), PROMPT, tokens=2)

        assert at(script, work) == [("a", pytest.approx(2.5)), ("b", None)]
    assert at(lambda path, body: Told(body={"choices": []}), lambda client, server, _: choices(client, server, PROMPT, tokens=2)) is None


def test_a_stretch_counts_what_the_engine_drafted_for_each_request_and_in_all() -> None:
    drafted = [0]

    def script(path: str, body: dict[str, Any]) -> Told:
        if path == "/metrics":
            return Told(body=f"drafted {30 * drafted[0]}\naccepted {10 * drafted[0]}\n".encode())
        return Told(events=text_events(WORDS, chat=True, usage=3))

    names = {"draft_tokens": "drafted", "accepted_tokens": "accepted"}

    async def work(client: httpx.AsyncClient, server: Server, made: Fake) -> Any:

        async def one(users: int) -> Any:
            return await stretch(
                client, server, [PROMPT] * 2, concurrency=users, tokens=3, sampling=Sampling.SAMPLED, temperature=0.5, names=names
            )

        drafted[0] = 1
        first = await one(1)
        return first, await one(2), [body["temperature"] for path, body in made.asked if path != "/metrics"]

    single, together, heats = at(script, work)
    assert len(single.by_request) == 2
    assert together.by_request == ()
    assert heats == [0.5] * 4
    assert figures([single, together]).requests == 4
