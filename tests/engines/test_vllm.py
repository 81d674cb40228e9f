"""Real vLLM under firsttoken: healthy starts in several shapes, and starts that cannot succeed."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from . import checks, figures
from .conftest import Household
from .install import MODELS
from .launches import Vllm
from .life import Face, Life, live

pytestmark = pytest.mark.timeout(900)

MUST = ("process_start", "config", "distributed_init", "weights", "first_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    model: str = "qwen3"
    tp: int = 1
    eager: bool = True


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Shape(eager=False), id="tp1-compiled", marks=pytest.mark.engines),
        pytest.param(Shape(tp=2), id="tp2-eager", marks=pytest.mark.engines),
        pytest.param(Shape(), id="tp1-eager", marks=pytest.mark.engines_full),
        pytest.param(Shape(tp=2, eager=False), id="tp2-compiled", marks=pytest.mark.engines_full),
        pytest.param(Shape(model="mla"), id="mla", marks=pytest.mark.engines_full),
        pytest.param(Shape(model="mla", tp=2), id="mla-tp2", marks=pytest.mark.engines_full),
        pytest.param(Shape(model="mid", tp=2), id="mid-tp2", marks=pytest.mark.engines_full),
    ],
)
def shape(request: pytest.FixtureRequest) -> Shape:
    made: Shape = request.param
    return made


@pytest.fixture(scope="module")
def life(shape: Shape, vllm: Vllm, household: Household, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """A start that nobody's cache shortens."""
    cold = {"VLLM_CACHE_ROOT": str(tmp_path_factory.mktemp("cache"))}
    with household("vllm") as face:
        yield live(face, vllm.serve(shape.model, tp=shape.tp, eager=shape.eager, env=cold))


def test_a_healthy_start_is_decided_ready(life: Life) -> None:
    checks.decided_ready(life)


def test_ready_was_proven_by_two_real_tokens(life: Life) -> None:
    checks.two_real_tokens(life)


def test_the_document_names_engine_version_endpoint_and_model(life: Life, shape: Shape) -> None:
    checks.names_what_was_launched(life, "vllm", "0.32.0", shape.model)


def test_every_rank_is_among_the_members(life: Life) -> None:
    checks.every_rank_is_a_member(life)


def test_phases_stand_in_the_order_of_the_profile(life: Life, shape: Shape) -> None:
    checks.phases_in_the_profiles_order(life, MUST if shape.eager else (*MUST, "compile"))


def test_durations_agree_with_the_stamps_of_the_log(life: Life) -> None:
    checks.durations_agree_with_the_log(life, figures.VLLM, figures.VLLM_FIRST_LINE)


def test_weights_take_as_long_as_the_engine_says(life: Life) -> None:
    checks.weights_take_what_the_engine_says(life, figures.VLLM_WEIGHTS)


def test_nothing_is_left_after_stop(life: Life) -> None:
    checks.nothing_left_after_stop(life)


def test_replay_gives_the_same_verdicts(life: Life) -> None:
    checks.replay_agrees(life)


@pytest.mark.engines
def test_a_server_that_dies_on_its_first_request_was_never_ready(vllm: Vllm, face: Face) -> None:
    """Its health page and model list say yes; the drafter taps three layers of a model in which two of them are the same."""
    drafter = json.dumps({"method": "eagle3", "model": str(MODELS / "eagle3"), "num_speculative_tokens": 3})
    said = face.run(vllm.serve("llama4", "--speculative-config", drafter), "--until", "ready")
    assert said.document["verdict"] in ("failed", "crashed"), said
    assert said.code == 69, said
    assert "ready" not in _verdicts(face), said


@pytest.mark.engines
def test_a_wrong_flag_fails_with_the_engines_own_message(vllm: Vllm, face: Face) -> None:
    said = face.run(vllm.serve("qwen3", "--no-such-flag"), "--until", "ready")
    assert (said.code, said.document["verdict"]) == (69, "failed"), said
    assert "unrecognized arguments: --no-such-flag" in said.document["reason"], said
    checks.stays_failed(face, said)


@pytest.mark.engines
def test_a_port_that_somebody_else_holds_fails_and_the_other_is_not_taken_for_ours(vllm: Vllm, face: Face) -> None:
    with _says_yes_to_everything() as (port, visits):
        said = face.run(vllm.serve("qwen3", port=port), "--until", "ready")
    assert (said.code, said.document["verdict"]) == (69, "failed"), said
    assert "in use" in said.document["reason"].lower(), said
    checks.stays_failed(face, said)
    assert visits == [], said


@pytest.mark.engines_full
def test_a_host_that_nobody_has_fails_with_the_engines_own_message(vllm: Vllm, face: Face) -> None:
    said = face.run(vllm.serve("qwen3", host="no-such-host.invalid"), "--until", "ready")
    assert (said.code, said.document["verdict"]) == (69, "failed"), said
    assert "name" in said.document["reason"].lower(), said


@pytest.mark.engines_full
def test_until_ready_in_the_foreground_takes_the_server_with_it(vllm: Vllm, face: Face) -> None:
    said = face.run(vllm.serve(), "--until", "ready")
    assert (said.code, said.document["verdict"]) == (0, "ready"), said
    assert face.family.left_after(15) == {}, said


def _verdicts(face: Face) -> list[str]:
    """All verdicts that the recorded run went through."""
    said = face("replay")
    assert said.code == 0, said
    return [words[2] for words in map(str.split, said.out.splitlines()) if len(words) > 2]


@contextmanager
def _says_yes_to_everything() -> Iterator[tuple[int, list[bytes]]]:
    """A foreign server on a port: answers 200 with a completion, and remembers who came."""
    body = b'{"object": "list", "data": [{"id": "other"}], "choices": [{"text": " yes"}]}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
    visits: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                visitor, _ = listener.accept()
            except OSError:
                return
            with visitor:
                visitor.settimeout(5)
                visits.append(visitor.recv(65536))
                visitor.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        try:
            yield listener.getsockname()[1], visits
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join(10)
