"""The answer of `speculate` as a document of schema `firsttoken/1`, and as text."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from firsttoken.model.result import Result
from firsttoken.model.speculation import Answer, Costs, Earlier, Figures, Kind, Level, Parting, Ratio
from firsttoken.report.document import document, result_document
from firsttoken.report.text import visible

_WORDS = {True: "PAYS", False: "DOES NOT PAY", None: "CANNOT TELL"}
_FINDINGS = 3
_PARTED = 3


def speculation_document(answer: Answer, at: str) -> dict[str, Any]:
    """`at`: UTC time of the answer. `speedup`, `interval` and the acceptance are those of the first concurrency that was asked for."""
    main = answer.levels[0] if answer.levels else None
    seen = main.acceptance if main is not None else None
    return document(
        "speculation",
        at=at,
        engine=answer.engine,
        command=list(answer.command),
        baseline_command=list(answer.baseline_command),
        pays=answer.opinion.pays,
        concurrency=main.concurrency if main is not None else None,
        speedup=main.speedup.value if main is not None else None,
        interval=_interval(main.speedup) if main is not None else None,
        acceptance=seen.rate if seen is not None else None,
        acceptance_by_requests=seen.by_requests if seen is not None else None,
        accepted_length=seen.length if seen is not None else None,
        acceptance_by_position=list(seen.by_position) if seen is not None else [],
        drafted_tokens=seen.drafted if seen is not None else None,
        acceptance_source=seen.source if seen is not None else None,
        break_even_acceptance=main.costs.break_even if main is not None and main.costs is not None else None,
        by_concurrency=[_level(one) for one in answer.levels],
        lossless=answer.lossless,
        outputs=msgspec.to_builtins(answer.outputs),
        cause=answer.opinion.cause,
        reason=answer.opinion.reason,
        suggestion=answer.opinion.suggestion,
        suggested_draft_tokens=answer.opinion.draft_tokens,
        more_blocks=answer.opinion.more_blocks,
        tried=[{**msgspec.to_builtins(one), "ratio": None, **_tried(one.ratio)} for one in answer.tried],
        measured=msgspec.to_builtins(answer.measured),
        earlier=msgspec.to_builtins(answer.earlier),
        runs=dict(answer.runs),
        results={side: result_document(result) if result is not None else None for side, result in answer.results.items()},
        seconds=answer.seconds,
        not_checked=list(answer.not_checked),
    )


def earlier(doc: Mapping[str, Any], main: Level | None) -> Earlier | None:
    """What an earlier document says, held against this one. None where it cannot be read."""
    speedup, interval, at = doc.get("speedup"), doc.get("interval"), doc.get("at")
    if not isinstance(speedup, int | float) or not isinstance(at, str):
        return None
    bounds = (float(interval[0]), float(interval[1])) if isinstance(interval, list) and len(interval) == 2 else None
    acceptance = doc.get("acceptance")
    told = f"{at}: {speedup:.2f} times as fast" + (f", {100 * acceptance:.0f} % accepted" if isinstance(acceptance, int | float) else "")
    if main is not None and bounds is not None:
        now = main.speedup
        change = "faster than then" if now.low > bounds[1] else "slower than then" if now.high < bounds[0] else "no different from then"
        told += f"; now it is {change}"
    rate = float(acceptance) if isinstance(acceptance, int | float) else None
    return Earlier(at=at, speedup=float(speedup), interval=bounds, acceptance=rate, text=told)


def speculation_text(answer: Answer) -> str:
    """A screenful: the verdict with its reason, what to do, the numbers, how they were taken, what was not checked."""
    return "\n".join(_lines(answer))


def _lines(answer: Answer) -> Iterator[str]:
    yield f"{_WORDS[answer.opinion.pays]}: {visible(answer.opinion.reason)}"
    yield f"  do: {visible(answer.opinion.suggestion)}"
    if answer.levels:
        yield ""
        yield "   at a time   speed-up (95 %)        end to end   tokens/s a user    in total          first token        accepted"
        yield from map(_row, answer.levels)
        yield from _acceptance(answer.levels[0])
        yield from _costs(answer.levels[0])
        yield f"  outputs     {_outputs(answer)}"
    yield from _tried_lines(answer)
    yield from _before(answer)
    if answer.measured is not None and answer.levels:
        yield ""
        yield from _how(answer)
    for side, result in answer.results.items():
        if result is not None and answer.code not in (0, 76):
            yield from _result(side, result)
    if answer.not_checked:
        yield ""
        yield "  not checked:"
        yield from (f"    {visible(text)}" for text in answer.not_checked)


def _row(one: Level) -> str:
    old, new = one.baseline, one.speculative
    whole = f"{one.end_to_end.value:.2f}" if one.end_to_end is not None else "…"
    bounds = _span(one.speedup)
    return (
        f"   {one.concurrency:>9}   {bounds:<20} {whole:>12}   {old.tokens_per_s_user:6.1f} → {new.tokens_per_s_user:<6.1f}  "
        f"{old.tokens_per_s:6.1f} → {new.tokens_per_s:<6.1f}  {1000 * old.first_token_s:6.0f} → {1000 * new.first_token_s:<4.0f} ms   "
        f"{_percent(one.acceptance.rate)}"
    )


def _acceptance(main: Level) -> Iterator[str]:
    seen = main.acceptance
    yield ""
    parts = [f"{_percent(seen.rate)} of all drafted tokens"] if seen.rate is not None else []
    parts += [f"{_percent(seen.by_requests)} as the mean of {seen.requests} requests"] if seen.by_requests is not None else []
    parts += [f"{seen.length:.2f} tokens a round"] if seen.length is not None else []
    drafted = f" ({seen.accepted} of {seen.drafted} in {seen.drafts} rounds)" if seen.drafted and seen.drafts else ""
    yield f"  accepted    {', '.join(parts) or 'not known'}{drafted}; from {seen.source}"
    if seen.by_position:
        yield f"  by position {'  '.join(_percent(value) for value in seen.by_position)}"
    for name, found in (("greedy", main.greedy), ("sampled", main.sampled)):
        if found is not None and main.greedy is not None and main.sampled is not None:
            accepted = f", {_percent(found.acceptance)} accepted" if found.acceptance is not None else ""
            yield f"  {name:<11} {_span(found.speedup)}{accepted}"


def _costs(main: Level) -> Iterator[str]:
    if main.costs is None:
        return
    costs = main.costs
    even = f"pays from {_percent(costs.break_even)} accepted" if costs.break_even <= 1 else "would not pay if all were accepted"
    yield (
        f"  costs       a step {1000 * costs.step_s:.1f} ms, a round {1000 * costs.round_s:.1f} ms, "
        f"each draft token {1000 * costs.draft_s:.1f} ms: {even}"
    )


def _outputs(answer: Answer) -> str:
    outputs = answer.outputs
    if not outputs.compared:
        return "not compared"
    if answer.lossless:
        return f"lossless: all {outputs.compared} greedy answers are the same"
    told = f"{outputs.agree} of {outputs.compared} greedy answers are the same"
    if answer.lossless is None:
        told += "; where the others part, rounding may be why"
    else:
        told += "; NOT LOSSLESS"
    for one in outputs.parted[:_PARTED]:
        margin = f", margin {one.margin:.2f}" if one.margin is not None else ""
        told += f"\n                {one.prompt}: parts after {one.at_token} tokens ({_WHY[one.why]}{margin})"
    return told


_WHY = {
    Parting.TIE: "two tokens were as good as equal",
    Parting.UNSTABLE: "the baseline does not repeat itself there either",
    Parting.CLEAR: "the baseline had a clear favourite",
    Parting.UNTOLD: "why cannot be told",
}


def _tried_lines(answer: Answer) -> Iterator[str]:
    for one in answer.tried:
        accepted = f", {_percent(one.acceptance)} accepted" if one.acceptance is not None else ""
        told = f"{_span(one.ratio)}{accepted}" if one.ratio is not None else f"did not serve: {one.note}"
        yield f"  tried       {one.draft_tokens} drafted at a time: {visible(told)}"


def _before(answer: Answer) -> Iterator[str]:
    if answer.earlier is not None:
        yield f"  earlier     {visible(answer.earlier.text)}"


def _how(answer: Answer) -> Iterator[str]:
    measured = answer.measured
    assert measured is not None
    how = "both servers at the same time, A B B A" if measured.arrangement == "interleaved" else "one server after the other, A B B A"
    kinds = " and ".join(dict.fromkeys(measured.samplings))
    blocks = f"{answer.levels[0].speedup.blocks} blocks, {measured.output_tokens} tokens an answer, {kinds}"
    yield f"  measured    {how} ({measured.why}); {blocks}"
    yield f"  prompts     {visible(measured.prompts)}, by {measured.route}"
    for side in ("baseline", "speculative"):
        command = answer.baseline_command if side == "baseline" else answer.command
        words = f": {visible(shlex.join(command))}" if command else ""
        yield f"  {side:<11} {answer.runs.get(side) or 'at an address'}{words}"


def _result(side: str, result: Result) -> Iterator[str]:
    yield ""
    yield f"  {side} (run {result.run}): {result.verdict.upper()}: {visible(result.reason)}"
    for row in result.findings[:_FINDINGS]:
        yield f"    {row['cause']} ({100 * row['confidence']:.0f} %): {visible(str(row['summary']))}"
        yield from (f"      for:    {visible(str(text))}" for text in row["evidence"][:3])
        if row["remedy"]:
            yield f"      remedy: {visible(str(row['remedy']))}"


def _level(one: Level) -> dict[str, Any]:
    return {
        "concurrency": one.concurrency,
        "speedup": one.speedup.value,
        "interval": _interval(one.speedup),
        "blocks": one.speedup.blocks,
        "pays": one.pays,
        "end_to_end": _named(one.end_to_end),
        "greedy": _kind(one.greedy),
        "sampled": _kind(one.sampled),
        "baseline": _milliseconds(one.baseline),
        "speculative": _milliseconds(one.speculative),
        "acceptance": msgspec.to_builtins(one.acceptance),
        "costs": _milliseconds(one.costs),
    }


def _milliseconds(one: Figures | Costs | None) -> dict[str, Any] | None:
    """Documents keep three digits behind the point, which is too few for seconds of a step."""
    if one is None:
        return None
    fields: dict[str, float] = msgspec.to_builtins(one)
    timed = {name for name in fields if name.endswith("_s") and not name.endswith("per_s")}
    return {f"{name[:-2]}_ms" if name in timed else name: 1000 * value if name in timed else value for name, value in fields.items()}


def _named(one: Ratio | None) -> dict[str, Any] | None:
    return {"speedup": one.value, "interval": _interval(one)} if one is not None else None


def _kind(one: Kind | None) -> dict[str, Any] | None:
    return {**(_named(one.speedup) or {}), "acceptance": one.acceptance} if one is not None else None


def _tried(one: Ratio | None) -> dict[str, Any]:
    return {"speedup": one.value if one is not None else None, "interval": _interval(one) if one is not None else None}


def _interval(one: Ratio) -> list[float]:
    return [one.low, one.high]


def _span(one: Ratio) -> str:
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"


def _percent(value: float | None) -> str:
    return f"{100 * value:.0f} %" if value is not None else "…"
