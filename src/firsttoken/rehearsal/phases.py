"""The phases of a start-up, who goes through them, and how long each works by default.

Key insight: the main process owns the phases before there are ranks; ranks own the rest, and `listening` is shared:
ranks get their request loops ready, then main binds the port, because a bound port is a claim to be ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    PROCESS_START = "process_start"
    CONFIG = "config"
    DISTRIBUTED_INIT = "distributed_init"
    WEIGHTS = "weights"
    POST_LOAD = "post_load"
    KV_CACHE = "kv_cache"
    COMPILE = "compile"
    GRAPH_CAPTURE = "graph_capture"
    WARMUP = "warmup"
    LISTENING = "listening"
    FIRST_TOKEN = "first_token"


MAIN_PHASES = frozenset({Phase.PROCESS_START, Phase.CONFIG})
"""Phases that only the main process goes through."""

RANK_PHASES = tuple(phase for phase in Phase if phase not in MAIN_PHASES)

DEFAULT_PACE: Mapping[Phase, float] = MappingProxyType(
    {
        Phase.PROCESS_START: 0.0,
        Phase.CONFIG: 0.05,
        Phase.DISTRIBUTED_INIT: 0.05,
        Phase.WEIGHTS: 0.25,
        Phase.POST_LOAD: 0.10,
        Phase.KV_CACHE: 0.10,
        Phase.COMPILE: 0.15,
        Phase.GRAPH_CAPTURE: 0.20,
        Phase.WARMUP: 0.10,
        Phase.LISTENING: 0.0,
        Phase.FIRST_TOKEN: 0.0,
    }
)
"""Seconds that a phase works at least."""
