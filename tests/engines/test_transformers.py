"""Real `transformers serve` under firsttoken: its port opens after the load, its health page knows nothing of its inference thread."""

from collections.abc import Iterator

import pytest

from . import checks, hangs
from .conftest import Household
from .launches import Transformers
from .life import Face, Life, live

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

MODEL = "qwen3"
MUST = ("process_start", "config", "weights", "listening", "first_token")


@pytest.fixture(scope="module")
def life(transformers: Transformers, household: Household) -> Iterator[Life]:
    with household("transformers") as face:
        yield live(face, transformers.serve(MODEL))


def test_a_healthy_start_is_decided_ready(life: Life) -> None:
    checks.decided_ready(life)


def test_ready_was_proven_by_two_real_tokens(life: Life) -> None:
    checks.two_real_tokens(life)


def test_the_document_names_engine_version_endpoint_and_model(life: Life) -> None:
    checks.names_what_was_launched(life, "transformers", "5.24.0", MODEL)


def test_phases_stand_in_the_order_of_the_profile(life: Life) -> None:
    checks.phases_in_the_profiles_order(life, MUST)


def test_nothing_is_left_after_stop(life: Life) -> None:
    checks.nothing_left_after_stop(life)


def test_replay_gives_the_same_verdicts(life: Life) -> None:
    checks.replay_agrees(life)


def test_its_frozen_inference_thread_is_unserving_while_health_is_green(transformers: Transformers, face: Face) -> None:
    launch = transformers.serve(MODEL)
    with hangs.serving(face, launch, "Uvicorn running on") as server, hangs.frozen(server.busiest_thread()):
        assert server.get("/health") == 200
        said = face("attach", str(server.pid), "--json")
        assert server.get("/health") == 200
    assert (said.code, said.document["verdict"]) == (71, "unserving"), said
    assert said.document["engine"]["name"] == "transformers", said
