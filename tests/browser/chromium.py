"""A real browser, driven by its own command line: no driver is needed to look at a page that has no script.

The page under test forbids scripts, so what measures it goes into a copy from which that ban is taken; the page itself, ban and all, is
looked at by its picture.
"""

import contextlib
import html
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import axe_core_python
import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 240
_AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
_MEASURE = Path(__file__).with_name("measure.js")


@dataclass(frozen=True)
class Chromium:
    program: str
    profile: Path

    def look(self, page: str, folder: Path, *, width: int, dark: bool) -> dict[str, Any]:
        """What a reader with such a window finds: sizes, colours, and every violation of axe's rules."""
        open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        script = "".join(f"<script>{file.read_text(encoding='utf8')}</script>" for file in (_AXE, _MEASURE))
        inner = html.escape(open_page.replace("</body>", f"{script}</body>"))
        frame = f'<iframe width="{width}" height="900" srcdoc="{inner}"></iframe>'
        file = folder / f"frame-{width}-{dark}.html"
        file.write_text(f"<!doctype html><title>frame</title><body>{frame}</body>", encoding="utf8")
        said = self._run(file, "--dump-dom", "--virtual-time-budget=10000", dark=dark)
        found = re.search(r"TOLD(.*)TOLD", said, re.S)
        assert found is not None, said[-2000:]
        told: dict[str, Any] = json.loads(html.unescape(found[1]))
        return told

    def dom(self, file: Path) -> str:
        return self._run(file, "--dump-dom", dark=False)

    def picture(self, file: Path, *, dark: bool) -> Path:
        target = file.with_suffix(f".{dark}.png")
        self._run(file, f"--screenshot={target}", "--window-size=1100,1400", "--hide-scrollbars", dark=dark)
        return target

    def printed(self, file: Path) -> bytes:
        target = file.with_suffix(".pdf")
        self._run(file, f"--print-to-pdf={target}", "--no-pdf-header-footer", dark=True)
        return target.read_bytes()

    def _run(self, file: Path, *flags: str, dark: bool) -> str:
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        usual = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={self.profile}", scheme)
        argv = [self.program, *usual, *flags, file.as_uri()]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                said, _ = process.communicate(timeout=_SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # the whole browser, whichever of its processes is late
        assert process.returncode == 0
        return said.decode("utf8", "replace")


def first_pixel(png: Path) -> tuple[int, int, int]:
    """Of the top left corner: there no filter of the format changes a value."""
    data = png.read_bytes()
    at, packed = 8, b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += length + 12
    raw = zlib.decompress(packed)
    return raw[1], raw[2], raw[3]


def found_chromium(profile: Path) -> Chromium:
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is not None:
        return Chromium(program, profile)
    text = f"no browser to look at pages with: none of {', '.join(_NAMES)} is installed (apt-get install chromium)"
    if os.environ.get("CI") == "true" or os.environ.get("FIRSTTOKEN_ENGINES_REQUIRED") == "1":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
