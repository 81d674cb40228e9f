"""The run's folder as keeper, survivor and cleanup see it: names of its files, and `keeper.json`, the one record of who runs what.

`keeper.json` is replaced atomically, so a reader sees a whole one or none. Process keys in it mean something on one boot and in one
pid namespace only; both are recorded, and `here` compares them before anybody trusts a key.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from firsttoken.hosts.procfs import Procfs

MARK = "FIRSTTOKEN_RUN"
_SOCKET_PATH_LIMIT = 100
"""Bytes; sun_path holds 108 with its end."""


class Key(NamedTuple):
    """A process on the machine that the record names: pid and start ticks."""

    pid: int
    start: int


class Ended(NamedTuple):
    """How the launched command ended; both None where nobody could see it. `by`: who wrote this (keeper, observer, cleanup)."""

    code: int | None
    signal: int | None
    by: str = "keeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperRecord:
    """`started_at` is Unix time, `origin` CLOCK_MONOTONIC seconds at launch: `t` of every event counts from it.

    `sessions`: session ids of all observers so far; processes in them are ours, never the server's.
    """

    run: str
    node: str
    boot_id: str
    pid_namespace: int
    pid: int
    start: int
    socket: str
    started_at: float
    origin: float
    mark: str | None
    cgroup: str | None
    on_observer_death: str
    attempt: int = 1
    terminates: int = 1
    pty: bool = True
    server: Key | None = None
    observer: Key | None = None
    master_holder: Key | None = None
    sessions: tuple[int, ...] = ()
    ready: bool = False
    ended: Ended | None = None

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        for name in ("server", "observer", "master_holder", "ended"):
            value = getattr(self, name)
            plain[name] = None if value is None else value._asdict()
        return plain


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @property
    def keeper_json(self) -> Path:
        return self.path / "keeper.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log"

    def prepare(self) -> None:
        """Makes the folder and its log folder, 0700. OSError where that cannot be done."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log.mkdir(mode=0o700, exist_ok=True)

    def read(self) -> KeeperRecord | None:
        """None where there is no record, or none that can be read."""
        try:
            raw = json.loads(self.keeper_json.read_bytes())
            return _record(raw)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, record: KeeperRecord) -> None:
        """Replaces the record in one step. OSError where the disk does not let it."""
        part = self.path / f".keeper.json.{os.getpid()}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(record.to_json(), separators=(",", ":")).encode())
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        finally:
            os.close(fd)
        os.replace(part, self.keeper_json)


def here(record: KeeperRecord, procfs: Procfs) -> bool:
    """Whether the record's process keys mean processes that can be seen from here: same boot, same pid namespace."""
    return record.boot_id == procfs.boot_id() and record.pid_namespace == pid_namespace()


def socket_path(folder: Folder) -> str:
    """Free to be bound: in the folder, or in a private one made for it where the run's own path is too long or cannot be written."""
    path = folder.path / "socket"
    if len(os.fsencode(path)) < _SOCKET_PATH_LIMIT and os.access(folder.path, os.W_OK):
        with contextlib.suppress(OSError):
            path.unlink()
        return str(path)
    import tempfile  # seldom needed, and 5 ms of every start

    return str(Path(tempfile.mkdtemp(prefix="firsttoken-")) / "socket")


def remove_socket(record: KeeperRecord, folder: Folder) -> None:
    """Also the private folder that was made for it where the run's own path is too long."""
    path = Path(record.socket)
    with contextlib.suppress(OSError):
        path.unlink()
    if path.parent != folder.path and path.parent.name.startswith("firsttoken-"):
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def pid_namespace() -> int:
    """Identity of our pid namespace; 0 where the kernel does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _record(raw: dict[str, Any]) -> KeeperRecord:
    known = {item.name for item in fields(KeeperRecord)}
    values = {name: value for name, value in raw.items() if name in known}
    for name in ("server", "observer", "master_holder"):
        value = values.get(name)
        values[name] = None if value is None else Key(int(value["pid"]), int(value["start"]))
    ended = values.get("ended")
    values["ended"] = None if ended is None else Ended(ended.get("code"), ended.get("signal"), str(ended.get("by", "keeper")))
    values["sessions"] = tuple(int(item) for item in values.get("sessions", ()))
    return KeeperRecord(**values)
