"""Which socket of a run is asked, and how: address, scheme, key. Pure.

Key insight: what listens is known from the kernel, not from the command, so a server is asked at the address that it bound, and no name
is ever resolved for it. A port that was not planned may belong to a rendezvous that takes garbage ill (collective bootstraps do), so other
ports are candidates only where the plan knows none, or where the caller insists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from firsttoken.model.plan import Endpoint, Routes
from firsttoken.model.process import ListenSocket

ANY_ADDRESSES = frozenset({"", "*", "0.0.0.0", "::", "0", "0:0:0:0:0:0:0:0"})
EPHEMERAL_FROM = 32768
"""Linux gives ports from here to sockets that asked for none: rendezvous and transfer sockets, hardly ever an HTTP server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One server to ask: `unix_socket`, or `host` and `port`.

    Certificates are not verified, neither on loopback nor at an address of this machine (a certificate names a host, and the address
    that was bound is asked), except where a key goes to a host that is not loopback: that needs `allow_remote_key` and is verified.
    `task`: generate, embed or rerank. `native_body`: the body of the native route; `$prompt`, `$tokens` and `$model` in it are filled in;
    `native_text`: the dotted path of the text in its answer, where it is none of the usual names.
    `key` is never told; `key_source` is.
    """

    host: str | None = None
    port: int | None = None
    unix_socket: str | None = None
    tls: bool = False
    root_path: str = ""
    routes: Routes = field(default_factory=Routes)
    served_model: str | None = None
    task: str = "generate"
    key: str | None = field(default=None, repr=False)
    key_source: str | None = None
    allow_remote_key: bool = False
    native_body: Mapping[str, Any] | None = None
    native_text: str | None = None

    @property
    def base_url(self) -> str:
        """For people and events; a unix socket is told as `unix:PATH:`, so that a route can follow."""
        if self.unix_socket is not None:
            return f"unix:{self.unix_socket}:"
        return self.wire_url

    @property
    def wire_url(self) -> str:
        """What goes on the wire: scheme, host and port, no path."""
        scheme = "https" if self.tls else "http"
        if self.unix_socket is not None:
            return f"{scheme}://localhost"
        host = reachable(self.host)
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}" if self.port is None else f"{scheme}://{shown}:{self.port}"

    @property
    def is_local(self) -> bool:
        """A unix socket or a loopback address."""
        return self.unix_socket is not None or is_loopback(reachable(self.host))

    @property
    def sends_key(self) -> bool:
        return self.key is not None and (self.is_local or self.allow_remote_key)

    @property
    def verifies(self) -> bool:
        return self.sends_key and not self.is_local


def target_of_url(url: str, like: Target | None = None) -> Target:
    """A target from a URL that somebody typed; a path becomes the root path. ValueError where it is no http(s) URL with a host."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an address of a server; give it as http://HOST:PORT")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    tls = parts.scheme == "https"
    return replace(like or Target(), host=parts.hostname, port=port, unix_socket=None, tls=tls, root_path=parts.path.rstrip("/"))


def targets(sockets: Iterable[ListenSocket], endpoint: Endpoint, like: Target | None = None, *, guess: bool = False) -> list[Target]:
    """Which of the run's sockets to ask, best first; empty where the planned one does not listen (yet).

    `like` gives what is the same for all: routes, task, key. Where the plan knows no port, or with `guess`, all TCP sockets are
    candidates, to be tried with `first_http`. A socket on `::` is asked at ::1, then at 127.0.0.1.
    """
    base = replace(
        like or Target(),
        tls=endpoint.tls,
        root_path=endpoint.root_path,
        served_model=endpoint.served_model or (like.served_model if like else None),
    )
    listening = list(sockets)
    if endpoint.unix_socket is not None:
        wanted = endpoint.unix_socket
        return [replace(base, unix_socket=wanted, host=None, port=None)] if any(s.path == wanted for s in listening) else []
    tcp = [(socket.host or "", socket.port) for socket in listening if socket.port is not None]
    planned = sorted((one for one in tcp if one[1] == endpoint.port), key=lambda one: _host_rank(one[0], endpoint.host))
    if not planned and (guess or not endpoint.port):  # port 0: any free one
        planned = sorted(tcp, key=lambda one: (one[1] >= EPHEMERAL_FROM, _host_rank(one[0], endpoint.host), one[1]))
    found = [replace(base, host=host, port=port, unix_socket=None) for bound, port in planned for host in _addresses(bound)]
    return list({(one.host, one.port): one for one in reversed(found)}.values())[::-1]


def reachable(host: str | None) -> str:
    """The address at which a socket bound to `host` is reached from this machine."""
    bare = (host or "").strip("[]")
    if bare in ANY_ADDRESSES:
        return "::1" if ":" in bare else "127.0.0.1"
    address = _address(bare)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return reachable(str(address.ipv4_mapped))
    return bare


def is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address is not None else host.lower() in ("localhost", "localhost.")


def _addresses(bound: str) -> tuple[str, ...]:
    return ("::1", "127.0.0.1") if ":" in bound and bound.strip("[]") in ANY_ADDRESSES else (reachable(bound),)


def _host_rank(bound: str, planned: str | None) -> int:
    if planned is not None and bound.strip("[]") == planned.strip("[]"):
        return 0
    if bound.strip("[]") in ANY_ADDRESSES:
        return 1
    return 2 if is_loopback(reachable(bound)) else 3


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.split("%", 1)[0])
    except ValueError:
        return None
