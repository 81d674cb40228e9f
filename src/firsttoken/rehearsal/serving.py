"""The HTTP server: /health, /v1/models, /v1/completions, /v1/chat/completions, /metrics.

Key insight: the port is bound when the server is made and not before, because a client takes an open port for a promise.
"""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

from . import MODEL_NAME, VERSION
from .desk import Desk
from .journal import Journal
from .protocol import Answer, Chunk, Refused, Wanted, read_request
from .shards import CONTEXT

_MAX_BODY = 1 << 24


class Server(ThreadingHTTPServer):
    """Bound and listening once made; raises OSError where the address is taken. `serve_forever` serves."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, desk: Desk, journal: Journal, api_key: str | None, seed: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.desk, self.journal, self.api_key, self.seed = desk, journal, api_key, seed
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without the base class's look-up of the host's full name, which can wait for DNS."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]  # only Server makes handlers
    protocol_version = "HTTP/1.1"
    server_version = f"rehearsal/{VERSION}"
    timeout = 600

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            if path not in ("/health", "/ping", "/metrics"):
                self._check_key()
            if path in ("/health", "/ping"):
                self._send(200, b"")
            elif path == "/metrics":
                self._send(200, self.server.desk.metrics.text().encode(), "text/plain; version=0.0.4; charset=utf-8")
            elif path == "/v1/models":
                card = {
                    "id": MODEL_NAME,
                    "object": "model",
                    "created": int(time.time()),
                    "owned_by": "firsttoken",
                    "max_model_len": CONTEXT,
                }
                self._send_json(200, {"object": "list", "data": [card]})
            elif path == "/version":
                self._send_json(200, {"version": VERSION})
            else:
                raise Refused(404, "NotFoundError", f"There is nothing at {path}.")
        except Refused as refused:
            self._send_json(refused.status, refused.document())

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        try:
            raw = self._body()
            self._check_key()
            if path not in ("/v1/completions", "/v1/chat/completions"):
                raise Refused(404, "NotFoundError", f"There is nothing at {path}.")
            wanted = read_request(raw, chat=path.endswith("chat/completions"), default_seed=self.server.seed)
            with closing(self.server.desk.complete(wanted)) as chunks:
                if wanted.stream:
                    self._stream(wanted, chunks)
                else:
                    self._answer(wanted, chunks)
        except Refused as refused:
            self._send_json(refused.status, refused.document())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """One line a request on stdout, as uvicorn's."""
        host, port = self.client_address[:2]
        status = int(code) if isinstance(code, int) else code
        self.server.journal.raw(f'INFO:     {host}:{port} - "{self.requestline}" {status}\n', stream=1)

    def log_message(self, format: str, *args: Any) -> None:
        """Errors of the protocol are answered, not logged."""

    def _answer(self, wanted: Wanted, chunks: Iterator[Chunk]) -> None:
        self._send_json(200, Answer(wanted).whole(list(chunks)))

    def _stream(self, wanted: Wanted, chunks: Iterator[Chunk]) -> None:
        answer = Answer(wanted)
        first = next(chunks)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if (opening := answer.opening()) is not None:
            self._event(opening)
        shown = tokens = 0
        try:
            for chunk in chain([first], chunks):
                if chunk.text or chunk.finish:
                    self._event(answer.event(chunk, shown))
                shown, tokens = shown + len(chunk.text), tokens + chunk.tokens
            if wanted.include_usage:
                self._event(answer.closing(tokens))
        except Refused as refused:
            self._event(refused.document())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY:
            self.close_connection = True
            raise Refused(413, "BadRequestError", f"The body must have a length of at most {_MAX_BODY} bytes.")
        return self.rfile.read(int(length))

    def _check_key(self) -> None:
        key = self.server.api_key
        if key is None:
            return
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), key.encode()):
            raise Refused(401, "AuthenticationError", "The API key is missing or wrong.")

    def _send_json(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
