"""The fixture that starts keepers; whatever a test leaves is ended when it is over."""

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from keeper_runs import QUICK, TARGETS, Run

from firsttoken.launch.cleanup import find_left, finish
from firsttoken.launch.spec import LadderWaits, LaunchSpec
from firsttoken.launch.start import start_keeper

_NUMBERS = count()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*argv: str, folder: Path | None = None, **options: Any) -> Run:
        place = folder or tmp_path / f"run{len(runs)}"
        name = f"test-{os.getpid()}-{next(_NUMBERS)}"
        options = {"waits": QUICK, **options}
        observer = options.pop("observer", None)
        if observer is not None:
            options["observer_argv"] = (sys.executable, str(TARGETS / "tree_observer.py"), str(place), *observer)
        spec = LaunchSpec(run=name, node="node", argv=argv, shown_argv=argv, **options)
        run = Run(start_keeper(spec, place), place)
        runs.append(run)
        return run

    yield start
    for run in runs:
        for control in run.controls:
            control.__exit__(None, None, None)
        run.handle.release()
        finish(run.folder, waits=LadderWaits(terminate=0, leftovers=0), seconds=5)
        run.handle.wait(5)
        assert not find_left(run.folder)
