"""A report as one HTML page that needs nothing else: no network, no script, one style sheet, drawings inline.

Whatever a server wrote may stand in it. Every value is made visible (control, invisible and bidirectional characters as escapes) and
escaped by the template engine on its way out; and the page forbids all scripts, and every style but its own, so that nothing that might
slip through would run.
"""

import base64
import hashlib
import shlex
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from firsttoken.model.words import Verdict
from firsttoken.report import drawing
from firsttoken.report.content import Report
from firsttoken.report.live_text import span
from firsttoken.report.picture import wait_line
from firsttoken.report.stack_tree import tree
from firsttoken.report.text import facts, visible
from firsttoken.report.wait_graph import graph

_TONES = {
    Verdict.READY: "good",
    Verdict.STARTING: "calm",
    Verdict.SLOW: "care",
    Verdict.WAITING: "care",
    Verdict.STALLED: "care",
    Verdict.UNKNOWN: "care",
}
_TITLES = {
    "summary": "What happened",
    "causes": "Causes",
    "phases": "Phases",
    "waits": "Who waits for whom",
    "stacks": "Stacks",
    "counters": "Counters over time",
    "tried": "What was tried",
    "environment": "Command and environment",
    "log": "Log",
}
_MOST_LANES = 40


def html(report: Report) -> str:
    """The whole page."""
    template, css = _template()
    result = report.result
    found = graph(result, report.picture)
    branches = tree(report.picture) if report.picture is not None else ()
    waits = [wait_line(one, wait) for one in report.picture.seen for wait in one.waits] if report.picture is not None else []
    shown = {
        "summary": True,
        "causes": bool(result.findings) or result.verdict not in (Verdict.READY, Verdict.STARTING, Verdict.SLOW),
        "phases": True,
        "waits": bool(found.nodes or waits),
        "stacks": bool(branches),
        "counters": bool(report.curves),
        "tried": bool(result.requests or report.tried),
        "environment": True,
        "log": bool(report.log),
    }
    return template.render(
        report=report,
        r=result,
        name=result.run or result.folder or "a start",
        tone=_TONES.get(result.verdict, "bad"),
        css=Markup(css),
        policy=_policy(css),
        titles=_TITLES,
        sections=[(name, _TITLES[name]) for name, there in shown.items() if there],
        facts=[(label, text) for label, text in facts(result) if label not in ("command", "run")],
        versions=list(result.versions.items()),
        command=shlex.join(result.command),
        timeline=Markup(drawing.timeline(report.lanes, report.turns, report.until)) if report.lanes else None,
        lanes_left_out=max(len(report.lanes) - _MOST_LANES, 0),
        curves=[(one, Markup(drawing.curve(one, report.until))) for one in report.curves],
        graph=Markup(drawing.waits(found)) if found.nodes else None,
        graph_left_out=found.left_out,
        waits=waits,
        branches=branches,
        span=span,
    )


@cache
def _template() -> tuple[Template, str]:
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True, lstrip_blocks=True)
    environment.tests["web"] = _is_web
    folder = files("firsttoken.report")
    source = folder.joinpath("report.html.jinja").read_text(encoding="utf8")
    return environment.from_string(source), folder.joinpath("report.css").read_text(encoding="utf8")


def _visible(value: Any) -> Any:
    """Texts of ours that are markup already stay as they are."""
    return visible(str(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


def _is_web(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _policy(css: str) -> str:
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
