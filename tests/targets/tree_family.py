"""A server that leaves every kind of child behind: plain, setsid, doubly forked, doubly forked with a scrubbed environment.

Prints `PIDS plain setsid double scrubbed` once all of them run, then sleeps. All ignore SIGTERM where `--deaf` is given.
"""

import os
import signal
import sys
import time


def child(detach: bool, double: bool, scrub: bool) -> int:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        if detach:
            os.setsid()
        if double and os.fork() != 0:
            os._exit(0)
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        ignore = "import signal; signal.signal(15, signal.SIG_IGN); " if "--deaf" in sys.argv else ""
        program = [sys.executable, "-I", "-S", "-c", f"{ignore}import time; time.sleep(300)"]
        os.execve(sys.executable, program, {} if scrub else dict(os.environ))
    os.close(write)
    if double:
        os.waitpid(pid, 0)
    found = int(os.read(read, 32))
    os.close(read)
    return found


if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids = [child(False, False, False), child(True, False, False), child(True, True, False), child(True, True, True)]
print("PIDS", *pids, flush=True)
time.sleep(300)
