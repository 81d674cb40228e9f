"""The HTML report in a real browser: readable on a phone and a desk, in light and dark, printed, by a screen reader; and safe."""

import re
import zlib
from pathlib import Path

import pytest
from recorded_runs import HOSTILE, hung, record, served

from firsttoken.report.html import html
from firsttoken.session.report import report_of

from .chromium import Chromium, first_pixel, found_chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LOG = b"[TP0] Load weights begin.\n" * 30 + b"[TP0] RuntimeError: CUDA error: out of memory\n" + HOSTILE.encode("utf8", "replace") + b"\n"


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Chromium:
    return found_chromium(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("runs")
    runs = {"hung": record(folder / "hung", hung(), LOG), "healthy": record(folder / "healthy", served(), LOG)}
    return {name: html(report_of(run, str(run.path), here=False)) for name, run in runs.items()}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200], ids=["phone", "desk"])
@pytest.mark.parametrize("name", ["hung", "healthy"])
def test_a_page_can_be_read_and_has_no_serious_fault(
    chromium: Chromium, pages: dict[str, str], tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    told = chromium.look(pages[name], tmp_path, width=width, dark=dark)
    serious = [one for one in told["violations"] if one["impact"] in ("serious", "critical")]
    assert not serious, serious
    assert (told["width"], told["dark"]) == (width, dark)
    assert told["overflow"] <= 0, "the page is wider than its window"
    assert told["smallest"] >= 12
    assert told["broken"] == 0
    assert len(told["drawings"]) >= 3
    assert all(height > 40 and shown > 200 for shown, height in told["drawings"])
    light = sum(map(int, re.findall(r"\d+", told["ground"])[:3])) > 384
    assert light is not dark


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_as_it_is_has_its_colours(chromium: Chromium, pages: dict[str, str], tmp_path: Path, dark: bool) -> None:
    file = tmp_path / "page.html"
    file.write_text(pages["hung"], encoding="utf8")
    assert (sum(first_pixel(chromium.picture(file, dark=dark))) < 384) is dark


def test_a_script_that_gets_into_the_page_does_not_run(chromium: Chromium, pages: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    evil = "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\"></body>"
    file.write_text(pages["hung"].replace("</body>", evil), encoding="utf8")
    assert "<title>ran</title>" not in chromium.dom(file)
    file.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", pages["hung"]).replace("</body>", evil), encoding="utf8")
    assert "<title>ran</title>" in chromium.dom(file)


def test_a_page_is_printed_in_black_on_white_with_its_drawings(chromium: Chromium, pages: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(pages["hung"], encoding="utf8")
    pdf = chromium.printed(file)
    packed = [part for part in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S) if part.startswith(b"x")]
    drawn = b"\n".join(zlib.decompressobj().decompress(part) for part in packed)
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2
    assert drawn.count(b" re\n") + drawn.count(b" l\n") > 50
