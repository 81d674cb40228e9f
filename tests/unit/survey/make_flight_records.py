"""Makes real flight-recorder dumps with torch and gloo, for the fixtures beside it; not run by the tests, which need no torch.

    python make_flight_records.py FOLDER skip|order|sizes|healthy [--json]

Starts four ranks of itself. Each dumps its own recorder while it waits, so that the dumps show what a hang shows.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

RANKS = 4
DUMP_AFTER = 3.0
"""seconds in which the ranks come to stand where the story wants them"""


def rank_main(rank: int, folder: Path, story: str, as_json: bool) -> None:
    import torch
    import torch.distributed as dist
    from torch._C import _distributed_c10d as c10d

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    threading.Thread(target=play, args=(rank, story, torch, dist, pairs), daemon=True).start()
    time.sleep(DUMP_AFTER)
    # without stacks: they name folders
    told = c10d._dump_fr_trace_json(True, False) if as_json else c10d._dump_fr_trace(True, False, False)
    (folder / f"rank_{rank}{'.json' if as_json else ''}").write_bytes(told)
    time.sleep(1.0)
    os._exit(0)


def play(rank: int, story: str, torch, dist, pairs) -> None:
    tensor = torch.ones(8)
    for _ in range(3):
        dist.all_reduce(tensor)
    dist.all_reduce(torch.ones(4), group=pairs[rank // 2])
    if story == "skip" and rank != 2:
        dist.all_reduce(torch.ones(16))
    if story == "order":
        for step in ("world", "pair") if rank != 3 else ("pair", "world"):
            dist.all_reduce(tensor) if step == "world" else dist.all_reduce(torch.ones(4), group=pairs[rank // 2])
    if story == "sizes":
        dist.barrier()
        dist.all_reduce(torch.ones(64 if rank == 1 else 32))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("story", choices=("skip", "order", "sizes", "healthy"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=int)
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    if asked.rank is not None:
        rank_main(asked.rank, folder, asked.story, asked.json)
        return
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "200", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, str(folder), asked.story, *(["--json"] if asked.json else [])]
    ranks = [subprocess.Popen([*words, "--rank", str(rank)], env=env) for rank in range(RANKS)]
    for rank in ranks:
        rank.wait(timeout=600)
    (folder / "rendezvous").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
