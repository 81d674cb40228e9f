"""Whatever somebody attaches: no exception, no hang, and bounded memory, in all that `explain` reads.

Key insight: bytes at random are refused at the first look. So files that people really attach (the reports of the tests, the recorded runs)
are cut, doubled, mixed and sprinkled with bytes, and hypothesis makes what it finds small. A process may take so much memory and no more
(RLIMIT_AS), and who does not come back within a minute ends it with the stack of where it is.

Each kind of file gets the same share of `--seconds`. `--seed` draws other examples.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import pickle
import resource
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from firsttoken.history.archive import BadArchive
from firsttoken.model.attached import Attached
from firsttoken.session.bundle import explain_archive
from firsttoken.session.explain import explain, explain_path
from firsttoken.survey.flight_recorder import read_record
from firsttoken.survey.gpus_csv import read_gpus
from firsttoken.survey.probes_text import read_probes
from firsttoken.survey.processes_text import read_processes
from firsttoken.survey.stacks_text import read_stacks

CASES = Path(__file__).resolve().parent.parent / "tests" / "cases"
MEMORY = 4 << 30
"""bytes of address space"""
HANGS_AFTER_S, SLOW_S = 60, 10.0
"""wall clock for one example, and processor time"""
_ROUND = 100
_SALT = (
    b"\x00",
    b"\xff\xfe",
    b"\x1b[31m",
    b"\r",
    b"\n" * 40,
    b"9" * 400,
    b"-1",
    b"1e999",
    b"NaN",
    b"%s{}",
    b"(" * 300,
    b'"' * 60,
    "\u2028é".encode(),
)


def seeds(kind: str) -> list[bytes]:
    """Files of that kind from the reports of the tests."""
    found: list[bytes] = []
    for file in sorted((CASES / "reports").glob("*.toml")):
        told = tomllib.loads(file.read_text(encoding="utf8"))
        texts = told.get("stacks", {}).values() if kind == "stacks" else [told[kind]] if kind in told else []
        found += [text.encode() for text in texts]
    return found


def damaged(originals: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of them, or a mix of two, with up to eight cuts, doublings and bytes that do not belong there."""
    salt = st.one_of(st.sampled_from(_SALT), st.binary(max_size=24))
    edit = st.tuples(st.sampled_from(["cut", "double", "salt", "swap"]), st.floats(0, 1), st.floats(0, 0.3), salt)
    return st.builds(_edited, st.sampled_from(originals), st.one_of(st.just(b""), st.sampled_from(originals)), st.lists(edit, max_size=8))


