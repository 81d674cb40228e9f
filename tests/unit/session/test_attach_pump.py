"""Output that grows elsewhere, carried into our record."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from firsttoken.session.attaching.log_pump import LogPump, last_bytes
from firsttoken.session.attaching.log_source import LogCommand, LogFile

SECONDS = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  # the world sets no event
            await asyncio.sleep(0.01)


def pumped(pump: LogPump, script: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        task = asyncio.create_task(pump.run())
        try:
            await script()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def file_pump(path: Path, got: bytearray, start: int = 0) -> LogPump:
    return LogPump(sources=(LogFile(path=str(path), shown=path.name, follow_name=True),), put=got.extend, starts={str(path): start})


def test_what_was_there_is_told_and_then_what_comes(tmp_path: Path) -> None:
    log, got = tmp_path / "log", bytearray()
    log.write_bytes(b"old old\nbefore\n")
    pump = file_pump(log, got, start=8)

    async def script() -> None:
        await until(pump.caught_up.is_set)
        assert got == b"before\n"
        with log.open("ab") as file:
            file.write(b"after\n")
        await until(lambda: got == b"before\nafter\n")
        assert pump.told == len(got)

    pumped(pump, script)


def test_a_log_that_is_cut_short_or_replaced_is_read_from_its_new_begin(tmp_path: Path) -> None:
    log, got = tmp_path / "log", bytearray()
    log.write_bytes(b"one long line\n")
    pump = file_pump(log, got)

    async def script() -> None:
        await until(lambda: got.endswith(b"line\n"))
        os.truncate(log, 0)
        log.write_bytes(b"two\n")
        await until(lambda: got.endswith(b"two\n"))
        (tmp_path / "new").write_bytes(b"three\n")
        (tmp_path / "new").rename(log)
        await until(lambda: got.endswith(b"three\n"))

    pumped(pump, script)


def test_two_files_are_joined_by_whole_lines(tmp_path: Path) -> None:
    out, err, got = tmp_path / "out", tmp_path / "err", bytearray()
    out.write_bytes(b"half a")
    err.write_bytes(b"error\n")
    pump = LogPump(sources=tuple(LogFile(path=str(path), shown=path.name) for path in (out, err)), put=got.extend)

    async def script() -> None:
        await until(pump.caught_up.is_set)
        assert got == b"error\n"
        with out.open("ab") as file:
            file.write(b" line\n")
        await until(lambda: got == b"error\nhalf a line\n")

    pumped(pump, script)


def test_a_helpers_output_is_taken_and_the_helper_is_ended_with_us() -> None:
    got = bytearray()
    script_text = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"
    pump = LogPump(sources=(LogCommand(argv=(sys.executable, "-c", script_text)),), put=got.extend)

    async def script() -> None:
        await until(lambda: got.endswith(b"\n"))
        await until(pump.caught_up.is_set)

    pumped(pump, script)
    assert not Path(f"/proc/{int(got)}").exists()


def test_what_cannot_be_read_is_a_problem_and_no_end(tmp_path: Path) -> None:
    pump = LogPump(
        sources=(LogFile(path=str(tmp_path / "none"), shown="none"), LogCommand(argv=(sys.executable, "-c", "raise SystemExit(3)"))),
        put=bytearray().extend,
    )

    async def script() -> None:
        await until(lambda: len(pump.problems) == 2 and pump.caught_up.is_set())
        assert "No such file" in pump.problems[0]
        assert "status 3" in pump.problems[1]

    pumped(pump, script)


def test_the_end_of_a_long_file_begins_with_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"aaaa\nbbbb\ncc")
    assert last_bytes(str(log), 100) == (0, b"aaaa\nbbbb\ncc")
    assert last_bytes(str(log), 4) == (10, b"cc")
