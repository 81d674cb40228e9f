"""Whether generated output looks like language at all. Pure.

Key insight: a broken kernel or a wrong quantisation rarely ends the server; it makes it say the same token for ever ("!!!!!!!!"), say
nothing, or give log probabilities that are no numbers. A small random model talks gibberish, but varied gibberish, and is healthy.
A doubt is None: False is said only where no healthy model would answer so to any of the prompts.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FEW = 4
"""below this many tokens a repetition says nothing"""
LOWEST_LOGPROB = -1000.0
"""A chosen token cannot be less likely (exp(-1000) is 0 in any float); engines write -9999 for minus infinity."""
_GARBAGE = frozenset({"Cc", "Cn", "Co", "Cs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One answer. `units`: texts of single tokens where known, else of the chunks that came; `tokens` None: not known.

    `logprobs`: of the chosen tokens, None where the server gave null.
    """

    text: str
    units: tuple[str, ...] = ()
    tokens: int | None = None
    logprobs: tuple[float | None, ...] = ()


def sane(generations: Iterable[Generation]) -> bool | None:
    """Over the answers to different prompts.

    False where a log probability is no number, or where every answer that can be judged is degenerate; None where they disagree.
    """
    seen = list(generations)
    if any(not _is_logprob(value) for one in seen for value in one.logprobs):
        return False
    looks = {_look(one) for one in seen} - {None}
    return looks.pop() if len(looks) == 1 else None


def sane_numbers(values: Sequence[float | None]) -> bool | None:
    """For embeddings and scores: False where a value is no finite number, or a vector of several is all zeros."""
    if not values:
        return None
    if any(value is None or not math.isfinite(value) for value in values):
        return False
    return not (len(values) > FEW and not any(values))


def _is_logprob(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > LOWEST_LOGPROB


def _look(one: Generation) -> bool | None:
    units = [unit for unit in one.units if unit]
    tokens = one.tokens if one.tokens is not None else len(units)
    if not one.text:
        return False if tokens >= FEW else None
    if tokens >= FEW or len(one.text.split()) >= FEW or (tokens != 1 and len(one.text) >= 2 * FEW):
        return not (_is_garbage(one.text) or _is_one_token(one.text, units))
    return None


def _is_garbage(text: str) -> bool:
    """Nothing but replacement characters, controls and characters that Unicode does not know."""
    visible = [char for char in text if not char.isspace()]
    return bool(visible) and all(char == "\ufffd" or unicodedata.category(char) in _GARBAGE for char in visible)


def _is_one_token(text: str, units: Sequence[str]) -> bool:
    words = text.split()
    if len(units) >= FEW and len({unit.strip() or unit for unit in units}) == 1:
        return True
    if len(words) >= FEW and len(set(words)) == 1:
        return True
    letters = "".join(words) or text
    if len(letters) >= FEW and len(set(letters)) == 1:
        return True
    return len(units) < 2 and len(text) // _period(text) >= FEW


def _period(text: str) -> int:
    """Length of the shortest piece of which the text is a repetition."""
    return (text + text).find(text, 1)
