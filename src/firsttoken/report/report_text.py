"""A report as text for a terminal or a mail: the summary, what else was seen, what was tried. Nothing in it can steer a terminal."""

from firsttoken.report.content import Report
from firsttoken.report.picture import picture_text
from firsttoken.report.text import summary, visible

_LAST_ROWS = 30


def report_text(report: Report) -> str:
    lines = summary(report.result).split("\n")
    if report.picture is not None and (report.picture.groups or any(one.waits for one in report.picture.seen)):
        lines += ["", *(f"  {line}" if line else "" for line in picture_text(report.picture).split("\n"))]
    if report.tried:
        lines += ["", "  what was tried:", *(f"    {text}" for text in report.tried)]
    if report.log:
        lines += ["", "  the last lines of the log:"]
        lines += [f"    {'' if row.t is None else f'{row.t:8.1f} s  '}{row.text}" for row in report.log[-_LAST_ROWS:]]
    return "\n".join(visible(line) for line in lines)
