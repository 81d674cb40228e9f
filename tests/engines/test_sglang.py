"""Real SGLang under firsttoken: its port opens before its warm-up, its health page generates a token, its idle scheduler burns a core."""

from collections.abc import Iterator

import pytest

from . import checks, figures
from .conftest import Household
from .launches import Sglang
from .life import Face, Life, live

pytestmark = pytest.mark.timeout(900)

MODEL = "llama4"
MUST = ("process_start", "config", "distributed_init", "weights", "warmup", "first_token")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(1, id="tp1", marks=pytest.mark.engines),
        pytest.param(2, id="tp2", marks=pytest.mark.engines_full),
    ],
)
def life(request: pytest.FixtureRequest, sglang: Sglang, household: Household) -> Iterator[Life]:
    with household("sglang") as face:
        yield live(face, sglang.serve(MODEL, tp=request.param))


def test_a_healthy_start_is_decided_ready(life: Life) -> None:
    checks.decided_ready(life)


def test_ready_was_proven_by_two_real_tokens(life: Life) -> None:
    checks.two_real_tokens(life)


def test_the_document_names_engine_version_endpoint_and_model(life: Life) -> None:
    checks.names_what_was_launched(life, "sglang", "0.5.23", MODEL)


def test_every_rank_is_among_the_members(life: Life) -> None:
    checks.every_rank_is_a_member(life)


def test_phases_stand_in_the_order_of_the_profile(life: Life) -> None:
    checks.phases_in_the_profiles_order(life, MUST)


def test_durations_agree_with_the_stamps_of_the_log(life: Life) -> None:
    checks.durations_agree_with_the_log(life, figures.SGLANG, figures.SGLANG_FIRST_LINE)


def test_weights_take_as_long_as_the_engine_says(life: Life) -> None:
    checks.weights_take_what_the_engine_says(life, figures.SGLANG_WEIGHTS)


def test_nothing_is_left_after_stop(life: Life) -> None:
    checks.nothing_left_after_stop(life)


def test_replay_gives_the_same_verdicts(life: Life) -> None:
    checks.replay_agrees(life)


@pytest.mark.engines
def test_a_wrong_flag_fails_with_the_engines_own_message(sglang: Sglang, face: Face) -> None:
    said = face.run(sglang.serve(MODEL, "--no-such-flag"), "--until", "ready")
    assert (said.code, said.document["verdict"]) == (69, "failed"), said
    assert "unrecognized arguments: --no-such-flag" in said.document["reason"], said
    checks.stays_failed(face, said)


@pytest.mark.engines_full
def test_until_ready_in_the_foreground_takes_the_server_with_it(sglang: Sglang, face: Face) -> None:
    said = face.run(sglang.serve(MODEL), "--until", "ready")
    assert (said.code, said.document["verdict"]) == (0, "ready"), said
    assert face.family.left_after(15) == {}, said
