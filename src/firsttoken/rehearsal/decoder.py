"""The decoder: two layers of attention and a gated product, sharded over ranks, with a KV cache.

Key insight: it computes in float64, so that one token at a time, many at a time, and any number of ranks give the same choice:
that is what makes sharded equal to unsharded and speculative decoding lossless in practice, not only on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .kernels import Kernels
from .shards import CONTEXT, HEADS, LAYERS, WIDTH, Weights

Floats = NDArray[np.float64]
Reduce = Callable[[Floats], Floats]

HEAD_SIZE = WIDTH // HEADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens that a step appends to the sequence in `slot` from position `start`; `before` are the two tokens before them."""

    slot: int
    start: int
    tokens: tuple[int, ...]
    before: tuple[int, int]


class Decoder:
    """One rank's share of the model. `weights` hold this rank's rows; `tables` says which rows of the whole table they are."""

    def __init__(self, weights: Weights, rank: int, ranks: int, slots: int, *, fused: bool = False) -> None:
        self._fused = fused
        core = {name: np.asarray(values, dtype=np.float64) for name, values in weights.items() if not name.startswith("table")}
        self._embedding, self._position, self._head = core["embedding"], core["position"], core["head"]
        self._layers = [
            {key: core[f"layer.{layer}.{key}"] for key in ("query", "key", "value", "out", "up", "down")} for layer in range(LAYERS)
        ]
        names = sorted((name for name in weights if name.startswith("table")), key=lambda name: int(name.split(".")[1]))
        self._tables = [weights[name] for name in names]
        self._rank, self._ranks, self._slots = rank, ranks, slots
        self.heads = self._layers[0]["query"].shape[0] // HEAD_SIZE
        self._keys: Floats = np.zeros((0,))
        self._values: Floats = np.zeros((0,))

    def allocate(self, part: float = 1.0) -> int:
        """Allocates the KV cache and touches `part` of its slots; bytes of the cache."""
        shape = (LAYERS, self._slots, CONTEXT, self.heads, HEAD_SIZE)
        if self._keys.shape != shape:
            self._keys, self._values = np.empty(shape), np.empty(shape)
        last = max(1, round(self._slots * part))
        self._keys[:, last - 1] = 0.0
        self._values[:, last - 1] = 0.0
        return self._keys.nbytes + self._values.nbytes

    def forward(self, pieces: Sequence[Piece], kernels: Kernels, reduce: Reduce, table_rows: Sequence[int]) -> Floats:
        """Hidden states of all tokens of all pieces, one row each; `table_rows` are the rows of each whole table."""
        hidden = self._embed(pieces, reduce, table_rows)
        for layer, weights in enumerate(self._layers):
            mixed = self._attend(layer, weights, kernels.normalise(hidden), pieces, kernels)
            hidden = hidden + reduce(mixed @ weights["out"])
            inner = kernels.activate(kernels.normalise(hidden) @ weights["up"].T)
            hidden = hidden + reduce(inner @ weights["down"])
        return kernels.normalise(hidden)

    def logits(self, hidden: Floats) -> Floats:
        """Scores of the vocabulary for hidden states."""
        return hidden @ self._head.T

    def _embed(self, pieces: Sequence[Piece], reduce: Reduce, table_rows: Sequence[int]) -> Floats:
        count = sum(len(piece.tokens) for piece in pieces)
        own = np.zeros((count, WIDTH))
        looked_up = np.zeros((count, WIDTH))
        row = 0
        for piece in pieces:
            context = (*piece.before, *piece.tokens)
            for offset, token in enumerate(piece.tokens):
                own[row] = self._embedding[token] + self._position[piece.start + offset]
                self._look_up(context[offset : offset + 3], looked_up[row], table_rows)
                row += 1
        return own + reduce(looked_up)

    def _look_up(self, trigram: tuple[int, ...], into: Floats, table_rows: Sequence[int]) -> None:
        mixed = ((trigram[0] * 1000003 + trigram[1]) * 998244353 + trigram[2] * 2654435761) % 2305843009213693951
        table = mixed % len(table_rows)
        row = (mixed // len(table_rows)) % table_rows[table]
        first = table_rows[table] * self._rank // self._ranks
        values = self._tables[table]
        if first <= row < first + len(values):
            into += values[row - first]

    def _attend(self, layer: int, weights: dict[str, Floats], normed: Floats, pieces: Sequence[Piece], kernels: Kernels) -> Floats:
        shape = (-1, self.heads, HEAD_SIZE)
        query, key, value = ((normed @ weights[name].T).reshape(shape) for name in ("query", "key", "value"))
        mixed = np.empty_like(query)
        row = 0
        for piece in pieces:
            size = len(piece.tokens)
            rows, end = slice(row, row + size), piece.start + size
            keys, values = self._keys[layer, piece.slot], self._values[layer, piece.slot]
            keys[piece.start : end], values[piece.start : end] = key[rows], value[rows]
            mask = np.arange(end)[None, :] > np.arange(piece.start, end)[:, None]
            attend = _fused if self._fused else _plain
            mixed[rows] = attend(query[rows], keys[:end], values[:end], mask, kernels)
            row += size
        return mixed.reshape(len(normed), -1)


def _fused(query: Floats, keys: Floats, values: Floats, mask: NDArray[np.bool_], kernels: Kernels) -> Floats:
    scores = query.transpose(1, 0, 2) @ keys.transpose(1, 2, 0) * HEAD_SIZE**-0.5
    scores[:, mask] = -1e30
    mixed: Floats = (kernels.softmax(scores) @ values.transpose(1, 0, 2)).transpose(1, 0, 2)
    return mixed


def _plain(query: Floats, keys: Floats, values: Floats, mask: NDArray[np.bool_], kernels: Kernels) -> Floats:
    mixed = np.empty_like(query)
    for head in range(query.shape[1]):
        scores = query[:, head] @ keys[:, head].T * HEAD_SIZE**-0.5
        scores[mask] = -1e30
        mixed[:, head] = kernels.softmax(scores) @ values[:, head]
    return mixed
