"""A check that comes back whatever its parts meet: it is made by a child that may be left behind."""

import json
import sys
from collections.abc import Sequence

import msgspec

from firsttoken.model.checks import PATIENCE, CheckReport
from firsttoken.model.gpu_code import Capability
from firsttoken.observe.expendable import Expendable

CHILD = (sys.executable, "-P", "-m", "firsttoken.session.checking.child")
_MORE = 15.0
"""seconds for its start, and for mounts that it asks one after the other"""


class CheckFailed(Exception):
    """The child has told nothing; the text says why."""


async def check_apart(
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    quick: bool = False,
    gpu_memory: float | None = None,
    capabilities: Sequence[Capability] = (),
    without: Sequence[int] = (),
    patience: float = PATIENCE,
    child: Sequence[str] = CHILD,
) -> CheckReport:
    """As `check`. `without`: processes of the server itself, where it runs already; what descends from them belongs to it too.

    CheckFailed where the child ended before its time, or was not heard of."""
    request = {
        "argv": list(argv),
        "cwd": cwd,
        "quick": quick,
        "gpu_memory": gpu_memory,
        "capabilities": [str(capability) for capability in capabilities],
        "without": list(without),
        "patience": patience,
    }
    outcome = await Expendable().run((*child, json.dumps(request)), patience + _MORE, line=True)
    if outcome.error is not None:
        raise CheckFailed(f"the checks were not made: {outcome.error}")
    try:
        return msgspec.convert(json.loads(outcome.output), CheckReport)
    except (ValueError, msgspec.ValidationError) as error:
        raise CheckFailed(f"the checks were not made: {error}") from error
