"""`firsttoken demo`: a start that loads its weights, then goes quiet; which rank is to blame; and the same start without the fault.

Nothing is staged but the fault: the server is the embedded engine, and it is launched, followed and judged as `run` does it.
"""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import click

from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.run import live_view_on
from firsttoken.faces.cli.say import give_up, json_option, print_document
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict
from firsttoken.report.document import document, result_document
from firsttoken.report.live_text import ranks_text, span
from firsttoken.report.text import change_line
from firsttoken.session.follow import Follower
from firsttoken.session.foreground import Foreground, held_signals
from firsttoken.session.launch import Asked, LaunchRefused, launch

RANKS, SHARDS, SHARD_MB = 8, 64, 0.25
_GIVE_UP_AFTER = 90.0
"""Seconds for one of the two starts"""
_STILL_FOR = 30.0
"""Seconds without a proof, after which the demo has failed"""
_ENGINE = ("--ranks", str(RANKS), "--shards", str(SHARDS), "--shard-mb", str(SHARD_MB), "--pace", "weights=1", "--port", "0")

_QUIET = f"""\
{RANKS} ranks load {SHARDS} shards in a second. Then one rank leaves out a collective:
the others wait for it, and it waits for them. The log goes quiet, no core is
busy, nothing listens on the port. From outside it might as well be compiling.
Watch for the verdict; a wait with no end is proven in under 20 s."""
_HEALTHY = "The same command without the fault. Ready means that a real token came."


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """`interrupted`: the exit status where a signal ended it."""

    result: Result
    argv: tuple[str, ...]
    seconds: float
    interrupted: int | None


@click.command()
@click.option("--rank", type=click.IntRange(0, RANKS - 1), default=5, show_default=True, help="The rank that goes wrong: choose one.")
@json_option
def command(rank: int, as_json: bool) -> int:
    """Eight ranks, 64 shards, then silence: is it compiling, or dead? Watch firsttoken find the rank, in under 40 s.

    Status 0 where both starts came out as told, else 1. Needs no GPU.
    """
    tell = _teller(as_json)
    tell("firsttoken demo: a start that goes quiet, and who is to blame.")
    _write_shards(tell)
    tell(f"\n1. {_QUIET}\n")
    hung = _play(_command("--fault", f"skip@graph_capture:rank={rank}"), tell)
    missed = misses_of_the_hang(hung.result, rank)
    if hung.interrupted is not None:
        return hung.interrupted
    tell(_outcome(hung.result, missed))
    tell(f"\n2. {_HEALTHY}\n")
    ready = _play(_command(), tell)
    missed_too = misses_of_the_start(ready.result)
    if ready.interrupted is not None:
        return ready.interrupted
    tell(_outcome(ready.result, missed_too))
    missed += missed_too
    seconds = hung.seconds + ready.seconds
    tell(f"\n{'Both came out as told' if not missed else 'Not as told'}, in {span(seconds)}. What was recorded is kept:")
    us = shlex.join(_program())
    tell(f"  {us} explain {hung.result.run}\n  {us} status {ready.result.run}")
    if as_json:
        played = (hung, ready)
        print_document(
            document(
                "demo",
                as_told=not missed,
                missed=missed,
                rank=rank,
                seconds=seconds,
                commands=[list(one.argv) for one in played],
                results=[result_document(one.result) for one in played],
            )
        )
    return 0 if not missed else 1


def misses_of_the_hang(result: Result, rank: int) -> list[str]:
    """What of the first start did not come out as told, in sentences."""
    missed = []
    if result.verdict is not Verdict.HUNG:
        missed.append(f"The start with the fault came out as {result.verdict}, not as hung.")
    if result.ranks.behind != (rank,):
        missed.append(f"The rank with the fault is {rank}; said to be behind: {ranks_text(result.ranks.behind) or 'none'}.")
    return missed


def misses_of_the_start(result: Result) -> list[str]:
    """What of the second start did not come out as told, in sentences."""
    if result.verdict is not Verdict.READY:
        return [f"The start without the fault came out as {result.verdict}, not as ready."]
    if not any(request.text for request in result.requests):
        return ["The start without the fault is called ready, and no token is recorded."]
    return []


