"""The main process: starts the ranks, watches them, serves, and never leaves anything behind.

Key insight: one thread decides. Threads that read the ranks' lines only put what they saw into one queue, and signals raise in
the main thread, so every way to the end goes through one `finally`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import VERSION
from .control import Control, Message
from .cues import Cues
from .desk import Desk
from .faults import Kind
from .journal import Journal
from .phases import Phase
from .serving import Server
from .settings import Settings
from .shards import cache_folder, ensure_shards
from .store import StoreServer
from .work.stage import Stage

_WITH_FILES = frozenset({Kind.FIFO, Kind.CYCLE, Kind.LOCK, Kind.CONNECT, Kind.DOWNLOAD, Kind.STALL})
"""Kinds that need a run-time folder and the bystander."""

_DRAIN_S = 10.0
_STILL_S = 1.0
"""Requests that get no token for so long are not waited for at the end."""

_STOP_S = 1.0
_PEERS_S = 10.0
_ROOT = Path(__file__).resolve().parents[2]


class Interrupted(BaseException):
    """SIGTERM or SIGINT came."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class AddressTaken(Exception):
    """The address to listen on cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    rank: int
    process: subprocess.Popen[bytes]
    control: Control


class Engine:
    """One launch. `began` is the monotonic time at which the process started to work."""

    def __init__(self, settings: Settings, journal: Journal, began: float) -> None:
        self._settings, self._journal, self._began = settings, journal, began
        self._events: queue.SimpleQueue[tuple[int, Message | None]] = queue.SimpleQueue()
        self._children: list[_Child] = []
        self._desk = Desk(settings.faults)
        self._server: Server | None = None
        self._folder: Path | None = None
        self._counts = {"joined": 0, "warm": 0, "listening": 0}
        self._listening_began = began

    def run(self) -> int:
        """Serves until a signal comes (0 after SIGTERM when it served, 143 before, 130 after SIGINT) or something fails (1)."""
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)
        try:
            self._prepare()
            return self._supervise()
        except Interrupted as interrupted:
            return self._interrupted(interrupted.number)
        except AddressTaken as error:
            self._journal.line(f"Error: {error}")
            return 1
        except Exception:  # said in its log, as engines do
            self._journal.line(f"Engine hit an exception: {traceback.format_exc().rstrip()}")
            return 1
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._clean_up()

    def _prepare(self) -> None:
        settings, ports = self._settings, self._start_bystander()
        stage = Stage(
            journal=self._journal,
            rank=None,
            ranks=settings.ranks,
            tell=self._handle,
            phase=Phase.PROCESS_START,
            step=_hash_interpreter,
            folder=self._folder,
            ports=ports,
        )
        cues = Cues(settings, stage)
        cues.work(Phase.PROCESS_START, self._began, _hash_interpreter)
        self._journal.line(f"rehearsal {VERSION} args={json.dumps(settings.public())} elapsed={time.monotonic() - self._began:.2f} s")
        began = time.monotonic()
        self._journal.line("Config begin.")
        cache = cache_folder(settings.shards, settings.shard_mb)
        if ensure_shards(cache, settings.shards, settings.shard_mb):
            self._journal.line(f"Wrote {settings.shards} shards to {cache}.")
        json.loads((cache / "config.json").read_text())
        cues.work(Phase.CONFIG, began, _hash_interpreter)
        self._start_ranks(ports)
        self._journal.line(f"Config end. model={cache} ranks={settings.ranks} elapsed={time.monotonic() - began:.2f} s")

    def _start_bystander(self) -> Mapping[str, int]:
        if not any(fault.kind in _WITH_FILES for fault in self._settings.faults):
            return {}
        self._folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
        env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(_ROOT)}
        arguments = [sys.executable, "-P", "-m", f"{__package__}.bystander", "--main", str(os.getpid()), "--folder", str(self._folder)]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(arguments, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, env=env, start_new_session=True) as process:
            assert process.stdout is not None, "a pipe was asked for"
            words = process.stdout.readline().decode().split()
        if not words:
            raise RuntimeError("the helper process did not start")
        return {name: int(port) for name, port in (word.split("=") for word in words)}

    def _start_ranks(self, ports: Mapping[str, int]) -> None:
        settings = self._settings
        store = StoreServer()
        missing = {rank for fault in settings.faults if fault.kind is Kind.PEER for rank in fault.targets(settings.ranks)}
        env = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        setup = {"settings": settings.for_ranks(), "store": store.port, "folder": str(self._folder or ""), "ports": dict(ports)}
        for rank in range(settings.ranks):
            if rank in missing:
                continue
            ours, theirs = socket.socketpair()
            with theirs:
                arguments = [sys.executable, "-P", "-m", f"{__package__}.rank", "--rank", str(rank)]
                arguments += ["--control", str(theirs.fileno()), "--parent", str(os.getpid())]
                process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, env=env, pass_fds=(theirs.fileno(),))
            child = _Child(rank=rank, process=process, control=Control(ours))
            self._children.append(child)
            threading.Thread(target=self._read, args=(child,), name=f"rank-{rank}", daemon=True).start()
            child.control.send(setup)

    def _read(self, child: _Child) -> None:
        for message in child.control.messages():
            if message["op"] == "step":
                self._desk.step(message)
            else:
                self._events.put((child.rank, message))
        self._events.put((child.rank, None))

    def _supervise(self) -> int:
        abandoned = {rank for fault in self._settings.faults if fault.kind is Kind.ORPHAN for rank in fault.targets(self._settings.ranks)}
        while True:
            try:
                rank, message = self._events.get(timeout=_PEERS_S if self._joining else None)
            except queue.Empty:
                self._journal.line(f"Waiting for peers: {self._counts['joined']} of {self._settings.ranks} ranks have joined.")
                continue
            if message is not None:
                self._handle(message)
            elif rank not in abandoned:
                return self._died(next(child for child in self._children if child.rank == rank))

    @property
    def _joining(self) -> bool:
        return 0 < self._counts["joined"] < self._settings.ranks

    def _handle(self, message: Message) -> None:
        match message["op"]:
            case "early":
                self._claim_ready()
            case "silence":
                self._silence(message["seconds"])
            case op:
                self._counts[op] += 1
                if self._counts[op] == self._settings.ranks:
                    self._all(op)

    def _all(self, op: str) -> None:
        if op == "warm" and self._server is None:
            self._listening_began = time.monotonic()
            self._journal.line(f"Starting the HTTP server. host={self._settings.host} port={self._settings.port}")
        if op == "listening":
            self._desk.open(self._children[0].control.send)
            self._claim_ready()

    def _claim_ready(self) -> None:
        """Binds the port and says so, unless that was done before."""
        if self._server is not None:
            return
        settings = self._settings
        try:
            server = Server(settings.host, settings.port, self._desk, self._journal, settings.api_key, settings.seed or 0)
        except OSError as error:
            raise OSError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. Is another server there?"
            ) from error
        self._server = server
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True).start()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._journal.line(f"Listening on http://{host}:{server.server_port} elapsed={time.monotonic() - self._listening_began:.2f} s")
        self._journal.line("The rehearsal server is ready to serve.")

    def _silence(self, seconds: float | None) -> None:
        if self._journal.silent:
            return
        self._journal.silent = True
        if seconds is not None:
            timer = threading.Timer(seconds, setattr, (self._journal, "silent", False))
            timer.daemon = True
            timer.start()

    def _died(self, child: _Child) -> int:
        code = child.process.wait()
        if code == 0:
            self._journal.line(f"Child process ended with exitcode=0. pid={child.process.pid} rank={child.rank}. Shutting down.")
            return 0
        self._journal.line(
            f"Child process unexpectedly failed with exitcode={code}. pid={child.process.pid} rank={child.rank}. Shutting down."
        )
        return 1

    def _interrupted(self, number: int) -> int:
        self._journal.line(f"Received {signal.Signals(number).name}. Shutting down.")
        if number == signal.SIGINT:
            return 130
        if self._counts["listening"] < self._settings.ranks:
            return 143
        with contextlib.suppress(Interrupted):  # a second signal ends the draining
            until = time.monotonic() + _DRAIN_S
            if self._server is not None:
                self._server.shutdown()
            while self._desk.open_requests and time.monotonic() < min(until, self._desk.last_step + _STILL_S):
                time.sleep(0.02)
        return 0

    def _clean_up(self) -> None:
        self._desk.close()
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)
                child.process.send_signal(signal.SIGCONT)
        until = time.monotonic() + _STOP_S
        for child in self._children:
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        if self._server is not None:
            self._server.server_close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._children:
            self._journal.line("All ranks have ended.")


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _hash_interpreter(tiny: bool) -> None:
    """A step of work of the main process: reads a file and touches fresh pages."""
    source = Path(hashlib.__file__).read_bytes()
    hashlib.sha256(source * (1 if tiny else 20)).hexdigest()
    with mmap.mmap(-1, 16 * mmap.PAGESIZE) as area:
        for page in range(16):
            area[page * mmap.PAGESIZE] = 1
