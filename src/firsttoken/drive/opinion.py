"""Does it pay, why, and what to do: the answer in sentences, from the numbers. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from firsttoken.drive.pairs import more_blocks
from firsttoken.drive.weigh import EQUAL, WORTH, better, drafted_at_once, pays, predicted
from firsttoken.model.speculation import Level, Opinion, Ratio, Tried

_NO_FIT = 0.05
_CHECKS = (
    "was the drafter trained for exactly this target (hidden size, auxiliary layers, vocabulary and its mapping, tokenizer, template), "
    "does the engine feed it the hidden states of the layers that it was trained on, and is one of the two quantised otherwise?"
)


def opinion(levels: Sequence[Level], *, draft_tokens: int | None, copies: bool) -> Opinion:
    """`levels` in the order in which they were asked for: the first is what a single number is about."""
    if not levels:
        return Opinion(
            pays=None,
            cause="not-measured",
            reason="no speed could be measured: too few blocks, or answers that come in one piece",
            suggestion="ask for more blocks (--blocks 8) or longer answers (--output-tokens 128)",
        )
    main = levels[0]
    if main.acceptance.drafts == 0:
        return _nothing_drafted(main, copies)
    depth = drafted_at_once(main.acceptance, draft_tokens)
    best = better(main, depth)
    known = [one for one in levels if one.pays is not None]
    if _opposed(main):
        return _depends_on_sampling(main)
    if len({one.pays for one in known}) > 1:
        return _depends(known, best)
    if main.pays is None:
        return _undecided(main)
    if main.pays:
        return _it_pays(levels, main, depth, best)
    return _it_does_not(main, depth, best, copies)


def tuned(found: Opinion, levels: Sequence[Level], tried: Sequence[Tried]) -> Opinion:
    """The opinion with what trying other numbers of draft tokens showed."""
    rows = [(one, one.ratio) for one in tried if one.ratio is not None]
    if not rows or not levels:
        return found
    best, reached = max(rows, key=lambda row: row[1].value)
    seen = ", ".join(f"{one.draft_tokens}: {told.value:.2f}" for one, told in sorted(rows, key=lambda row: row[0].draft_tokens))
    if reached.low > 1 and reached.value > levels[0].speedup.value * WORTH:
        told = f"use {_tokens(best.draft_tokens)}: {_factor(reached)} (tried: {seen})"
        return replace(found, suggestion=told, draft_tokens=best.draft_tokens)
    keep = "keep the present number" if found.pays else "turn it off"
    return replace(found, suggestion=f"{keep}: no other number of draft tokens was better (tried: {seen})", draft_tokens=None)


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.0f} %"


def _factor(found: Ratio) -> str:
    return f"{found.value:.2f} times as fast (95 % interval {found.low:.2f} to {found.high:.2f})"


def _users(found: Level) -> str:
    return f"at {found.concurrency} user{'s' if found.concurrency != 1 else ''}"


def _tokens(number: int) -> str:
    return f"{number} draft token{'s' if number != 1 else ''}"


def _instead(best: int, depth: int, promised: float) -> str:
    return f"try {_tokens(best)} in place of {depth} (--tune does): by the curve over positions {promised:.2f} times as fast"


def _what(found: Level) -> str:
    """Acceptance, and from where it pays."""
    seen = found.acceptance
    if seen.rate is None:
        text = f"a round brings {seen.length:.2f} tokens" if seen.length is not None else "how many drafts are accepted cannot be seen"
    else:
        text = f"{_share(seen.rate)} of the drafted tokens are accepted"
    if found.costs is None:
        return text
    even = found.costs.break_even
    return f"{text}, and here it pays from {_share(even)}" if even <= 1 else f"{text}, and here it would not pay at 100 %"


def _undecided(main: Level) -> Opinion:
    more = more_blocks(main.speedup)
    wide = f"speculation makes generation {_factor(main.speedup)} {_users(main)}; the interval holds 1"
    if more is None:
        return Opinion(
            pays=None,
            cause="undecided",
            reason=f"{wide}, and the difference is so small that more blocks hardly tell it",
            suggestion="leave it off, unless you have reasons beyond speed: a drafter takes memory",
        )
    return Opinion(
        pays=None,
        cause="undecided",
        reason=f"{wide}; {_what(main)}",
        suggestion=f"measure {more} more blocks: --blocks {main.speedup.blocks + more}",
        more_blocks=more,
    )


def _depends(known: Sequence[Level], best: int | None) -> Opinion:
    gains = [one for one in known if one.pays]
    losses = [one for one in known if not one.pays]
    told = "; ".join(f"{_factor(one.speedup)} {_users(one)}" for one in known)
    if min(one.concurrency for one in losses) > max(one.concurrency for one in gains):
        reason = f"it pays while the machine has room, and not once the batch fills it: {told}"
        until = max(one.concurrency for one in gains)
        suggestion = f"keep it for up to {until} users at a time; for more, turn it off or draft fewer tokens"
        return Opinion(pays=None, cause="full-batch", reason=reason, suggestion=suggestion, draft_tokens=best)
    return Opinion(
        pays=None, cause="depends-on-load", reason=f"it depends on the load: {told}", suggestion="decide by the load that you have"
    )


def _nothing_drafted(main: Level, copies: bool) -> Opinion:
    reason = (
        f"the speculative server drafted nothing for {main.speculative.tokens} tokens; generation is {_factor(main.speedup)} {_users(main)}"
    )
    off = "turn it off for such prompts: it found nothing to copy"
    return Opinion(
        pays=False if copies else None,
        cause="nothing-drafted",
        reason=reason,
        suggestion=off if copies else "see in its log whether speculation is on: some settings switch it off",
    )


def _opposed(main: Level) -> bool:
    """Whether greedy and sampled answers say the opposite of each other; their mean is then nobody's."""
    return main.greedy is not None and main.sampled is not None and {pays(main.greedy.speedup), pays(main.sampled.speedup)} == {True, False}


