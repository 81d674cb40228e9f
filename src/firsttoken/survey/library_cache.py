"""What libraries were found to hold, kept by path, size and time of change: reading them once is enough.

One JSON file, replaced as a whole. It may vanish, be damaged or be written by two at once: then libraries are read again.
"""

import contextlib
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from firsttoken.model.gpu_code import Library
from firsttoken.survey.gpu_libraries import read_library

_FORMAT = 1
"""raised when reading finds more or otherwise in the same file"""
_MOST_ENTRIES = 2000
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    size: int
    changed: int
    library: Library


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    format: int
    rows: dict[str, _Row]


class LibraryCache:
    """`file` None: nothing is kept."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._rows = _read(file) if file is not None else {}
        self._new = False

    def read(self, path: Path) -> Library:
        key = os.path.realpath(path)
        try:
            stat = os.stat(key)
        except OSError:
            return read_library(path)
        row = self._rows.get(key)
        if row is not None and (row.size, row.changed) == (stat.st_size, stat.st_mtime_ns):
            return replace(row.library, file=str(path))
        library = read_library(path)
        self._rows.pop(key, None)
        self._rows[key] = _Row(size=stat.st_size, changed=stat.st_mtime_ns, library=library)
        self._new = True
        return library

    def keep(self) -> None:
        """Writes what is new. A disk that refuses costs the next reader its time, nothing else."""
        if self._file is None or not self._new:
            return
        rows = dict(list(self._rows.items())[-_MOST_ENTRIES:])
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, temporary = tempfile.mkstemp(dir=self._file.parent, prefix=self._file.name)
            try:
                with os.fdopen(fd, "wb") as out:
                    out.write(msgspec.json.encode(_Kept(format=_FORMAT, rows=rows)))
                os.replace(temporary, self._file)
            except OSError:
                os.unlink(temporary)
                raise
        self._new = False


def _read(file: Path) -> dict[str, _Row]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return {}
        kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, ValueError):
        return {}
    return kept.rows if kept.format == _FORMAT else {}
