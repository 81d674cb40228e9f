"""Results as JSON documents of schema `firsttoken/1`."""

import json
from typing import Any

import msgspec

from firsttoken.model.result import Result

SCHEMA = "firsttoken/1"


def document(kind: str, **fields: Any) -> dict[str, Any]:
    """Any document: its schema and kind first."""
    return {"schema": SCHEMA, "kind": kind, **fields}


def result_document(result: Result) -> dict[str, Any]:
    return document("result", **msgspec.to_builtins(result))


def to_json(doc: dict[str, Any]) -> str:
    """Non-finite numbers never reach a reader: they become null."""
    return json.dumps(_finite(doc), ensure_ascii=False, indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3) if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
