"""Waiting for something outside the server: a lock of another process, an address, a download.

Key insight: what is waited for is really there, in a bystander process of its own session, so it can be named and may still come.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from http.client import HTTPConnection, HTTPException

from ..bar import Bar
from ..faults import Fault, Kind
from .stage import Stage, limited

_CONNECT_TIMEOUT_S = 5.0
_PIECE = 1 << 13


def wait_for_lock(fault: Fault, stage: Stage) -> None:
    """Waits for a file lock that the bystander holds."""
    file = os.open(stage.file("build.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with limited(fault.for_s):
        fcntl.flock(file, fcntl.LOCK_EX)
    os.close(file)


def connect(fault: Fault, stage: Stage) -> None:
    """Tries again and again to connect to an address that drops packets."""
    address = ("127.0.0.1", stage.ports["closed"])
    with limited(fault.for_s):
        while True:
            try:
                socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
                return
            except OSError as error:
                stage.journal.line(f"Failed to connect to {address[0]}:{address[1]} ({error}). Trying again.")
                time.sleep(0.5)


def download(fault: Fault, stage: Stage) -> None:
    """Fetches a shard from the bystander's server, which sends slowly or stops sending."""
    path = stage.file(f"model-{(stage.rank or 0) + 1:05d}-of-{stage.ranks:05d}.safetensors.incomplete")
    seconds = 0.0 if fault.for_s is None else fault.for_s
    query = f"/{path.stem}?mode={fault.kind}&seconds={seconds:g}"
    connection = HTTPConnection("127.0.0.1", stage.ports["files"])
    with limited(fault.for_s if fault.kind is Kind.STALL else None), open(path, "wb", buffering=0) as file:
        try:
            connection.request("GET", query)
            response = connection.getresponse()
            total = int(response.headers["Content-Length"])
            bar = Bar(stage.journal, f"Downloading {path.stem}", total, shown=stage.rank == 0)
            done = 0
            while piece := response.read1(_PIECE):
                file.write(piece)
                done += len(piece)
                bar.step(done)
        except HTTPException as error:
            raise ConnectionError(f"the download of {path.stem} broke off: {error}") from error
    connection.close()
    path.unlink(missing_ok=True)
