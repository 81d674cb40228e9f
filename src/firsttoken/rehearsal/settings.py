"""The command line of the engine, checked once and turned into frozen settings.

Key insight: everything that can be wrong with a command line is said here, in a sentence, with exit status 2, before any process
is started. Ranks get the same settings as JSON; the API key stays in the main process and out of the banner.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .condition import BadCondition, Value, holds
from .faults import BadFault, Fault, clash, parse_fault, refusal
from .phases import DEFAULT_PACE, Phase

MAX_RANKS = 64
DEPTH = 3
"""Tokens drafted a round, unless asked otherwise."""
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one launch was asked for. `pace` holds only what the user set, in seconds; `seed` None where it was not given."""

    ranks: int = 1
    shards: int = 4
    shard_mb: float = 8.0
    host: str = "127.0.0.1"
    port: int = 8000
    graphs: bool = True
    attention_backend: str = "reference"
    speculative: str = "none"
    draft_quality: float = 0.7
    draft_tokens: int = DEPTH
    seed: int | None = None
    pace: Mapping[Phase, float] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[Fault, ...] = ()
    fault_when: str | None = None
    api_key: str | None = dataclasses.field(default=None, repr=False)

    def seconds(self, phase: Phase) -> float:
        """How long a phase works at least; long enough for the latest fault in it to begin."""
        latest = max((fault.after_s for fault in self.faults if fault.phase is phase), default=0.0)
        return max(self.pace.get(phase, DEFAULT_PACE[phase]), latest)

    def public(self) -> dict[str, Any]:
        """As JSON, without the key: for the banner and for ranks."""
        return {
            "ranks": self.ranks,
            "shards": self.shards,
            "shard_mb": self.shard_mb,
            "host": self.host,
            "port": self.port,
            "graphs": self.graphs,
            "attention_backend": self.attention_backend,
            "speculative": self.speculative,
            "draft_quality": self.draft_quality,
            "draft_tokens": self.draft_tokens,
            "seed": self.seed,
            "pace": {str(phase): seconds for phase, seconds in self.pace.items()},
        }

    def for_ranks(self) -> str:
        return json.dumps(self.public() | {"faults": [str(fault) for fault in self.faults]})

    @staticmethod
    def from_main(text: str) -> Settings:
        """The settings that `for_ranks` wrote."""
        fields: dict[str, Any] = json.loads(text)
        fields["pace"] = {Phase(phase): seconds for phase, seconds in fields["pace"].items()}
        fields["faults"] = tuple(parse_fault(fault) for fault in fields["faults"])
        return Settings(**fields)


