"""Files beyond this machine: network storage, and whatever else is served by a program. They are asked by a child with a deadline.

Key insight: no signal ends a call into a dead mount, and a process that has a thread in one is never gone for whoever waits for it, also
after its exit. So no process of ours that somebody waits for makes such a call. Which mount a path leads to is read from the table,
without asking any; files of this machine are read directly, at no further cost. A mount that gave no answer is not asked again: what lies
behind it is not there for us, and it is told by its name.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken.observe.shards import read_directly
from firsttoken.session.far_child import asked
from firsttoken.survey.mounts import Mount, mount_behind, parse_mounts

ANSWERS_WITHIN = 5.0
"""seconds for a name and a first byte, a start of Python among them"""
LARGEST_TEXT = 1 << 20
_REMEDY = "mount it again (umount -l, then mount), or wait for its server"
_CHILD = (sys.executable, "-I", "-S", str(Path(__file__).with_name("far_child.py")))
_TABLE_KEPT = 2.0
_READ_WITHIN = 30.0
"""seconds for a whole file, over a slow network; one that is not read in time may well come later"""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A mount that does not answer. `seconds`: nothing was heard for so long; None where an `error` says that its server is gone."""

    mount: Mount
    seconds: float | None = None
    error: str = ""

    @property
    def remedy(self) -> str:
        return f"{_REMEDY} (`ls` on it does not come back either)" if self.seconds is not None else _REMEDY

    @property
    def price(self) -> str:
        never = "what asks there waits for ever, and no signal ends it"
        return never if self.seconds is not None else "what asks there ends with that error"

    def words(self, *what: str) -> str:
        how = f"gave no answer within {self.seconds:.0f} s" if self.seconds is not None else f"says: {self.error}"
        return f"{listed(what)} {'lie' if len(what) > 1 else 'lies'} on {self.mount.words}, which {how}"

    def advice(self, *what: str) -> str:
        """The words, and what to do."""
        return f"{self.words(*what)}. {self.remedy[0].upper()}{self.remedy[1:]}"


def mount_table() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


class FarFiles:
    """`table`: mountinfo as it is now; `ask`: by whom files are asked. Paths are absolute; nothing is raised for what is behind them."""

    def __init__(self, *, within: float = ANSWERS_WITHIN, table: Callable[[], str] = mount_table, ask: "Ask | None" = None) -> None:
        self._within, self._table = within, table
        self.ask = ask or by_child
        self._mounts: tuple[Mount, ...] = ()
        self._read_at = float("-inf")
        self._silent: dict[str, Silence] = {}

    @property
    def silent(self) -> tuple[Silence, ...]:
        """Those that did not answer so far."""
        return tuple(self._silent.values())

    def mount(self, path: str) -> Mount | None:
        """The one that a path leads to, by name; it is not asked."""
        if time.monotonic() - self._read_at > _TABLE_KEPT:
            self._mounts, self._read_at = parse_mounts(self._table()), time.monotonic()
        return mount_behind(path, self._mounts)

    @property
    def any(self) -> bool:
        """Whether this machine has far mounts at all."""
        self.mount("/")
        return not all(mount.here for mount in self._mounts)

    def far(self, path: str) -> bool:
        mount = self.mount(path)
        return mount is not None and not mount.here

    def silence(self, path: str) -> Silence | None:
        """Asks the mount behind a path, where it is a far one and has not been silent before; None where it answers, whatever it says."""
        mount = self.mount(path)
        if mount is None or mount.here:
            return None
        self._ask("ask", path, mount)
        return self._silent.get(mount.point)

    def read_text(self, path: str) -> str | None:
        """A small text file of a far mount; None for anything else."""
        mount = self.mount(path)
        told = self._ask("text", path, mount) if mount is not None else None
        try:
            return told.decode("utf8") if told is not None else None
        except ValueError:
            return None

    def list_folder(self, path: str) -> tuple[str, ...] | None:
        """Names in a folder of a far mount; None where it is none."""
        mount = self.mount(path)
        told = self._ask("folder", path, mount) if mount is not None else None
        return tuple(os.fsdecode(name) for name in told.split(b"\0") if name) if told is not None else None

    def _ask(self, verb: str, path: str, mount: Mount) -> bytes | None:
        if mount.point in self._silent or "\0" in path:
            return None
        answer = self.ask(verb, path, self._within)
        said, rest = (answer or b"")[:1], (answer or b"")[1:]
        if answer is None:
            self._silent[mount.point] = Silence(mount=mount, seconds=self._within)
        elif said == b"!":
            self._silent[mount.point] = Silence(mount=mount, error=rest.decode("utf8", "replace"))
        return rest if said == b"+" else None


def read_start(path: str, most: int) -> bytes | None:
    """The first so many bytes of a file of whatever mount, by a child where it is a far one; None where they cannot be had."""
    if not FAR.far(path):
        return read_directly(path, most)
    told = by_child("start", path, _READ_WITHIN, most) or b""
    return told[1:] if told[:1] == b"+" else None


Ask = Callable[[str, str, float], bytes | None]
"""of a verb, a path and seconds: the answer (see `far_child`), None where there was none in time"""


def by_child(verb: str, path: str, seconds: float, most: int = LARGEST_TEXT) -> bytes | None:
    from firsttoken.observe.expendable import Expendable  # not before it is needed: every command asks for its folder of runs

    outcome = Expendable().run_blocking((*_CHILD, verb, path, str(most)), seconds)
    return None if outcome.late else outcome.output


def by_thread(verb: str, path: str, seconds: float) -> bytes | None:
    """For a process that may be left behind itself. It must not start others once it has files of a far mount open: what is forked closes
    them before its exec, which a dead mount does not let it do, and until then all of our threads wait for it."""
    told: list[bytes] = []
    thread = threading.Thread(target=lambda: told.append(asked(verb, path, LARGEST_TEXT)), daemon=True)
    thread.start()
    thread.join(seconds)
    return told[0] if told else b"" if not thread.is_alive() else None


def listed(words: Sequence[str]) -> str:
    """`a, b and c`; of many the first few."""
    told = [*words[:_SHOWN], *([f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else [])]
    return f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]


FAR = FarFiles()
"""of this process"""
