"""A server whose start is a fixed amount of work, not of time: what slows the machine down lengthens it.

`python bench/fixed_work.py --port P [--workers N] [--rounds R]`. Paced starts hide who takes the processor from them; this one does not.
N processes hash and touch pages R times each, say a line at each tenth, and then one port answers like any OpenAI-style server.
"""

import argparse
import hashlib
import json
import mmap
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

READY = "The server is ready."
TOKEN = "First token"
_BLOCK = bytes(range(256)) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    _say(f"Starting. pid={os.getpid()}")
    children = [pid for worker in range(options.workers) if (pid := _start(worker, options.rounds))]
    for pid in children:
        os.waitpid(pid, 0)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), _Handler)
    _say(READY)
    server.serve_forever()


def _start(worker: int, rounds: int) -> int:
    pid = os.fork()
    if pid == 0:
        for number in range(rounds):
            hashlib.sha256(_BLOCK).digest()
            with mmap.mmap(-1, 64 * mmap.PAGESIZE) as area:
                for page in range(64):
                    area[page * mmap.PAGESIZE] = 1
            if number % max(1, rounds // 10) == 0:
                _say(f"worker {worker}: {number}/{rounds}")
        os._exit(0)
    return pid


def _say(text: str) -> None:
    now = time.time()
    stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03d}"
    os.write(2, f"[{stamp}] {text}\n".encode())


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "fixed-work", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _say(TOKEN)
        self._answer(
            {"object": "text_completion", "model": "fixed-work", "choices": [{"index": 0, "text": " a token", "finish_reason": "length"}]}
        )

    def log_message(self, format: str, *args: object) -> None:
        return None

    def _answer(self, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    main()
