"""Arguments in memory, read from this very process."""

import ctypes
import os
import select
import struct
import time

from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.target_memory import PollEntry, TargetMemory

MEMORY = TargetMemory(Procfs(), os.getpid())


def test_a_path_is_read_up_to_its_end() -> None:
    text = ctypes.create_string_buffer(b"/models/a b.safetensors")
    assert MEMORY.text(ctypes.addressof(text)) == "/models/a b.safetensors"


def test_times_are_read_as_spans_and_as_moments() -> None:
    span = ctypes.create_string_buffer(struct.pack("=qq", 3, 500_000_000))
    assert MEMORY.seconds(ctypes.addressof(span)) == 3.5
    moment = ctypes.create_string_buffer(struct.pack("=qq", int(time.monotonic()) + 100, 0))
    left = MEMORY.until(ctypes.addressof(moment), time.CLOCK_MONOTONIC)
    assert left is not None
    assert 90 < left <= 100
    assert MEMORY.until(ctypes.addressof(moment), 99) is None


def test_sets_of_descriptors_are_read() -> None:
    polled = ctypes.create_string_buffer(struct.pack("=ihhihhihh", 5, select.POLLIN, 0, -1, 0, 0, 7, select.POLLOUT, 0))
    assert MEMORY.poll_set(ctypes.addressof(polled), 3) == (PollEntry(5), PollEntry(7, True))
    bits = ctypes.create_string_buffer(((1 << 3) | (1 << 64)).to_bytes(16, "little"))
    assert MEMORY.select_set(65, ctypes.addressof(bits), 0) == (PollEntry(3), PollEntry(64))


def test_the_owner_of_a_mutex_is_read_where_it_is_held_and_waited_for() -> None:
    held = ctypes.create_string_buffer(struct.pack("=iIi", 2, 1, 4242))
    assert MEMORY.mutex_owner(ctypes.addressof(held)) == 4242
    free = ctypes.create_string_buffer(struct.pack("=iIi", 0, 0, 0))
    assert MEMORY.mutex_owner(ctypes.addressof(free)) is None


def test_what_is_not_mapped_cannot_be_read() -> None:
    for address in (0, 1, 1 << 62, (1 << 64) - 1, -5):
        assert MEMORY.read(address, 8) is None
    assert TargetMemory(Procfs(), 1 << 30).read(4096, 8) is None
