"""Ending runs: through their keeper while it lives, by key, mark and cgroup where it does not."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.cleanup import find_left, finish
from firsttoken.launch.folder import Key
from firsttoken.launch.tree import send
from firsttoken.session.link import KeeperGone, Link

_STEP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """`was`: the run's state when we came (running, left, ended, none). `ended` and `left`: pids."""

    was: str
    text: str
    ended: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


class NotOurs(Exception):
    """The server was started by somebody else; the text names the command with which the user can stop it."""


def run_state(folder: RunFolder) -> str:
    """running; left (the keeper is gone and processes of the run still live); ended; none (it never started).

    A server that somebody else started: running while it is followed, and ended from then on, whatever it does.
    """
    attached = folder.attached()
    if attached:
        return "running" if recorder_lives(folder) else "ended"
    keeper = folder.keeper()
    if not keeper:
        return "none"
    if _keeper_lives(keeper):
        return "running"
    if keeper.get("ended") is not None:
        return "ended"
    return "left" if find_left(folder.path) else "ended"


def recorder_lives(folder: RunFolder) -> bool:
    """Whether the `attach` that records this run still does. False for a run that was launched."""
    attached = folder.attached()
    return bool(attached) and not attached.get("ended") and _keeper_lives(attached)


async def stop(folder: RunFolder, *, force: bool, max_wait: float) -> Stopped:
    """Returns when no process of the run is left, keeper and observer included, or after `max_wait` seconds with what is.

    NotOurs where firsttoken did not start the server.
    """
    attached = folder.attached()
    if attached:
        how = f"stop it yourself with: {attached['stop']}" if attached.get("stop") else "stop it where it runs"
        raise NotOurs(f"{folder.name} is a server that firsttoken did not start, and it never stops one; {how}")
    was = run_state(folder)
    before = _pids(folder, of=("server", "member"))
    if was == "running" and await _ask_keeper(folder, force, max_wait):
        left = _pids(folder)
        ended = tuple(pid for pid in before if pid not in left)
        return Stopped(was=was, text="stopped" if not left else f"still ending after {max_wait:.0f} s", ended=ended, left=left)
    if was == "none":
        return Stopped(was=was, text="this run never started; nothing is left of it")
    done = await asyncio.to_thread(finish, folder.path, seconds=max_wait, by="stop")
    ended = tuple(item.process.pid for item in done.ended)
    stuck = tuple(item.process.pid for item in done.stuck)
    if not ended and not stuck:
        return Stopped(was=was, text="this run has ended; nothing is left of it")
    return Stopped(
        was=was, text=f"its keeper was gone; ended what was left: {', '.join(map(str, ended)) or 'nothing'}", ended=ended, left=stuck
    )


async def cleanup(folder: RunFolder, *, dry_run: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ended, still there), pids. With `dry_run` the first is what would be ended. Never touches a run whose keeper lives."""
    if run_state(folder) == "running":
        return (), ()
    if dry_run:
        return _pids(folder), ()
    done = await asyncio.to_thread(finish, folder.path)
    return tuple(item.process.pid for item in done.ended), tuple(item.process.pid for item in done.stuck)


def signal_server(folder: RunFolder, number: int) -> bool:
    """One signal to the launched process of a run that has no keeper to forward it. False where that process is not there any more."""
    server = folder.keeper().get("server")
    if not isinstance(server, dict) or find_left(folder.path) == ():
        return False
    return send(Procfs(), Key(int(server["pid"]), int(server["start"])), number)


async def _ask_keeper(folder: RunFolder, force: bool, max_wait: float) -> bool:
    """False where no keeper answers."""
    keeper = folder.keeper()
    try:
        link = await Link.connect(str(keeper.get("socket")), "control", events_from=None, log_from=None)
        await link.send({"stop": {"by": "stop", "force": force}})
    except KeeperGone:
        return False
    try:
        async with asyncio.timeout(max_wait):
            async for _ in link.messages():
                pass
            while _keeper_lives(keeper) or _pids(folder):  # noqa: ASYNC110  # the end of foreign processes has no event to wait for
                await asyncio.sleep(_STEP)
    except TimeoutError:
        pass
    finally:
        await link.close()
    return True


def _keeper_lives(keeper: dict[str, object]) -> bool:
    pid, start = keeper.get("pid"), keeper.get("start")
    if not isinstance(pid, int) or not isinstance(start, int):
        return False
    procfs = Procfs()
    return keeper.get("boot_id") == procfs.boot_id() and procfs.alive(pid, start)


def _pids(folder: RunFolder, *, of: Collection[str] = ("server", "member", "observer", "keeper")) -> tuple[int, ...]:
    return tuple(item.process.pid for item in find_left(folder.path) if item.part in of)
