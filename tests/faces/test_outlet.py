"""Writing to a stream whose reader is slow, absent or gone."""

import os

from cli_runs import until

from firsttoken.faces.cli.outlet import Outlet


def drained(fd: int) -> bytes:
    found = b""
    while part := os.read(fd, 1 << 16):
        found += part
    return found


def test_everything_comes_out_in_order() -> None:
    read, write = os.pipe()
    outlet = Outlet(write)
    for number in range(100):
        outlet.line(f"line {number}")
    outlet.close()
    os.close(write)
    assert drained(read).decode().splitlines() == [f"line {number}" for number in range(100)]
    os.close(read)
    assert outlet.lost == 0


def test_a_reader_that_does_not_read_never_blocks_the_writer_and_what_is_lost_is_counted() -> None:
    read, write = os.pipe()
    outlet = Outlet(write, most_bytes=1 << 20)
    for _ in range(40):
        outlet.write(b"x" * (1 << 16))
    assert outlet.lost >= (40 << 16) - (1 << 20) - (1 << 17)
    outlet.close(patience=0.05)
    assert outlet.lost > 0
    os.close(read)
    until(lambda: outlet._thread is not None and not outlet._thread.is_alive())
    os.close(write)


def test_a_reader_that_went_away_costs_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    outlet = Outlet(write)
    outlet.line("nobody hears this")
    until(lambda: outlet._broken)
    outlet.line("nor this")
    outlet.close()
    os.close(write)
    assert outlet.lost == 0


def test_an_outlet_that_was_never_used_closes_at_once() -> None:
    Outlet(1).close()
