"""The page is whole by itself, and nothing that a server wrote can get out of its place."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from recorded_runs import HOSTILE, hung, record, served
from story import Story

from firsttoken.report.content import Report
from firsttoken.report.html import html
from firsttoken.session.report import report_of


def made(folder: Path, story: Story, log: bytes = b"", **spec: object) -> Report:
    run = record(folder / "run", story, log, **spec)
    return report_of(run, str(run.path), here=False)


class Page(HTMLParser):
    """Tags with their attributes, ids, targets of links, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value or "" for key, value in self.attributes if key == name]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    hostile = HOSTILE.encode("utf8", "replace")
    log = b"first line\n" + hostile + b"\n\x1b[1mbold\x1b[0m\xff\xfe\n" + b"a line like many others\n" * 2000 + b"the last line\n"
    return {
        "hung": html(made(tmp_path_factory.mktemp("hung"), hung(), log)),
        "served": html(made(tmp_path_factory.mktemp("served"), served(), log)),
        "hostile": html(
            made(
                tmp_path_factory.mktemp("hostile"),
                hung(f"{HOSTILE} ").error(HOSTILE, fatal=False, version=HOSTILE),
                log,
                command=[HOSTILE],
                environment={HOSTILE: HOSTILE},
                machine={"node": HOSTILE},
                previous={"text": HOSTILE},
            )
        ),
        "nothing": html(made(tmp_path_factory.mktemp("nothing"), Story())),
    }


@pytest.mark.parametrize("name", ["hung", "served", "hostile", "nothing"])
def test_a_page_is_well_formed_and_needs_nothing_from_elsewhere(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    assert not page.open
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(page.tags)
    assert not [key for key, _ in page.attributes if key.startswith("on") or key in ("src", "style", "srcdoc")]
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    links = [value for value in page.values("href") if not value.startswith("https://")]
    assert all(value.startswith("#") and value[1:] in ids for value in links)
    assert len(pages[name]) < 1_500_000
    assert any("default-src 'none'" in value for value in page.values("content"))


@pytest.mark.parametrize("name", ["hung", "served", "hostile"])
def test_control_and_bidirectional_characters_are_shown_as_escapes(pages: dict[str, str], name: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", pages[name])
    assert "\\u202e" in pages[name]
    pages[name].encode("utf8")


def test_what_is_hostile_is_text_wherever_it_stands(pages: dict[str, str]) -> None:
    page = Page(pages["hostile"])
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "alert(1)" not in "".join(page.values("class") + page.values("id") + page.values("href"))


def test_a_hung_run_shows_verdict_phases_stacks_and_who_waits(pages: dict[str, str]) -> None:
    text = Page(pages["hung"]).text
    for told in ("hung", "ranks 0-1, 3", "rank 2", "graph_capture", "Who waits for whom", "Stacks", "Counters over time", "the last line"):
        assert told in text
    assert "bar p-weights" in pages["hung"]
    assert '<svg xmlns="http://www.w3.org/2000/svg"' in pages["hung"]


def test_a_healthy_run_has_no_section_without_content(pages: dict[str, str]) -> None:
    text = Page(pages["served"]).text
    assert "Who waits for whom" not in text
    assert "Causes" not in text
    assert "a request of ours" in text


def test_lines_that_are_left_out_are_told(pages: dict[str, str]) -> None:
    assert "lines left out" in pages["hung"]
    assert pages["hung"].count("a line like many others") < 200
