"""A launch: a folder, a plan, a keeper. What is written is masked; the real arguments go to the keeper through a pipe."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from firsttoken import __version__
from firsttoken.history.attempts import PostMortem, latest, post_mortem
from firsttoken.history.runs import RunFolder, create, runs
from firsttoken.launch.spec import LaunchSpec
from firsttoken.launch.start import KeeperHandle, StartError, start_keeper
from firsttoken.model.codec import encode, masked_plan
from firsttoken.model.events import Body, Event, LaunchFailed, Planned
from firsttoken.model.exits import NOT_EXECUTABLE
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.redact import secrets_in_argv, secrets_in_env
from firsttoken.model.secrets import Secrets
from firsttoken.session.arming import arming
from firsttoken.session.far_files import FAR
from firsttoken.session.planning import working_folder
from firsttoken.session.surroundings import surroundings
from firsttoken.session.tend import run_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for. `observer`: the command of an observer, but for its folder. `arm`: add what makes a hang tell more."""

    argv: tuple[str, ...]
    plan: Plan
    policy: Policy
    observer: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mark: bool = True
    pipe: bool = False
    stdin_fd: int | None = None
    on_observer_death: str = "keep"
    api_key_env: str | None = None
    arm: bool = False
    check: bool = False
    prefetch: bool = False


class LaunchRefused(Exception):
    """The command could not be started: not found (127), not executable (126)… `folder` holds the record of it."""

    def __init__(self, text: str, code: int, folder: RunFolder) -> None:
        super().__init__(text)
        self.code, self.folder = code, folder


def launch(asked: Asked) -> tuple[RunFolder, KeeperHandle]:
    """Starts the server under a keeper. OSError where no run folder can be made; LaunchRefused where the command cannot be started."""
    secrets = _secrets(asked)
    asked = replace(asked, plan=masked_plan(asked.plan, secrets))
    before = _before(asked.plan)
    folder = create(asked.plan.engine or os.path.basename(asked.argv[0]), datetime.now(UTC))
    armed = arming(folder.path, asked.plan, {**os.environ, **asked.env}) if asked.arm else {}
    folder.write_json("spec.json", secrets.plain({**_spec_json(asked, before), "armed": armed}))  # ours apart from the user's own
    asked = replace(asked, env={**asked.env, **armed})
    spec = LaunchSpec(
        run=folder.name,
        node=os.uname().nodename,
        argv=asked.argv,
        shown_argv=asked.plan.command,
        attempt=before.attempt if before is not None else 1,
        env=dict(asked.env),
        mark=asked.mark,
        pipe=asked.pipe,
        stdin_fd=asked.stdin_fd,
        on_observer_death=asked.on_observer_death,
        observer_argv=(*asked.observer, str(folder.path)),
        secrets=secrets.values,
        terminates=asked.plan.terminates,
    )
    try:
        return folder, start_keeper(spec, folder.path)
    except StartError as error:
        text = str(error) if error.code != NOT_EXECUTABLE else _named(str(error), asked)
        _record_refusal(folder, asked, text, error.code)
        raise LaunchRefused(text, error.code, folder) from error


def _named(text: str, asked: Asked) -> str:
    """A refusal, with the mount by its name where the program lies on one that gives no answer."""
    program, shown = asked.argv[0], asked.plan.command[0]
    searched = {**os.environ, **asked.env}.get("PATH", os.defpath).split(os.pathsep)
    paths = [os.path.join(working_folder(), program)] if "/" in program else [os.path.join(folder, program) for folder in searched]
    silence = next((found for path in paths if (found := FAR.silence(path)) is not None), None)
    return f"{shown} could not be started: {silence.advice('it' if '/' in program else 'a folder of PATH')}" if silence else text


def _secrets(asked: Asked) -> Secrets:
    """What the server is given in confidence, by its command and its environment, and the key that we ask it with."""
    env = {**os.environ, **asked.env}
    key = env.get(asked.api_key_env or "", "")
    return Secrets((*secrets_in_argv(asked.argv), *secrets_in_env(env), key))


def _before(plan: Plan) -> PostMortem | None:
    """Of the attempt before this one, where it was killed and could not say so."""
    found = latest(runs(), plan.command, os.uname().nodename, time.time())
    if found is None or run_state(found[0]) in ("running", "left"):
        return None
    return post_mortem(found[1])


def _spec_json(asked: Asked, before: PostMortem | None) -> dict[str, Any]:
    return {
        "command": list(asked.plan.command),
        "cwd": working_folder(),
        "plan": msgspec.to_builtins(asked.plan),
        "policy": msgspec.to_builtins(asked.policy),
        "api_key_env": asked.api_key_env,
        "on_observer_death": asked.on_observer_death,
        "check": asked.check,
        "prefetch": asked.prefetch,
        "firsttoken": __version__,
        "attempt": before.attempt if before is not None else 1,
        "previous": {"run": before.run, "text": before.text} if before is not None else None,
        **surroundings({**os.environ, **asked.env}),
    }


def _record_refusal(folder: RunFolder, asked: Asked, text: str, code: int) -> None:
    """So that `status`, `replay` and `history` tell this run too. The keeper may have recorded the refusal already, never the plan."""
    known = list(folder.events())
    bodies: list[Body] = [Planned(plan=asked.plan, policy=asked.policy, firsttoken=__version__)]
    if not any(isinstance(event.body, LaunchFailed) for event in known):
        bodies.append(LaunchFailed(error=text, code=code))
    last = max((event.seq for event in known), default=0)
    node, now = os.uname().nodename, time.time()
    with open(folder.events_file, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        for number, body in enumerate(bodies, start=last + 1):
            file.write(encode(Event(seq=number, t=0.0, wall=now, node=node, body=body)))
