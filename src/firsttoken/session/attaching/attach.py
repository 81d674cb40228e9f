"""A run of a server that somebody else started: a folder of its own, the record in our own process, the server watched and never touched.

Observer and face are the same as in a launch; what differs is where events and log come from. `attached.json` stands where a launched run
has its `keeper.json`, so that nothing that ends runs can ever mistake the server for one of ours.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from firsttoken import __version__
from firsttoken.history.runs import RunFolder, create
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge.state import State
from firsttoken.launch.folder import pid_namespace
from firsttoken.model.codec import masked_plan
from firsttoken.model.events import Body, Launched, Listening, Missed, ObserverStarted, Planned
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.process import ProcessKey
from firsttoken.model.redact import secrets_in_argv, secrets_in_env
from firsttoken.model.requests import Request
from firsttoken.model.secrets import Secrets
from firsttoken.session.attaching.aim import Aim, root_folder
from firsttoken.session.attaching.log_pump import LogPump, aside, last_bytes, shown
from firsttoken.session.attaching.log_source import Found, LogFile
from firsttoken.session.attaching.network import listens_unseen
from firsttoken.session.attaching.own_record import OwnRecord
from firsttoken.session.attaching.past import MOST_BYTES, Past, PastClock, Reader, offset, survey, zone_of
from firsttoken.session.attaching.servers import age_s
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.observer import Observer, Senses

_READS_WITHIN = 60.0
_CATCHES_UP_WITHIN = 60.0
_SOON = 0.01


@dataclass(slots=True, kw_only=True)
class Attachment:
    """`unseen`: what cannot be seen, and why, from the start. `reader` and `stamp_of` read a log as `session.past` wants it."""

    aim: Aim
    plan: Plan
    policy: Policy
    log: Found
    reader: Callable[[], Reader]
    stamp_of: Callable[[str], float | None]
    unseen: list[Missed] = field(default_factory=list)
    folder: RunFolder = field(init=False)
    _secrets: Secrets = field(init=False)
    _starts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """OSError where no run folder can be made."""
        server = self.aim.server
        told = (*secrets_in_argv(server.argv), *secrets_in_env(server.env)) if server is not None else ()
        self._secrets = Secrets((*told, *secrets_in_env(os.environ)))
        self.plan = masked_plan(self.plan, self._secrets)
        self.folder = create(self.plan.engine or "attach", datetime.now(UTC))
        self.folder.write_json("spec.json", self._spec())
        self.folder.write_json("attached.json", self._marker(ended=False))

    async def follow(
        self,
        senses: Senses,
        make_follower: Callable[..., Follower],
        *,
        max_wait: float | None,
        stay: bool,
        decided: Callable[[Seen], None],
    ) -> Seen:
        """Until the first decision (told to `decided`), with `stay` until the server's end. `make_follower` gets `folder` and `source`."""
        server = self.aim.server
        past = await self._past()
        root = server.process if server is not None else ProcessKey(self.aim.target.host or "" if self.aim.target else "", 0, 0)
        age = age_s(Procfs(), root.start) if root.pid else 0.0
        record = OwnRecord(self.folder, root=root if root.pid else None, age_s=age, clock=past.clock)
        pump = LogPump(sources=self.log.sources, put=record.log, starts=self._starts)
        watched = AttachedSenses(senses, pump, self.unseen)
        observer = Observer(folder=self.folder, senses=watched, stream=record.stream(log=True), secrets=self._secrets)
        follower = make_follower(folder=self.folder, source=record.stream())
        first = (
            Planned(plan=self.plan, policy=self.policy, firsttoken=__version__),
            Launched(process=root, argv=self.plan.command, pty=False, run=self.folder.name, adopted=True),
        )
        tasks = [asyncio.create_task(work) for work in (observer.run(first), pump.run(), record.keep())]
        try:
            seen = await follower.until_decided(max_wait=max_wait)
            decided(seen)
            if stay and seen.ended is None:
                seen = await follower.until_end()
            return seen
        finally:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            record.close()
            with contextlib.suppress(OSError):
                self.folder.write_json("attached.json", self._marker(ended=True))

    async def _past(self) -> Past:
        """Reads what was logged before we came, to know where this start begins and how its times are to be read."""
        server = self.aim.server
        began = datetime.now(UTC).timestamp() - (server.age_s if server is not None else 0.0)
        if server is None:
            return Past(start=0, clock=PastClock(began=began), stamped=True)
        zone = zone_of(dict(server.env), root_folder(server.process.pid))
        unknown = Past(start=0, clock=PastClock(began=began, other=offset(began, zone)), stamped=True)
        chosen: Past | None = None
        for source in self.log.sources:
            if not isinstance(source, LogFile):
                continue
            try:
                async with asyncio.timeout(_READS_WITHIN):
                    begin, data = await aside(lambda path=source.path: last_bytes(path, MOST_BYTES), "firsttoken-log")  # type: ignore[misc]  # a lambda with defaults
            except (OSError, TimeoutError) as error:
                why = str(error) or f"it was not read within {_READS_WITHIN:.0f} s"
                self.unseen.append(Missed(request=f"the log {source.shown}", reason=why))
                continue
            found = survey(data, self.reader, self.stamp_of, began=began, zone=zone)
            self._starts[source.path] = begin + found.start
            if begin:
                self.unseen.append(Missed(request=f"the log {source.shown}", reason=f"only its last {len(data) >> 20} MiB were read"))
            if data[found.start :] and not found.stamped:
                self.unseen.append(Missed(request="times of what was logged before", reason="no line that is known tells its time"))
            chosen = found if chosen is None or (found.stamped and not chosen.stamped) else chosen
        return chosen or unknown

    def _spec(self) -> dict[str, Any]:
        return {
            "command": list(self.plan.command),
            "cwd": self.aim.server.cwd if self.aim.server is not None else None,
            "plan": msgspec.to_builtins(self.plan),
            "policy": msgspec.to_builtins(self.policy),
            "log": shown(self.log.sources),
            "firsttoken": __version__,
        }

    def _marker(self, *, ended: bool) -> dict[str, Any]:
        """Names us, the recorder, and how the user can stop the server: by a command of their own."""
        procfs = Procfs()
        me = procfs.stat(os.getpid())
        server, target = self.aim.server, self.aim.target
        return {
            "run": self.folder.name,
            "boot_id": procfs.boot_id(),
            "pid_namespace": pid_namespace(),
            "pid": os.getpid(),
            "start": me.start if me is not None else 0,
            "server": {"pid": server.process.pid, "start": server.process.start} if server is not None else None,
            "url": target.base_url if target is not None else None,
            "again": f"firsttoken attach {server.process.pid if server is not None else target.base_url if target else ''}",
            "stop": server.how_to_stop() if server is not None else None,
            "ended": ended,
        }


