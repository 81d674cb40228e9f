"""An isolation for programs (a document of schema `firsttoken/1`), for people, and as Markdown for an issue upstream."""

import difflib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from firsttoken.model.isolation import Change, Isolation, Setting, Trial
from firsttoken.model.redact import mask_argv, mask_env
from firsttoken.report.document import document
from firsttoken.report.text import count, visible

_TITLES = {
    "found": "FOUND",
    "elsewhere": "NOT A SETTING",
    "not_reproduced": "NOT REPRODUCED",
    "unresolved": "NOT ALL RESOLVED",
    "changed": "CHANGED MEANWHILE",
    "out_of_budget": "BUDGET SPENT",
    "interrupted": "INTERRUPTED",
    "refused": "REFUSED",
    "stopped": "STOPPED",
    "searching": "SEARCHING",
}


_ENDED_BY = {"passed": ", beyond the failing phase", "alike": ", like the baseline", "spent": ", cut off by --max-time"}


def isolation_document(found: Isolation) -> dict[str, Any]:
    """Secrets are masked in all that came from the command."""
    return document(
        "isolation",
        name=found.name,
        state=found.state,
        reason=found.reason,
        engine={"name": found.engine, "version": found.engine_version},
        versions=dict(found.versions),
        command=list(found.command),
        baseline=found.baseline,
        stays=list(found.stays),
        settings=[{**_row(one), "suspicion": one.suspicion, "because": one.because or None} for one in found.settings],
        minimal_failing=_rows(found.minimal_failing),
        minimal_fix=_rows(found.minimal_fix),
        verified=list(found.verified),
        unjudged=list(found.unjudged),
        trials=[_trial(one, found.settings) for one in found.trials],
        launches=len(found.trials),
        launches_left=found.launches_left,
        parallel=found.parallel,
        seconds=found.seconds,
        cost=found.cost,
        intermittent=found.intermittent,
        failed=found.failed,
        passed=found.passed,
        failure_rate=found.failure_rate,
        guilty=list(found.guilty),
        cleared=list(found.cleared),
        open=list(found.open),
        posterior=[{"settings": list(labels), "probability": p} for labels, p in found.posterior],
        reproduce=found.reproduce,
        fixed=found.fixed,
        diff=list(fix_diff(found)),
        folder=found.folder,
        next=list(found.next),
    )


def progress_line(found: Isolation) -> str:
    """What is known before the next launch."""
    parts = [f"guilty: {', '.join(found.guilty)}"] if found.guilty else []
    parts += [f"cleared: {len(found.cleared)}", f"open: {len(found.open)}"]
    mean = found.seconds / len(found.trials) if found.trials else 0.0
    left = found.launches_left or 0.0
    price = f", about {_span(left * mean)}" if mean else ""
    launches = count(max(1, round(left)), "more launch", "more launches")
    at_once = f", {found.parallel} at once" if found.parallel > 1 else ""
    return f"{'; '.join(parts)}; about {launches}{at_once}{price}"


def trial_line(trial: Trial, settings: Sequence[Setting] = (), most: int = 4) -> str:
    """`trial 3  same        hung at graph_capture, 14 s   without A, with --no-graphs   run 569b`"""
    puts_in = {one.label: one.change.removeprefix("+ ") for one in settings if all(change.action != "remove" for change in one.changes)}
    removed = [label for label in trial.changed if label not in puts_in]
    added = [puts_in[label] for label in trial.changed if label in puts_in]
    parts = [f"{word} {_some(names, most)}" for word, names in (("without", removed), ("with", added)) if names] or ["unchanged"]
    cut = f" (with {trial.shortcut})" if trial.shortcut else ""
    cut += f" (place {trial.place})" if trial.place else ""
    how = trial.verdict + _ENDED_BY.get(trial.until, "")
    run = f"   run {trial.run.rpartition('-')[2]}" if trial.run else ""
    return visible(f"trial {trial.number:<3}{trial.outcome:<11}{how}, {_span(trial.seconds)}  {', '.join(parts)}{cut}{run}")


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def isolation_text(found: Isolation) -> str:
    """The whole answer in a screenful."""
    lines = [f"{_TITLES.get(found.state, found.state.upper())}: {visible(found.reason)}"]
    if found.baseline:
        lines.append(visible(f"  the failure: {found.baseline['verdict']}: {found.baseline['reason']}"))
    if found.minimal_failing:
        lines += ["", "  fails with:", *(f"    {visible(one.label)}{_why(one)}" for one in found.minimal_failing)]
    if found.minimal_fix:
        lines += ["", "  fix:", *(f"    {line}" for line in fix_diff(found))]
    lines += [f"  verified: {text}" for text in found.verified]
    lines += [f"  not known: whether {visible(label)} matters; changed, it fails in another way" for label in found.unjudged]
    if found.intermittent and found.failed:
        sure = f"; {100 * found.posterior[0][1]:.0f} % certain" if found.posterior else ""
        launches = count(found.failed + found.passed, "launch", "launches")
        lines.append(f"  it comes and goes: what is at fault failed in {found.failed} of {launches} of it{sure}")
    if found.minimal_failing is None and found.posterior:
        lines += [
            "",
            "  likeliest so far:",
            *(f"    {100 * p:3.0f} %  {visible(' and '.join(labels)) or 'none of them'}" for labels, p in found.posterior),
        ]
    lines += ["", *(f"  {trial_line(one, found.settings)}" for one in found.trials)] if found.trials else []
    cost = f", {found.cost:g} in your money" if found.cost is not None else ""
    lines += ["", f"  {count(len(found.trials), 'launch', 'launches')}, {_span(found.seconds)}{cost}"]
    for name, command in (("reproduce", found.reproduce), ("fixed", found.fixed)):
        lines += ["", f"  {name}:", f"    {visible(command)}"] if command else []
    lines += ["", "  next:", *(f"    {text}" for text in found.next)] if found.next else []
    return "\n".join(lines)


