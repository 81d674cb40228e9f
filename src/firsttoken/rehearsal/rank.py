"""A rank process: goes through every phase with the others, then decodes in step with them until main ends.

Key insight: each phase is work of its own followed by a collective, in the same order on every rank, so a rank that is stuck
anywhere stops all others in a collective, and their stacks say so. A rank never outlives main: the kernel kills it (PDEATHSIG),
and where there is no such thing the end of the control line does.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from setproctitle import setproctitle

from .bar import Bar
from .batching import BASE_S, EAGER_S, PREFILL, SLOTS, Batcher
from .collectives import Mesh
from .control import Control, Message
from .cues import Cues
from .decoder import Decoder, Piece
from .drafting import Drafter
from .faults import Kind
from .journal import Journal, note_fault
from .kernels import compile_kernels
from .phases import Phase
from .settings import Settings
from .shards import ShardReader, Weights, cache_folder, shard_paths, whole_model
from .store import StoreClient
from .work.stage import Stage

_BATCH_SIZES = (8, 4, 2, 1)
_PIECE_BYTES = 1 << 18
_TINY_BYTES = 1 << 12
_PDEATHSIG = 1


class Rank:
    def __init__(self, rank: int, control: Control, setup: Message, messages: Iterator[Message]) -> None:
        self._settings = settings = Settings.from_main(setup["settings"])
        self._rank, self._control, self._messages = rank, control, messages
        self._journal = Journal(f"TP{rank}" if settings.ranks > 1 else None)
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._stage = Stage(
            journal=self._journal,
            rank=rank,
            ranks=settings.ranks,
            tell=control.send,
            phase=Phase.DISTRIBUTED_INIT,
            step=_scratch,
            folder=Path(setup["folder"]) if setup["folder"] else None,
            ports=setup["ports"],
        )
        self._cues = Cues(settings, self._stage)
        self._store_port: int = setup["store"]
        self._paths = shard_paths(cache_folder(settings.shards, settings.shard_mb))
        self._weights: Weights = {}
        self._table_rows: list[int] = []
        self._first = True

    def run(self) -> None:
        """All phases, then requests for ever. What goes wrong is logged, and ends the process with status 1."""
        try:
            self._distributed_init()
            self._load_weights()
            self._post_load()
            self._kv_cache()
            self._compile()
            if self._settings.graphs:
                self._capture_graphs()
            self._warm_up()
            self._get_listening()
            if self._rank == 0:
                self._lead()
            else:
                self._follow()
        except Exception:  # said in its log, as engines do
            self._journal.line(f"Rank hit an exception: {traceback.format_exc().rstrip()}")
            sys.exit(1)

    def receive(self) -> None:
        """Takes in what main sends; ends the process with main. Runs on a thread of its own."""
        for message in self._messages:
            self._inbox.put(message)
        os._exit(1)

    def _distributed_init(self) -> None:
        began = self._begin(f"Distributed init begin. world_size={self._settings.ranks} rank={self._rank} backend=tcp pid={os.getpid()}")
        self._control.send({"op": "joined"})
        ranks = self._settings.ranks
        for fault in self._settings.faults:
            missing = min(fault.targets(ranks))
            if fault.kind is Kind.PEER and self._rank == (1 if missing == 0 else 0):
                note_fault(fault.kind, fault.phase, missing, None)
        self._stage.store = store = StoreClient(self._store_port)
        patient = any(fault.kind is Kind.ORPHAN for fault in self._settings.faults)
        self._mesh = Mesh(self._rank, ranks, store, patient=patient)
        self._cues.work(Phase.DISTRIBUTED_INIT, began, _scratch)
        if int(self._mesh.all_reduce(np.ones(1))[0]) != ranks:
            raise RuntimeError("the first all_reduce gave a wrong sum")
        if ranks > 1:
            setproctitle(f"rehearsal::rank_TP{self._rank}")
        self._end("Distributed init end.", began)

    def _load_weights(self) -> None:
        began = self._begin(f"Load weight begin. shards={len(self._paths)}")
        bar = Bar(self._journal, "Loading safetensors checkpoint shards", len(self._paths), shown=self._rank == 0)
        total = 0
        for number, path in enumerate(self._paths):
            reader = ShardReader(path, self._rank, self._settings.ranks)
            ticks = self._settings.seconds(Phase.WEIGHTS) / 0.05 / len(self._paths)
            normal = max(1, min(_PIECE_BYTES, int(reader.size / max(1.0, ticks))))
            read = partial(_read_on, reader, normal)
            self._cues.work(Phase.WEIGHTS, began, read, (number + 1) / len(self._paths))
            while reader.read(_PIECE_BYTES):
                pass
            reader.close()
            total += reader.size
            self._weights.update(reader.weights)
            self._table_rows.append(reader.table_rows)
            bar.step(number + 1)
        self._end(f"Load weight end. shards={len(self._paths)} bytes={total}", began)
        self._mesh.barrier()

    def _post_load(self) -> None:
        began = self._begin("Post load begin. Repacking weights.")
        repacked = iter(list(self._weights.items()) * 1000)

        def step(tiny: bool) -> None:
            name, values = next(repacked, ("", np.zeros((1, 1), dtype=np.float32)))
            rows = values[: 64 if tiny else 2048]
            if not np.array_equal(np.ascontiguousarray(np.asfortranarray(rows)), rows):
                raise RuntimeError(f"repacking changed {name}")

        self._cues.work(Phase.POST_LOAD, began, step)
        fused = self._settings.attention_backend == "fast"
        self._decoder = Decoder(self._weights, self._rank, self._settings.ranks, SLOTS, fused=fused)
        self._drafter: Drafter | None = None
        if self._settings.speculative == "draft" and self._rank == 0:
            draft = Decoder(whole_model(self._paths[0].parent), 0, 1, SLOTS, fused=True)
            draft.allocate()
            self._drafter = Drafter(
                draft, self._table_rows, self._settings.draft_quality, self._settings.seed or 0, self._settings.draft_tokens
            )
        self._mesh.barrier()
        self._end("Post load end.", began)

    def _kv_cache(self) -> None:
        began = self._begin("KV cache begin. Profiling memory.")
        part = [0.0]

        def step(tiny: bool) -> None:
            part[0] = part[0] % 1.0 + 1 / SLOTS
            self._decoder.allocate(part[0])
            _scratch(tiny)

        self._cues.work(Phase.KV_CACHE, began, step)
        size = max(self._decoder.allocate((slot + 1) / SLOTS) for slot in range(SLOTS))
        total = int(self._mesh.all_reduce(np.array([float(size)]))[0])
        self._end(f"KV cache end. tokens={SLOTS * 1024} bytes={size} total_bytes={total}", began)

    def _compile(self) -> None:
        began = self._begin(f"Compile begin. attention_backend={self._settings.attention_backend}")
        count = [0]

        def step(tiny: bool) -> None:
            for _ in range(1 if tiny else 10):
                count[0] += 1
                compile_kernels()

        self._cues.work(Phase.COMPILE, began, step)
        self._kernels = compile_kernels()
        self._mesh.barrier()
        self._end(f"Compile end. kernels={3 * count[0]}", began)

    def _capture_graphs(self) -> None:
        began = self._begin(f"Capture graphs begin. batch_sizes={list(_BATCH_SIZES)}")
        bar = Bar(self._journal, "Capturing graphs", len(_BATCH_SIZES), shown=self._rank == 0)
        for number, size in enumerate(_BATCH_SIZES):
            self._cues.work(Phase.GRAPH_CAPTURE, began, self._local_forward, (number + 1) / len(_BATCH_SIZES))
            self._forward([_dummy(slot, 1) for slot in range(size)])
            bar.step(number + 1)
        self._end(f"Capture graphs end. graphs={len(_BATCH_SIZES)}", began)

    def _warm_up(self) -> None:
        began = self._begin("Warm-up begin.")
        self._cues.work(Phase.WARMUP, began, self._local_forward)
        self._forward([_dummy(0, PREFILL)])
        self._end("Warm-up end.", began)
        self._control.send({"op": "warm"})

    def _get_listening(self) -> None:
        began = self._begin("Request loop begin.")
        self._cues.work(Phase.LISTENING, began, _scratch)
        self._mesh.barrier()
        self._end("Request loop end.", began)
        self._control.send({"op": "listening"})

    def _lead(self) -> None:
        """Rank 0: takes requests, and leads the others through steps."""
        base_s = BASE_S if self._settings.graphs else EAGER_S
        batcher = Batcher(self._lead_step, self._kernels, self._drafter, base_s)
        while True:
            while batcher.idle or not self._inbox.empty():
                message = self._inbox.get()
                if message["op"] == "add":
                    batcher.add(message)
                else:
                    batcher.abort(message["id"])
            self._control.send(batcher.step())

    def _lead_step(self, pieces: list[Piece]) -> NDArray[np.float64]:
        plan = [[piece.slot, piece.start, piece.tokens, piece.before] for piece in pieces]
        self._mesh.broadcast(json.dumps(plan).encode())
        return self._decoder.logits(self._serve_step(pieces))

    def _follow(self) -> None:
        while True:
            plan = json.loads(self._mesh.broadcast(None))
            self._serve_step([Piece(slot=slot, start=start, tokens=tuple(tokens), before=(a, b)) for slot, start, tokens, (a, b) in plan])

    def _serve_step(self, pieces: list[Piece]) -> NDArray[np.float64]:
        if not self._first:
            return self._forward(pieces)
        self._first = False
        began = self._begin(f"First token begin. tokens={sum(len(piece.tokens) for piece in pieces)}")
        self._cues.work(Phase.FIRST_TOKEN, began, _scratch)
        hidden = self._forward(pieces)
        self._end("First token end.", began)
        return hidden

    def _forward(self, pieces: list[Piece]) -> NDArray[np.float64]:
        return self._decoder.forward(pieces, self._kernels, self._mesh.all_reduce, self._table_rows)

    def _local_forward(self, tiny: bool) -> None:
        """A forward of this rank's share alone."""
        self._decoder.forward([_dummy(0, 1 if tiny else 8)], self._kernels, lambda values: values, self._table_rows)

    def _begin(self, text: str) -> float:
        self._journal.line(text)
        return time.monotonic()

    def _end(self, text: str, began: float) -> None:
        self._journal.line(f"{text} elapsed={time.monotonic() - began:.2f} s")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="rehearsal rank")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args(argv)
    setproctitle("rehearsal::rank")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(args.parent)
    control = Control(socket.socket(fileno=args.control))
    messages = control.messages()
    setup = next(messages, None)
    if setup is None:
        return 1
    rank = Rank(args.rank, control, setup, messages)
    threading.Thread(target=rank.receive, name="control", daemon=True).start()
    rank.run()
    return 0


def _die_with(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError, TypeError):  # where there is no prctl, the control line has to do
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _scratch(tiny: bool) -> None:
    """Fresh pages, a product, pages given back."""
    size = 32 if tiny else 192
    matrix = np.full((size, size), 0.5)
    float((matrix @ matrix).sum())


def _read_on(reader: ShardReader, normal: int, tiny: bool) -> None:
    if not reader.read(_TINY_BYTES if tiny else normal) and tiny:
        reader.reread(_TINY_BYTES)


def _dummy(slot: int, size: int) -> Piece:
    return Piece(slot=slot, start=0, tokens=(32,) * size, before=(0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
