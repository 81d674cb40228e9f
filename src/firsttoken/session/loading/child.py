"""What touches the weights' file system: a program of its own, since a call into a dead mount can neither be ended nor left behind by its
process.

`python -P -m firsttoken.session.loading.child VERB JSON` answers JSON on stdout:
`survey {"argv": [...]}` or `{"path": ...}`: which files, how much of them is cached, and where they lie;
`measure {"paths": [...]}`: how fast their storage reads past the page cache;
`prefetch` (request on stdin, which stays open while it may go on): a line of progress at a time.
"""

import json
import os
import sys
import threading
from dataclasses import asdict
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.session.checking.facts import host_memory
from firsttoken.session.far_files import FAR, by_thread
from firsttoken.survey.checkpoint import read_checkpoint
from firsttoken.survey.page_cache import cached_bytes
from firsttoken.survey.prefetch import Prefetch, Progress
from firsttoken.survey.storage import direct_rate, storage_of

RESERVE = 0.05, 1 << 30
"""share of the memory, and bytes at least, that a prefetch leaves alone"""


def main(verb: str, request: dict[str, Any]) -> None:
    match verb:
        case "survey":
            _answer(_survey(request))
        case "measure":
            _answer(_measure(request["paths"]))
        case "prefetch":
            _prefetch(request)
        case _:
            raise SystemExit(f"no such verb: {verb}")


def room(procfs: Procfs) -> int | None:
    """Bytes that the page cache may still take: what memory and our cgroup allow, without a reserve. Pages of files count as free."""
    found = host_memory(procfs)
    if found.room is None:
        return None
    total = min(size for size in (found.total, found.cgroup_limit, found.room * 20) if size is not None)
    return max(0, found.room - max(int(total * RESERVE[0]), min(RESERVE[1], total // 4)))


def _survey(request: dict[str, Any]) -> dict[str, Any]:
    paths, engine, model = [request["path"]] if "path" in request else [], None, None
    if "argv" in request:
        from firsttoken.session.planning import plan_of

        plan = plan_of(request["argv"])
        engine, paths, model = plan.engine, list(plan.weight_files), plan.model
        if not paths:
            what = f"{model} is neither a folder here nor in the hub's cache" if model else "the command names no model"
            return {"engine": engine, "error": f"{what}: nothing is known of its weights"}
    if (silence := FAR.silence(paths[0])) is not None:
        return {"engine": engine, "path": paths[0], "silent": silence.advice(paths[0])}
    found = read_checkpoint(paths[0])
    if found is None:
        hint = f" ({model} is not in the hub's cache)" if model else "; of a model of the hub give the command that loads it"
        return {"engine": engine, "path": paths[0], "error": f"{paths[0]}: nothing is there{hint}"}
    files = [(path, size) for path, size in found.files if size]
    problems = [f"{one.path} {one.detail}" for one in found.broken]
    if not files:
        return {"engine": engine, "path": paths[0], "problems": problems, "error": f"{paths[0]}: no weight files are there"}
    cached: list[int | None] = []
    number = None
    for path, size in files:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            cached.append(cached_bytes(fd, 0, size))
            number = os.fstat(fd).st_dev if number is None else number
        finally:
            os.close(fd)
    place = storage_of(os.path.realpath(files[0][0]), number) if number is not None else None
    told = None if place is None else {**asdict(place), "key": place.key, "words": place.words}
    return {"engine": engine, "path": paths[0], "files": files, "cached": cached, "place": told, "problems": problems}


def _measure(paths: list[str]) -> dict[str, Any]:
    try:
        return {"bytes_per_s": direct_rate(paths)}
    except OSError as error:
        return {"error": f"{error.strerror or error}"}


def _prefetch(request: dict[str, Any]) -> None:
    procfs = Procfs()
    work = Prefetch(
        [(str(path), int(size)) for path, size in request["files"]],
        read_ahead=int(request["read_ahead"]),
        room=lambda: room(procfs),
        known=request.get("known"),
    )

    def until_stdin_ends() -> None:
        while os.read(0, 64):
            pass
        work.stop()

    threading.Thread(target=until_stdin_ends, daemon=True).start()
    work.run(lambda progress: _answer(_row(progress)))


def _row(progress: Progress) -> dict[str, Any]:
    return asdict(progress)


def _answer(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    FAR.ask = by_thread
    _verb = sys.argv[1]
    try:
        # of stdin one line; what comes after it is the sign to go on
        _line = b""
        while _verb == "prefetch" and not _line.endswith(b"\n") and (_byte := os.read(0, 1)):
            _line += _byte
        main(_verb, json.loads(_line if _verb == "prefetch" else sys.argv[2]))
    except BrokenPipeError:
        pass
    except OSError as problem:
        _answer({"error": f"{problem.filename or 'the weights'}: {problem.strerror or problem}"})
    sys.stdout.flush()
    os._exit(0)
