"""The one module that names concrete hosts and probes: it puts an observer together, and `python -m firsttoken.wiring FOLDER` is one.

The API key is read where the server has it, from the launched process's own arguments and environment, and stays in memory.
"""

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from firsttoken import __version__
from firsttoken.history.runs import RunFolder, runs
from firsttoken.history.times import mean_phases, with_quiet
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge.outcome import told_port
from firsttoken.judge.state import State
from firsttoken.knowledge.load import generic, profiles
from firsttoken.knowledge.profile import compiled
from firsttoken.launch.spawn import MASTER_ENV
from firsttoken.model.events import Body, EngineCounters, Installed, Missed, Places, Planned
from firsttoken.model.plan import Endpoint, Plan, Policy, Routes
from firsttoken.model.process import ListenSocket, ProcessKey
from firsttoken.model.redact import mask_argv
from firsttoken.model.requests import AskCounters, AskForToken, AskHealth, LookClosely, Request
from firsttoken.model.secrets import Secrets
from firsttoken.observe.closeup import CloseLook
from firsttoken.observe.counters import sample
from firsttoken.observe.engine_counters import ask_counters
from firsttoken.observe.errands import Errand
from firsttoken.observe.expendable import Expendable
from firsttoken.observe.gpu import GpuWatcher
from firsttoken.observe.http import FirstTokenProber, first_http
from firsttoken.observe.http_target import EPHEMERAL_FROM, Target, targets
from firsttoken.observe.load import LoadWatcher
from firsttoken.observe.log_prefixes import Peeler
from firsttoken.observe.logs import LogReader
from firsttoken.observe.memory import memory
from firsttoken.observe.oom import OomWatcher
from firsttoken.observe.processes import ProcessWatcher
from firsttoken.observe.sockets import SocketWatcher
from firsttoken.observe.weights import WeightWatcher
from firsttoken.plan.make import api_key, make_plan, replan
from firsttoken.plan.recognise import by_output
from firsttoken.plan.world import World
from firsttoken.session.attaching.aim import Aim, root_folder
from firsttoken.session.attaching.attach import Attachment
from firsttoken.session.attaching.log_source import Found
from firsttoken.session.attaching.remote import RemoteSenses, keyed
from firsttoken.session.attaching.servers import Finder, Server
from firsttoken.session.checking.beside import ChecksBeside
from firsttoken.session.far_files import FAR, read_start
from firsttoken.session.loading.beside import WeightsBeside
from firsttoken.session.observer import Observer, Senses
from firsttoken.session.planning import local_world
from firsttoken.session.witnesses import Witnesses
from firsttoken.survey.installed import versions

_GUESS_EVERY = 5.0
_GPUS_EVERY, _GPUS_SELDOM = 2.0, 60.0
"""seconds between two questions about GPUs, before and after ready"""
_VERSIONS_CHILD = (sys.executable, "-P", "-m", "firsttoken.survey.installed")
_VERSIONS_BY_CHILD = 30.0
_VERSIONS_WITHIN = 0.2
"""seconds that a round waits for them; later they come with a later one"""
_LOOKED_AT = 256
"""processes, at most"""


