"""The two servers that are compared: launched and followed as `run` does it, or somebody else's at an address; the launched always end.

Should we die on the way, their keepers end them. A launch that is cancelled is seen through and then stopped.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import httpx

from firsttoken.drive.client import Server
from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.knowledge.load import profiles
from firsttoken.launch.cleanup import find_left
from firsttoken.launch.start import KeeperHandle
from firsttoken.model.exits import TIMED_OUT
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict
from firsttoken.plan.make import api_key
from firsttoken.session.explain import explain_run
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.launch import Asked, LaunchRefused, launch
from firsttoken.session.planning import OBSERVER, local_world, plan_of, working_folder
from firsttoken.session.tend import stop

BASELINE, SPECULATIVE = "baseline", "speculative"
STOPS_WITHIN = 120.0
_LAST_WORDS = 20.0
"""Seconds in which a server that broke off an answer is seen to end"""
MOST_IDLE = 0.05
"""of a core, for a server of which nothing is asked"""
_IDLE_FOR, _IDLE_LOOKS = 1.0, 6
_DEVICES = "/dev/nvidia"


class NotServing(Exception):
    """One of the servers never gave a token, or stopped giving them. `code`: the exit status of its verdict."""

    def __init__(self, side: str, result: Result, code: int) -> None:
        super().__init__(f"the {side} server: {result.verdict}, {result.reason}")
        self.side, self.result, self.code = side, result, code


class BrokenOff(Exception):
    """A server did not answer a request of ours as it must. `side` is it; the cause says how."""

    def __init__(self, side: str, error: Exception) -> None:
        super().__init__(str(error))
        self.side = side


@dataclass(slots=True, kw_only=True)
class Serving:
    """A server that gave a token. `run` and what follows is unknown of a server at an address."""

    side: str
    server: Server
    client: httpx.AsyncClient
    engine: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    folder: RunFolder | None = None
    plan: Plan | None = None
    result: Result | None = None
    following: "asyncio.Task[Seen] | None" = None

    @property
    def run(self) -> str | None:
        return self.folder.name if self.folder is not None else None

    async def lost(self) -> NotServing | None:
        """After an answer that broke off: how the server ended, with its causes. None where it still serves."""
        if self.following is None or self.folder is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await asyncio.shield(self.following)
        if not self.following.done():
            return None
        return _not_serving(self.side, self.following.result().result, self.folder, self.following.result().code)

    async def idle_share(self) -> float:
        """Cores that its processes take while nothing is asked. What it still does after its start is given some seconds to end."""
        shares: list[float] = []
        while len(shares) < _IDLE_LOOKS and (not shares or shares[-1] > MOST_IDLE):
            before = self._ticks()
            await asyncio.sleep(_IDLE_FOR)
            used = sum(ticks - before.get(key, ticks) for key, ticks in self._ticks().items())
            shares.append(used / os.sysconf("SC_CLK_TCK") / _IDLE_FOR)
        return shares[-1]

    def memory(self) -> int:
        """Bytes that its processes have, what they share counted for each."""
        procfs = Procfs()
        stats = [procfs.stat(pid) for pid in self._pids()]
        return sum(stat.rss_pages for stat in stats if stat is not None) * os.sysconf("SC_PAGE_SIZE")

    def log(self) -> str:
        """All that it printed; empty for a server at an address."""
        parts = self.folder.log() if self.folder is not None else iter(())
        return b"".join(data for _, data in parts).decode("utf8", "replace")

    def uses_gpus(self) -> bool:
        """Whether one of its processes has a GPU open. Other users' processes cannot be looked into, and count as none."""
        procfs = Procfs()
        links = (procfs.link(f"{pid}/fd/{name}") or "" for pid in self._pids() for name in procfs.names(f"{pid}/fd"))
        return any(link.startswith((_DEVICES, "/dev/kfd", "/dev/dri/renderD")) for link in links)

    def _ticks(self) -> dict[tuple[int, int], int]:
        procfs = Procfs()
        stats = [procfs.stat(pid) for pid in self._pids()]
        return {(stat.pid, stat.start): stat.utime + stat.stime for stat in stats if stat is not None}

    def _pids(self) -> list[int]:
        left = find_left(self.folder.path) if self.folder is not None else ()
        return [one.process.pid for one in left if one.part in ("server", "member")]


