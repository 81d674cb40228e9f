"""`docker run`, `podman run` and their like: what is asked of the container client, and the command that runs inside.

Nearly all options take a value, so the few switches are listed (docker 28 `run --help`; podman `DefineCreateFlags`, `DefineNetFlags` and
`runFlags`), and an option that is not known takes one.
"""

import re
from dataclasses import dataclass, replace
from posixpath import basename

from firsttoken.plan.launchers import read_options
from firsttoken.plan.world import World

CLIENTS = frozenset({"docker", "podman", "nerdctl"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Ports of the container that the host forwards: `count` consecutive ones. `host` None: chosen at random when it starts."""

    address: str
    host: int | None
    container: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that the command starts (or, with `enters`, a running one that it enters). `image` as written. `shared_network`: the
    server listens on the host's own addresses. `publish_all`: exposed ports get random ones of the host."""

    client: str
    name: str | None = None
    image: str | None = None
    cidfile: str | None = None
    entrypoint: str | None = None
    """told to start instead of the image's own"""
    detached: bool = False
    enters: bool = False
    shared_network: bool = False
    publish_all: bool = False
    publish: tuple[Publish, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    """(path inside, path on this machine)"""

    @property
    def repository(self) -> str:
        """The image's name without tag and digest."""
        return re.sub(r":[^/:@]*$", "", (self.image or "").partition("@")[0])

    @property
    def tag(self) -> str | None:
        found = re.search(r":([^/:@]+)(?:@.*)?$", self.image or "")
        return found[1] if found else None

    def outside(self, port: int) -> tuple[str, int] | None:
        """The host's address and port for a port of the container; None where nothing forwards to it (or not to a known port)."""
        for one in self.publish:
            if one.host is not None and one.container <= port < one.container + one.count:
                return one.address, one.host + port - one.container
        return None


def enter(argv: list[str], world: World) -> tuple[Container, tuple[str, ...], World] | None:
    """The container, the command inside it (behind the image's entry point, which is not known here) and the world that it sees; None
    where the client is asked for something else."""
    _, at = read_options(argv, 1, lambda name: name in _GLOBAL_VALUES)
    at += argv[at : at + 1] == ["container"]
    verb = argv[at] if at < len(argv) else ""
    if verb not in ("run", "exec"):
        return None
    given, at = read_options(argv, at + 1, lambda name: name not in _SWITCHES)
    container = _container(basename(argv[0]), verb, given, argv[at] if at < len(argv) else None, world)
    inside = (*((container.entrypoint,) if container.entrypoint else ()), *argv[at + 1 :])
    return container, inside, _world(given, container, world)


_SWITCHES = frozenset({
    "d", "detach", "disable-content-trust", "help", "init", "i", "interactive", "no-healthcheck", "oom-kill-disable", "privileged", "P",
    "publish-all", "q", "quiet", "read-only", "rm", "sig-proxy", "t", "tty", "use-api-socket", "env-host", "http-proxy", "no-hosts",
    "no-hostname", "passwd", "read-only-tmpfs", "replace", "rmi", "rootfs", "tls-verify", "unsetenv-all",
})  # fmt: skip
_GLOBAL_VALUES = frozenset({
    "config", "c", "context", "connection", "H", "host", "l", "log-level", "tlscacert", "tlscert", "tlskey", "root", "runroot", "url",
    "identity", "storage-driver", "storage-opt", "cgroup-manager", "conmon", "events-backend", "hooks-dir", "imagestore", "module", "out",
    "network-config-dir", "network-cmd-path", "runtime", "runtime-flag", "ssh", "tmpdir", "volumepath", "n", "namespace", "a", "address",
})  # fmt: skip
_PUBLISH = re.compile(
    r"(?:(?P<address>\[[^\]]*\]|[^:\[\]]*):)?(?:(?P<host>\d*)(?:-\d+)?:)?(?P<first>\d+)(?:-(?P<last>\d+))?(?:/(?P<protocol>\w+))?"
)


def _container(client: str, verb: str, given: list[tuple[str, str | None]], target: str | None, world: World) -> Container:
    last = {name: value for name, value in given if value is not None}
    networks = [value for name, value in given if name in ("network", "net") and value]
    return Container(
        client=client,
        name=target if verb == "exec" else last.get("name"),
        image=target if verb == "run" else None,
        cidfile=world.path(last["cidfile"]) if "cidfile" in last else None,
        entrypoint=last.get("entrypoint"),
        detached=any(name in ("d", "detach") and value != "false" for name, value in given),
        enters=verb == "exec",
        shared_network="host" in networks,
        publish_all=any(name in ("P", "publish-all") for name, _ in given),
        publish=tuple(
            one for name, value in given if name in ("p", "publish") and value for one in (_published(value),) if one is not None
        ),
        mounts=tuple(pair for name, value in given if value for pair in _mounts(name, value, world)),
    )


def _published(text: str) -> Publish | None:
    """`8000:80`, `127.0.0.1:8000:80`, `[::1]:8000:80`, `127.0.0.1::80`, `80`, with ranges and `/tcp`."""
    text = text.rpartition("=")[2]
    parts = _PUBLISH.fullmatch(text if text.count(":") != 1 or "[" in text else f":{text}")
    if parts is None or parts["protocol"] not in (None, "tcp"):
        return None
    first, last = int(parts["first"]), int(parts["last"] or parts["first"])
    host = int(parts["host"]) if parts["host"] else None
    return Publish(address=(parts["address"] or "0.0.0.0").strip("[]"), host=host, container=first, count=max(1, last - first + 1))


def _mounts(name: str, value: str, world: World) -> list[tuple[str, str]]:
    if name in ("v", "volume"):
        here, _, rest = value.partition(":")
        inside = rest.partition(":")[0]
        return [(inside, world.path(here))] if inside and here[:1] in ("/", ".", "~") else []
    if name == "mount":
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        here = parts.get("source", parts.get("src", ""))
        inside = parts.get("target", parts.get("destination", parts.get("dst", "")))
        return [(inside, world.path(here))] if parts.get("type", "bind") == "bind" and here and inside else []
    return []


def _world(given: list[tuple[str, str | None]], container: Container, world: World) -> World:
    env = dict(world.env) if any(name == "env-host" for name, _ in given) else {}
    for name, value in given:
        if name == "env-file" and value:
            env.update(env_file(world.read_text(world.path(value)) or ""))
    for name, value in given:
        if name in ("e", "env") and value:
            key, equals, text = value.partition("=")
            if equals or key in world.env:
                env[key] = text if equals else world.env[key]
    folder = next((value for name, value in reversed(given) if name in ("w", "workdir") and value), "/")

    def to_here(path: str) -> str | None:
        for inside, here in sorted(container.mounts, key=lambda mount: -len(mount[0])):
            root = inside.rstrip("/")
            if path == root or path.startswith(root + "/"):
                return world.to_here(here + path[len(root) :])
        return None

    def read_text(path: str) -> str | None:
        here = to_here(path)
        return world.read_text(here) if here is not None else None

    def list_folder(path: str) -> tuple[str, ...] | None:
        here = to_here(path)
        return world.list_folder(here) if here is not None else None

    # the home of an image's user is nearly always /root, and model caches are mounted there
    env.setdefault("HOME", "/root")
    return replace(world, env=env, cwd=folder, read_text=read_text, list_folder=list_folder, to_here=to_here)


def env_file(text: str) -> dict[str, str]:
    """The variables of a `KEY=value` file; lines without `=` and comments are left out."""
    pairs = (line.strip().partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {key: value for key, equals, value in pairs if equals}