def _edited(first: bytes, second: bytes, edits: list[tuple[str, float, float, bytes]]) -> bytes:
    data = first[: len(first) // 2] + second if second else first
    for what, where, share, salt in edits:
        at = int(where * len(data))
        end = at + int(share * len(data))
        match what:
            case "cut":
                data = data[:at] + data[end:]
            case "double":
                data = data[:end] + data[at:]
            case "salt":
                data = data[:at] + salt + data[at:]
            case _:
                data = data[end:] + data[:at]
        data = data[: 1 << 20]
    return data


def _log(data: bytes) -> None:
    explain(Attached(log=data))


def _text(read: Callable[[str], object]) -> Callable[[bytes], None]:
    return lambda data: (read(data.decode("utf8", "replace")), None)[1]


def _recorder(data: bytes) -> None:
    read_record(data)


def _folder(data: bytes) -> None:
    """The same damaged bytes under every name that a folder may hold."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-fuzz-") as scratch:
        folder = Path(scratch)
        for name in ("command.txt", "server.log", "processes.txt", "gpus.csv", "probes.txt"):
            (folder / name).write_bytes(data)
        (folder / "stacks").mkdir()
        (folder / "stacks" / "7.txt").write_bytes(data)
        (folder / "flight_recorder").mkdir()
        (folder / "flight_recorder" / "rank_0").write_bytes(data)
        explain_path(folder)


def _archive(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="firsttoken-fuzz-") as scratch:
        file = Path(scratch) / "bundle.tar.gz"
        file.write_bytes(data)
        with contextlib.suppress(BadArchive):  # refused in a sentence
            explain_archive(file)


_MODES: dict[str, Literal["w:gz", "w:xz", "w:"]] = {"gz": "w:gz", "xz": "w:xz", "": "w:"}


def _packed(content: Mapping[str, bytes], kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=out, mode=_MODES[kind]) as tar:
            for name, data in content.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _archives() -> st.SearchStrategy[bytes]:
    """Damaged archives of sound files, and sound archives of damaged ones, whose names may lead elsewhere."""
    runs = [file.read_bytes() for file in sorted((CASES / "runs").glob("*.xz"))[:4]]
    events = []
    for data in runs:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = archive.extractfile("events.jsonl")
            events.append(member.read()[: 1 << 17] if member is not None else b"")
    logs = seeds("log")[:10]
    names = st.sampled_from(
        ("events.jsonl", "run/events.jsonl", "log/head.raw", "server.log", "../../x", "/etc/x", "a/" * 200 + "x", "spec.json")
    )
    content = st.dictionaries(names, st.one_of(damaged(events), damaged(logs)), min_size=1, max_size=4)
    whole = st.builds(_packed, content, st.sampled_from(("gz", "xz", "zip", "")))
    sound = [_packed({"run/events.jsonl": events[0], "run/log/head.raw": logs[0]}, kind) for kind in ("gz", "zip", "")]
    return st.one_of(whole, damaged(sound))


def _dumps() -> list[bytes]:
    entry = {
        "record_id": 1, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 1, "input_sizes": [[4]], "output_sizes": [[4]], "state": "started",
        "frames": [{"name": "f", "filename": "x.py", "line": 1}],
    }  # fmt: skip
    told = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {},
        "entries": [entry] * 3,
    }
    return [*(pickle.dumps(told, protocol=protocol) for protocol in (2, 4, 5)), json.dumps(told).encode()]


def kinds() -> dict[str, tuple[st.SearchStrategy[bytes], Callable[[bytes], None]]]:
    return {
        "log": (damaged(seeds("log")), _log),
        "stacks": (damaged(seeds("stacks")), _text(read_stacks)),
        "ps": (damaged(seeds("processes")), _text(read_processes)),
        "csv": (damaged(seeds("gpus")), _text(read_gpus)),
        "probes": (damaged(seeds("probes")), _text(read_probes)),
        "recorder": (damaged(_dumps()), _recorder),
        "folder": (damaged([*seeds("log"), *seeds("stacks"), *seeds("processes"), *_dumps()]), _folder),
        "archive": (_archives(), _archive),
    }


def fuzz(strategy: st.SearchStrategy[bytes], check: Callable[[bytes], None], seconds: float, first: int) -> dict[str, Any]:
    """Examples until the time is over. What a check raises, hypothesis makes small and raises again."""
    tally = {"examples": 0, "slowest_s": 0.0}

    def one(data: bytes) -> None:
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        began = time.process_time()
        check(data)
        took = time.process_time() - began
        tally["examples"] += 1
        tally["slowest_s"] = round(max(tally["slowest_s"], took), 2)
        assert took < SLOW_S, f"{took:.1f} s for {len(data)} bytes"

    end = time.monotonic() + seconds
    for number in _until(end):
        quiet = settings(max_examples=_ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck),
                         phases=(Phase.generate, Phase.shrink))  # fmt: skip
        seed(first + number)(quiet(given(strategy)(one)))()
    faulthandler.cancel_dump_traceback_later()
    return tally


def _until(end: float) -> Iterator[int]:
    number = 0
    while number == 0 or time.monotonic() < end:
        yield number
        number += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/fuzz.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one kind of file")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    chosen = {name: pair for name, pair in kinds().items() if asked.only in (None, name)}
    rows: dict[str, Any] = {}
    for name, (strategy, check) in chosen.items():
        rows[name] = fuzz(strategy, check, asked.seconds / len(chosen), asked.seed * 1_000_000)
        print(f"{name}: {rows[name]['examples']} examples, the slowest {rows[name]['slowest_s']} s", file=sys.stderr, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    if asked.json:
        document = {"schema": "firsttoken/1", "kind": "benchmark", "name": "fuzz", "summary": {"kinds": rows, "peak_mib": peak}}
        print(json.dumps(document))
    else:
        print(f"no exception and no hang in {sum(row['examples'] for row in rows.values())} examples; {peak} MiB at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
