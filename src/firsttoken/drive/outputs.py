"""Is it lossless? Greedy outputs of both servers, where they part, and why, as far as it can be told. Pure.

Rounding differs between a batch of one token and one of four, so two tokens that are as good as equal may change places; a server may even
part from its own earlier output. Such partings are no fault of speculation. What is: the baseline had a clear favourite, repeats it, and
the other server wrote something else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from firsttoken.drive.client import Reply
from firsttoken.model.speculation import Outputs, Parted, Parting

TIE = 0.25
"""Difference of log probabilities, nats: two steps of bfloat16 for logits between 16 and 32."""
_SHOWN = 40


def compare(pairs: Iterable[tuple[int, Reply, Reply]]) -> Outputs:
    """`pairs`: concurrency, the baseline's answer and the speculative one's to the same prompt. Those that part come earliest first."""
    compared = agree = 0
    parted: list[Parted] = []
    for concurrency, baseline, speculative in pairs:
        compared += 1
        at = place(baseline.text, speculative.text)
        if at is None:
            agree += 1
            continue
        parted.append(
            Parted(
                prompt=baseline.prompt,
                concurrency=concurrency,
                at_token=round(baseline.tokens * at / max(1, len(baseline.text))),
                baseline=baseline.text[at : at + _SHOWN],
                speculative=speculative.text[at : at + _SHOWN],
            )
        )
    parted.sort(key=lambda one: (one.concurrency, one.at_token))
    return Outputs(compared=compared, agree=agree, parted=tuple(parted))


def place(one: str, other: str) -> int | None:
    """Characters up to which both agree; None where they agree to the end."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def explained(parted: Parted, before: str, again: Sequence[tuple[str, float | None]] | None, at: int) -> Parted:
    """With why it parted. `before`: the baseline's own answer; `again`: the same asked once more, its tokens with their margins; `at`: the
    character where the two servers part."""
    if not again:
        return parted
    text = "".join(token for token, _ in again)
    other = place(before, text)
    if other is not None and other <= at and other < min(len(before), len(text)):
        return replace(parted, why=Parting.UNSTABLE)
    seen = 0
    for number, (token, margin) in enumerate(again):
        seen += len(token)
        if seen > at:
            why = Parting.UNTOLD if margin is None else Parting.TIE if margin < TIE else Parting.CLEAR
            return replace(parted, why=why, margin=margin, at_token=number)
    return parted


def lossless(outputs: Outputs) -> bool | None:
    """None where nothing was compared, or where what parted may be rounding."""
    if not outputs.compared:
        return None
    if outputs.agree == outputs.compared:
        return True
    return False if any(one.why is Parting.CLEAR for one in outputs.parted) else None
