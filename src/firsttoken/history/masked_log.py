"""A run's raw log without its secrets, at equal length: offsets into it stay true.

Three things are masked: what the observer, who knew the values, found while it was written; what a name or a shape betrays; and whatever
was betrayed once, wherever else it stands.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from firsttoken.history.runs import RunFolder
from firsttoken.model.events import Event, SecretsInLog
from firsttoken.model.redact import mask_text, secrets_in_text
from firsttoken.model.secrets import Secrets

_PIECE = 1 << 20
_LONGEST_KEY = 64 << 10
_MOST_SHAPES = 100_000
_ALIKE = bytes.maketrans(b"12345679", b"00000000")
_BEGINS, _ENDS = b"-----BEGIN", b"-----END"


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the log: its name below `log/`, the offset of its first byte, its bytes."""

    name: str
    offset: int
    data: bytes


def secret_ranges(events: Iterable[Event]) -> tuple[tuple[int, int], ...]:
    """(offset, length) of every secret that the run's observer saw."""
    return tuple(pair for event in events if isinstance(event.body, SecretsInLog) for pair in event.body.ranges)


def raw_log(run: RunFolder, ranges: Iterable[tuple[int, int]]) -> list[Part]:
    """As recorded, with only the `ranges` masked: for reading on this machine. OSError where it cannot be read."""
    parts = [Part(path.name, offset, path.read_bytes()) for offset, path in run.log_segments()]
    known = list(ranges)
    return [Part(part.name, part.offset, _blotted(part.data, [(at - part.offset, size) for at, size in known])) for part in parts]


def masked_log(run: RunFolder, ranges: Iterable[tuple[int, int]], known: Secrets) -> tuple[list[Part], Secrets]:
    """For other eyes; and with `known` all values that the log betrays, which the events must not show either."""
    parts = raw_log(run, ranges)
    betrayed: set[str] = set()
    named: list[Part] = []
    for group in _whole(parts):
        data = b"".join(part.data for part in group)
        hidden = b"".join(_by_name(data, betrayed))
        begin = 0
        for part in group:
            named.append(Part(part.name, part.offset, hidden[begin : begin + len(part.data)]))
            begin += len(part.data)
    secrets = Secrets((*known.values, *betrayed))
    return [Part(part.name, part.offset, _blotted(part.data, [(a, b - a) for a, b in secrets.spans(part.data)])) for part in named], secrets


def _whole(parts: list[Part]) -> Iterator[list[Part]]:
    """Parts that follow each other without a gap: a secret may stand across their border."""
    group: list[Part] = []
    for part in parts:
        if group and group[-1].offset + len(group[-1].data) != part.offset:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _by_name(data: bytes, betrayed: set[str]) -> Iterator[bytes]:
    """Line by line, a private key whole. A line that differs from a clean one by its digits alone is clean too: most lines are such."""
    clean: set[bytes] = set()
    for begin, end, is_key in _stretches(data):
        if is_key:
            yield _hidden(data[begin:end], betrayed)
            continue
        for line in data[begin:end].splitlines(keepends=True):
            shape = shape_of(line)
            if shape in clean:
                yield line
                continue
            hidden = b"".join(_hidden(line[at : at + _PIECE], betrayed) for at in range(0, len(line), _PIECE))
            if hidden == line and len(clean) < _MOST_SHAPES:
                clean.add(shape)
            yield hidden


def shape_of(line: bytes) -> bytes:
    """The line with its digits made one, but for 8, which a kind of key begins with: to masking all others are alike."""
    return line.translate(_ALIKE)


def _stretches(data: bytes) -> Iterator[tuple[int, int, bool]]:
    """(begin, end, whether a private key stands there), whole lines each."""
    at = 0
    while (begun := data.find(_BEGINS, at)) >= 0:
        start = data.rfind(b"\n", at, begun) + 1 or at
        ends = data.find(_ENDS, begun, begun + _LONGEST_KEY)
        end = _line_end(data, ends if ends >= 0 else begun + _LONGEST_KEY)
        yield at, start, False
        yield start, end, True
        at = end
    yield at, len(data), False


def _hidden(data: bytes, betrayed: set[str]) -> bytes:
    """Of what is betrayed only ASCII is kept: the log's encoding is not known."""
    text = data.decode("latin-1")
    hidden = mask_text(text, equal_length=True)
    if hidden == text:
        return data
    betrayed.update(value for value in secrets_in_text(text) if value.isascii())
    return hidden.encode("latin-1")


def _line_end(data: bytes, at: int) -> int:
    return data.find(b"\n", at) + 1 or len(data)


def _blotted(data: bytes, ranges: Iterable[tuple[int, int]]) -> bytes:
    """`ranges` of (begin, length), which may reach beyond either end."""
    inside = [(max(at, 0), min(at + size, len(data))) for at, size in ranges]
    inside = [(begin, end) for begin, end in inside if begin < end]
    if not inside:
        return data
    buffer = bytearray(data)
    for begin, end in inside:
        buffer[begin:end] = b"*" * (end - begin)
    return bytes(buffer)
