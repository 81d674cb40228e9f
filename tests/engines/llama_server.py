"""llama.cpp's own HTTP server, in process, from a prebuilt wheel. Usage: llama_server.py MODEL.gguf PORT

It listens before it loads: until the model is in, every route answers 503 `Loading model`.
"""

import signal
import sys

import xllamacpp

CONTEXT, SLOTS = 256, 2


def main(model: str, port: int) -> None:
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = model, CONTEXT, SLOTS
    params.hostnames, params.port = ["127.0.0.1"], port
    params.endpoint_metrics = params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]))