def _command(*fault: str) -> tuple[str, ...]:
    us = _program()
    return (*((*us, "rehearse") if len(us) == 1 else (sys.executable, "-m", "firsttoken.rehearsal")), *_ENGINE, *fault)


def _program() -> tuple[str, ...]:
    """Ourselves as the user would type it: by name where that finds this very program."""
    found = shutil.which("firsttoken")
    mine = found is not None and os.path.dirname(os.path.realpath(found)) == os.path.dirname(os.path.realpath(sys.argv[0]))
    return ("firsttoken",) if mine else (sys.executable, "-m", "firsttoken")


def _play(argv: tuple[str, ...], tell: Callable[[str], None]) -> Played:
    """One start, until it is decided, and its end. Should we die on the way, the keeper ends the server."""
    from firsttoken.session.planning import OBSERVER, plan_of

    tell(f"   $ {shlex.join(_program())} run --until ready --on-observer-death stop -- \\")
    tell(f"       {shlex.join(argv)}\n")
    began = time.monotonic()
    asked = Asked(argv=argv, plan=plan_of(argv), policy=Policy(), observer=OBSERVER, on_observer_death="stop")
    with held_signals() as held:
        try:
            folder, keeper = launch(asked)
        except LaunchRefused as error:
            give_up(str(error), error.code)
        words = Outlet(2)
        view = live_view_on(words, prints=False)

        def changed(result: Result) -> None:
            if view is None and follower.state.stop_by is None:
                tell(f"   {change_line(result)}")

        follower = Follower(folder=folder, hello="face", patience=_impatient, on_change=changed)
        foreground = Foreground(follower, until_ready=True, max_wait=_GIVE_UP_AFTER, held=held, said=words.line)
        try:
            with view.watching(follower) if view is not None else nullcontext():
                seen, _ = asyncio.run(foreground.run())
        finally:
            keeper.release()
            words.close()
    by = (follower.state.stop_by or "").split()
    ended_by = 128 + signal.Signals[by[1]] if by[:1] == ["signal"] else None
    return Played(result=seen.result, argv=argv, seconds=time.monotonic() - began, interrupted=ended_by)


def _impatient(policy: Policy) -> Policy:
    return replace(policy, stall_patience=_STILL_FOR, long_stall_patience=_STILL_FOR, max_waiting=_STILL_FOR)


def _outcome(result: Result, missed: Sequence[str]) -> str:
    """The verdict, what it rests on, and whether it was right."""
    lines = [f"\n   {result.verdict.upper()}: {result.reason}"]
    if result.verdict is Verdict.READY:
        lines += [f"     {request.kind}: {request.text!r}" for request in result.requests[:2] if request.text]
    else:
        lines += [f"     {fact}" for fact in result.proof[:6]]
        lines += [
            f"     {'rank' if len(group.ranks) == 1 else 'ranks'} {ranks_text(group.ranks)}: {group.where}"
            for group in result.ranks.groups[:4]
        ]
    right = (
        f"   That is right: the fault was put into rank {ranks_text(result.ranks.behind)}." if result.ranks.behind else "   That is right."
    )
    return "\n".join([*lines, *([right] if not missed else [f"   NOT AS TOLD: {text}" for text in missed])])


def _write_shards(tell: Callable[[str], None]) -> None:
    """Before the clock starts: it is done once a machine."""
    from firsttoken.rehearsal.shards import cache_folder, ensure_shards

    folder = cache_folder(SHARDS, SHARD_MB)
    try:
        if ensure_shards(folder, SHARDS, SHARD_MB):
            tell(f"({SHARDS} small shards were written to {folder}; the next time they are there.)")
    except OSError as error:
        give_up(f"the shards cannot be written to {folder}: {error.strerror or error}; set XDG_CACHE_HOME to a folder that can be written")


def _teller(as_json: bool) -> Callable[[str], None]:
    def tell(text: str) -> None:
        click.echo(text, err=as_json)

    return tell
