"""A tiny observer: `tree_observer.py FOLDER [--die-first N] [--ready-at WORD]`.

Says hello, holds the master, posts `judged` at the word and at the end, and becomes a survivor when the socket closes without `ended`.
"""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

from firsttoken.launch.control import Control, ControlError
from firsttoken.launch.frames import JsonFrame, LogFrame
from firsttoken.launch.survivors import NoRecord, Survivor, keeper_gone

folder = Path(sys.argv[1])
options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=False))
master = int(os.environ["FIRSTTOKEN_MASTER_FD"])
os.set_inheritable(master, False)

count = folder / "observer-starts"
starts = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(starts))
if starts <= int(options.get("--die-first", "0")):
    os.kill(os.getpid(), signal.SIGKILL)

word = options.get("--ready-at", "").encode()
seen, events, ended = b"", [], False


def judged(verdict: str) -> dict[str, str]:
    return {"kind": "judged", "verdict": verdict, "phase": "first_token", "reason": "so it is"}


try:
    record = json.loads((folder / "keeper.json").read_text())
    with Control(record["socket"]) as control:
        control.hello("observer", events_from=0, log_from=0)
        (folder / "observer-up").write_text(str(os.getpid()))
        while not control.closed and not ended:
            for frame in control.frames(seconds=60):
                if isinstance(frame, LogFrame):
                    seen += frame.data
                    if word and word in seen:
                        word = b""
                        control.send({"post": [judged("ready")]})
                elif isinstance(frame, JsonFrame):
                    events += frame.value.get("events", [])
                    ended = ended or "ended" in frame.value
                    if any(event["kind"] == "emptied" for event in frame.value.get("events", [])):
                        control.send({"post": [judged("failed")], "bye": True})
except ControlError:
    pass
deadline = time.monotonic() + 5
while not ended and not keeper_gone(folder) and time.monotonic() < deadline:
    time.sleep(0.01)  # its socket closes a moment before it is gone
if not ended:
    try:
        survivor = Survivor(folder, master, received_events=events)
    except NoRecord:
        sys.exit(3)
    while not survivor.finished:
        readable = [] if survivor.closed else [survivor]
        select.select(readable, [], [], max(0.0, min(1.0, survivor.next_at - time.monotonic())))
        survivor.read()
        survivor.turn()
        survivor.take()
    survivor.post([judged("unknown")])
    survivor.close()