class AttachedSenses:
    """Another's senses, once the past has been told: `observer_started` comes first, and what cannot be seen with it."""

    def __init__(self, inner: Senses, pump: LogPump, unseen: Sequence[Missed]) -> None:
        self._inner, self._pump, self._unseen = inner, pump, unseen
        self._procfs = Procfs()
        self._live = False
        self._read = self._problems = 0

    def log(self, data: bytes, offset: int, wall: float) -> Sequence[Body]:
        self._read = offset + len(data)
        return self._inner.log(data, offset, wall)

    def log_activity(self) -> Body | None:
        return self._inner.log_activity()

    async def sample(self, state: State, interval: float) -> Sequence[Body]:
        if not self._live:
            first = await self._begin()
            try:
                return (*first, *self._unseen_port(state), *await self._inner.sample(state, interval))
            except Exception as error:  # told as the next one would be; what began must be told in any case
                return (*first, Missed(request="counters", reason=f"{type(error).__name__}: {error}"))
        news = [Missed(request="the server's log", reason=text) for text in self._pump.problems[self._problems :]]
        self._problems += len(news)
        return (*news, *self._unseen_port(state), *await self._inner.sample(state, interval))

    def _unseen_port(self, state: State) -> tuple[Listening, ...]:
        """Of another user's server, whose sockets cannot be told apart: its planned port, once it is open."""
        root, port = state.root, state.plan.endpoint.port
        if state.listening_since is not None or root is None or not root.pid or port is None or not self._procfs.hides_files(root.pid):
            return ()
        found = listens_unseen(root.pid, port, self._procfs)
        return (found,) if found is not None else ()

    async def _begin(self) -> Sequence[Body]:
        """Waits for the log that was there before, whose lines the observer reads meanwhile."""
        late = None
        try:
            async with asyncio.timeout(_CATCHES_UP_WITHIN):
                await self._pump.caught_up.wait()
                while self._read < self._pump.told:  # noqa: ASYNC110  # the observer, which reads, knows of no event
                    await asyncio.sleep(_SOON)
        except TimeoutError:
            reason = f"what was there before could not be read within {_CATCHES_UP_WITHIN:.0f} s"
            late = Missed(request="the server's log", reason=reason)
        self._live = True
        return (ObserverStarted(pid=os.getpid()), *self._unseen, *((late,) if late else ()))

    async def ask(self, request: Request, state: State, emit: Callable[[Body], None]) -> None:
        await self._inner.ask(request, state, emit)

    def replan(self, state: State) -> Planned | None:
        return self._inner.replan(state)