def parse(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> Settings:
    """Settings of a command line. Usage errors print a sentence and raise SystemExit(2), `--help` SystemExit(0).

    `--fault-when` is decided here: where it is false, the settings carry no faults.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        settings = _settings(args, env)
        for fault in settings.faults:
            if (sentence := refusal(fault, settings.ranks)) is not None:
                raise BadFault(sentence)
        if (sentence := clash(settings.faults)) is not None:
            raise BadFault(sentence)
        return _decided(settings, env)
    except (BadFault, BadCondition, argparse.ArgumentTypeError) as error:
        parser.error(str(error))


def _decided(settings: Settings, env: Mapping[str, str]) -> Settings:
    if settings.fault_when is None:
        return settings
    dice = random.Random() if settings.seed is None else random.Random(f"fault-when {settings.seed}")
    names: dict[str, Value] = {name: value for name, value in settings.public().items() if name != "pace"}
    if holds(settings.fault_when, names, env, lambda probability: dice.random() < probability):
        return settings
    return dataclasses.replace(settings, faults=())


def _settings(args: argparse.Namespace, env: Mapping[str, str]) -> Settings:
    if args.fault_when is not None and not args.fault:
        raise BadFault("--fault-when says when a fault happens, but there is no --fault.")
    return Settings(
        ranks=args.ranks,
        shards=args.shards,
        shard_mb=args.shard_mb,
        host=args.host,
        port=args.port,
        graphs=args.graphs,
        attention_backend=args.attention_backend,
        speculative=args.speculative,
        draft_quality=args.draft_quality,
        draft_tokens=args.draft_tokens,
        seed=args.seed,
        pace=MappingProxyType(dict(args.pace)),
        faults=tuple(parse_fault(text) for text in args.fault),
        fault_when=args.fault_when,
        api_key=args.api_key or env.get("REHEARSE_API_KEY") or None,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="firsttoken rehearse",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Start a small, real inference server: rank processes with real collectives, real safetensors shards,\n"
        "a decoder that generates, OpenAI-style HTTP. It needs no GPU and can be made to fail as real engines do.",
        epilog="kinds of fault:\n"
        "  hangs      skip cycle fifo child chatter stop spin\n"
        "  waits      lock connect peer stall\n"
        "  slow       download slow quiet compile jit grind\n"
        "  ends       crash exit kill orphan\n"
        "  serving    mute error second (first_token), early logstop\n"
        f"phases: {' '.join(Phase)}\n\n"
        "examples:\n"
        "  firsttoken rehearse --ranks 2 --port 0\n"
        "  firsttoken rehearse --ranks 8 --fault skip@graph_capture:rank=3\n"
        "  firsttoken rehearse --fault lock@compile:for=20 --fault-when 'graphs and env.REHEARSE_P2P == \"1\"'\n\n"
        "environment: REHEARSE_API_KEY as --api-key; REHEARSE_FAULT_LOG a file that gets a JSON line when a fault begins;\n"
        "REHEARSE_SPIN=1 lets ranks burn a core while they wait for each other;\n"
        "XDG_CACHE_HOME where the shards are kept (firsttoken/rehearsal below it, else below ~/.cache).",
    )
    add = parser.add_argument
    add("--ranks", type=_whole(1, MAX_RANKS), default=1, metavar="N", help="rank processes, tensor parallel (default 1)")
    add("--shards", type=_whole(1, 999), default=4, metavar="N", help="safetensors files (default 4)")
    add("--shard-mb", type=_between(0.01, 65536), default=8.0, metavar="X", help="size of a shard in MB (default 8)")
    add("--port", type=_whole(0, 65535), default=8000, metavar="P", help="port to listen on, 0 picks a free one (default 8000)")
    add("--host", default="127.0.0.1", metavar="H", help="address to listen on (default 127.0.0.1)")
    add("--pace", type=_pace, action="append", default=[], metavar="PHASE=SECONDS", help="how long a phase works; repeatable")
    add("--graphs", action=argparse.BooleanOptionalAction, default=True, help="capture graphs; decoding is slower without them")
    add("--attention-backend", type=_name, default="reference", metavar="NAME", help="reference, fast or another name (default reference)")
    add("--speculative", choices=("none", "draft"), default="none", help="speculative decoding (default none)")
    add("--draft-quality", type=_between(0, 1), default=0.7, metavar="Q", help="share of draft tokens accepted at 3 a round (default 0.7)")
    add("--draft-tokens", type=_whole(1, MAX_DEPTH), default=DEPTH, metavar="N", help=f"tokens drafted a round (default {DEPTH})")
    add("--fault", action="append", default=[], metavar="KIND@PHASE[:rank=K][:after=S][:for=S]", help="let something fail; repeatable")
    add(
        "--fault-when",
        metavar="EXPRESSION",
        help="let the faults happen only when this holds: and, or, not, comparisons, chance(P), env.NAME",
    )
    add("--seed", type=_whole(0, 2**63 - 1), default=None, metavar="N", help="seed of sampling, drafting and chance(P)")
    add("--api-key", metavar="KEY", help="ask clients for this key (401 without it)")
    return parser


def _whole(low: int, high: int) -> Any:
    def parse_whole(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}.")
        return int(text)

    return parse_whole


def _between(low: float, high: float) -> Any:
    def parse_between(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number.") from None
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low:g} and {high:g}.")
        return number

    return parse_between


def _pace(text: str) -> tuple[Phase, float]:
    name, equals, seconds = text.partition("=")
    if not equals or name not in list(Phase):
        raise argparse.ArgumentTypeError(f"{text!r} is not PHASE=SECONDS; phases are {', '.join(Phase)}.")
    return Phase(name), float(_between(0, 1e6)(seconds))


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name.")
    return text
