"""Collectives, shards, the decoder, and speculative decoding, in process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from firsttoken.rehearsal import batching
from firsttoken.rehearsal.batching import SLOTS, Batcher
from firsttoken.rehearsal.collectives import Mesh
from firsttoken.rehearsal.decoder import Decoder, Piece
from firsttoken.rehearsal.drafting import DraftCounts, Drafter
from firsttoken.rehearsal.kernels import compile_kernels
from firsttoken.rehearsal.shards import ShardReader, Weights, ensure_shards, shard_paths, whole_model
from firsttoken.rehearsal.store import StoreClient, StoreServer
from firsttoken.rehearsal.tokens import decode, encode

KERNELS = compile_kernels()
T = TypeVar("T")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "model"
    with ThreadPoolExecutor() as pool:
        written = list(pool.map(lambda _: ensure_shards(folder, 3, 1.0), range(4)))
    assert sum(written) == 1, "one of several starts at a time writes"
    return folder


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASE_S", "TOKEN_S", "DRAFT_S"):
        monkeypatch.setattr(batching, name, 0.0)


def on_ranks(ranks: int, work: Callable[[Mesh], T]) -> list[T]:
    store = StoreServer()

    def run(rank: int) -> T:
        with closing(StoreClient(store.port)) as client, closing(Mesh(rank, ranks, client)) as mesh:
            return work(mesh)

    with closing(store), ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))


def slice_of(folder: Path, rank: int, ranks: int) -> tuple[Weights, list[int]]:
    weights: Weights = {}
    rows = []
    for path in shard_paths(folder):
        reader = ShardReader(path, rank, ranks)
        while reader.read(4096):
            pass
        reader.close()
        weights |= reader.weights
        rows.append(reader.table_rows)
    return weights, rows


def alone(folder: Path) -> tuple[Decoder, list[int]]:
    weights, rows = slice_of(folder, 0, 1)
    decoder = Decoder(weights, 0, 1, SLOTS)
    decoder.allocate()
    return decoder, rows


def generate(folder: Path, prompts: list[str], count: int, quality: float | None = None, **wish: float) -> tuple[list[str], Batcher]:
    decoder, rows = alone(folder)

    def forward(pieces: list[Piece]) -> NDArray[np.float64]:
        return decoder.logits(decoder.forward(pieces, KERNELS, lambda values: values, rows))

    drafter = None
    if quality is not None:
        draft = Decoder(whole_model(folder), 0, 1, SLOTS, fused=True)
        draft.allocate()
        drafter = Drafter(draft, rows, quality, 5)
    batcher = Batcher(forward, KERNELS, drafter, 0.0)
    found: dict[int, list[int]] = {number: [] for number in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        batcher.add({"id": number, "tokens": encode(prompt), "max_tokens": count, "temperature": 0.0, "seed": 1, "logprobs": None} | wish)
    while not batcher.idle:
        for number, tokens, _, _ in batcher.step()["out"]:
            found[number] += tokens
    return [decode(found[number]) for number in range(len(prompts))], batcher


def test_collectives_sum_and_spread_over_all_ranks() -> None:
    sums = on_ranks(3, lambda mesh: mesh.all_reduce(np.full((2, 5), float(mesh.rank + 1))))
    assert all(np.array_equal(total, np.full((2, 5), 6.0)) for total in sums)
    assert on_ranks(3, lambda mesh: (mesh.barrier(), mesh.broadcast(b"plan" if mesh.rank == 0 else None))[1]) == [b"plan"] * 3


def test_a_rank_that_leaves_out_a_collective_blocks_the_others() -> None:
    waiting = [threading.Event(), threading.Event()]
    go_on = threading.Event()

    def work(mesh: Mesh) -> bool:
        if mesh.rank == 2:
            came = [event.wait(0.3) for event in waiting]
            go_on.set()
            mesh.barrier()
            return not any(came)
        mesh.barrier()
        waiting[mesh.rank].set()
        return go_on.is_set()

    assert on_ranks(3, work) == [True, True, True]


def test_sharded_equals_unsharded(shards: Path) -> None:
    piece = Piece(slot=0, start=0, tokens=tuple(encode("Once upon a time, in a land")), before=(0, 0))
    decoder, rows = alone(shards)
    whole = decoder.logits(decoder.forward([piece], KERNELS, lambda values: values, rows))

    def work(mesh: Mesh) -> NDArray[np.float64]:
        weights, own_rows = slice_of(shards, mesh.rank, mesh.ranks)
        part = Decoder(weights, mesh.rank, mesh.ranks, SLOTS, fused=True)
        part.allocate()
        return part.logits(part.forward([piece], KERNELS, mesh.all_reduce, own_rows))

    for logits in on_ranks(3, work):
        assert np.allclose(logits, whole, rtol=0, atol=1e-9)


def test_text_is_deterministic_speakable_and_different_for_each_prompt(shards: Path) -> None:
    prompts = ["Hello", "What is a rank?", "x"]
    texts, _ = generate(shards, prompts, 40)
    assert texts == generate(shards, prompts, 40)[0] == [generate(shards, [prompt], 40)[0][0] for prompt in prompts]
    assert len(set(texts)) == 3
    for text in texts:
        assert text.isascii()
        assert text.replace(" ", "").replace(",", "").replace(".", "").isalpha()
        assert len(set(text.split())) > 5
    sampled, _ = generate(shards, prompts, 40, temperature=1.0, seed=3)
    assert sampled == generate(shards, prompts, 40, temperature=1.0, seed=3)[0]
    assert sampled != generate(shards, prompts, 40, temperature=1.0, seed=4)[0]
    assert sampled != texts


def test_the_tokenizer_brings_every_text_back() -> None:
    for text in ("the cat shu, and so.", "Ünïcode ✓ 漢字", "\x00\n\t", " "):
        assert decode(encode(text)) == text
    assert encode("")


@pytest.mark.parametrize("quality", [0.0, 0.15, 0.5, 0.9, 1.0])
def test_acceptance_is_the_draft_quality_and_the_output_is_the_same(shards: Path, quality: float) -> None:
    prompts = ["one", "two", "three"]
    texts, batcher = generate(shards, prompts, 120, quality)
    counts = batcher.counts
    assert counts.accepted / counts.drafted == pytest.approx(quality, abs=0.03)
    assert sum(counts.by_position) == counts.accepted
    assert counts.by_position == sorted(counts.by_position, reverse=True)
    assert texts == generate(shards, prompts, 120)[0]


@pytest.mark.parametrize("quality", [0.0, 0.15, 0.5, 1.0])
def test_the_number_of_draft_tokens_changes_the_share_as_the_same_drafter_would(quality: float) -> None:
    shares = {}
    for depth in (1, 3, 8):
        drafter, counts = Drafter(None, (), quality, 1, depth), DraftCounts(depth=depth)  # type: ignore[arg-type]  # only the dice are used
        for _ in range(1000):
            counts.add(drafter.begin())
        shares[depth] = counts.accepted / counts.drafted
        assert counts.drafted == 1000 * depth
        assert list(counts.by_position) == sorted(counts.by_position, reverse=True)
    assert shares[3] == pytest.approx(quality, abs=0.01)
    assert shares[1] >= shares[3] >= shares[8]


def test_sampled_output_is_the_same_with_drafts(shards: Path) -> None:
    assert generate(shards, ["a"], 60, 0.6, temperature=0.8)[0] == generate(shards, ["a"], 60, temperature=0.8)[0]
