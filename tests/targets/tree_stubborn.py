"""A server that swallows its first N SIGTERMs (argument, default 1) and ends with code 5 at the next; says `UP` and `TERM n`."""

import signal
import sys

swallow = int(sys.argv[1]) if len(sys.argv) > 1 else 1
count = 0


def on_term(_number: int, _frame: object) -> None:
    global count
    count += 1
    print("TERM", count, flush=True)
    if count > swallow:
        sys.exit(5)


signal.signal(signal.SIGTERM, on_term)
print("UP", flush=True)
while True:
    signal.pause()
