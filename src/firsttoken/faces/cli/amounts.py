"""Numbers that users type, checked once, with sentences that say what is wrong."""

from typing import Any

import click


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in late versions of click only
    """A finite number of seconds, not negative."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value!r} is not a number of seconds from 0 up", param, ctx)
        return seconds


class Count(click.ParamType):  # type: ignore[type-arg]  # generic in late versions of click only
    """A whole number, not negative."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            count = int(value)
        except ValueError:
            count = -1
        if count < 0:
            self.fail(f"{value!r} is not a whole number from 0 up", param, ctx)
        return count
