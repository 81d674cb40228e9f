"""Archives from strangers, read as if each of them were an attack.

Nothing of an archive decides where something is written or how much of it: only plain files whose names are on a list are taken, under
names that are ours, and both their number and all bytes that come out of the decompressor are counted against a limit. Links, devices,
absolute names and `..` are left out and told. Tar headers are walked here, since the library reads an extended header of any size whole.
"""

import errno
import gzip
import io
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MOST_FILES = 4096
MOST_BYTES = 512 << 20
"""of everything that is unpacked: four times what a run keeps of its log"""
_MOST_HEADER = 64 << 10
_MOST_DIRECTORY = 4 << 20
"""bytes of a zip's list of files"""
_MOST_FOLDERS = 16
_BLOCK = 512
_CHUNK = 1 << 20
_MOST_TOLD = 8
_CUT = "it is cut off: send it again"
_NAMES = re.compile(
    r"""manifest\.json|events\.jsonl|spec\.json|result\.json|log/index|log/head\.raw|log/tail-\d{20}\.raw"""
    r"""|command\.txt|processes\.txt|gpus\.csv|probes\.txt|[\w.\-]{1,100}\.log|(?:stacks|flight_recorder)/\w[\w.\-]{0,100}""",
    re.ASCII,
)


class BadArchive(ValueError):
    """It cannot be read, or is beyond the bounds; the text says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """`folder` holds the archive's files under their known names. `left_out`: what was not taken, and why."""

    folder: Path
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class _Budget:
    """What one archive may still cost."""

    most_bytes: int
    most_files: int
    left_out: list[str] = field(default_factory=list)
    others: int = 0

    def entry(self) -> None:
        self.most_files -= 1
        if self.most_files < 0:
            raise BadArchive(f"it holds more than {MOST_FILES} files: pack only the run's folder or the attached files")

    def spend(self, size: int) -> None:
        self.most_bytes -= size
        if self.most_bytes < 0:
            raise BadArchive(f"it unpacks to more than {MOST_BYTES >> 20} MiB: send the first and the last part of a long log")

    def leave(self, name: str, why: str) -> None:
        if len(self.left_out) < _MOST_TOLD:
            shown = "".join(char if char.isprintable() else "?" for char in name[:80])
            self.left_out.append(f"{shown}: {why}")
        else:
            self.others += 1

    def told(self) -> tuple[str, ...]:
        return (*self.left_out, *((f"{self.others} more of the archive's files",) if self.others else ()))