class LocalSenses:
    """Looks at this machine. One instance a run; it keeps what watchers need between two looks."""

    def __init__(self, folder: RunFolder, plan: Plan, *, key_env: str | None = None, procfs: Procfs | None = None) -> None:
        self._procfs = procfs or Procfs()
        self._folder = folder
        self._key_env = key_env
        self._keeper_read: tuple[int, dict[str, Any]] = -1, {}
        self._key: tuple[str, str] | None = None
        self._key_sought_in: tuple[str, ...] | None = None
        self._reader = LogReader(profiles(), plan.engine, year=time.gmtime().tm_year)
        self._processes = ProcessWatcher(self._procfs, os.uname().nodename, title_patterns(plan.engine), mask=mask_argv)
        self._sockets = SocketWatcher(self._procfs)
        self._weights = WeightWatcher(self._procfs, plan.weight_files, read=read_start)
        self._load = LoadWatcher(self._procfs)
        self._oom = OomWatcher(self._procfs)
        self._close_look = CloseLook(self._procfs, os.uname().nodename)
        self._gpus = GpuWatcher()
        self._witnesses = Witnesses(folder.path)
        self._hearing: asyncio.Task[None] | None = None
        self._prober: FirstTokenProber | None = None
        self._replanned_for: object = None
        self._found_port: int | None = None
        self._guess_at = 0.0
        self._memory_at = 0.0
        self._versions: Errand[dict[str, str]] | None = None
        self._told_versions = False

    def log(self, data: bytes, offset: int, wall: float) -> Sequence[Body]:
        return self._reader.feed(data, offset, wall)

    def log_activity(self) -> Body | None:
        return self._reader.activity()

    async def sample(self, state: State, interval: float) -> Sequence[Body]:
        """Counters last: what the other watchers found counts for the same round."""
        root = state.root
        if root is None:
            return ()
        if self._key is None and (argv := self._procfs.cmdline(root.pid)) != self._key_sought_in:
            self._key, self._key_sought_in = self._read_key(root.pid, argv), argv
        installed = self._installed(state, root.pid)
        keeper = self._keeper()
        self._processes.exclude = {os.getpid(), *_keeper_pids(keeper)}
        self._processes.sessions = frozenset(session for session in keeper.get("sessions", ()) if isinstance(session, int))
        mark = keeper.get("mark")
        roots = [root, *([ProcessKey(root.node, keeper["pid"], keeper["start"])] if "start" in keeper else [])]
        events: list[Body] = [*installed, *self._processes.scan(roots, mark=mark.encode() if isinstance(mark, str) else None)]
        keys = [member.process for member in self._processes.members]
        pids = [key.pid for key in sorted(keys, key=lambda key: key.pid != root.pid)]
        serving = state.ready_at is not None
        if not serving:
            events.extend(body for body in (self._sockets.look(pids), self._weights.look(pids)) if body is not None)
            if (load := self._load.look(pids, self._weights.holders)) is not None:
                events.append(load)
            await self._guess_port(state)
        events += self._oom.look(keys)
        if time.monotonic() - self._memory_at >= (60 if serving else 10):
            self._memory_at = time.monotonic()
            events.append(memory(self._procfs, pids))
        events += self._gpus.look(_GPUS_SELDOM if serving else _GPUS_EVERY)
        events += [*self._processes.missed(), *self._oom.missed()]
        events.append(sample(self._procfs, keys, interval))
        return events

    def _keeper(self) -> dict[str, Any]:
        """keeper.json, read again when it was written anew."""
        try:
            written = os.stat(self._folder.path / "keeper.json").st_mtime_ns
        except OSError:
            written = -1
        if written != self._keeper_read[0]:
            self._keeper_read = written, self._folder.keeper()
        return self._keeper_read[1]

    async def ask(self, request: Request, state: State, emit: Callable[[Body], None]) -> None:
        if isinstance(request, LookClosely):
            await self._look_closely(request.number, state, emit)
            return
        if isinstance(request, AskCounters):
            emit(await self._counters(state, emit))
            return
        prober = await self._prober_for(state, emit)
        if prober is None:
            emit(Missed(request="a first token", reason="no socket of the run answers HTTP yet"))
            await asyncio.sleep(2)
            return
        match request:
            case AskForToken():
                await prober.ask(request.number)
            case AskHealth():
                await prober.health()

    async def _look_closely(self, number: int, state: State, emit: Callable[[Body], None]) -> None:
        keys = [member.process for member in state.members.values()]
        for body in await self._close_look.take(keys[:_LOOKED_AT], number, in_run=keys):
            emit(_without_us(body) if isinstance(body, Places) else body)
        if self._hearing is None or self._hearing.done():  # beside the looks: one that hangs must not hold them up
            self._hearing = asyncio.create_task(self._hear(state, emit))

    async def _hear(self, state: State, emit: Callable[[Body], None]) -> None:
        env = world_of(self._procfs, state.root.pid).env if state.root is not None else {}
        try:
            for body in await self._witnesses.hear(state, env):
                emit(body)
        except Exception as error:  # a probe that fails says so and never stops the run
            emit(Missed(request="what ranks recorded", reason=f"{type(error).__name__}: {error}"))

    async def _counters(self, state: State, emit: Callable[[Body], None]) -> EngineCounters:
        """Only over the socket that brought our token, or of a server that somebody else started: it may be busy, and then is not asked."""
        prober = await self._prober_for(state, emit)
        answered = [answer.url for answer in state.serving.answers if answer.status == 200]
        if prober is None or not (state.adopted or any(url.startswith(prober.target.base_url) for url in answered)):
            return EngineCounters(error="the socket that brought our token is not known")
        profile = profiles().get(state.plan.engine or "")
        return await ask_counters(prober.target, profile.counters if profile is not None else {})

    def replan(self, state: State) -> Planned | None:
        """Where the command did not tell the engine or its port, what the server shows does."""
        plan = state.plan
        port = told_port(state) or self._found_port
        if plan.engine is not None and plan.endpoint.port and not _listens_elsewhere(state, port):
            return None
        seen = (plan.engine, plan.endpoint.port, self._reader.engine, len(state.members), port)
        if seen == self._replanned_for:
            return None
        self._replanned_for = seen
        better = self._recognised(plan, state) if plan.engine is None else plan
        better = replan(better, profiles(), port=port)
        if better == plan:
            return None
        if better.engine != plan.engine:
            self._processes.title_patterns = title_patterns(better.engine)
        return Planned(plan=better, policy=state.policy, firsttoken=__version__)

    def _recognised(self, plan: Plan, state: State) -> Plan:
        """By a child's own command (it tells the most), by what the log says, by a title."""
        for member in state.members.values():
            pid = member.process.pid
            better = replan(plan, profiles(), argv=self._procfs.cmdline(pid), world=world_of(self._procfs, pid))
            if better.engine is not None:
                return better
        engine = self._reader.engine or by_output(profiles(), titles=[member.title for member in state.members.values()])
        return replan(plan, profiles(), engine=engine) if engine is not None else plan

    async def _guess_port(self, state: State) -> None:
        """Which of the run's ports is the server, where neither command nor log told; asked seldom, with one GET each.

        A rendezvous can take a stray GET ill, so ports that the kernel chose are asked only long after the server said that it is ready.
        """
        now = time.monotonic()
        endpoint = state.plan.endpoint
        if endpoint.port or endpoint.unix_socket or self._found_port or told_port(state) or now < self._guess_at:
            return
        self._guess_at = now + _GUESS_EVERY
        claims = state.claims_since is not None and state.now - state.claims_since > _GUESS_EVERY
        found = [one for one in targets(state.sockets, endpoint) if claims or (one.port or 0) < EPHEMERAL_FROM]
        target = await first_http(found) if found else None
        if target is not None:
            self._found_port = target.port

    async def _prober_for(self, state: State, emit: Callable[[Body], None]) -> FirstTokenProber | None:
        if self._prober is not None:
            return self._prober
        plan = state.plan
        profile = profiles().get(plan.engine or "")
        native = profile.native if profile is not None else None
        like = Target(
            routes=plan.routes,
            task=plan.task,
            served_model=plan.endpoint.served_model,
            key=self._key[0] if self._key else None,
            key_source=self._key[1] if self._key else None,
            native_body=native.body if native is not None else None,
            native_text=native.text if native is not None else None,
        )
        found = targets(state.sockets, plan.endpoint, like)
        if not found and plan.contained and plan.endpoint.port:
            published = ListenSocket(0, plan.endpoint.host or "127.0.0.1", plan.endpoint.port, None)
            found = targets((published,), plan.endpoint, like)
        target = await first_http(found) if len(found) > 1 else (found[0] if found else None)
        if target is None:
            return None
        self._prober = FirstTokenProber(target, emit)
        return self._prober

    def _installed(self, state: State, pid: int) -> Sequence[Body]:
        """Once, when the engine is known; in a thread, since its environment may lie on a network that is slow, or dead."""
        engine = state.plan.engine
        if engine is None:
            return ()
        if self._versions is None:
            argv, world = self._procfs.cmdline(pid), world_of(self._procfs, pid)
            names = (engine, *generic().packages)
            self._versions = Errand(lambda: _versions(argv[0], names, world) if argv else {}, "firsttoken-versions")
            self._versions.wait(_VERSIONS_WITHIN)
        if self._told_versions or not self._versions.done:
            return ()
        self._told_versions = True
        return (Installed(versions=self._versions.result),) if self._versions.result else ()

    def _read_key(self, pid: int, argv: tuple[str, ...]) -> tuple[str, str] | None:
        if self._key_env is not None and os.environ.get(self._key_env):
            return os.environ[self._key_env], f"environment {self._key_env}"
        return api_key(argv, world_of(self._procfs, pid), profiles())


