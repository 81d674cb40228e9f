"""Events to and from JSON lines. Reading never raises: what cannot be read becomes an `UnknownEvent` or is left out at a torn end."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from firsttoken.model.events import Body, Event, UnknownEvent
from firsttoken.model.plan import Plan
from firsttoken.model.secrets import Secrets

_KINDS: dict[str, type[Any]] = {cls.kind: cls for cls in get_args(Body) if cls is not UnknownEvent}
_ODD_NUMBER = re.compile(rb"NaN|Infinity|\d{19}|[eE]\+?\d\d")
_LARGEST = 1 << 63
_ENVELOPE = ("seq", "t", "wall", "node", "kind")


def body_to_fields(body: Body) -> dict[str, Any]:
    """The body as plain JSON types with its `kind`, without an envelope: what an observer hands to the recorder."""
    if isinstance(body, UnknownEvent):
        return {"kind": body.original, **body.fields}
    fields: dict[str, Any] = msgspec.to_builtins(body)
    return {"kind": body.kind, **fields}


def masked(body: Body, secrets: Secrets) -> Body:
    """Without the secrets' values, wherever they stand in it."""
    fields = body_to_fields(body)
    hidden = secrets.plain(fields)
    return body if hidden == fields else body_from_fields(str(hidden.pop("kind")), hidden)


def masked_plan(plan: Plan, secrets: Secrets) -> Plan:
    """The same of a plan."""
    hidden: Plan = msgspec.convert(secrets.plain(msgspec.to_builtins(plan)), Plan)
    return hidden


def encode(event: Event) -> bytes:
    """One line, newline included."""
    head = {"seq": event.seq, "t": round(event.t, 6), "wall": round(event.wall, 6), "node": event.node}
    return json.dumps({**head, **body_to_fields(event.body)}, separators=(",", ":"), ensure_ascii=False).encode("utf8", "replace") + b"\n"


def decode(line: bytes | str) -> Event | None:
    """None where the line is no event at all (torn, or not JSON with an envelope)."""
    try:
        raw = json.loads(line)
        return from_fields(raw) if isinstance(raw, dict) else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def is_sound(line: bytes) -> bool:
    """Whether every number in it is one that a counter or a clock can show: a record may come from a stranger."""
    if _ODD_NUMBER.search(line) is None:
        return True
    try:
        json.loads(line, parse_int=_bounded, parse_float=_bounded, parse_constant=_bounded)
    except (ValueError, RecursionError):
        return False
    return True


def from_fields(raw: dict[str, Any]) -> Event:
    """KeyError, TypeError or ValueError where the envelope is missing or wrong; a wrong body becomes an `UnknownEvent`."""
    kind = str(raw["kind"])
    fields = {name: value for name, value in raw.items() if name not in _ENVELOPE}
    body = body_from_fields(kind, fields)
    return Event(seq=int(raw["seq"]), t=float(raw["t"]), wall=float(raw["wall"]), node=str(raw["node"]), body=body)


def body_from_fields(kind: str, fields: dict[str, Any]) -> Body:
    cls = _KINDS.get(kind)
    if cls is not None:
        try:
            body: Body = msgspec.convert(fields, cls)
            return body
        except (msgspec.ValidationError, TypeError, ValueError):
            pass
    return UnknownEvent(original=kind, fields=fields)


def read(lines: Iterable[bytes]) -> Iterator[Event]:
    """All readable events, in the recorder's order; a repeated or older `seq` (a torn line written twice) is left out."""
    last = -1
    for line in lines:
        event = decode(line)
        if event is not None and event.seq > last:
            last = event.seq
            yield event


def _bounded(text: str) -> float:
    value = float(text[:400])
    if not abs(value) <= _LARGEST:  # what is no number is not either
        raise ValueError(f"no number of a record is {text[:30]}")
    return value
