"""Earlier answers about speculation, one small file each: so that this week's can be held against last week's."""

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from firsttoken.history.runs import home

_LOOKED_AT = 200


def folder() -> Path:
    return home() / "speculations"


def save(doc: Mapping[str, Any], now: datetime) -> Path:
    """Readable for its owner only. OSError where it cannot be written."""
    place = folder()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = place / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}.json"
    partial = target.with_suffix(f".{os.getpid()}")
    with open(partial, "w", encoding="utf8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(doc, file, indent=1)
    partial.replace(target)
    return target


def latest(like: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any] | None:
    """The latest document that has a speed-up and the same values as this one; dotted keys look into objects."""
    alike = json.loads(json.dumps(like))  # as it would come back from its file
    wanted = {key: _value(alike, key) for key in keys}
    for doc in _documents():
        if doc.get("speedup") is not None and all(_value(doc, key) == value for key, value in wanted.items()):
            return doc
    return None


def _documents() -> Iterator[dict[str, Any]]:
    """Latest first; files that were damaged are passed over."""
    place = folder()
    names = sorted(place.glob("*.json"), reverse=True) if place.is_dir() else []
    for file in names[:_LOOKED_AT]:
        try:
            found = json.loads(file.read_text(encoding="utf8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _value(doc: Mapping[str, Any], key: str) -> Any:
    value: Any = doc
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
