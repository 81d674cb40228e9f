"""What `check` says of real engines' own models, and its weights against what a real engine holds once it has loaded them."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from firsttoken.model.checks import Outcome
from firsttoken.session.checking.check import check
from firsttoken.session.checking.subject import Wanted
from firsttoken.session.planning import local_world
from firsttoken.survey.checkpoint import read_checkpoint
from firsttoken.survey.model_config import read_shape
from firsttoken.survey.weight_memory import Loading, Split, rank_weights

from .install import MODELS
from .launches import Sglang, Vllm

pytestmark = pytest.mark.timeout(900)

COUNTS = Path(__file__).with_name("count_weights.py")


@pytest.mark.engines
@pytest.mark.parametrize(
    ("target", "flags", "expected"),
    [
        ("llama8", ("eagle3", "eagle3"), Outcome.PASS),
        ("llama4", ("eagle3", "eagle3"), Outcome.FAIL),
        ("llama8", ("draft_model", "llama4"), Outcome.PASS),
    ],
    ids=["fits", "too-shallow", "small-model"],
)
def test_a_drafter_that_would_die_on_its_first_request_is_told_before(
    vllm: Vllm, target: str, flags: tuple[str, str], expected: Outcome
) -> None:
    """EAGLE-3 on four layers answers its health page and dies on its first request."""
    method, draft = flags
    spoken = json.dumps({"method": method, "model": str(MODELS / draft), "num_speculative_tokens": 3})
    report = check((*vllm.serve(target).command, "--speculative-config", spoken), Wanted(quick=True))
    assert next(one.result for one in report.checks if one.id == "spec-draft-mismatch") is expected


@pytest.mark.engines
def test_an_engine_for_cpus_is_judged_by_host_memory(vllm: Vllm) -> None:
    launch = vllm.serve("mid", tp=2)
    report = check(launch.command, Wanted(), world=local_world({**os.environ, **launch.env}, "/"))
    assert any(one.id == "host-oom" and "weights of" in one.fact for one in report.checks), report.checks
    assert report.memory is not None
    assert sum(report.memory.weights_by_rank) == pytest.approx(574_771_200, rel=0.001)


@pytest.mark.engines_full
@pytest.mark.parametrize("model", ["qwen3", "mid", "mla"])
def test_weights_are_what_the_engine_holds_within_three_percent(vllm: Vllm, model: str) -> None:
    python = vllm.environment.folder / "bin" / "python"
    assert predicted(model) == pytest.approx(held([str(python), str(COUNTS), str(MODELS / model)], {}), rel=0.03)


@pytest.mark.engines_full
@pytest.mark.parametrize("model", ["qwen3", "mid", "llama8"])
def test_weights_are_what_a_rank_of_sglang_holds_within_three_percent(sglang: Sglang, model: str) -> None:
    """Not by its log: on a CPU `mem usage` there is what the whole machine has less of."""
    launch = sglang.serve(model)
    python = sglang.environment.folder / "bin" / "python"
    counting = [str(python), str(COUNTS.with_name("count_weights_sglang.py")), *launch.command[3:]]
    assert predicted(model) == pytest.approx(held(counting, launch.env), rel=0.03)


def held(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """What the engine's own process counts."""
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=840, check=False)
    told = next((json.loads(line.split(" ", 1)[1]) for line in done.stdout.splitlines() if line.startswith("held ")), None)
    assert isinstance(told, int), done.stderr[-2000:]
    return told


def predicted(model: str) -> int:
    seen = read_checkpoint(str(MODELS / model))
    assert seen is not None
    return rank_weights(seen.tensors, read_shape(seen.config or {}), Split(), Loading(dtype="bfloat16")).total