def _versions(program: str, packages: Sequence[str], world: World) -> dict[str, str]:
    """By a child where a network may be in the way: this process must have no file open there when it starts another (`Expendable`)."""
    path = {"PATH": world.env.get("PATH", os.defpath)}
    if not FAR.any:
        return versions(program, packages, path, world.cwd)
    asked = json.dumps({"program": program, "packages": packages, "env": path, "cwd": world.cwd})
    outcome = Expendable().run_blocking((*_VERSIONS_CHILD, asked), _VERSIONS_BY_CHILD)
    told = json.loads(outcome.output) if outcome.error is None else {}
    return {str(name): str(version) for name, version in told.items()}


def _without_us(places: Places) -> Places:
    """A server that reads our request waits for nobody: what it waits for is not told by who asked."""
    return replace(places, waits=tuple(wait for wait in places.waits if wait.to is None or wait.to.pid != os.getpid()))


def _listens_elsewhere(state: State, port: int | None) -> bool:
    """Whether the server says another port than was planned, and listens there alone: then the plan's was a default."""
    open_ports = {socket.port for socket in state.sockets}
    return port is not None and port in open_ports and state.plan.endpoint.port not in open_ports


def title_patterns(engine: str | None) -> tuple[re.Pattern[str], ...]:
    """How this engine's processes are titled; of an unknown one, how any engine's are."""
    known = profiles()
    chosen = [known[engine]] if engine is not None and engine in known else list(known.values())
    return tuple(compiled(title.pattern) for profile in chosen for title in profile.titles)


