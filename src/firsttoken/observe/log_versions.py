"""Versions as engines write them, compared by their numbers: enough to choose between wordings of a line."""

import re
from functools import lru_cache


def in_range(version: str | None, since: str | None, until: str | None) -> bool:
    """Whether `version` lies between the two, both included; `until` 0.12 holds 0.12.3 too. An unknown version lies in every range."""
    numbers = _numbers(version) if version is not None else ()
    if not numbers:
        return True
    if since is not None and numbers < _numbers(since):
        return False
    return until is None or numbers[: len(_numbers(until))] <= _numbers(until)


@lru_cache(maxsize=256)
def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d{1,6}(?:\.\d{1,6})*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()
