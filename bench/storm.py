"""A server that prints, and times its own writes: is it ever held up?

`python bench/storm.py TEXT BYTES REPORT [CHUNK]` writes the file TEXT again and again to stdout, in pieces of CHUNK bytes (4096), until
BYTES are written, and leaves in REPORT, as JSON: seconds in write(2) in all, the longest single one, and how many there were.
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    text, total, report, chunk = Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), Path(sys.argv[3]), int((*sys.argv, "4096")[4])
    pieces = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    written = writes = 0
    spent = longest = 0.0
    clock = time.perf_counter
    began = clock()
    while written < total:
        for piece in pieces:
            before = clock()
            written += os.write(1, piece)
            took = clock() - before
            spent += took
            longest = max(longest, took)
            writes += 1
            if written >= total:
                break
    whole = clock() - began
    part = report.with_suffix(".part")
    part.write_text(json.dumps({"bytes": written, "writes": writes, "write_s": spent, "longest_write_s": longest, "seconds": whole}))
    part.replace(report)


if __name__ == "__main__":
    main()
