"""Results for people: one line at a change, a short summary at the end. Plain text; colour is the face's business."""

import shlex
from collections.abc import Mapping
from typing import Any

from firsttoken.model.events import Prefetched
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict

_FINDINGS = 4
"""causes that a screenful has room for"""


def change_line(result: Result) -> str:
    """`  12.3 s  slow      weights  12 of 64 shards, 120 MB/s`"""
    return f"{result.elapsed_s or 0:7.1f} s  {result.verdict:<9}  {result.reason}"


def prefetch_line(body: Prefetched) -> str:
    """`prefetch: 12.1 of 12.1 GB are in memory, 9.0 GB of it read in 7.0 s`"""
    done, read = f"{body.done / 1e9:.2f} of {body.bytes / 1e9:.2f} GB", f"{body.read / 1e9:.2f} GB"
    text = f"prefetch: {done} are in memory, {read} of it read in {body.seconds:.1f} s"
    why = {
        "loaded": "; the load is done",
        "stopped": "; it was stopped",
        "room": "; memory has no room for more",
        "error": f"; {body.problem}",
    }
    return text + why.get(body.ended or "", "")


def summary(result: Result) -> str:
    """The whole answer in a screenful: verdict and reason, phases with durations, endpoint, weights, timers, what comes next."""
    lines = [f"{result.verdict.upper()}: {result.reason}"]
    lines += [f"  proof: {fact}" for fact in result.proof if result.verdict is not Verdict.READY]
    lines += ["", *(f"  {name:<9} {text}" for name, text in facts(result))]
    if result.phases:
        lines += ["", "  phase              began   took     ranks done"]
        lines += [f"  {row.name:<17}{row.began_s:7.1f} s {_took(row.seconds):>8}  {row.ranks_done}" for row in result.phases]
    if result.requests:
        lines += ["", "  requests of ours:"]
        for row in result.requests:
            token = f"first token after {row.first_token_s:.2f} s" if row.first_token_s is not None else "no token time"
            sane = "" if row.sane is not False else "  (not sane)"
            lines.append(f"    {row.kind}: {row.status or row.error}, {token}, {row.text!r}{sane}")
    running = [timer for timer in result.timers if timer.fires_in_s is not None]
    if running:
        lines += ["", "  timers of the engine:"]
        lines += [f"    {timer.name}: {timer.seconds:.0f} s, ends the start in {timer.fires_in_s:.0f} s" for timer in running]
    for cause in result.findings[:_FINDINGS]:
        lines += ["", *_finding(cause)]
    if result.not_checked:
        lines += ["", "  not checked:", *(f"    {text}" for text in result.not_checked)]
    if result.next:
        lines += ["", "  next:", *(f"    {command}" for command in result.next)]
    return "\n".join(lines)


def _finding(row: Mapping[str, Any]) -> list[str]:
    """A cause with what speaks for and against it, and what to do."""
    lines = [f"  {row['cause']} ({100 * row['confidence']:.0f} %): {row['summary']}"]
    lines += [f"    for:     {text}" for text in row["evidence"]]
    lines += [f"    against: {text}" for text in row["against"]]
    lines += [f"    remedy:  {row['remedy']}"] if row["remedy"] else []
    return lines + ([f"    unknown: {', '.join(row['unknown'])} (not attached)"] if row.get("unknown") else [])


def facts(result: Result) -> list[tuple[str, str]]:
    """What is known about the server, by name, without what is not."""
    version = f" {result.engine.version}" if result.engine.version else ""
    rows = [
        ("engine", f"{result.engine.name or 'not recognised'}{version}"),
        ("command", visible(shlex.join(result.command))),
        ("endpoint", " ".join(filter(None, (result.endpoint.url, result.endpoint.model and f"(model {result.endpoint.model})")))),
        ("weights", _weights(result)),
        ("memory", _memory(result)),
        ("run", result.folder or result.run or ""),
    ]
    return [(name, text) for name, text in rows if text]


def _weights(result: Result) -> str:
    w = result.weights
    parts = [
        (f"{w.shards_done}/{w.shards} shards" if w.shards_done is not None else f"{w.shards} shards") if w.shards else "",
        f"{w.bytes / 1e9:.2f} GB" if w.bytes else "",
    ]
    parts.append(f"in {w.seconds:.1f} s" if w.seconds is not None else "")
    parts.append(f"{w.bytes_per_s / 1e6:.0f} MB/s" if w.bytes_per_s else "")
    parts.append(_SOURCES.get(w.source or "", ""))
    return ", ".join(part for part in parts if part)


_SOURCES = {"page_cache": "from memory", "storage": "from disk", "network": "over the network"}


def _memory(result: Result) -> str:
    unique, shared = ((result.memory or {}).get(name) or 0 for name in ("unique", "shared"))
    if not unique and not shared:
        return ""
    return f"{unique / 1e9:.2f} GB of its own, {shared / 1e9:.2f} GB shared (page cache and shared memory, counted once)"


def _took(seconds: float | None) -> str:
    return f"{seconds:.1f} s" if seconds is not None else "…"


def visible(text: str) -> str:
    """Control characters as escapes: what somebody put into an argument must not steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def count(number: int, one: str, many: str = "") -> str:
    """`1 setting`, `3 settings`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
