"""Real vLLM: ten settings of which one hangs it. Is it found, within how many launches, and how long beside healthy starts?

Key insight: what counts is the time of a person who would launch healthy servers, so the same command without its fault is started three
times to its first token and its end, and the whole search is told in such starts.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cells import CellFailed
from isolation_engine import VERIFYING
from launching import FIRSTTOKEN

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.engines.install import ENVIRONMENTS, HERE  # noqa: E402  # the path comes first
from tests.engines.launches import HARMLESS, Launch, Vllm  # noqa: E402

_KEPT = ("--keep", "VLLM_INJECT", "--keep", "VLLM_INJECT_UNLESS")
CELLS: Mapping[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "vllm: a variable": ({"VLLM_INJECT": "lock:0"}, (), "VLLM_INJECT=lock:0"),
    "vllm: compile on or off": (
        {"VLLM_INJECT": "profile:0", "VLLM_INJECT_UNLESS": "--enforce-eager"}, _KEPT, "compilation and graphs",
    ),
}  # fmt: skip
"""What makes the fault, what steers the search, and the setting at fault."""
_HEALTHY, _DEADLINE = 3, 3000.0


def run_vllm(name: str) -> dict[str, Any]:
    fault, words, culprit = CELLS[name]
    launch = Vllm(ENVIRONMENTS["vllm"]).serve("qwen3", *HARMLESS, eager=not words)
    with tempfile.TemporaryDirectory(prefix="firsttoken-isolate-") as place:
        healthy = []
        for _ in range(_HEALTHY):
            began = time.monotonic()
            told = _firsttoken(Path(place), ("run", "--json", "--until", "ready"), launch, {})
            if told.get("verdict") != "ready":
                raise CellFailed(f"the healthy start is {told.get('verdict')}: {told.get('reason')}")
            healthy.append(time.monotonic() - began)
        began = time.monotonic()
        found = _firsttoken(Path(place), ("isolate", "--json", *words), launch, fault)
        took = time.monotonic() - began
    start, verifying = statistics.median(healthy), [trial for trial in found["trials"] if trial["purpose"] in VERIFYING]
    searching = took - sum(trial["seconds"] for trial in verifying)
    failing = [row["label"] for row in found.get("minimal_failing") or ()]
    return {
        "failing": failing,
        "fix": [row["label"] for row in found.get("minimal_fix") or ()],
        "right": failing == [culprit],
        "launches": found.get("launches"),
        "verifying": len(verifying),
        "seconds": round(took, 1),
        "healthy_seconds": [round(one, 1) for one in healthy],
        "found_in_healthy_starts": round(searching / start, 2),
        "verified_in_healthy_starts": round(took / start, 2),
        "outcomes": [[trial["outcome"], trial["until"], trial["seconds"]] for trial in found["trials"]],
    }


def _firsttoken(home: Path, words: Sequence[str], launch: Launch, more: Mapping[str, str]) -> dict[str, Any]:
    env = {**os.environ, **launch.env, "FIRSTTOKEN_HOME": str(home), "PYTHONPATH": str(HERE / "inject"), **more}
    said = subprocess.run(
        [*FIRSTTOKEN, *words, "--", *launch.command], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE
    )
    try:
        document: dict[str, Any] = json.loads(said.stdout)
    except ValueError as error:
        raise CellFailed(f"`firsttoken {words[0]}` gave no document: {said.stderr.decode(errors='replace')[-500:]}") from error
    return document
