"""torch's flight recorder: one rank's dump, as a pickle or as JSON, into a `FlightRecord`. Never raises, whatever the bytes.

The fields are those of the dump format 2.0 to 2.10 (torch 2.5 to 2.13, `torch/csrc/distributed/c10d/FlightRecorder.hpp`): pickles have
numbers and None where JSON has strings and 0. Gloo's dumps (seen: torch 2.13) know no groups and leave every operation scheduled: there
`retired` says that one has ended, where with NCCL it may also have timed out. What has another shape is left out.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from firsttoken.model.collectives import FlightRecord, Group, Operation
from firsttoken.survey.flight_recorder_pickle import NotPlain, read_plain

LIMIT = 64 << 20
"""bytes of a dump; a full one of 2,000 entries with stacks has about 4 MB"""
_MOST_OPERATIONS = 100_000
_LAST_NUMBER = re.compile(r"(\d{1,6})(?:\.\w+)?$")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_PEERS = re.compile(r"(send|recv)\s+(\d{1,6})(->|<-)(\d{1,6})")


def read_record(data: bytes, name: str = "") -> FlightRecord | str:
    """The record, or in words why it is none. `name`: of the file; it ends in the rank."""
    try:
        raw = json.loads(data) if data[:64].lstrip()[:1] == b"{" else read_plain(data)
    except NotPlain as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {str(error)[:100]}"
    if not isinstance(raw, dict) or not ("entries" in raw or "pg_config" in raw):
        return "not a flight-recorder dump: it has neither entries nor groups"
    rank = _LAST_NUMBER.search(name)
    return _record(raw, int(rank[1]) if rank is not None else None)


def _record(raw: Mapping[str, Any], rank: int | None) -> FlightRecord:
    entries = raw.get("entries")
    rows = [row for row in entries[-_MOST_OPERATIONS:] if isinstance(row, dict)] if isinstance(entries, list) else []
    operations = tuple(one for row in rows if (one := _operation(row)) is not None)
    groups = {group.name: group for group in _groups(raw.get("pg_config"))}
    described = {name: description for row in rows if (named := _group_name(row)) is not None for name, description in (named,)}
    for name, description in described.items():
        known = groups.get(name) or (replace(groups[""], name=name) if "" in groups else Group(name=name))
        groups[name] = known if known.description else replace(known, description=description)
    groups = _with_status(groups, raw.get("pg_status"), rows)
    library = raw.get("comm_lib_version") or raw.get("nccl_version")
    return FlightRecord(
        rank=rank if rank is not None else _only_rank(groups.values()),
        version=_text(raw.get("version")),
        library=_text(library) or None,
        groups=groups,
        operations=operations,
    )


def _groups(config: Any) -> Iterator[Group]:
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield Group(name=_text(value.get("name", key)), description=_text(value.get("desc")), ranks=_ranks(value.get("ranks")))


def _ranks(told: Any) -> tuple[int, ...]:
    """`"[0, 1, 2]"`, or a list."""
    if isinstance(told, str):
        return tuple(int(number) for number in re.findall(r"\d{1,7}", told[:1_000_000]))
    return tuple(item for item in told if _is_int(item)) if isinstance(told, list | tuple) else ()


def _with_status(groups: dict[str, Group], status: Any, rows: list[dict[str, Any]]) -> dict[str, Group]:
    """Last sequence numbers. They are keyed by a number of the rank's own; entries tell which group it is, and where a group has none, the
    order of creation does, if it agrees with every entry."""
    if not isinstance(status, dict):
        return groups
    told = {number: value for key, value in status.items() if isinstance(value, dict) and (number := _number(key)) is not None}
    named: dict[int, str] = {}
    for row in rows:
        number, told_name = _number(row.get("pg_id")), _group_name(row)
        if number is not None and told_name is not None:
            named[number] = told_name[0]
    by_age = sorted((name for name in groups if name.isdecimal()), key=int)
    if len(by_age) == len(told):
        order = dict(zip(sorted(told), by_age, strict=True))
        if all(order.get(number) == name for number, name in named.items()):
            named = order
    found = dict(groups)
    for number, value in told.items():
        name = named.get(number)
        if name in found:
            enqueued, completed = _number(value.get("last_enqueued_collective")), _number(value.get("last_completed_collective"))
            found[name] = replace(
                found[name],
                enqueued=enqueued if enqueued is not None and enqueued >= 0 else None,
                completed=completed if completed is not None and completed >= 0 else None,
            )
    return found


def _operation(row: dict[str, Any]) -> Operation | None:
    named, seq = _group_name(row), _number(row.get("collective_seq_id", row.get("seq_id")))
    name = row.get("profiling_name")
    if named is None or seq is None or not isinstance(name, str):
        return None
    backend, _, bare = name.partition(":")
    name = bare or name
    peers = _PEERS.match(name)
    source, target = (int(peers[2]), int(peers[4])) if peers is not None else (0, 0)
    if peers is not None and peers[3] == "<-":
        source, target = target, source
    created = row.get("time_created_ns")
    return Operation(
        group=named[0],
        seq=seq,
        name=name.split(" ")[0],
        completed=row.get("state") == "completed" or (backend == "gloo" and row.get("retired") is True),
        started=row.get("state") in ("started", "completed"),
        peers=(source, target) if peers is not None else None,
        inputs=_shapes(row.get("input_sizes")),
        outputs=_shapes(row.get("output_sizes")),
        dtypes=_texts(row.get("input_dtypes")),
        created_ns=created if _is_int(created) else None,
    )


def _group_name(row: dict[str, Any]) -> tuple[str, str] | None:
    told = row.get("process_group")
    if isinstance(told, list | tuple) and len(told) == 2 and isinstance(told[0], str):
        return told[0], _text(told[1])
    return None


def _only_rank(groups: Any) -> int | None:
    """Its own: groups of one hold it, else the only rank that all groups share."""
    known = [set(group.ranks) for group in groups if group.ranks]
    shared = set.intersection(*known) if known else set()
    return shared.pop() if len(shared) == 1 else None


def _shapes(told: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(told, list | tuple):
        return ()
    return tuple(tuple(size for size in shape if _is_int(size)) for shape in told if isinstance(shape, list | tuple))


def _texts(told: Any) -> tuple[str, ...]:
    return tuple(item for item in told if isinstance(item, str)) if isinstance(told, list | tuple) else ()


def _text(told: Any) -> str:
    return told[:200] if isinstance(told, str) else ""


def _number(told: Any) -> int | None:
    """Also of JSON's strings."""
    if _is_int(told):
        return int(told)
    return int(told) if isinstance(told, str) and _WHOLE.fullmatch(told) else None


def _is_int(told: Any) -> bool:
    return isinstance(told, int) and not isinstance(told, bool) and abs(told) < 1 << 63
