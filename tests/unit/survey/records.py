"""Flight-recorder dumps as torch writes them for NCCL, without torch: several ranks that stand in a story."""

import json
import pickle
from typing import Any

GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "5": ("tp", [0, 1]), "6": ("tp", [2, 3])}


def entry(
    group: str, seq: int, state: str = "completed", *, name: str = "all_reduce", size: int = 8, p2p: int = 0, **more: Any
) -> dict[str, Any]:
    return {
        "record_id": seq, "pg_id": int(group), "process_group": (group, GROUPS[group][0]), "thread_name": "python", "thread_id": "1",
        "collective_seq_id": seq, "p2p_seq_id": p2p, "op_id": seq, "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_758_610_505_880_883_597,
        "input_sizes": [[size]], "input_dtypes": ["BFloat16"], "output_sizes": [[size]], "output_dtypes": ["BFloat16"], "state": state,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": state == "completed", "timeout_ms": 600_000,
        "is_p2p": p2p > 0, **more,
    }  # fmt: skip


def dump(rank: int, *entries: dict[str, Any], version: str = "2.9", status: bool = True) -> dict[str, Any]:
    """Of one rank: it knows the groups that it is in."""
    own = {name: ranks for name, (_, ranks) in GROUPS.items() if rank in ranks}
    last = {name: [e["collective_seq_id"] for e in entries if e["process_group"][0] == name] for name in own}
    told: dict[str, Any] = {
        "version": version,
        "pg_config": {name: {"name": name, "desc": GROUPS[name][0], "ranks": str(ranks)} for name, ranks in own.items()},
        ("nccl_version" if version < "2.9" else "comm_lib_version"): "2.27.3",
        "entries": list(entries),
    }
    if status:
        told["pg_status"] = {
            name: {"last_enqueued_collective": max(seqs, default=-1), "last_started_collective": -1, "last_completed_collective": -1}
            for name, seqs in last.items()
        }
    return told


def as_pickle(told: dict[str, Any], protocol: int = 2) -> bytes:
    """torch writes protocol 2."""
    return pickle.dumps(told, protocol=protocol)


def as_json(told: dict[str, Any]) -> bytes:
    """torch's JSON has strings for the status and no list where there are no entries."""
    told = {**told, "pg_status": {k: {n: str(v) for n, v in row.items()} for k, row in told.get("pg_status", {}).items()}}
    if not told["entries"]:
        del told["entries"]
    return json.dumps(told).encode()
