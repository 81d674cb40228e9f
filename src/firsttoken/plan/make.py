"""From an unmodified command to a plan, and to a better plan when processes, sockets or log lines say more.

A plan is a forecast: what it does not know stays None, and what was there but could not be read is told in `not_read`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename

from firsttoken.knowledge.profile import Option, Profile
from firsttoken.model.plan import Endpoint, Plan
from firsttoken.model.redact import mask_argv, mask_text
from firsttoken.model.words import Phase, Role
from firsttoken.plan import recognise, rules
from firsttoken.plan.container import CLIENTS, Container
from firsttoken.plan.options import Read, read
from firsttoken.plan.peel import Peeled, peel
from firsttoken.plan.weights import weight_files
from firsttoken.plan.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as far as it could be read: `profile` is that of an unknown engine where `start` is None. Holds secrets: never write it."""

    peeled: Peeled
    profile: Profile
    read: Read

    @property
    def container(self) -> Container | None:
        return self.peeled.container


def read_command(argv: Sequence[str], world: World, profiles: Mapping[str, Profile]) -> Command:
    """Never raises, whatever the command."""
    peeled = peel(argv, world, profiles)
    if peeled.start is not None:
        profile, args = peeled.start.profile, peeled.start.args
    else:
        python = recognise.read_python(peeled.argv)
        profile, args = _ANY, () if peeled.far else python.args if python is not None else peeled.argv[1:]
    found = read(args, profile, peeled.world, rules.mentioned(profile))
    if rules.role(profile, found, peeled.start) is Role.ROUTER:
        # a router shares its engine's flags but not the server's defaults
        found = replace(found, values={field: value for field, value in found.values.items() if field in found.sources})
    return Command(peeled=peeled, profile=profile, read=found)


def make_plan(
    argv: Sequence[str],
    world: World,
    profiles: Mapping[str, Profile],
    *,
    history: Mapping[Phase, float] | None = None,
    weight_bytes: int | None = None,
) -> Plan:
    """The plan of a command. `history`: mean seconds of each phase of the like on this machine; `weight_bytes`: size of the weights."""
    command = read_command(argv, world, profiles)
    peeled, found = command.peeled, command.read
    model = found.text("model") or (_model_by_look(found) if peeled.start is None and not peeled.sealed else None)
    endpoint, notes = _endpoint(command)
    plan = Plan(
        command=mask_argv(argv),
        engine_version=_version(command),
        wrapper=peeled.wrapper,
        contained=peeled.wrapper in CLIENTS,
        model=mask_text(model) if model else None,
        endpoint=endpoint,
        sizes=rules.sizes(found),
        weight_files=weight_files(model, found, peeled.world),
        not_read=tuple(mask_text(note) for note in (*peeled.not_read, *found.problems, *notes)),
    )
    return _dressed(plan, command.profile, found, peeled.start, history, weight_bytes) if peeled.start is not None else plan