def isolation_markdown(found: Isolation) -> str:
    """For an issue: what fails, the smallest command that does, what fixes it, and how that is known."""
    version = f" {found.engine_version}" if found.engine_version else ""
    base = found.baseline or {}
    lines = [f"### {found.reason[:1].upper()}{found.reason[1:]}", ""]
    lines += [f"{found.engine or 'The server'}{version}. {base.get('verdict', 'It fails')}: {base.get('reason', '')}", ""]
    if found.versions:
        lines += ["Versions: " + ", ".join(f"{name} {value}" for name, value in sorted(found.versions.items())), ""]
    for title, command in (("The smallest command that fails", found.reproduce), ("The command as it was, fixed", found.fixed)):
        lines += [f"**{title}**", "", "```sh", command, "```", ""] if command else []
    if found.minimal_fix:
        lines += ["**The fix**", "", "```diff", *fix_diff(found), "```", ""]
    lines += ["**Launches**", "", "| | outcome | verdict | seconds | changed |", "|---|---|---|---|---|"]
    changes = {one.label: one.change for one in found.settings}
    for one in sorted(found.trials, key=lambda one: one.number):
        changed = ", ".join(f"`{changes.get(label, label)}`" for label in one.changed) or "nothing"
        lines.append(f"| {one.number} | {one.outcome} | {one.verdict} | {one.seconds:.0f} | {changed.replace('|', chr(92) + '|')} |")
    if found.verified:
        lines += ["", f"Verified: {'; '.join(found.verified)}."]
    return "\n".join(lines) + "\n"


def plan_text(plan: Isolation, problem: str | None, places: Sequence[Sequence[str]] = ((),)) -> str:
    """For `--dry-run`: what could be changed, and what the search would cost. `places`: the GPUs of each place but the first."""
    lines = [count(len(plan.settings), "setting") + (f"; {problem}" if problem else "")]
    for one in plan.settings:
        phases = f"   if it fails in {', '.join(one.phases)}" if one.phases else ""
        kind = "remedy  " if one.remedy else "yours   "
        lines.append(visible(f"  {kind}{one.label}   ({'; '.join(change.text for change in one.changes)}){phases}"))
    lines += [visible(f"  stays   {words}") for words in plan.stays]
    lines.append("plan: 1 launch to see it fail, 1 of the barest command, then the most telling; 2 to verify")
    for number, gpus in enumerate(places[1:], start=1):
        where = f"CUDA_VISIBLE_DEVICES={','.join(gpus)}, and another port" if gpus else "another port"
        lines.append(f"at once: place {number} with {where}; it has to show the failure before its launches count")
    left = plan.launches_left or 0
    lines.append(f"price: about {left:.0f} launches where one setting is at fault, each until it fails or is beyond the failing phase")
    return "\n".join(lines)


def fix_diff(found: Isolation) -> Iterator[str]:
    """What the fix takes out of the command and what it puts in, a flag with its values a line."""
    if not found.fixed or found.minimal_fix is None:
        return
    before, after = _grouped(found.command), _grouped(shlex.split(found.fixed))
    for line in difflib.ndiff(before, after):
        if line.startswith(("- ", "+ ")):
            yield line


def _grouped(words: Iterable[str]) -> list[str]:
    """A flag and its values are one line."""
    lines: list[list[str]] = []
    for word in words:
        if lines and not word.startswith("-") and lines[-1][0].startswith("-"):
            lines[-1].append(word)
        else:
            lines.append([word])
    return [shlex.join(line) for line in lines]


def _rows(settings: tuple[Setting, ...] | None) -> list[dict[str, Any]] | None:
    return None if settings is None else [_row(one) for one in settings]


def _row(setting: Setting) -> dict[str, Any]:
    """The first change in the form of a finding's settings, and all of them: most settings are changed by one."""
    changes = [
        {"kind": one.kind, "name": "****" if one.secret else one.name, "value": _value(one), "action": one.action, "text": one.text}
        for one in setting.changes
    ]
    first = {name: changes[0][name] if changes else None for name in ("kind", "name", "value", "action")}
    return {**first, "label": setting.label, "remedy": setting.remedy, "changes": changes}


def _trial(trial: Trial, settings: tuple[Setting, ...]) -> dict[str, Any]:
    """`settings`: those that were kept as the user gave them."""
    row: dict[str, Any] = msgspec.to_builtins(trial)
    row.pop("kept")
    return {"settings": [one.label for one in settings if one.label not in trial.changed], **row}


def _value(change: Change) -> str | None:
    """Masked; None of a switch."""
    if change.secret:
        return "****"
    if change.kind == "env":
        return mask_env({change.name: change.values[0] if change.values else ""})[change.name]
    return " ".join(mask_argv((change.name, *change.values))[1:]) or None


def _why(setting: Setting) -> str:
    return f"   ({setting.because})" if setting.because else ""


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
