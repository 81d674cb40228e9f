"""A report as Markdown, to be pasted into an engine's issue template: what happened, how to reproduce it, the environment, the evidence.

What a server wrote goes into fences and code spans that are longer than any run of backticks in it; elsewhere every character that Markdown
or the tracker gives a meaning (markup, HTML, @names, #numbers) is escaped.
"""

import re
import shlex
from collections.abc import Iterable, Iterator

from firsttoken.model.words import Verdict
from firsttoken.report.content import Report
from firsttoken.report.picture import picture_text
from firsttoken.report.text import facts, visible

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&$]|^[-+=])")
_LAST_ROWS = 60
_MOST_FINDINGS = 3


def markdown(report: Report) -> str:
    """Sections are named as the engines' templates name them."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    result = report.result
    where = f" in {result.phase}" if result.phase is not None and result.verdict is not Verdict.READY else ""
    yield from ("### Describe the bug", "")
    yield f"**{result.verdict}{where}**: {plain(result.reason)}"
    if result.proof and result.verdict is not Verdict.READY:
        yield from ("", *(f"- {code(fact)}" for fact in result.proof))
    yield from _phases(report)
    yield from ("", "### Reproduction", "", *fence(_command(report), "sh"))
    yield from ("", "### Environment", "", "| | |", "|---|---|")
    yield from (f"| {plain(name)} | {code(text)} |" for name, text in _environment(report))
    if report.picture is not None and (report.picture.groups or any(one.waits for one in report.picture.seen)):
        yield from ("", "### Stacks, merged over all ranks", "", *fence(picture_text(report.picture).splitlines(), "text"))
    yield from _findings(report)
    if report.tried:
        yield from ("", "### What was tried", "", *(f"- {plain(text)}" for text in report.tried))
    if result.not_checked:
        yield from ("", "### Not checked", "", *(f"- {plain(text)}" for text in result.not_checked))
    if report.log:
        rows = report.log[-_LAST_ROWS:]
        yield from ("", "<details>", f"<summary>The last {len(rows)} of the log's lines that tell something</summary>", "")
        yield from (*fence([f"{'' if row.t is None else f'{row.t:9.1f} s  '}{row.text}" for row in rows], "text"), "", "</details>")
    yield from ("", f"<sub>Made by firsttoken {plain(report.version)}. Known secrets are masked.</sub>")


def _phases(report: Report) -> Iterator[str]:
    if not report.result.phases:
        return
    yield from ("", "| phase | began | took | ranks done |", "|---|---:|---:|---:|")
    for row in report.result.phases:
        took = f"{row.seconds:.1f} s" if row.seconds is not None else "not left"
        yield f"| {row.name} | {row.began_s:.1f} s | {took} | {row.ranks_done} |"


def _command(report: Report) -> list[str]:
    """With the variables that engines read, where they were recorded."""
    skipped = {"PATH", "VIRTUAL_ENV", "CONDA_PREFIX"}
    env = [f"{name}={shlex.quote(value)}" for name, value in report.environment.items() if name not in skipped]
    return [*(f"{setting} \\" for setting in env), shlex.join(report.result.command) or "# the command is not known"]


def _environment(report: Report) -> list[tuple[str, str]]:
    result = report.result
    known = [(name, text) for name, text in facts(result) if name in ("engine", "weights", "memory")]
    sizes = [("ranks", str(result.world_size))] if result.world_size else []
    return [*known, *sizes, *result.versions.items(), *report.machine.items()]


def _findings(report: Report) -> Iterator[str]:
    rows = report.result.findings[:_MOST_FINDINGS]
    if rows:
        yield from ("", "### Causes considered")
    for row in rows:
        yield from ("", f"**{plain(row['cause'])}** ({100 * row['confidence']:.0f} %): {plain(row['summary'])}", "")
        yield from (f"- for: {code(text)}" for text in row["evidence"])
        yield from (f"- against: {code(text)}" for text in row["against"])
        if row["remedy"]:
            yield f"- remedy: {plain(row['remedy'])}"


def plain(text: str) -> str:
    """One line that says what it says and nothing else."""
    text = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", _SPECIAL.sub(r"\\\1", visible(" ".join(text.split()))))
    return text.replace("@", "@<!-- -->").replace("\\#", "\\#<!-- -->").replace("://", ":<!-- -->//")


def code(text: str) -> str:
    """A code span; a table cell splits at a bar even there."""
    text = visible(" ".join(text.split())).replace("|", "¦")
    ticks = "`" * (_longest(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}" if text else ""


def fence(lines: Iterable[str], language: str) -> list[str]:
    """A code block of these lines."""
    shown = [visible(line) for line in lines]
    ticks = "`" * max(_longest("\n".join(shown)) + 1, 3)
    return [f"{ticks}{language}", *shown, ticks]


def _longest(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
