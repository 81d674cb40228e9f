"""Isolation on real vLLM: one of ten settings blocks a rank, switched by a variable, and by a flag that is not there."""

import json

import pytest

from firsttoken.isolate.edit import edited
from firsttoken.isolate.settings import Wishes
from firsttoken.session.isolating.command import read

from .install import HERE
from .launches import HARMLESS, Launch, Vllm
from .life import Face

pytestmark = pytest.mark.timeout(3600)

_MOST_LAUNCHES = 8
_DEADLINE = 3000.0


def _isolated(face: Face, launch: Launch, *options: str, **env: str) -> dict[str, object]:
    added = {**launch.env, "PYTHONPATH": str(HERE / "inject"), **env}
    said = face("isolate", "--json", *options, "--", *launch.command, env=added, deadline=_DEADLINE)
    assert said.code == 0, said
    document: dict[str, object] = json.loads(said.out)
    return document


def _labels(document: dict[str, object], key: str) -> list[str]:
    rows = document[key]
    assert isinstance(rows, list), document
    return [row["label"] for row in rows]


@pytest.mark.engines_full
def test_the_variable_that_blocks_a_rank_is_found_among_ten_settings(vllm: Vllm, face: Face) -> None:
    """Its healthy trials end as soon as the weights are loaded and the start goes on."""
    document = _isolated(face, vllm.serve("qwen3", *HARMLESS), VLLM_INJECT="lock:0")
    assert _labels(document, "minimal_failing") == ["VLLM_INJECT=lock:0"], document
    assert _labels(document, "minimal_fix") == ["VLLM_INJECT=lock:0"], document
    assert document["launches"] <= _MOST_LAUNCHES + 2, document  # type: ignore[operator]  # two verify
    assert "the fix brought a real token" in document["verified"], document  # type: ignore[operator]  # a document of any shape


@pytest.mark.engines_full
def test_a_hang_that_only_compiled_starts_have_is_fixed_by_the_flag_that_the_profile_knows(vllm: Vllm, face: Face) -> None:
    keep = ("--keep", "VLLM_INJECT", "--keep", "VLLM_INJECT_UNLESS")
    launch = vllm.serve("qwen3", *HARMLESS, eager=False)
    document = _isolated(face, launch, *keep, VLLM_INJECT="profile:0", VLLM_INJECT_UNLESS="--enforce-eager")
    assert _labels(document, "minimal_failing") == ["compilation and graphs"], document
    assert "+ --enforce-eager" in document["diff"], document  # type: ignore[operator]  # a document of any shape
    assert document["launches"] <= _MOST_LAUNCHES + 2, document  # type: ignore[operator]  # two verify


@pytest.mark.engines
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_model_of_four_layers_and_dummy_weights_is_what_a_trial_may_launch(
    request: pytest.FixtureRequest, face: Face, engine: str
) -> None:
    """`mid` has 18 layers; the shortcut's words are the engine's own."""
    launch = request.getfixturevalue(engine).serve("mid")
    found = read(launch.command, Wishes(), gpus=False)
    few = next(one for one in found.shortcuts if one.name == "few layers, dummy weights")
    command = edited(found.command, (), few.add)
    said = face("run", "--json", "--until", "ready", "--", *command, env=launch.env, deadline=420.0)
    assert said.document["verdict"] == "ready", said
    assert few.left == pytest.approx(4 / 18)
