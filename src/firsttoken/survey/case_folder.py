"""A folder, or a single log, as somebody attached it to a bug report. Any part may be missing, of another encoding, or cut off.

Reads bounded amounts: of a log that is larger than the limit the first and the last half are kept, with a line between them that says so.
"""

import re
from pathlib import Path

from firsttoken.model.attached import Attached, StackDump
from firsttoken.model.collectives import Comparison, FlightRecord
from firsttoken.survey.command_text import read_command
from firsttoken.survey.flight_recorder import LIMIT as DUMP_LIMIT
from firsttoken.survey.flight_recorder import read_record
from firsttoken.survey.flight_recorder_compare import compare
from firsttoken.survey.gpus_csv import read_gpus
from firsttoken.survey.probes_text import read_probes
from firsttoken.survey.processes_text import read_processes
from firsttoken.survey.stacks_text import read_stacks

LOG_LIMIT = 64 << 20
"""bytes of a log that are looked at"""
TEXT_LIMIT = 4 << 20
_MOST_FILES = 1024
_PARTS = ("command.txt", "server.log", "processes.txt", "gpus.csv", "probes.txt", "stacks", "flight_recorder")


def is_case(folder: Path) -> bool:
    """Whether any part of a case lies in the folder."""
    return folder.is_dir() and any((folder / name).exists() for name in _PARTS)


def read_log_file(file: Path) -> Attached:
    """A single log. OSError where it cannot be read."""
    return Attached(log=_bounded(file))


def read_case(folder: Path) -> Attached:
    """Never raises for the content; what could not be read is told in `unread`."""
    unread: list[str] = []
    command = _text(folder / "command.txt", unread) or ""
    argv, env = read_command(command)
    log_file = folder / "server.log"
    if not log_file.exists():
        log_file = next((file for file in sorted(folder.glob("*.log"))[:1]), log_file)
    log: bytes | None = None
    if log_file.is_file():
        try:
            log = _bounded(log_file)
        except OSError as error:
            unread.append(f"{log_file.name}: {error.strerror or error}")
    processes = _text(folder / "processes.txt", unread)
    gpus = _text(folder / "gpus.csv", unread)
    probes = _text(folder / "probes.txt", unread)
    return Attached(
        argv=argv,
        env=env,
        command=command,
        log=log,
        processes=read_processes(processes) if processes is not None else None,
        stacks=tuple(_stacks(folder / "stacks", unread)),
        gpus=read_gpus(gpus) if gpus is not None else None,
        probes=read_probes(probes) if probes is not None else None,
        flight_recorder=read_recorders(folder / "flight_recorder", unread),
        unread=tuple(unread),
    )


def read_recorders(folder: Path, unread: list[str]) -> Comparison | None:
    """Flight-recorder dumps, one a rank, compared. None where none can be read."""
    found: list[FlightRecord] = []
    for file in _listed(folder, unread):
        try:
            with file.open("rb") as opened:
                data = opened.read(DUMP_LIMIT)
        except OSError as error:
            unread.append(f"{folder.name}/{file.name}: {error.strerror or error}")
            continue
        record = read_record(data, file.name)
        if isinstance(record, FlightRecord):
            found.append(record)
        elif file.suffix not in (".log", ".txt", ".md"):
            unread.append(f"{folder.name}/{file.name}: {record}")
    return compare(found) if found else None


def _text(file: Path, unread: list[str]) -> str | None:
    """None where there is no such file."""
    if file.exists() and not file.is_file():
        unread.append(f"{file.name}: not a file")
        return None
    try:
        with file.open("rb") as opened:
            return opened.read(TEXT_LIMIT).decode("utf8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        unread.append(f"{file.name}: {error.strerror or error}")
        return None


def _bounded(file: Path) -> bytes:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(0)
        if size <= LOG_LIMIT:
            return opened.read(LOG_LIMIT)
        half = LOG_LIMIT // 2
        head = opened.read(half)
        opened.seek(size - half)
        return head + f"\n[{size - LOG_LIMIT} bytes of the log left out]\n".encode() + opened.read(half)


def _stacks(folder: Path, unread: list[str]) -> list[StackDump]:
    found: list[StackDump] = []
    for file in _listed(folder, unread):
        text = _text(file, unread)
        if text is not None:
            number = re.search(r"\d{1,9}", file.stem)
            found.extend(read_stacks(text, int(number.group()) if number else None))
    return found


def _listed(folder: Path, unread: list[str]) -> list[Path]:
    try:
        return [file for file in sorted(folder.iterdir()) if file.is_file()][:_MOST_FILES]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unread.append(f"{folder.name}: {error.strerror or error}")
        return []
