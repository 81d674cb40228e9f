"""How fast each storage of this machine was read, remembered from one measurement to the next, with its age.

One JSON file, replaced as a whole; it may vanish, be damaged or be written by two at once: then it is measured again.
"""

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """`at`: Unix time of the measurement."""

    bytes_per_s: float
    at: float

    @property
    def age_s(self) -> float:
        return max(0.0, time.time() - self.at)


class RateBook:
    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, key: str) -> Remembered | None:
        row = self._rows().get(key)
        if not isinstance(row, dict):
            return None
        rate, at = row.get("bytes_per_s"), row.get("at")
        valid = isinstance(rate, int | float) and isinstance(at, int | float) and 0 < rate < 1e13
        return Remembered(bytes_per_s=float(rate), at=float(at)) if valid else None  # type: ignore[arg-type]  # checked above

    def keep(self, key: str, bytes_per_s: float) -> None:
        """A disk that refuses costs the next one a measurement, nothing else."""
        rows = self._rows()
        rows.pop(key, None)
        rows[key] = {"bytes_per_s": round(bytes_per_s), "at": round(time.time())}
        partial = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial.write_text(json.dumps(dict(list(rows.items())[-_MOST:])), encoding="utf8")
            partial.replace(self._file)

    def _rows(self) -> dict[str, object]:
        try:
            rows = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return rows if isinstance(rows, dict) else {}
