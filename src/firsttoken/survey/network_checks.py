"""Ports, names, proxies and interfaces: what the server's processes need to find each other, and we to find the server."""

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from firsttoken.model.checks import Check, Part, fail, passed, skipped, warn
from firsttoken.survey.asked import Asked

_fail, _warn = partial(fail, Part.MACHINE), partial(warn, Part.MACHINE)
_pass, _skipped = partial(passed, Part.MACHINE), partial(skipped, Part.MACHINE)
_ANY = ("0.0.0.0", "::", "", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A listening socket. `holder`: `title (pid 12)`, None where it may not be seen."""

    port: int
    host: str | None = None
    holder: str | None = None


def ports(wanted: Sequence[tuple[str, str | None, int]], taken: Sequence[Taken]) -> Iterator[Check]:
    """`wanted`: (what for, address, port)."""
    free = []
    for name, host, port in wanted:
        if not 0 < port < 1 << 16:
            fact, price = f"port {port} ({name}) is none: they go from 1 to 65535", "the server ends when it binds, if not before"
            yield _fail("engine-args-invalid", fact, "another port", price)
            continue
        other = next((one for one in taken if one.port == port and _overlap(host, one.host)), None)
        if other is None:
            free.append(str(port))
            continue
        holder = other.holder or "a process that may not be seen from here"
        fact = f"port {port} ({name}) is held by {holder}"
        yield _fail(
            "port-in-use", fact, "another port, or end that process", "the server loads all its weights first, and ends when it binds"
        )
    if free and len(free) == len(wanted):
        yield _pass("port-in-use", f"port{'s' if len(free) > 1 else ''} {', '.join(free)} free")


def proxies(env: Mapping[str, str]) -> Iterator[Check]:
    """Variables that would send our and the engine's own requests to localhost through a proxy, or that no client can parse."""
    found = {name: value for name, value in env.items() if name.lower() in ("http_proxy", "https_proxy", "all_proxy") and value}
    for name, value in found.items():
        if (why := _malformed(value)) is not None:
            fact = f"{name} {why}"
            yield _fail(
                "proxy-env-malformed",
                fact,
                f"write it as http://HOST:PORT, or unset {name}",
                "every HTTP client in the server ends with an error",
            )
            return
    exempt = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if (broken := next((word for word in exempt.split(",") if word.strip().startswith("[")), None)) is not None:
        fact = f"no_proxy holds {broken.strip()!r}, which Python's HTTP clients cannot parse"
        yield _fail(
            "proxy-env-malformed", fact, "write IPv6 addresses without brackets", "every HTTP client in the server ends with an error"
        )
        return
    plain = [name for name in found if name.lower() != "https_proxy"]
    if plain and (missing := [host for host in ("localhost", "127.0.0.1") if not _exempt(host, exempt)]):
        fact = f"{', '.join(sorted(plain))} is set and no_proxy does not exempt {' and '.join(missing)}"
        remedy = "no_proxy=localhost,127.0.0.1,0.0.0.0,::1"
        yield _warn("proxy-captures-localhost", fact, remedy, "the engine's own warm-up and health requests go to the proxy")
    elif found:
        yield _pass("proxy-captures-localhost", "localhost is exempt from the proxies")


def hosts_file(asked: Asked, root: str = "/", *, hostname: str | None = None) -> Iterator[Check]:
    """What `localhost` and this machine's own name mean, by /etc/hosts alone: nothing is asked of a name server."""
    try:
        text = (Path(root) / "etc/hosts").read_text(encoding="utf8", errors="replace")
    except OSError:
        yield _warn("localhost-unresolved", "/etc/hosts cannot be read", "127.0.0.1 localhost", "localhost may mean nothing here")
        return
    meant: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            meant.setdefault(name.lower(), []).append(address)
    local = meant.get("localhost", [])
    if local and "127.0.0.1" not in local and not any(address.startswith("127.") for address in local):
        fact = f"localhost means {', '.join(local)} alone"
        yield _warn(
            "localhost-unresolved", fact, "add `127.0.0.1 localhost` to /etc/hosts", "servers on 127.0.0.1 are not found by that name"
        )
    elif "::1" in local and _ipv6_off(root):
        fact = "localhost means ::1 too, and IPv6 is switched off"
        yield _warn("localhost-unresolved", fact, "take ::1 out of /etc/hosts", "clients try an address that cannot answer first")
    host = asked.plan.endpoint.host
    if host is not None and ":" in host and _ipv6_off(root):
        yield _fail("engine-args-invalid", f"--host {host} with IPv6 switched off", "--host 0.0.0.0", "the server ends when it binds")
    own = (hostname or os.uname().nodename).lower()
    addresses = meant.get(own, []) + meant.get(own.partition(".")[0], [])
    loop = [address for address in addresses if address.startswith("127.") or address == "::1"]
    if asked.plan.sizes.nodes > 1 and loop:
        fact = f"this machine's name {own} means {loop[0]} here"
        remedy = f"give {own} its real address in /etc/hosts, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME"
        yield _fail("wrong-interface", fact, remedy, "other nodes are told an address that is their own loopback")


def interfaces(asked: Asked, root: str = "/", *, addresses: Sequence[str] = ()) -> Iterator[Check]:
    """Interfaces that variables name, and whether there are any to reach other nodes by. `addresses`: this machine's own."""
    names = _names(Path(root) / "sys/class/net")
    if not names:
        yield _skipped("wrong-interface", f"{root.rstrip('/')}/sys/class/net cannot be listed")
        return
    wrong = False
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        wanted = asked.env.get(variable)
        if wanted and not _matches(variable, wanted, names):
            wrong = True
            fact = f"{variable}={wanted} names no interface of this machine ({', '.join(sorted(names))})"
            yield _fail("wrong-interface", fact, "the name of an interface that there is", "no rank can connect to another")
    host = asked.text("host_address")
    if host and addresses and host not in addresses and _is_address(host):
        wrong = True
        fact = f"{host} is set as this node's address, which no interface has ({', '.join(addresses[:4])})"
        yield _fail(
            "wrong-interface", fact, "this machine's own address, on each node another", "ranks wait for an address that nobody answers"
        )
    outer = [name for name in names if name != "lo" and not name.startswith(("docker", "veth", "br-", "virbr", "cni", "flannel"))]
    if asked.plan.sizes.nodes > 1 and not outer:
        wrong = True
        fact = f"{asked.plan.sizes.nodes} nodes, and this one has only {', '.join(sorted(names))}"
        yield _fail("wrong-interface", fact, "in a container: --network host", "the nodes never meet")
    down = [name for name in outer if _state(root, name) == "down" and _names_it(asked.env, name)]
    for name in down:
        wrong = True
        yield _fail("fabric-multinode", f"interface {name} is down", f"ip link set {name} up", "the nodes never meet")
    if not wrong and (asked.plan.sizes.world > 1 or any(asked.env.get(name) for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"))):
        yield _pass("wrong-interface", f"interfaces {', '.join(sorted(outer or names))}")


def hub(asked: Asked, *, needed: bool, reach: bool | None, endpoint: str) -> Iterator[Check]:
    """`needed`: the model is not whole in the local cache. `reach`: whether the hub accepted a connection, None where it was not tried."""
    name = asked.plan.model or "the model"
    offline = next(
        (one for one in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if asked.env.get(one, "").upper() in ("1", "ON", "YES", "TRUE")), None
    )
    if not needed:
        return
    if offline is not None:
        fact = f"{name} is not in the local cache, and {offline} is set"
        yield _fail("hub-offline-or-gated", fact, f"hf download {name}, or unset {offline}", "the start ends before it has a configuration")
    elif reach is False:
        remedy = "download it elsewhere and give its path, HF_ENDPOINT of a mirror, or a proxy"
        yield _fail(
            "hub-offline-or-gated",
            f"{name} is not in the local cache, and {endpoint} does not answer",
            remedy,
            "the start waits, then ends",
        )
    else:
        fact = f"{name} is not in the local cache: it will be downloaded from {endpoint}"
        token = "" if any(asked.env.get(one) for one in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")) else "; no HF_TOKEN is set, if it is gated"
        yield _warn("hub-offline-or-gated", fact + token, f"hf download {name} first", "the download counts against the engine's timers")


def _overlap(wanted: str | None, held: str | None) -> bool:
    if wanted in _ANY or held in _ANY:
        return wanted not in ("::1",) or held in _ANY
    return wanted == held or {wanted, held} == {"localhost", "127.0.0.1"}


def _malformed(value: str) -> str | None:
    """Why no client can use it; the value itself may hold a password and is not told."""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        port = parts.port
    except ValueError as error:
        return f"cannot be parsed ({str(error).split(':')[0]})"
    if "://" not in value and re.match(r"https?:?/|https?//", value):
        return "has a scheme without ://"
    if not parts.hostname:
        return "names no host"
    return "names port 0" if port == 0 else None


def _exempt(host: str, exempt: str) -> bool:
    for word in (part.strip().lower().lstrip(".") for part in exempt.split(",")):
        if word in ("*", host):
            return True
        try:
            if "/" in word and ipaddress.ip_address(host) in ipaddress.ip_network(word, strict=False):
                return True
        except ValueError:
            continue
    return False


def _matches(variable: str, wanted: str, names: Sequence[str]) -> bool:
    """NCCL's are prefixes, `=` makes them exact and `^` excludes; gloo's is one name (or several, by commas)."""
    if variable != "NCCL_SOCKET_IFNAME":
        return all(word in names for word in wanted.split(",") if word)
    if wanted.startswith("^"):
        return True
    exact, words = wanted.startswith("="), wanted.lstrip("=").split(",")
    return any(name == word if exact else name.startswith(word) for word in words if word for name in names)


def _names_it(env: Mapping[str, str], name: str) -> bool:
    return any(name in env.get(variable, "").lstrip("=").split(",") for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"))


def _state(root: str, name: str) -> str:
    try:
        return (Path(root) / "sys/class/net" / name / "operstate").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _ipv6_off(root: str) -> bool:
    try:
        return (Path(root) / "proc/sys/net/ipv6/conf/all/disable_ipv6").read_text(encoding="ascii").strip() == "1"
    except OSError:
        return not (Path(root) / "proc/net/if_inet6").exists()


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if path.name != "bonding_masters"]
    except OSError:
        return []


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
