"""The two options by which `run` and `wait` say how long a start may stand still."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from firsttoken.faces.cli.amounts import Seconds
from firsttoken.model.plan import Policy


@dataclass(frozen=True, slots=True)
class Patience:
    """A policy with the caller's own thresholds in place of its own, where given; seconds."""

    max_waiting: float | None = None
    stall_patience: float | None = None

    def __call__(self, policy: Policy) -> Policy:
        if self.max_waiting is not None:
            policy = replace(policy, max_waiting=self.max_waiting)
        if self.stall_patience is not None:
            policy = replace(policy, stall_patience=self.stall_patience, long_stall_patience=self.stall_patience)
        return policy


def patience_options(function: Callable[..., Any]) -> Callable[..., Any]:
    waiting = click.option(
        "--max-waiting", type=Seconds(), metavar="S", help="Patience with a start that waits for something outside (default 600)."
    )
    stall = click.option(
        "--stall-patience", type=Seconds(), metavar="S", help="Patience with a stalled start (default 120; 300 in weights and compile)."
    )
    return waiting(stall(function))