@dataclass(slots=True, kw_only=True)
class Stage:
    """Launches servers and knows those that run, so that a second signal can end them at once."""

    said: Callable[[str], None]
    policy: Policy
    api_key_env: str | None = None
    max_wait: float | None = None
    _running: list[RunFolder] = field(default_factory=list)
    _hurried: bool = False

    async def hurry(self) -> None:
        """Ends at once what is being stopped."""
        self._hurried = True
        await asyncio.gather(*(stop(folder, force=True, max_wait=STOPS_WITHIN) for folder in self._running), return_exceptions=True)

    @asynccontextmanager
    async def launched(self, side: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> AsyncIterator[Serving]:
        """A server from its command, from its first token on; NotServing where that does not come. It is stopped at the end."""
        plan = await asyncio.to_thread(plan_of, argv)
        asked = Asked(
            argv=tuple(argv),
            plan=plan,
            policy=self.policy,
            observer=OBSERVER,
            env=dict(env or {}),
            on_observer_death="stop",
            api_key_env=self.api_key_env,
        )
        folder, keeper = await self._started(side, asked)
        self._running.append(folder)
        follower = Follower(folder=folder, hello="face", on_change=self._teller(side))
        following: asyncio.Task[Seen] | None = None
        try:
            self.said(f"{side}: run {folder.name} (pid {keeper.server.pid})")
            seen = await follower.until_decided(max_wait=self.max_wait)
            if seen.code != 0:
                raise _not_serving(side, seen.result, folder, seen.code if seen.code is not None else TIMED_OUT)
            following = asyncio.create_task(follower.until_end())
            server = _server(seen.result, follower.state.plan, self._key(argv, env))
            profile = profiles().get(follower.state.plan.engine or "")
            async with server.client() as client:
                serving = Serving(
                    side=side,
                    server=server,
                    client=client,
                    engine=follower.state.plan.engine,
                    names=profile.counters if profile is not None else {},
                    folder=folder,
                    plan=follower.state.plan,
                    result=seen.result,
                    following=following,
                )
                try:
                    yield serving
                except BrokenOff as error:
                    lost = await serving.lost() if error.side == side else None
                    raise (lost or error) from error
        finally:
            await self._stopped(side, folder, follower, following, keeper)

    async def _started(self, side: str, asked: Asked) -> tuple[RunFolder, KeeperHandle]:
        work = asyncio.ensure_future(asyncio.to_thread(launch, asked))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            folder, keeper = await work
            await stop(folder, force=True, max_wait=STOPS_WITHIN)
            keeper.release()
            raise
        except LaunchRefused as error:
            raise NotServing(side, Follower(folder=error.folder).stored(), error.code) from error

    async def _stopped(
        self, side: str, folder: RunFolder, follower: Follower, following: "asyncio.Task[Seen] | None", keeper: KeeperHandle
    ) -> None:
        try:
            done = await stop(folder, force=self._hurried, max_wait=STOPS_WITHIN)
            if done.left:
                self.said(f"{side}: still ending; `firsttoken stop --force {folder.name}` cuts that short")
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await follower.leave()
            keeper.release()
            self._running.remove(folder)

    def _teller(self, side: str) -> Callable[[Result], None]:
        def tell(result: Result) -> None:
            """How a server ends is our doing, or told in the answer."""
            runs = result.exit.code is None and result.exit.signal is None
            if runs and result.verdict not in (Verdict.STARTING, Verdict.UNKNOWN):
                self.said(f"{side}: {result.elapsed_s or 0:.1f} s  {result.verdict}  {result.reason}")

        return tell

    def _key(self, argv: Sequence[str], env: Mapping[str, str] | None) -> str | None:
        if self.api_key_env is not None:
            return os.environ.get(self.api_key_env)
        found = api_key(argv, local_world({**os.environ, **(env or {})}, working_folder()), profiles())
        return found[0] if found is not None else None


@asynccontextmanager
async def addressed(side: str, url: str, key: str | None) -> AsyncIterator[Serving]:
    """Somebody else's server. Its engine is known by its metrics page, where one names it."""
    server = Server(url=url.rstrip("/"), verify=url.startswith("https:"), key=key)
    async with server.client() as client:
        engine, names, found = None, dict[str, str](), b""
        with contextlib.suppress(httpx.HTTPError):
            found = (await client.get("/metrics", timeout=10)).content
        for profile in profiles().values():
            known = profile.counters.get("generation_tokens")
            if known is not None and known.encode() in found:
                engine, names = profile.name, dict(profile.counters)
        yield Serving(side=side, server=server, client=client, engine=engine, names=names)


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _server(result: Result, plan: Plan, key: str | None) -> Server:
    url, routes = result.endpoint.url or "", plan.routes
    like = Server(
        url=url,
        key=key,
        model=result.endpoint.model,
        chat=routes.chat,
        completions=routes.completions,
        models=routes.models,
        metrics=routes.metrics,
    )
    if url.startswith("unix:"):
        scheme = "https" if plan.endpoint.tls else "http"
        return replace(
            like, url=f"{scheme}://localhost", unix_socket=plan.endpoint.unix_socket, root_path=plan.endpoint.root_path.rstrip("/")
        )
    return like


def _not_serving(side: str, result: Result, folder: RunFolder, code: int | None) -> NotServing:
    return NotServing(side, replace(result, findings=explain_run(folder).findings), code or 69)
