"""The front desk in the main process: takes checked requests to rank 0 and brings tokens back.

Key insight: the desk answers for the server before, while and after the ranks can: requests wait here until the ranks are
ready, and here a server can be up and healthy and yet give no token.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from .faults import Fault, Kind
from .journal import note_fault
from .metrics import Metrics
from .phases import Phase
from .protocol import Chunk, Refused, Wanted
from .tokens import decode

Send = Callable[[dict[str, Any]], None]


class Desk:
    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.metrics = Metrics()
        self._faults = tuple(fault for fault in faults if fault.kind in (Kind.MUTE, Kind.ERROR, Kind.SECOND))
        self._began: dict[Kind, float] = {}
        self._lock = threading.Lock()
        self._send: Send | None = None
        self._early: list[dict[str, Any]] = []
        self._tickets: dict[int, queue.SimpleQueue[list[Any] | None]] = {}
        self._numbers = itertools.count(1)
        self._first_request: float | None = None
        self._closed = False
        self.last_step = time.monotonic()

    @property
    def open_requests(self) -> int:
        return len(self._tickets)

    def open(self, send: Send) -> None:
        """The ranks are ready: hands over what has been asked so far."""
        with self._lock:
            self._send = send
            waiting, self._early = self._early, []
        for message in waiting:
            send(message)

    def close(self) -> None:
        """No more answers will come: ends all waiting requests."""
        with self._lock:
            self._closed = True
            tickets = list(self._tickets.values())
        for ticket in tickets:
            ticket.put(None)

    def complete(self, wanted: Wanted) -> Generator[Chunk, None, None]:
        """The answer, chunk by chunk; raises Refused where there will be none. Close it to give up."""
        began = time.monotonic()
        number = next(self._numbers)
        ticket: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        if self._closed:
            raise _unavailable()
        self._tickets[number] = ticket
        try:
            self.metrics.began(len(wanted.tokens))
            self._hand_over(number, wanted)
            yield from self._chunks(wanted, ticket, began)
            self.metrics.finished()
        finally:
            del self._tickets[number]
            if self._send is not None:
                self._send({"op": "abort", "id": number})

    def step(self, message: dict[str, Any]) -> None:
        """Rank 0 made a step."""
        self.last_step = time.monotonic()
        self.metrics.running, self.metrics.waiting = message["running"], message["waiting"]
        drafts, drafted, accepted, by_position = message["drafts"]
        self.metrics.drafts = (drafts, drafted, accepted, tuple(by_position))
        for number, tokens, logprobs, finish in message["out"]:
            self.metrics.generated(len(tokens))
            ticket = self._tickets.get(number)
            if ticket is not None:
                ticket.put([tokens, logprobs, finish])

    def _chunks(self, wanted: Wanted, ticket: queue.SimpleQueue[list[Any] | None], began: float) -> Iterator[Chunk]:
        """Text as it comes, held back as long as it could be the beginning of a stop text."""
        text, shown, first = "", 0, True
        while True:
            step = ticket.get()
            if step is None:
                raise _unavailable()
            tokens, logprobs, finish = step
            if first:
                self.metrics.first_token(time.monotonic() - began)
                first = False
            text += decode(tokens)
            marks = tuple((decode([token]), mark[0], mark[1]) for token, mark in zip(tokens, logprobs or (), strict=False))
            ends = [place for stop in wanted.stop if (place := text.find(stop, max(0, shown - len(stop)))) >= 0]
            if ends:
                yield Chunk(text=text[shown : min(ends)], tokens=len(tokens), marks=marks, finish="stop")
                return
            safe = len(text) if finish else len(text) - _held_back(text, wanted.stop)
            yield Chunk(text=text[shown:safe], tokens=len(tokens), marks=marks, finish=finish)
            shown = safe
            if finish:
                return

    def _hand_over(self, number: int, wanted: Wanted) -> None:
        message = {
            "op": "add",
            "id": number,
            "tokens": wanted.tokens,
            "max_tokens": wanted.max_tokens,
            "temperature": wanted.temperature,
            "seed": wanted.seed,
            "logprobs": wanted.logprobs,
        }
        for fault in self._faults:
            if not self._happens(fault, number):
                continue
            if fault.kind is Kind.ERROR:
                raise Refused(500, "InternalServerError", "EngineCore encountered an issue. See the log for the root cause.")
            if fault.for_s is not None:
                left = self._began[fault.kind] + fault.for_s - time.monotonic()
                timer = threading.Timer(max(0.0, left), self._forward, (message,))
                timer.daemon = True
                timer.start()
            return
        self._forward(message)

    def _forward(self, message: dict[str, Any]) -> None:
        with self._lock:
            send = self._send
            if send is None:
                self._early.append(message)
        if send is not None:
            send(message)

    def _happens(self, fault: Fault, number: int) -> bool:
        now = time.monotonic()
        with self._lock:
            self._first_request = self._first_request or now
            if now - self._first_request < fault.after_s or (fault.kind is Kind.SECOND and number < 2):
                return False
            fresh = fault.kind not in self._began
            began = self._began.setdefault(fault.kind, now)
        if fresh:
            note_fault(fault.kind, Phase.FIRST_TOKEN, None, os.getpid())
        return fault.for_s is None or now < began + fault.for_s


def _held_back(text: str, stops: tuple[str, ...]) -> int:
    return max((size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0)


def _unavailable() -> Refused:
    return Refused(503, "ServiceUnavailableError", "The server is shutting down.")
