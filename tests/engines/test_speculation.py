"""Does speculation pay on real vLLM? Drafters whose quality is known, and one on which the server dies.

The baseline is started once and compared with each drafter in turn.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Household
from .install import ENVIRONMENTS, MODELS
from .launches import Launch, Vllm
from .life import Face, Said

pytestmark = [pytest.mark.timeout(1500), pytest.mark.engines_full]

_DEADLINE = 1200.0
_SHORT = ("--concurrency", "1", "--json")


@pytest.fixture(scope="module")
def face(household: Household) -> Iterator[Face]:
    with household("speculation") as made:
        yield made


@pytest.fixture(scope="module")
def baseline(face: Face, vllm: Vllm) -> Iterator[str]:
    """The address of llama8 without speculation."""
    _make("llama8", "eagle3", "llama8_noisy-0.02", "llama8_noisy-0.085")
    said = face.run(vllm.serve("llama8"), "--detach")
    assert said.code == 0, said
    yield said.document["endpoint"]["url"]
    face("stop", said.document["run"], deadline=150)


def drafting(vllm: Vllm, target: str = "llama8", **config: Any) -> Launch:
    return vllm.serve(target, "--speculative-config", json.dumps({"num_speculative_tokens": 3, **config}))


def compared(face: Face, launch: Launch, *options: str) -> Said:
    return face("speculate", *_SHORT, *options, "--", *launch.command, env=launch.env, deadline=_DEADLINE)


@pytest.mark.parametrize(
    ("model", "low", "high"),
    [("llama8", 0.95, 1.0), ("llama8_noisy-0.02", 0.6, 0.9), ("llama8_noisy-0.085", 0.05, 0.3)],
    ids=["draft = target", "noise 0.02", "noise 0.085"],
)
def test_a_draft_model_as_large_as_the_target_never_pays_and_its_acceptance_is_seen(
    face: Face, vllm: Vllm, baseline: str, model: str, low: float, high: float
) -> None:
    said = compared(face, drafting(vllm, method="draft_model", model=str(MODELS / model)), "--baseline", baseline, "--sampling", "greedy")
    doc = said.document
    assert low <= doc["acceptance"] <= high, said
    assert len(doc["acceptance_by_position"]) == 3
    assert doc["pays"] is not True, said
    assert doc["cause"] in {"drafter-too-slow", "equal", "acceptance-too-low", "too-many-draft-tokens"}


def test_a_random_head_does_not_fit(face: Face, vllm: Vllm, baseline: str) -> None:
    said = compared(face, drafting(vllm, method="eagle3", model=str(MODELS / "eagle3")), "--baseline", baseline)
    doc = said.document
    assert doc["acceptance"] < 0.02, said
    assert (doc["pays"], doc["cause"]) == (False, "drafter-does-not-fit"), said
    assert doc["drafted_tokens"] >= 1100


def test_a_server_that_dies_at_its_first_request_is_told_with_its_verdict(face: Face, vllm: Vllm) -> None:
    _make("llama4", "eagle3")
    said = compared(face, drafting(vllm, "llama4", method="eagle3", model=str(MODELS / "eagle3")))
    doc = said.document
    assert said.code in (69, 71), said
    assert (doc["pays"], doc["cause"]) == (None, "does-not-serve"), said
    assert doc["results"]["speculative"]["verdict"] in ("failed", "crashed", "unserving")
    assert "without it the same command serves" in doc["reason"]


def test_the_baseline_is_derived_and_n_grams_are_judged(face: Face, vllm: Vllm) -> None:
    _make("llama8")
    said = compared(face, drafting(vllm, method="ngram", prompt_lookup_max=4))
    doc = said.document
    assert said.code in (0, 76), said
    assert "--speculative-config" not in doc["baseline_command"]
    assert doc["acceptance"] is not None
    assert doc["cause"] in {"pays", "nothing-to-copy", "equal", "undecided", "depends-on-sampling"}, said


def _make(*names: str) -> None:
    """Models that are not there yet."""
    python = ENVIRONMENTS["vllm"].folder / "bin" / "python"
    script = __file__.replace("test_speculation.py", "models.py")
    subprocess.run([python, script, str(MODELS), *names], check=True, capture_output=True, timeout=600)
