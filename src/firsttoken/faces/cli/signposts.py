"""Where others look for a run's state: a ready file, the service manager's socket, Kubernetes' termination log.

None of them can hold up or end a run: what cannot be written is said once. The server's environment stays as it is, NOTIFY_SOCKET too.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from firsttoken.model.events import Event, Exited, StopAsked
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict
from firsttoken.report.document import document, to_json

MOST_BYTES = 4096
"""What Kubernetes reads of a termination log."""
_KIND = "ready_file"
_A_FILE = click.Path(dir_okay=False, path_type=Path)

ready_file_option = click.option("--ready-file", type=_A_FILE, metavar="FILE", help="Written when the server is ready, absent before.")
termination_log_option = click.option(
    "--termination-log", type=_A_FILE, metavar="FILE", help="Gets the verdict and its reason in one line (/dev/termination-log)."
)


@dataclass(slots=True)
class Signposts:
    """`begin` before the launch, `changed` at every new verdict or phase, `ended` last; `said` takes what could not be done."""

    ready_file: Path | None = None
    termination_log: Path | None = None
    notify_socket: str | None = None
    said: Callable[[str], None] = lambda text: None
    _stood: bool = False
    _stopping: bool = False
    _complained: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Takes a ready file of an earlier run away. UsageError where the file is another's, or its folder is not there."""
        if self.ready_file is not None:
            take_away(self.ready_file)

    def changed(self, result: Result) -> None:
        self._ready(result, serving=result.verdict is Verdict.READY and result.exit.code is None and result.exit.signal is None)
        self._terminated(result)
        text = f"STATUS={_one_line(f'{result.verdict}: {result.reason}')}"
        self._notify(f"READY=1\n{text}" if result.verdict is Verdict.READY else text)

    def happened(self, event: Event) -> None:
        """Tells the service manager that the server is on its way out, however that began."""
        body = event.body
        if not self._stopping and (isinstance(body, StopAsked) or (isinstance(body, Exited) and body.root)):
            self._stopping = True
            self._notify("STOPPING=1")

    def ended(self, result: Result, *, serves: bool) -> None:
        """`serves`: the run goes on without us, or its readiness was all that was asked for."""
        self._ready(result, serving=serves and result.verdict is Verdict.READY)
        self._terminated(result)

    def _ready(self, result: Result, *, serving: bool) -> None:
        if self.ready_file is None or serving == self._stood:
            return
        with self._complaining("ready file", self.ready_file):
            if serving:
                _replace(self.ready_file, document(_KIND, run=result.run, url=result.endpoint.url, model=result.endpoint.model))
            else:
                self.ready_file.unlink(missing_ok=True)
            self._stood = serving

    def _terminated(self, result: Result) -> None:
        """In place, for it is a mount point. Written at each change, because the last one may be a SIGKILL that leaves us no time."""
        if self.termination_log is None:
            return
        line = _one_line(f"{result.verdict}: {result.reason}").encode("utf8", "replace")
        with self._complaining("termination log", self.termination_log), open(self.termination_log, "wb") as file:
            file.write(line[: MOST_BYTES - 1].decode("utf8", "ignore").encode() + b"\n")

    def _notify(self, message: str) -> None:
        if self.notify_socket:
            with contextlib.suppress(OSError):
                notify(self.notify_socket, message)

    @contextlib.contextmanager
    def _complaining(self, what: str, path: Path) -> Any:
        try:
            yield
        except OSError as error:
            if what not in self._complained:
                self._complained.add(what)
                self.said(f"the {what} {path} cannot be written: {error.strerror or error}; the run goes on without it")


def notify(address: str, message: str) -> None:
    """One datagram to a service manager (sd_notify(3)); `@` begins an abstract name. OSError where nobody takes it at once."""
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.setblocking(False)
        channel.sendto(message.encode("utf8", "replace"), name)


def take_away(path: Path) -> None:
    """Removes a ready file of ours, or an empty file. Anything else at `path` may be dear to somebody."""
    try:
        if not path.parent.is_dir():
            raise click.UsageError(f"--ready-file {path}: there is no folder {path.parent}")
        if path.is_symlink() or path.exists():
            if not path.is_file() or not _is_ours(path.read_bytes()[: 1 << 16]):
                raise click.UsageError(f"--ready-file {path}: what is there is no ready file; name another, or remove it yourself")
            path.unlink()
    except OSError as error:
        raise click.ClickException(f"--ready-file {path}: {error.strerror or error}") from error


def notify_socket(environ: Mapping[str, str] = os.environ) -> str | None:
    return environ.get("NOTIFY_SOCKET") or None


def _is_ours(content: bytes) -> bool:
    try:
        known = json.loads(content) if content.strip() else {"kind": _KIND}
    except ValueError:
        return False
    return isinstance(known, dict) and known.get("kind") == _KIND


def _replace(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(to_json(content) + "\n", encoding="utf8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _one_line(text: str) -> str:
    return " ".join(text.split())
