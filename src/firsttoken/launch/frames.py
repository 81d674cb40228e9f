"""The frames of the control socket, both ways: `u32` payload length (big-endian), one type byte, payload.

`J` carries a JSON object, `L` log bytes: `u64` offset, `f64` t, raw bytes. Pure: bytes in, frames out, however the stream was cut. A stream
that is not made of such frames sets `Decoder.broken` to a sentence and gives nothing more; it never raises.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_PAYLOAD = 32 << 20
"""Bytes. Larger lengths are taken for a broken stream."""

_HEAD = struct.Struct(">IB")
_LOG = struct.Struct(">Qd")
_JSON_TYPE, _LOG_TYPE = ord("J"), ord("L")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFrame:
    value: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFrame:
    """Raw output bytes. `offset` counts bytes since launch; `t` is seconds since launch at which they were read."""

    offset: int
    t: float
    data: bytes


Frame = JsonFrame | LogFrame


def encode_json(value: Mapping[str, Any]) -> bytes:
    return encode_json_bytes(json.dumps(value, separators=(",", ":")).encode())


def encode_json_bytes(payload: bytes) -> bytes:
    """A `J` frame around an object that is JSON already."""
    return _HEAD.pack(len(payload), _JSON_TYPE) + payload


def encode_log(offset: int, t: float, data: bytes) -> bytes:
    return _HEAD.pack(_LOG.size + len(data), _LOG_TYPE) + _LOG.pack(offset, t) + data


class Decoder:
    """Incremental: feed it whatever came."""

    __slots__ = ("_buffer", "broken")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.broken: str | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that became whole. Frames of other types and `J` frames that are not objects are left out."""
        if self.broken is not None:
            return []
        self._buffer += data
        frames: list[Frame] = []
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer, at)
            if length > MAX_PAYLOAD:
                self.broken = f"a frame claims {length} bytes, more than the {MAX_PAYLOAD} that one may have"
                self._buffer.clear()
                return frames
            end = at + _HEAD.size + length
            if len(self._buffer) < end:
                break
            frame = _frame(kind, bytes(memoryview(self._buffer)[at + _HEAD.size : end]))
            if frame is not None:
                frames.append(frame)
            at = end
        del self._buffer[:at]
        return frames


def _frame(kind: int, payload: bytes) -> Frame | None:
    if kind == _LOG_TYPE and len(payload) >= _LOG.size:
        offset, t = _LOG.unpack_from(payload)
        return LogFrame(offset=offset, t=t, data=payload[_LOG.size :])
    if kind == _JSON_TYPE:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            return None
        return JsonFrame(value=value) if isinstance(value, dict) else None
    return None
