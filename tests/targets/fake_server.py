"""A tiny server that starts at once and ends as it is told.

`fake_server.py [--port P] [--start TEXT] [--until never|FILE|exit:N|kill:N] [--deaf N] [--child] [--status N]`

Before it listens it prints TEXT, then waits until FILE exists, for ever, or ends by status or signal. It speaks the embedded engine's two
lines when it listens, answers `/v1/models` and `/v1/completions` (with status N where given), and exits with 0 after `GOT SIGNAL` for
SIGINT and SIGTERM, of which it only tells the first N. `--child`: another process is started first, which a closed terminal and Ctrl-C
do not end.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--start", default="")
parser.add_argument("--until", default="")
parser.add_argument("--deaf", type=int, default=0)
parser.add_argument("--child", action="store_true")
parser.add_argument("--status", type=int, default=200)
given = parser.parse_args()
got: list[int] = []


def on_signal(number: int, _frame: object) -> None:
    got.append(number)
    os.write(1, f"GOT {signal.Signals(number).name}\n".encode())
    if len(got) > given.deaf:
        os._exit(0)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "fake", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if given.status != 200:
            self.answer({"error": {"message": "no tokens today"}}, given.status)
        elif asked.get("stream"):
            self.answer({"error": {"message": "stream is not supported"}}, 400)
        else:
            self.answer({"choices": [{"index": 0, "text": " a token of it", "finish_reason": "length"}]})

    def answer(self, payload: object, status: int = 200) -> None:
        body = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        print(format % arguments, flush=True)


signal.signal(signal.SIGINT, on_signal)
signal.signal(signal.SIGTERM, on_signal)
if given.child:
    deaf = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2)]; print('CHILD', flush=True); time.sleep(300)"
    subprocess.Popen([sys.executable, "-S", "-c", deaf])
print(given.start or "starting", flush=True)
how, _, number = given.until.partition(":")
if how == "exit":
    sys.exit(int(number))
elif how == "kill":
    os.kill(os.getpid(), int(number))
while how and not os.path.exists(how):
    time.sleep(0.05)
server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
stamp = "[2026-01-01 00:00:00.000]"
print(f"{stamp} Listening on http://127.0.0.1:{server.server_address[1]} elapsed=0.00 s", flush=True)
print(f"{stamp} The rehearsal server is ready to serve.", flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    signal.pause()
