"""The embedded engine: a small, real inference server that can be made to fail as real engines do.

Key insight: a rehearsal is only worth something when nothing in it is played. Ranks are processes, collectives are sockets,
shards are files, text comes out of matrix products, and every fault is the real mechanism (a flock, a FIFO, a SIGSTOP).
The package stands alone: it imports nothing else of firsttoken. The version is its own.
"""

VERSION = "1.0.0"
MODEL_NAME = "rehearsal"
