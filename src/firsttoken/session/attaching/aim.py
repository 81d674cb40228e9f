"""What `attach` is to look at: a pid, an address, or the one server that runs here. It never takes another user's without being told."""

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firsttoken.model.exits import UNKNOWN, USAGE
from firsttoken.model.plan import Plan
from firsttoken.observe.errands import Errand
from firsttoken.observe.http_target import Target, target_of_url
from firsttoken.session.attaching.servers import Finder, Server, not_ours

_RESOLVES_WITHIN = 5.0
_CONNECTS_WITHIN = 5.0
_BARE_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]*):\d{1,5}(?:/\S*)?")


class NoAim(LookupError):
    """What was asked for is not there, or cannot be told from others. `servers`: between which to choose."""

    def __init__(self, text: str, code: int = USAGE, servers: Sequence[Server] = ()) -> None:
        super().__init__(text)
        self.code, self.servers = code, tuple(servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """At least one of `server` and `target` is set. `notes`: what the user should know of the choice."""

    server: Server | None = None
    target: Target | None = None
    notes: tuple[str, ...] = ()


def take_aim(what: str | None, finder: Finder, plan_of: Callable[[Server], Plan]) -> Aim:
    """`what`: a pid, an address, or None. NoAim where it leads to no server, or to several."""
    if what is None:
        return _the_only(finder.found())
    if what.isdecimal():
        return _by_pid(int(what), finder)
    if "://" in what or _BARE_ADDRESS.fullmatch(what):
        return _by_address(what, finder, plan_of)
    raise NoAim(f"{what!r} is neither a pid nor an address of a server (http://HOST:PORT)")


def row(server: Server) -> str:
    """One line about a server, for choosing."""
    age = f"{server.age_s:.0f} s" if server.age_s < 600 else f"{server.age_s / 60:.0f} min"
    run = f"  (run {server.mark})" if server.mark else ""
    return (
        f"  pid {server.process.pid:<8} {server.user or server.uid!s:<10} {server.engine or '-':<12} {age:>8}  {server.command[:100]}{run}"
    )


def _by_pid(pid: int, finder: Finder) -> Aim:
    if not finder.alive(pid):
        if _is_hidden(pid):
            raise NoAim(
                f"process {pid} is hidden from this user (/proc is mounted with hidepid): run this as its user or as root, "
                "or give the server's address, which can be asked by HTTP"
            )
        raise NoAim(f"there is no process {pid} here (or it has ended and only waits for its parent); `firsttoken attach` finds servers")
    server = finder.server(finder.root_of(pid))
    if server is None:
        raise NoAim(f"process {pid} has just ended")
    other = server.process.pid != pid
    return Aim(server=server, notes=(f"process {pid} belongs to the server of pid {server.process.pid}",) if other else ())


def _is_hidden(pid: int) -> bool:
    """Whether it is there although /proc does not show it. Signal 0 sends nothing: it only asks."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}")
    except (OSError, OverflowError):
        return False
    return False


def _the_only(found: list[Server]) -> Aim:
    foreign = not_ours(found)
    own = [server for server in found if server not in foreign]
    if len(own) == 1:
        also = f"{len(foreign)} of other users run here too; `firsttoken attach PID` takes one of them"
        return Aim(server=own[0], notes=(also,) if foreign else ())
    if not found:
        raise NoAim(
            "no server of a known engine runs here. Is it in a container, or started by a script of another name? Give its pid or address"
        )
    if not own:
        who = "another user's" if len(found) == 1 else "those of other users"
        raise NoAim(f"the only servers here are {who}; to take one, give its pid:\n" + "\n".join(map(row, found)), servers=found)
    raise NoAim(f"{len(found)} servers run here; which one? Give its pid:\n" + "\n".join(map(row, found)), servers=found)


def _by_address(what: str, finder: Finder, plan_of: Callable[[Server], Plan]) -> Aim:
    try:
        target = target_of_url(f"http://127.0.0.1{what}" if what.startswith(":") else what)
    except ValueError as error:
        raise NoAim(str(error)) from error
    addresses = _resolve(target.host or "")
    if not any(_is_here(address) for address in addresses):
        _must_answer(target)
        return Aim(target=target, notes=(f"{target.host} is another machine: only what its HTTP face tells is seen",))
    assert target.port is not None
    pid, listens = finder.holder(target.port)
    if pid is not None:
        server = finder.server(finder.root_of(pid))
        return Aim(server=server, target=target)
    if listens:
        return Aim(
            target=target, notes=(f"which process listens on port {target.port} cannot be seen (another user's?): only HTTP is asked",)
        )
    planned = [server for server in finder.found() if plan_of(server).endpoint.port == target.port]
    if len(planned) == 1:
        return Aim(
            server=planned[0], target=target, notes=(f"nothing listens on port {target.port} yet; pid {planned[0].process.pid} will",)
        )
    raise NoAim(
        f"nothing listens on port {target.port} of this machine, and no server that is starting here was told to; "
        "give the server's pid, or run this where the server runs (in its container)"
    )


def _resolve(host: str) -> list[str]:
    errand = Errand(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), "firsttoken-resolve")
    if not errand.wait(_RESOLVES_WITHIN):
        raise NoAim(f"the name {host} was not resolved within {_RESOLVES_WITHIN:.0f} s", UNKNOWN)
    if errand.error is not None or errand.result is None:
        raise NoAim(f"the name {host} cannot be resolved: {errand.error}", UNKNOWN)
    return [str(row[4][0]) for row in errand.result]


def _is_here(address: str) -> bool:
    """Whether the address is one of this machine's own: then a socket can be bound to it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if parsed.is_loopback or parsed.is_unspecified:
            return True
        with socket.socket(socket.AF_INET6 if parsed.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
        return True
    except (OSError, ValueError):
        return False


def _must_answer(target: Target) -> None:
    try:
        socket.create_connection((target.host or "", target.port or 0), timeout=_CONNECTS_WITHIN).close()
    except OSError as error:
        why = error.strerror or error
        raise NoAim(
            f"nothing answers at {target.base_url}: {why}. Does the server listen on an address that other machines reach?", UNKNOWN
        ) from error


def root_folder(pid: int, proc: str = "/proc") -> str:
    """Where the process's own `/` is seen from here: `/`, or a way through /proc where it has another (a container)."""
    seen = f"{proc}/{pid}/root"
    try:
        theirs, ours = os.stat(seen), os.stat("/")
    except OSError:
        return "/"
    return "/" if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) else seen
