"""Real llama.cpp under firsttoken: it listens before it loads, and its health page stays green when its loop stands still."""

from collections.abc import Iterator

import pytest

from . import checks, hangs
from .conftest import Household
from .launches import LlamaCpp
from .life import Face, Life, live

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

MODEL = "tiny.gguf"
MUST = ("process_start", "config", "weights", "kv_cache", "listening", "first_token")


@pytest.fixture(scope="module")
def life(llamacpp: LlamaCpp, household: Household) -> Iterator[Life]:
    with household("llamacpp") as face:
        yield live(face, llamacpp.serve())


def test_a_healthy_start_is_decided_ready(life: Life) -> None:
    checks.decided_ready(life)


def test_ready_was_proven_by_two_real_tokens(life: Life) -> None:
    checks.two_real_tokens(life)


def test_the_engine_is_known_by_its_log(life: Life) -> None:
    """The command is a script of another name: only its lines tell."""
    assert life.result["engine"]["name"] == "llama.cpp", life
    assert life.result["endpoint"]["url"] == f"http://127.0.0.1:{life.launch.port}", life


def test_phases_stand_in_the_order_of_the_profile(life: Life) -> None:
    checks.phases_in_the_profiles_order(life, MUST)


def test_nothing_is_left_after_stop(life: Life) -> None:
    checks.nothing_left_after_stop(life)


def test_replay_gives_the_same_verdicts(life: Life) -> None:
    checks.replay_agrees(life)


def test_a_server_that_is_ready_is_attached_to(llamacpp: LlamaCpp, face: Face) -> None:
    with hangs.serving(face, llamacpp.serve(), "listening on http") as server:
        said = face("attach", str(server.pid), "--json")
    assert (said.code, said.document["verdict"]) == (0, "ready"), said
    assert {row["name"] for row in said.document["phases"]} >= {"weights", "kv_cache"}, said


def test_its_frozen_loop_is_unserving_while_health_is_green(llamacpp: LlamaCpp, face: Face) -> None:
    launch = llamacpp.serve()
    with hangs.serving(face, launch, "listening on http") as server, hangs.frozen(server.busiest_thread()):
        assert server.get("/health") == 200
        said = face("attach", str(server.pid), "--json")
        assert server.get("/health") == 200
    assert (said.code, said.document["verdict"]) == (71, "unserving"), said
