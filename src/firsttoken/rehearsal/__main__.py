"""`python -m firsttoken.rehearsal ARGS`, and later `firsttoken rehearse ARGS`.

Key insight: the command line is checked with nothing but the standard library, so that a usage error comes at once; numpy and the
rest are imported after the first log line, because an engine's imports are a part of its start-up.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from .journal import Journal
from .settings import parse


def main(argv: Sequence[str]) -> int:
    """Runs the engine until it ends; its exit status. Usage errors raise SystemExit(2)."""
    began = time.monotonic()
    settings = parse(argv)
    journal = Journal()
    journal.line(f"Process start begin. pid={os.getpid()}")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from .engine import Engine

    return Engine(settings, journal, began).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
