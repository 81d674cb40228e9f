"""A bundle: one archive with everything that a run recorded, redacted, for somebody on another machine.

The raw log is masked at equal length, so that every offset in events and index stays true; a manifest tells what is in it.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, BinaryIO

from firsttoken.history.masked_log import masked_log, secret_ranges
from firsttoken.history.runs import RunFolder
from firsttoken.model.redact import mask_text
from firsttoken.model.secrets import Secrets

_FILES = ("spec.json", "result.json")


def write_bundle(run: RunFolder, out: BinaryIO, known: Secrets, *, version: str, now: datetime) -> dict[str, Any]:
    """The manifest of what was written to `out`. `known`: secrets beside those that the run betrays. OSError where a disk fails."""
    log, secrets = masked_log(run, secret_ranges(run.events()), known)
    files = {"events.jsonl": b"".join(_events(run, secrets))}
    files |= {name: _json(hidden(content, secrets)) for name in _FILES if (content := _read(run, name))}
    index = run.path / "log" / "index"
    if index.exists():
        files["log/index"] = index.read_bytes()
    files |= {f"log/{part.name}": part.data for part in log if part.data}
    manifest = {
        "schema": "firsttoken/1",
        "kind": "bundle",
        "run": run.name,
        "firsttoken": version,
        "made_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "redacted": True,
        "files": [{"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()],
        "log": [{"name": part.name, "offset": part.offset, "bytes": len(part.data)} for part in log if part.data],
    }
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=int(now.timestamp())) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in {"manifest.json": _json(manifest), **files}.items():
            entry = tarfile.TarInfo(f"{run.name}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(now.timestamp())
            archive.addfile(entry, io.BytesIO(data))
    return manifest


def hidden(value: Any, secrets: Secrets) -> Any:
    """JSON types with every text masked, by name, by shape and by value."""
    return _named(secrets.plain(value))


def _named(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {name: _named(item) for name, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list) else value


def _events(run: RunFolder, secrets: Secrets) -> Iterator[bytes]:
    """Every line that is one; a torn last line is left out."""
    try:
        lines: Iterable[bytes] = run.events_file.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        yield json.dumps(hidden(event, secrets), separators=(",", ":")).encode() + b"\n"


def _read(run: RunFolder, name: str) -> dict[str, Any]:
    return run.spec() if name == "spec.json" else run.result()


def _json(content: Any) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"