def plan_of_server(server: Server, target: Target | None = None) -> Plan:
    """The plan of a server that runs already, from its command and environment. `target`: where the user says that it listens."""
    plan = make_plan(server.argv, world_of(Procfs(), server.process.pid), profiles())
    plan = replan(plan, profiles(), engine=server.engine)
    history = mean_phases(plan, runs())
    plan = with_quiet(replan(plan, profiles(), history=history), runs()) if history else plan
    if target is None:
        return plan
    root_path = target.root_path or plan.endpoint.root_path
    return replace(plan, endpoint=replace(plan.endpoint, port=target.port, tls=target.tls, root_path=root_path, unix_socket=None))


def attachment(aim: Aim, policy: Policy, log: Found) -> Attachment:
    """The run of a server that somebody else started. OSError where no folder can be made for it."""
    target = aim.target or Target()
    endpoint = Endpoint(host=target.host, port=target.port, tls=target.tls, root_path=target.root_path)
    bare = Plan(endpoint=endpoint, routes=Routes(metrics="/metrics"))
    plan = plan_of_server(aim.server, aim.target) if aim.server is not None else bare
    profile, year = profiles().get(plan.engine or ""), time.gmtime().tm_year
    return Attachment(
        aim=aim,
        plan=plan,
        policy=policy,
        log=log,
        reader=lambda: LogReader(profiles(), plan.engine, year=year),
        stamp_of=lambda line: Peeler(generic(), profile, year).peel(line).stamp,
    )


def senses_of(attached: Attachment, key_env: str | None) -> Senses:
    if attached.aim.server is None:
        target = replace(attached.aim.target or Target(), routes=attached.plan.routes)
        return RemoteSenses(keyed(target, key_env), [profile.counters for profile in profiles().values() if profile.counters])
    return LocalSenses(attached.folder, attached.plan, key_env=key_env)


def finder() -> Finder:
    """The processes of this machine as they are now."""
    return Finder(profiles())


def world_of(procfs: Procfs, pid: int) -> World:
    """What a process sees: its environment and folder, and files below its own root."""
    raw = (procfs.environ(pid) or b"").decode("utf8", "surrogateescape")
    env = dict(entry.split("=", 1) for entry in raw.split("\0") if "=" in entry)
    return local_world(env, procfs.link(f"{pid}/cwd") or "/", root=root_folder(pid))


def _keeper_pids(keeper: Mapping[str, object]) -> set[int]:
    return {int(key["pid"]) for key in (keeper, keeper.get("observer")) if isinstance(key, dict) and "pid" in key}


def observe(folder: RunFolder) -> None:
    """An observer's whole life. It ends by `os._exit`: a probe thread that hangs in the kernel cannot keep it."""
    spec = folder.spec()
    plan = msgspec.convert(spec["plan"], Plan)
    policy = msgspec.convert(spec["policy"], Policy)
    senses = LocalSenses(folder, plan, key_env=spec.get("api_key_env"))
    threading.Thread(target=import_module, args=("httpx",), daemon=True).start()  # so that the first request need not wait for it
    first = (Planned(plan=plan, policy=policy, firsttoken=__version__),)
    held = os.environ.get(MASTER_ENV, "")
    master = int(held) if held.isdigit() else None
    beside = ChecksBeside(spec.get("command") or (), str(spec.get("cwd") or "/"), folder.keeper) if spec.get("check") else None
    weights = WeightsBeside(plan.weight_files, prefetch=spec.get("prefetch") is True)
    secrets = _told_secrets(master)
    observer = Observer(folder=folder, senses=senses, master=master, secrets=secrets, beside=beside, alongside=weights)
    asyncio.run(observer.run(first))
    os._exit(0)


def _told_secrets(master: int | None) -> Secrets:
    """From the keeper, on stdin: it has put them there before we began."""
    if master is None:
        return Secrets()
    try:
        return Secrets(json.loads(sys.stdin.buffer.read()))
    except (OSError, ValueError):
        return Secrets()


if __name__ == "__main__":
    observe(RunFolder(Path(sys.argv[1])))