def is_archive(path: Path) -> bool:
    """By its first bytes: gzip, zip, or a bare tar. OSError where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(_BLOCK)
    return head.startswith((b"\x1f\x8b", b"PK\x03\x04", b"PK\x05\x06")) or head[257:262] == b"ustar"


def unpack(path: Path, into: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> Unpacked:
    """The known files of an archive, below `into`, an empty folder of ours. BadArchive or OSError, nothing else, whatever it holds."""
    budget = _Budget(most_bytes, most_files)
    places: dict[str, Path] = {}
    counts: dict[str, int] = {}
    try:
        with path.open("rb") as file:
            entries = _zip(file, budget) if file.read(2) == b"PK" else _tar(file, budget)
            for name, content in entries:
                found = _place(name, budget)
                if found is None:
                    continue
                prefix, known = found
                if prefix not in places:
                    if len(places) >= _MOST_FOLDERS:
                        budget.leave(name, "in one folder too many")
                        continue
                    places[prefix] = into / str(len(places))
                target = places[prefix] / known
                if target.exists():
                    budget.leave(name, "a second file of this name")
                    continue
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                counts[prefix] = counts.get(prefix, 0) + 1
                with target.open("xb") as out:
                    for part in content:
                        out.write(part)
    except BadArchive as error:
        raise BadArchive(f"{path.name} cannot be used: {error}") from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, struct.error, gzip.BadGzipFile, ValueError, OverflowError) as error:
        raise BadArchive(f"{path.name} is damaged or cut off ({str(error)[:100] or type(error).__name__}): send it again") from error
    except OSError as error:
        if error.errno == errno.EINVAL and error.filename is None:  # it sends the reader to a place before its beginning
            raise BadArchive(f"{path.name} is damaged or cut off: send it again") from error
        raise
    except (NotImplementedError, RuntimeError) as error:  # another compression, or a password
        raise BadArchive(f"{path.name} cannot be unpacked ({str(error)[:100]}): pack it again as .tar.gz or .zip") from error
    if not places:
        raise BadArchive(f"{path.name} holds neither a run nor files of a bug report (events.jsonl, server.log, command.txt, stacks/…)")
    best = min(places, key=lambda prefix: (not (places[prefix] / "events.jsonl").exists(), -counts[prefix], prefix.count("/"), prefix))
    for prefix in places:
        if prefix != best:
            budget.leave(prefix, f"another folder than the one that was read ({best or '.'})")
    return Unpacked(folder=places[best], left_out=budget.told())


def _place(name: str, budget: _Budget) -> tuple[str, str] | None:
    """The folder that it is in, and its known name; None where it is not to be taken."""
    path = PurePosixPath(name.replace("\\", "/"))
    parts = [part for part in path.parts if part != "."]
    if path.is_absolute() or ".." in parts or re.match(r"[A-Za-z]:", name):
        budget.leave(name, "its name leads out of the archive")
        return None
    for count in (2, 1):
        known = "/".join(parts[-count:])
        if len(parts) >= count and _NAMES.fullmatch(known):
            return "/".join(parts[:-count]), known
    if parts:
        budget.leave(name, "nothing that is known by this name")
    return None


def _tar(file: io.BufferedReader, budget: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Plain files with their content, which must be read before the next one is asked for, or is skipped."""
    file.seek(0)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    stream: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if packed else file
    long_name: str | None = None
    while True:
        header = stream.read(_BLOCK)
        budget.spend(len(header))
        if len(header) < _BLOCK:
            raise BadArchive(_CUT)
        if not header.strip(b"\0"):
            while part := stream.read(_CHUNK):  # to the end, where the checksum stands
                budget.spend(len(part))
            return
        info = tarfile.TarInfo.frombuf(header, "utf8", "surrogateescape")
        budget.entry()
        if info.size < 0:
            raise BadArchive("a size in it is below zero")
        if info.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.SOLARIS_XHDTYPE):
            if info.size > _MOST_HEADER:
                raise BadArchive("one of its extended headers is far too long")
            content = b"".join(_content(stream, info.size, budget))
            long_name = _long_name(info.type, content) or long_name
            continue
        name, long_name = long_name or info.name, None
        body = _content(stream, info.size if info.type not in _EMPTY else 0, budget)
        if info.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
            yield name, body
        elif info.type != tarfile.DIRTYPE:
            budget.leave(name, "no plain file")
        for _ in body:
            pass


_EMPTY = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)


def _content(stream: io.BufferedIOBase, size: int, budget: _Budget) -> Iterator[bytes]:
    left = size
    while left > 0:
        part = stream.read(min(left, _CHUNK))
        budget.spend(len(part))
        if not part:
            raise BadArchive(_CUT)
        left -= len(part)
        yield part
    padding = -size % _BLOCK
    if len(stream.read(padding)) < padding:
        raise BadArchive(_CUT)


def _long_name(kind: bytes, content: bytes) -> str | None:
    if kind == tarfile.GNUTYPE_LONGNAME:
        return content.rstrip(b"\0").decode("utf8", "surrogateescape")
    if kind in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
        match = re.search(rb"(?:^|\n)\d{1,6} path=([^\n]*)\n", content)
        return match[1].decode("utf8", "surrogateescape") if match else None
    return None


def _zip(file: io.BufferedReader, budget: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    _check_directory(file)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            budget.entry()
            if info.is_dir():
                continue
            kind = info.external_attr >> 28
            if kind not in (0, 8):  # of a Unix mode: nothing told, or a plain file
                budget.leave(info.filename, "no plain file")
                continue
            yield info.filename, _member(archive, info, budget)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: _Budget) -> Iterator[bytes]:
    with archive.open(info) as opened:
        while part := opened.read(_CHUNK):
            budget.spend(len(part))
            yield part


def _check_directory(file: io.BufferedReader) -> None:
    """Before the library builds an object for each entry: how long the list of files says that it is."""
    size = file.seek(0, 2)
    file.seek(max(size - (1 << 16) - 42, 0))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise BadArchive("it is cut off: a zip's list of files is at its end")
    count, length = struct.unpack_from("<10xHL", tail, at)
    if count > MOST_FILES or length > _MOST_DIRECTORY or tail[max(at - 20, 0) : at].startswith(b"PK\x06\x07"):
        raise BadArchive(f"it says that it holds more than {MOST_FILES} files, or is larger than 4 GiB")
    file.seek(0)
