"""Checks as text and as a document of schema `firsttoken/1`."""

import shlex
import textwrap
from collections.abc import Iterable
from typing import Any

import msgspec

from firsttoken.model.checks import Check, CheckReport, MemoryNeeds, Outcome, Part
from firsttoken.report.document import document
from firsttoken.report.text import visible

_ORDER = (Outcome.FAIL, Outcome.WARN, Outcome.PASS, Outcome.NOT_CHECKED)
_WIDTH = 110


def checks_document(report: CheckReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    return document("checks", **fields)


def checks_text(report: CheckReport) -> str:
    """By part; in each the worst first, and what passed in one line each."""
    lines = [f"{report.engine or 'engine not recognised'}: {visible(shlex.join(report.command))}"]
    for part in Part:
        rows = sorted((one for one in report.checks if one.part is part), key=lambda one: _ORDER.index(one.result))
        if rows:
            lines += ["", f"{part}"]
            for row in rows:
                lines += _row(row)
    if report.memory is not None:
        lines += ["", "memory, of the rank that holds most", *_memory(report.memory)]
    return "\n".join([*lines, "", verdict(report.checks)])


def verdict(checks: Iterable[Check]) -> str:
    results = [one.result for one in checks]
    fails, warns, left = (results.count(one) for one in (Outcome.FAIL, Outcome.WARN, Outcome.NOT_CHECKED))
    told = f"{fails} fail, {warns} warn, {results.count(Outcome.PASS)} pass, {left} not checked"
    if fails:
        return f"the start will fail ({told})"
    if warns:
        return f"the start may work, with warnings ({told})"
    return f"nothing is in the way ({told})" if Outcome.PASS in results else f"nothing could be checked ({told})"


def check_line(check: Check) -> str:
    """One line for somebody who looks at a start: `check fail port-in-use: port 8000 … → another port`."""
    remedy = f" → {check.remedy}" if check.remedy else ""
    return f"check {check.result} {check.id}: {visible(check.fact)}{remedy}"


def _row(check: Check) -> list[str]:
    first = f"  {check.result.replace('_', ' '):<12} {check.id:<28} "
    lines = textwrap.wrap(visible(check.fact), _WIDTH, initial_indent=first, subsequent_indent=" " * 16)
    if check.remedy:
        lines += textwrap.wrap(visible(check.remedy), _WIDTH, initial_indent=f"{'':<16}remedy: ", subsequent_indent=" " * 24)
    if check.price:
        lines += textwrap.wrap(visible(check.price), _WIDTH, initial_indent=f"{'':<16}else:   ", subsequent_indent=" " * 24)
    return lines


def _memory(needs: MemoryNeeds) -> list[str]:
    most = max(needs.weights_by_rank, default=0)
    rows = [("weights", f"{_gib(most)}" + (f", draft {_gib(needs.draft)}" if needs.draft else ""))]
    state = f", {_gib(needs.kv_per_sequence)} a sequence" if needs.kv_per_sequence else ""
    rows.append(("KV cache", f"{needs.kv_per_token / 1024:.1f} KiB a token{state}"))
    if needs.context and needs.kv_of_context is not None:
        rows.append(("context", f"{needs.context:,} tokens, {_gib(needs.kv_of_context)}"))
    if needs.room is not None and needs.longest is not None:
        many = f", {needs.concurrency:.1f} full contexts at a time" if needs.concurrency is not None else ""
        rows.append(("room", f"{_gib(max(0.0, needs.room))} for the cache: {needs.longest:,} tokens{many}"))
    return [f"  {name:<10} {text}" for name, text in rows]


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 28 else f"{size / (1 << 20):.1f} MiB"
