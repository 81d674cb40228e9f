"""The checks of a command, in a program of their own: whatever of them hangs in a dead mount or a driver, nobody waits for its end.

`python -P -m firsttoken.session.checking.child JSON` answers one report as a line of JSON. `check_apart` writes the request; the
environment is the caller's.
"""

import json
import os
import sys
from typing import Any

import msgspec

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.gpu_code import Capability
from firsttoken.session.checking.check import check
from firsttoken.session.checking.subject import Wanted
from firsttoken.session.far_files import FAR, by_thread
from firsttoken.session.planning import local_world, working_folder


def main(request: dict[str, Any]) -> None:
    procfs = Procfs()
    ours = tuple(int(pid) for pid in request["without"])

    def family() -> frozenset[int]:
        return frozenset({*ours, *procfs.family(ours)})

    wanted = Wanted(
        quick=request["quick"],
        gpu_memory=request["gpu_memory"],
        capabilities=tuple(map(Capability.parse, request["capabilities"])),
        patience=request["patience"],
        without=family,
        procfs=procfs,
    )
    report = check(request["argv"], wanted, world=local_world(dict(os.environ), request["cwd"] or working_folder()))
    sys.stdout.write(json.dumps(msgspec.to_builtins(report)) + "\n")  # ASCII: arguments that are no UTF-8 come back as they were
    sys.stdout.flush()


if __name__ == "__main__":
    FAR.ask = by_thread
    main(json.loads(sys.argv[1]))
    os._exit(0)  # a part that hangs does not keep us
