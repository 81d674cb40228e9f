"""Expressions of `--fault-when` on the embedded engine: does `firsttoken isolate` find one of the expression's 1-minimal sets?

Key insight: the settings of the command are few enough to ask the expression itself about each of their subsets, with the engine's own
reader. A set is 1-minimal when it fails and passes without any one of its settings; the answer must be one of these, and its fix must pass.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from cells import CellFailed
from firsttoken.history.runs import RunFolder
from firsttoken.launch.cleanup import find_left, finish
from firsttoken.model.isolation import Purpose
from firsttoken.rehearsal.condition import Value, holds
from launching import FIRSTTOKEN, wait_for

SETTINGS: Mapping[str, tuple[str, Value, Value]] = {
    "graphs": ("graphs", True, False),
    "speculation": ("speculative", "draft", "none"),
    "attention": ("attention_backend", "fast", "reference"),
    "shards": ("shards", 2, 4),
    "REHEARSE_P2P": ("env.REHEARSE_P2P", "1", ""),
    "REHEARSE_RING": ("env.REHEARSE_RING", "on", ""),
    "REHEARSE_FUSED": ("env.REHEARSE_FUSED", "yes", ""),
}
"""Each with the name that expressions know it by, its value in the command, and the one that it has when it is changed."""
_VARIABLES = ("REHEARSE_P2P=1", "REHEARSE_RING=on", "REHEARSE_FUSED=yes")
COMMAND = (
    *("env", *_VARIABLES, sys.executable, "-m", "firsttoken.rehearsal", "--port", "0", "--shard-mb", "0.01", "--shards", "2"),
    *("--graphs", "--speculative", "draft", "--attention-backend", "fast"),
)
_ENV = {"p2p": 'env.REHEARSE_P2P == "1"', "ring": 'env.REHEARSE_RING == "on"', "fused": 'env.REHEARSE_FUSED == "yes"'}
VERIFYING = (Purpose.FAILS_AGAIN, Purpose.MINIMAL, Purpose.FIX)
_FAST, _DRAFT = 'attention_backend == "fast"', 'speculative == "draft"'
_CRASH, _HANG, _HANG_LATER, _STORY = "crash@compile", "skip@graph_capture", "skip@warmup", "skip@graph_capture:rank=3"
_RANKS = {_HANG: 2, _HANG_LATER: 2, _STORY: 8}
"""A fault in the capture of graphs needs graphs, whatever its expression says."""

EXPRESSIONS: Mapping[str, tuple[str, str]] = {
    "graphs": (_CRASH, "graphs"),
    "draft": (_CRASH, _DRAFT),
    "fast": (_CRASH, _FAST),
    "p2p": (_CRASH, _ENV["p2p"]),
    "ring": (_CRASH, _ENV["ring"]),
    "shards": (_CRASH, "shards < 4"),
    "story: 8 ranks, hung with and without speculation, graphs": (_STORY, "graphs"),
    "graphs and draft": (_CRASH, f"graphs and {_DRAFT}"),
    "not reference": (_CRASH, 'not attention_backend == "reference"'),
    "none of them": (_CRASH, "shards > 0"),
    "graphs or p2p": (_CRASH, f"graphs or {_ENV['p2p']}"),
    "chance 70 %: graphs": (_CRASH, "graphs and chance(0.7)"),
    "graphs and p2p": (_CRASH, f"graphs and {_ENV['p2p']}"),
    "fast and shards": (_CRASH, f"{_FAST} and shards == 2"),
    "hang: graphs": (_HANG, "graphs"),
    "p2p and ring": (_CRASH, f"{_ENV['p2p']} and {_ENV['ring']}"),
    "graphs and p2p and fast": (_CRASH, f"graphs and {_ENV['p2p']} and {_FAST}"),
    "p2p and ring and fused": (_CRASH, f"{_ENV['p2p']} and {_ENV['ring']} and {_ENV['fused']}"),
    "draft and shards and fused": (_CRASH, f"{_DRAFT} and shards <= 2 and {_ENV['fused']}"),
    "graphs and p2p or draft and fast": (_CRASH, f"(graphs and {_ENV['p2p']}) or ({_DRAFT} and {_FAST})"),
    "graphs and (ring or fused)": (_CRASH, f"graphs and ({_ENV['ring']} or {_ENV['fused']})"),
    "graphs and not none": (_CRASH, 'graphs and not speculative == "none"'),
    "fast or draft without graphs": (_CRASH, f"{_FAST} or ({_DRAFT} and not graphs)"),
    "ring and not (fused and not draft)": (_CRASH, f"{_ENV['ring']} and not ({_ENV['fused']} and not {_DRAFT})"),
    "hang: p2p and fast": (_HANG_LATER, f"{_ENV['p2p']} and {_FAST}"),
    "chance 30 %: p2p": (_CRASH, f"{_ENV['p2p']} and chance(0.3)"),
    "chance 70 %: graphs and fast": (_CRASH, f"graphs and {_FAST} and chance(0.7)"),
}


KILLED = ("killed 1: p2p and ring", "killed 2: p2p and ring", "killed 3: graphs")
_KILLS = 5


def fails(expression: str, kept: Iterable[str]) -> bool:
    """Whether the fault happens with just these settings kept, chance always against us."""
    kept = set(kept)
    values = {name: given if label in kept else changed for label, (name, given, changed) in SETTINGS.items()}
    names: dict[str, Value] = {name: value for name, value in values.items() if not name.startswith("env.")}
    names |= {"ranks": 1, "draft_quality": 0.7}
    env = {name.removeprefix("env."): str(value) for name, value in values.items() if name.startswith("env.")}
    return holds(expression, names, env, lambda _: True)


def minimal_sets(expression: str) -> list[frozenset[str]]:
    """All sets that fail, and pass without any one of theirs."""
    every = [frozenset(kept) for size in range(len(SETTINGS) + 1) for kept in combinations(SETTINGS, size)]
    return [kept for kept in every if fails(expression, kept) and not any(fails(expression, kept - {one}) for one in kept)]


def run_expression(name: str) -> dict[str, Any]:
    """One search on the real engine, in a home of its own, of which nothing may be left. `killed N: …` is killed now and then."""
    killed, _, plain = name.rpartition(": ") if name.startswith("killed") else ("", "", name)
    fault, expression = EXPRESSIONS[plain]
    command = (*COMMAND, "--ranks", str(_RANKS.get(fault, 1)), "--fault", fault, "--fault-when", expression)
    told = ("--intermittent",) if "chance" in expression else ()
    with tempfile.TemporaryDirectory(prefix="firsttoken-isolate-") as place:
        home = Path(place)
        asked = [*FIRSTTOKEN, "isolate", "--json", "--budget", "120", *told, "--", *command]
        try:
            kills = _killed(asked, home, random.Random(killed)) if killed else 0
            said = subprocess.run(asked, env=_env(home), stdin=subprocess.DEVNULL, capture_output=True, timeout=3600)
            document = json.loads(said.stdout)
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise CellFailed(f"no answer: {error}") from error
        finally:
            left = [folder for folder in _runs(home) if find_left(folder.path)]
            for folder in left:
                finish(folder.path, seconds=30)
    failing = [_known(row["label"]) for row in document["minimal_failing"] or ()]
    fix = [_known(row["label"]) for row in document["minimal_fix"] or ()]
    right = frozenset(failing) in minimal_sets(expression)
    cured = not fails(expression, set(SETTINGS) - set(fix)) if failing else not fix
    again = repeated(document["trials"])
    return {
        "expression": expression,
        "fault": fault,
        "state": document["state"],
        "failing": failing,
        "fix": fix,
        "right": right and cured and not left and not (killed and again),
        "launches": document["launches"],
        "verifying": sum(trial["purpose"] in VERIFYING for trial in document["trials"]),
        "outcomes": [trial["outcome"] for trial in document["trials"]],
        "odd": [trial["reason"] for trial in document["trials"] if trial["outcome"] in ("different", "unresolved")],
        "seconds": document["seconds"],
        "left_running": len(left),
        "kills": kills,
        "repeated": again,
    }


def repeated(trials: Sequence[Mapping[str, Any]]) -> int:
    """Trials that asked what one before had answered. That a setting is needed is asked twice by itself."""
    asked = [(trial["purpose"], *trial["changed"]) for trial in trials if trial["purpose"] != Purpose.MINIMAL]
    return len(asked) - len(set(asked))


def _killed(asked: Sequence[str], home: Path, draw: random.Random) -> int:
    """SIGKILL at random moments of a search that is begun anew each time. Each time nothing of it may go on. How often it was killed."""
    for number in range(_KILLS):
        with subprocess.Popen(asked, env=_env(home), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(draw.uniform(2.0, 40.0))
                return number
            one.kill()
        wait_for(lambda: not any(find_left(folder.path) for folder in _runs(home)), 90.0, "the end of what a killed search had launched")
    return _KILLS


def _env(home: Path) -> dict[str, str]:
    return {**os.environ, "FIRSTTOKEN_HOME": str(home)}


def _known(label: str) -> str:
    return next((name for name in SETTINGS if name in label), label)


def _runs(home: Path) -> list[RunFolder]:
    folder = home / "runs"
    return [RunFolder(path) for path in folder.iterdir()] if folder.is_dir() else []
