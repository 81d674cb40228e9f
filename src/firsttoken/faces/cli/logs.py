"""`firsttoken logs`: a run's raw output, as the server wrote it."""

import asyncio
import sys
from collections import deque

import click

from firsttoken.faces.cli.amounts import Count
from firsttoken.faces.cli.say import find_run, note, run_argument
from firsttoken.history.runs import RunFolder
from firsttoken.session.follow import Follower


@click.command()
@run_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@click.option("--tail", "-n", type=Count(), metavar="N", help="Only the last N lines.")
def command(run: str | None, follow: bool, tail: int | None) -> int:
    """Raw output of RUN (the latest where none is named)."""
    folder = find_run(run)
    end = _print(folder, tail)
    if follow:
        asyncio.run(_follow(Follower(folder=folder, log_from=end, on_log=_write)))
    return 0


async def _follow(follower: Follower) -> None:
    try:
        await follower.until_end()
    finally:
        await follower.leave()


def _print(folder: RunFolder, tail: int | None) -> int:
    """Returns the offset up to which the log has been told."""
    end, last = 0, deque[bytes](maxlen=tail)
    open_line = b""
    for offset, data in folder.log():
        if offset > end:
            note(f"{offset - end} bytes of the log's middle were not kept")
        end = offset + len(data)
        if tail is None:
            _write(data)
            continue
        lines = (open_line + data).split(b"\n")
        open_line = lines.pop()
        last.extend(lines)
    if open_line:
        last.append(open_line)
    if last:
        _write(b"\n".join(last) + (b"" if open_line else b"\n"))
    return end


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
