"""A secret that is known by value does not come back in other words; ordinary words stay."""

import json
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import hung, served
from story import Story

from firsttoken.judge.advance import advance, initial
from firsttoken.model.codec import body_to_fields, masked, masked_plan
from firsttoken.model.events import Event, HttpAnswer, LogLine, MemberSeen, Missed
from firsttoken.model.plan import Endpoint, Plan
from firsttoken.model.process import Member, ProcessKey
from firsttoken.model.redact import secrets_in_argv, secrets_in_env, secrets_in_text
from firsttoken.model.secrets import LogSearch, Secrets
from firsttoken.model.words import ProbeKind

SECRET = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-", min_size=8, max_size=40).filter(
    lambda text: text[0].isalnum() and any(char.isdigit() for char in text) and any(char.isalpha() for char in text)
)
FORMS = ("X={s}", "curl -k {s} http://h/", "http://user:{s}@host/", "model {s}", "-p{s}", "a,{s};b", "{q}", "{j}", "{s}{s}")


@given(SECRET, st.sampled_from(FORMS))
def test_a_planted_secret_is_found_in_every_guise(secret: str, form: str) -> None:
    secrets = Secrets(secrets_in_argv(["engine", "serve", "--api-key", secret]))
    text = form.format(s=secret, q=quote(secret, safe=""), j=json.dumps(secret))
    assert secret not in secrets.mask(text)
    assert quote(secret, safe="") not in secrets.mask(text)
    assert len(secrets.mask(text, equal_length=True)) == len(text)


def test_values_come_from_flags_assignments_variables_and_texts() -> None:
    assert secrets_in_argv(["x", "--api-key", "one1", "two2", "--port", "1", "HF_TOKEN=three3", "-c"]) == ("one1", "two2", "three3")
    assert secrets_in_env({"HF_TOKEN": "four4", "HTTPS_PROXY": "http://u:five5@h/", "PATH": "/bin"}) == ("four4", "five5")
    assert secrets_in_text("args: {'api_key': ['six6', 'seven7']}") == ("six6", "seven7")


@pytest.mark.parametrize(
    "value", ["", "a1b2c", "server", "Python", "model", "password", "weights", "graph_capture", "/etc/key.pem", "~/.hf/token"]
)
def test_what_is_short_or_ordinary_or_a_path_wrecks_no_text(value: str) -> None:
    assert not Secrets([value])
    text = "server: the Python model /etc/key.pem weights graph_capture a1b2c password ~/.k/a"
    assert Secrets([value]).mask(text) == text


def test_a_value_of_letters_or_digits_alone_counts_as_a_whole_word() -> None:
    secrets = Secrets(["dragon", "123456"])
    assert secrets.mask("dragon, X=dragon dragonfly 123456 1234567") == "****, X=**** dragonfly **** 1234567"
    assert secrets.spans(b"dragonfly dragon") == [(10, 16)]


def test_every_line_of_a_private_key_is_a_secret_of_its_own() -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7bq\nabcdefghijklmnop123\n-----END KEY-----"
    assert Secrets([key]).mask("got MIIEpAIBAAKCAQEA7bq and abcdefghijklmnop123") == "got **** and ****"


@given(SECRET, st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_a_secret_is_found_in_a_log_however_it_is_cut(secret: str, between: list[bytes], cuts: list[int]) -> None:
    raw = secret.encode()
    data = b" ".join(part + b" " + raw for part in between)
    search, found, at = LogSearch(Secrets([secret])), [], 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += search.feed(data[at : at + size], at)
        at += size
    buffer = bytearray(data)
    for begin, length in found:
        buffer[begin : begin + length] = b"*" * length
    assert raw not in buffer
    assert len({begin for begin, _ in found}) == len(found)


def test_events_and_plans_lose_the_value_and_keep_their_shape() -> None:
    secrets = Secrets(["hunter2-x9"])
    key = ProcessKey("node", 7, 7)
    bodies = (
        HttpAnswer(probe=ProbeKind.MODELS, url="http://h/?k=hunter2-x9", status=200, model="hunter2-x9"),
        MemberSeen(member=Member(process=key, parent=1, title="engine -k hunter2-x9")),
        LogLine(offset=0, length=9, text="X=hunter2-x9", values={"url": "http://u:hunter2-x9@h/", "port": 8000.0}),
        Missed(request="a", reason="user:hunter2-x9@"),
    )
    for body in bodies:
        hidden = masked(body, secrets)
        assert type(hidden) is type(body)
        assert "hunter2-x9" not in json.dumps(body_to_fields(hidden))
    plan = Plan(command=("x", "-k", "hunter2-x9"), model="hunter2-x9", endpoint=Endpoint(port=8000, served_model="hunter2-x9"))
    assert "hunter2" not in repr(masked_plan(plan, secrets))
    assert masked_plan(plan, secrets).endpoint.port == 8000
    unchanged = Missed(request="a", reason="b")
    assert masked(unchanged, secrets) is unchanged


@pytest.mark.parametrize("story", [hung("engine hunter2-x9 "), served()], ids=["hung", "served"])
def test_masking_changes_no_verdict(story: Story) -> None:
    secrets = Secrets(["hunter2-x9"])
    hidden = [replace(event, body=masked(event.body, secrets)) for event in story.events]
    assert "hunter2" not in repr(hidden)
    assert _decisions(hidden) == _decisions(story.events)


def _decisions(events: list[Event]) -> list[tuple[object, ...]]:
    state, found = initial(), []
    for event in events:
        state = advance(state, event)
        found.append((state.decision.verdict, state.decision.phase, state.decision.behind))
    return found