def replan(
    plan: Plan,
    profiles: Mapping[str, Profile],
    *,
    engine: str | None = None,
    argv: Sequence[str] | None = None,
    world: World | None = None,
    version: str | None = None,
    host: str | None = None,
    port: int | None = None,
    unix_socket: str | None = None,
    model: str | None = None,
    served_model: str | None = None,
    world_size: int | None = None,
    history: Mapping[Phase, float] | None = None,
    weight_bytes: int | None = None,
) -> Plan:
    """The plan with what was seen since. `argv` and `world`: command and surroundings of the run's own process that serves (a wrapper's
    child), read like a command. `engine`: what titles or log lines name. The rest was seen outright and wins over what was read."""
    if argv is not None and world is not None:
        fresh = make_plan(argv, world, profiles, history=history, weight_bytes=weight_bytes)
        if fresh.engine is not None:
            # a container's own ports are no ports of this machine
            endpoint = replace(fresh.endpoint, host=plan.endpoint.host, port=plan.endpoint.port) if _contained(plan) else fresh.endpoint
            not_read = tuple(dict.fromkeys((*plan.not_read, *fresh.not_read)))
            version = version or fresh.engine_version or plan.engine_version
            wrapper, contained = plan.wrapper or fresh.wrapper, plan.contained or fresh.contained
            plan = replace(fresh, command=plan.command, wrapper=wrapper, contained=contained, endpoint=endpoint, not_read=not_read)
    profile = profiles.get(engine) if engine is not None else profiles.get(plan.engine or "")
    if profile is not None and (profile.name != plan.engine or history or weight_bytes):
        plan = _recognised(plan, profile, history, weight_bytes)
    endpoint = replace(
        plan.endpoint,
        host=host or plan.endpoint.host,
        port=port or plan.endpoint.port,
        unix_socket=unix_socket or plan.endpoint.unix_socket,
        served_model=served_model or plan.endpoint.served_model,
    )
    sizes = plan.sizes if world_size is None else replace(plan.sizes, world=world_size, ranks_here=max(1, world_size // plan.sizes.nodes))
    return replace(plan, engine_version=version or plan.engine_version, endpoint=endpoint, model=model or plan.model, sizes=sizes)


def api_key(argv: Sequence[str], world: World, profiles: Mapping[str, Profile]) -> tuple[str, str] | None:
    """The key that the server asks for and where it was found (`flag --api-key`, `environment SERVER_API_KEY`, `config file x.yaml`).
    It is for the prober's memory only: it belongs into no file, event or message."""
    found = read_command(argv, world, profiles).read
    key = found.text("api_key")
    return (key, found.sources["api_key"]) if key and "api_key" in found.sources else None


_ANY = Profile(
    name="",
    dashes=True,
    options=(
        Option(field="host", flags=("--host", "--hostname", "--http-host", "--server-name")),
        Option(field="port", flags=("--port", "-p", "--http-port", "--server-port"), type="int"),
        Option(field="model", flags=("--model", "-m", "--model-path", "--model-id", "--model-name-or-path")),
        Option(field="served_model", flags=("--served-model-name", "--alias")),
        Option(field="api_key", flags=("--api-key",)),
        Option(field="tls", flags=("--ssl-certfile", "--ssl-keyfile", "--ssl-cert-file", "--ssl-key-file")),
        Option(field="tp", flags=("--tensor-parallel-size", "--tp-size", "--tp", "-tp", "--num-shard"), type="int"),
        Option(field="pp", flags=("--pipeline-parallel-size", "--pp-size", "--pp", "-pp"), type="int"),
        Option(field="dp", flags=("--data-parallel-size", "--dp-size", "--dp", "-dp"), type="int"),
        Option(field="ep", flags=("--expert-parallel-size", "--ep-size", "--ep"), type="int"),
        Option(field="nodes", flags=("--nnodes",), type="int"),
        Option(field="node_rank", flags=("--node-rank",), type="int"),
    ),
)
"""What servers of many makes call these things; no default is sure enough."""
_NO_MODEL = re.compile(r"\.(?:ya?ml|json|toml|ini|conf|py|sh|txt|log|sock)$|://")


def _model_by_look(found: Read) -> str | None:
    return next((word for word in found.positionals if "/" in word and not _NO_MODEL.search(word)), None)


def _dressed(
    plan: Plan,
    profile: Profile,
    found: Read,
    start: recognise.Start | None,
    history: Mapping[Phase, float] | None,
    weight_bytes: int | None,
) -> Plan:
    return replace(
        plan,
        engine=profile.name,
        profile_hash=profile.hash or None,
        role=rules.role(profile, found, start),
        task=rules.task(profile, found, start),
        routes=replace(profile.routes, metrics=None) if found.values.get("metrics") is False else profile.routes,
        phases=profile.order,
        ended_by_line=profile.ended_by_line,
        budgets=rules.budgets(profile, history, weight_bytes),
        timers=rules.timers(profile, found, start),
        terminates=profile.terminates,
        listens_before_load=profile.listens_before_load,
    )


def _recognised(plan: Plan, profile: Profile, history: Mapping[Phase, float] | None, weight_bytes: int | None) -> Plan:
    """The plan with a profile's own values where the command told nothing."""
    if profile.name == plan.engine:
        return replace(plan, budgets=rules.budgets(profile, history, weight_bytes))
    defaults = read((), profile, World())
    dressed = _dressed(plan, profile, defaults, None, history, weight_bytes)
    port = plan.endpoint.port or (None if _contained(plan) else defaults.number("port"))
    return replace(dressed, role=plan.role, endpoint=replace(plan.endpoint, port=port))


def _contained(plan: Plan) -> bool:
    return plan.wrapper in CLIENTS


def _endpoint(command: Command) -> tuple[Endpoint, list[str]]:
    found, container = command.read, command.container
    host, port, notes = found.text("host"), found.number("port"), list[str]()
    if command.peeled.far:
        host, port = None, None
    elif container is not None and not container.shared_network:
        host, port, notes = _published(container, port)
    if (socket := found.text("unix_socket")) is not None:
        host, port = None, None
    return (
        Endpoint(
            host=host,
            port=port,
            unix_socket=socket,
            tls=bool(found.values.get("tls")),
            root_path=(found.text("root_path") or "").rstrip("/"),
            served_model=found.text("served_model"),
            needs_key="api_key" in found.values,
        ),
        notes,
    )


def _published(container: Container, port: int | None) -> tuple[str | None, int | None, list[str]]:
    """Host and port on this machine for the server's port in the container."""
    outside = container.outside(port) if port is not None else None
    if outside is not None:
        return *outside, []
    single = [one for one in container.publish if one.host is not None and one.count == 1]
    if port is None and len(single) == 1:
        return single[0].address, single[0].host, []
    what = f"port {port}" if port is not None else "the server's port"
    where = ", ".join(f"{one.host or 'a random port'} to {one.container}" for one in container.publish)
    return None, None, [f"endpoint: {what} of the container is published by none of its options ({where or 'nothing is published'})"]


def _version(command: Command) -> str | None:
    """From the tag of the engine's own image, or from the requirement that a launcher was given."""
    container, start = command.container, command.peeled.start
    if start is None or (container is not None and start.profile.name not in basename(container.repository).lower()):
        return None
    return command.peeled.version
