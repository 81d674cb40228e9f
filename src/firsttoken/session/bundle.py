"""Bundles and attached archives: making one of a run, and reading one as if it were the run or the folder that it was made from."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from firsttoken import __version__
from firsttoken.history.archive import BadArchive, Unpacked, is_archive, unpack
from firsttoken.history.bundle import write_bundle
from firsttoken.history.runs import RunFolder
from firsttoken.model.codec import is_sound
from firsttoken.model.redact import secrets_in_env
from firsttoken.model.result import Result
from firsttoken.model.secrets import Secrets
from firsttoken.session.explain import explain_path, explain_run

_LONGEST_EVENT = 8 << 20
"""bytes; stacks of a process with hundreds of threads take a tenth of it"""

__all__ = ["BadArchive", "bundle", "explain_archive", "is_archive_file", "opened", "run_in"]


def bundle(run: RunFolder, target: Path) -> dict[str, Any]:
    """The manifest. The whole archive is there or none: it is written beside `target` first. OSError where that cannot be.

    A device or a pipe is no place for an archive: it would be replaced by the file. A link is followed.
    """
    target = target.resolve()
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "is no plain file; name one with -o", str(target))
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(partial, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            manifest = write_bundle(run, out, Secrets(secrets_in_env(os.environ)), version=__version__, now=datetime.now(UTC))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def is_archive_file(name: str | None) -> bool:
    """Whether that is the path of an archive. OSError where the file is there and cannot be read."""
    return name is not None and Path(name).is_file() and is_archive(Path(name))


@contextmanager
def opened(archive: Path) -> Iterator[Unpacked]:
    """Its known files, for as long as they are wanted. BadArchive or OSError."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-") as folder:
        found = unpack(archive, Path(folder))
        dropped = _keep_sound(found.folder / "events.jsonl")
        told = (f"{dropped} events with numbers that nothing could have shown",) if dropped else ()
        yield replace(found, left_out=(*found.left_out, *told))


def _keep_sound(events: Path) -> int:
    """Leaves out events whose numbers or length no recorder writes; how many they were."""
    if not events.exists():
        return 0
    checked, dropped = events.with_suffix(".checked"), 0
    with events.open("rb") as file, checked.open("wb") as out:
        while line := file.readline(_LONGEST_EVENT):
            if line.endswith(b"\n") and is_sound(line):
                out.write(line)
            else:  # what follows of a line that is too long, or a torn one, is no event either
                dropped += 1
    checked.replace(events)
    return dropped


def run_in(unpacked: Unpacked) -> RunFolder | None:
    """The run that an archive holds; None: files of a bug report."""
    return RunFolder(unpacked.folder) if (unpacked.folder / "events.jsonl").exists() else None


def explain_archive(archive: Path) -> Result:
    """As of the run, or of the folder, that was packed. BadArchive or OSError."""
    with opened(archive) as unpacked:
        run = run_in(unpacked)
        found = explain_run(run) if run is not None else explain_path(unpacked.folder)
    left_out = tuple(f"left out of {archive.name}: {text}" for text in unpacked.left_out)
    return replace(found, folder=str(archive), not_checked=(*found.not_checked, *left_out))