def _depends_on_sampling(main: Level) -> Opinion:
    assert main.greedy is not None
    assert main.sampled is not None
    told = f"greedy answers come {_factor(main.greedy.speedup)}, sampled ones {_factor(main.sampled.speedup)}, {_users(main)}"
    which = "greedy" if main.greedy.speedup.value > main.sampled.speedup.value else "sampled"
    return Opinion(
        pays=None,
        cause="depends-on-sampling",
        reason=f"it depends on how tokens are chosen: {told}; {_what(main)}",
        suggestion=f"keep it for {which} answers only; measure what you serve with --sampling greedy or --sampling sampled",
    )


def _it_pays(levels: Sequence[Level], main: Level, depth: int | None, best: int | None) -> Opinion:
    told = "; ".join(f"{_factor(one.speedup)} {_users(one)}" for one in levels)
    suggestion = "keep it"
    if best is not None and depth is not None:
        promised = predicted(main, depth)
        suggestion = f"keep it, and {_instead(best, depth, promised[best])}"
    return Opinion(
        pays=True, cause="pays", reason=f"speculation makes generation {told}; {_what(main)}", suggestion=suggestion, draft_tokens=best
    )


def _it_does_not(main: Level, depth: int | None, best: int | None, copies: bool) -> Opinion:
    seen, costs, promised = main.acceptance, main.costs, predicted(main, depth)
    head = f"speculation makes generation {_factor(main.speedup)} {_users(main)}: {_what(main)}"
    if main.speedup.low >= 1 - EQUAL:
        suggestion = (
            _instead(best, depth, promised[best]) if best is not None and depth is not None else "turn it off: it takes memory for nothing"
        )
        return Opinion(pays=False, cause="equal", reason=f"{head}; that is no gain", suggestion=suggestion, draft_tokens=best)
    if seen.rate is not None and seen.rate < _NO_FIT and not copies:
        return Opinion(
            pays=False,
            cause="drafter-does-not-fit",
            reason=f"{head}. Acceptance is too low at every position, so the drafter does not fit the target",
            suggestion=f"turn it off until the drafter fits. Check: {_CHECKS}",
        )
    if best is not None and depth is not None and best < depth and promised[best] > 1 + EQUAL:
        first = seen.by_position[0] if seen.by_position else None
        return Opinion(
            pays=False,
            cause="too-many-draft-tokens",
            reason=f"{head}. The first draft token is right in {_share(first)} of the rounds, the later ones too seldom for what they cost",
            suggestion=_instead(best, depth, promised[best]),
            draft_tokens=best,
        )
    if costs is not None and costs.break_even > 1 - EQUAL:
        slow = f"each draft token adds {1000 * costs.draft_s:.1f} ms where a step of the target takes {1000 * costs.step_s:.1f} ms"
        return Opinion(
            pays=False,
            cause="drafter-too-slow",
            reason=f"{head}. Drafting is too slow: {slow}",
            suggestion="turn it off, or take a smaller drafter; graphs or compilation that the drafter lacks are a usual cause",
        )
    if copies:
        return Opinion(
            pays=False,
            cause="nothing-to-copy",
            reason=f"{head}. This drafter copies from the text, and these answers repeat too little of it",
            suggestion="turn it off for such prompts; it is for answers that quote their prompt, such as edits of code (--prompts FILE)",
        )
    hint = "; one draft token would come nearest" if promised and best == 1 else ""
    return Opinion(
        pays=False,
        cause="acceptance-too-low",
        reason=f"{head}. No number of draft tokens makes up for it{hint}" if promised else head,
        suggestion=f"turn it off, or find a better drafter. Check: {_CHECKS}",
    )
