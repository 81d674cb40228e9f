"""Resumable benchmarks: what is measured is cut into cells, and each cell becomes one JSON line as soon as it is done.

Key insight: a line holds the cell's key and the conditions under which it was measured. A second call under the same conditions goes on
where the first stopped, shards that share a file never measure a cell twice, and other conditions never mix into one summary.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]

RESULTS = Path(__file__).resolve().parent / "results"


class CellFailed(Exception):
    """A cell could not be measured; the text says why. It is not kept, so the next call tries it again."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count`, counted from one."""

    number: int = 1
    count: int = 1

    def __contains__(self, index: int) -> bool:
        return index % self.count == self.number - 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`i/n` with 1 ≤ i ≤ n; argparse.ArgumentTypeError else."""
        number, slash, count = text.partition("/")
        if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
            return cls(int(number), int(count))
        raise argparse.ArgumentTypeError(f"{text!r} is no shard; write i/n, from 1/n to n/n")


def options(name: str, about: str | None) -> argparse.ArgumentParser:
    """The parser that all benchmarks share; each adds its own options."""
    parser = argparse.ArgumentParser(prog=f"bench/{name}.py", description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one document on stdout; progress goes to stderr anyway")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", type=Shard.parse, default=Shard(), metavar="i/n", help="measure only every n-th cell")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.jsonl", help="results, one JSON line a cell (default: %(default)s)")
    return parser


@dataclass(slots=True)
class Book:
    """The results file as one set of conditions sees it. Opened anew for each line, so that several processes may add to it."""

    path: Path
    conditions: Mapping[str, Any]
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reads what is there; a torn line is left out, and of a cell that stands there twice the last counts."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("cell"), str) and row.get("conditions") == dict(self.conditions):
                self.rows[row["cell"]] = row

    def add(self, cell: str, fields: Mapping[str, Any]) -> Row:
        row = {"cell": cell, "conditions": dict(self.conditions), **fields}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            end = os.lseek(fd, 0, os.SEEK_END)
            torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
            os.write(fd, (b"\n" if torn else b"") + json.dumps(row).encode() + b"\n")
        finally:
            os.close(fd)
        self.rows[cell] = json.loads(json.dumps(row))
        return self.rows[cell]

    def chosen(self, cells: Iterable[str]) -> list[Row]:
        """Rows of these cells, in this order, as far as they are measured."""
        return [self.rows[cell] for cell in cells if cell in self.rows]


def measure(
    book: Book, cells: Sequence[str], shard: Shard, one: Callable[[str], Mapping[str, Any]], told: Callable[[Row], str], *, jobs: int = 1
) -> int:
    """Measures the cells of this shard that are not in the book, `jobs` of them at a time. Returns how many of them failed."""
    wanted = [cell for index, cell in enumerate(cells) if index in shard]
    left = [cell for cell in wanted if cell not in book.rows]
    if len(left) < len(wanted):
        say(f"{len(wanted) - len(left)} of {len(wanted)} cells are in {book.path} already")
    failed = done = 0

    def timed(cell: str) -> tuple[str, Mapping[str, Any] | CellFailed]:
        began = time.monotonic()
        try:
            fields = one(cell)
        except CellFailed as error:
            return cell, error
        return cell, {**fields, "measured_at": round(time.time()), "took_s": round(time.monotonic() - began, 1)}

    pool = ThreadPoolExecutor(jobs, "cells")
    try:
        for ended in as_completed([pool.submit(timed, cell) for cell in left]):
            cell, fields = ended.result()
            done += 1
            if isinstance(fields, CellFailed):
                failed += 1
                say(f"[{done}/{len(left)}] {cell}: not measured: {fields}")
            else:
                say(f"[{done}/{len(left)}] {told(book.add(cell, fields))}")
    finally:
        pool.shutdown(cancel_futures=True)
    return failed


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def document(name: str, summary: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """What `--json` prints. `machine` is the one that prints; a row does not tell where it was measured."""
    return {
        "schema": "firsttoken/1",
        "kind": "benchmark",
        "name": name,
        "machine": {"cores": os.cpu_count(), "kernel": os.uname().release, "load_1min": round(os.getloadavg()[0], 2)},
        "summary": dict(summary),
        "cells": list(rows),
    }


def report(name: str, as_json: bool, summary: Mapping[str, Any], rows: Sequence[Row], text: Iterable[str]) -> None:
    """The document on stdout, or the text for people."""
    if as_json:
        print(json.dumps(document(name, summary, rows)))
        return
    for line in text:
        print(line)
