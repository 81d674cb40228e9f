"""A stretch of load: so many prompts, so many at a time, and what came of it.

Both servers get the same stretches in the order A B B A, so that a drift of the machine falls on both alike.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx

from firsttoken.drive.client import Reply, Server, ask, fetch
from firsttoken.drive.counters import Counts, read
from firsttoken.drive.prompts import Prompt
from firsttoken.model.speculation import Figures, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one side did of one stretch. `counts`: what the engine counted meanwhile; `by_request` the same of each request alone."""

    sampling: Sampling
    replies: tuple[Reply, ...]
    counts: Counts | None = None
    by_request: tuple[Counts, ...] = ()

    @property
    def speed(self) -> float | None:
        """Tokens a second and user, from each answer's first token on."""
        timed = [reply for reply in self.replies if reply.inter_token_s is not None]
        seconds = sum(reply.last - reply.first for reply in timed)
        return sum(reply.tokens - 1 for reply in timed) / seconds if seconds > 0 else None

    @property
    def seconds(self) -> float:
        """In which the server had something to do; stretches of one request at a time have pauses between them."""
        begun = sorted((reply.asked, reply.last) for reply in self.replies)
        busy, until = 0.0, 0.0
        for asked, last in begun:
            busy += max(0.0, last - max(asked, until))
            until = max(until, last)
        return busy

    @property
    def tokens(self) -> int:
        return sum(reply.tokens for reply in self.replies)

    @property
    def throughput(self) -> float | None:
        """Tokens a second of all users together, with the wait for the first ones."""
        return self.tokens / self.seconds if self.seconds > 0 else None


async def stretch(
    client: httpx.AsyncClient,
    server: Server,
    prompts: Sequence[Prompt],
    *,
    concurrency: int,
    tokens: int,
    sampling: Sampling,
    temperature: float,
    names: Mapping[str, str],
) -> Stretch:
    """LoadError where a request is not answered. `names`: the engine's metric names; empty where nothing is to be counted."""
    counting = bool(names) and server.metrics is not None
    before = await _counts(client, server, names) if counting else None
    waiting = list(enumerate(prompts))[::-1]
    replies: dict[int, Reply] = {}
    single: list[Counts] = []
    last = before

    async def user() -> None:
        nonlocal last
        while waiting:
            number, prompt = waiting.pop()
            heat = temperature if sampling is Sampling.SAMPLED else 0.0
            replies[number] = await ask(client, server, prompt, tokens=tokens, temperature=heat, seed=number + 1)
            if counting and concurrency == 1:
                now = await _counts(client, server, names)
                if now is not None and last is not None:
                    single.append(now.since(last))
                last = now

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(prompts))):
                group.create_task(user())
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    after = last if concurrency == 1 else await _counts(client, server, names) if counting else None
    return Stretch(
        sampling=sampling,
        replies=tuple(replies[number] for number in sorted(replies)),
        counts=after.since(before) if after is not None and before is not None else None,
        by_request=tuple(single),
    )


def figures(stretches: Sequence[Stretch]) -> Figures:
    """Of at least one answer."""
    replies = [reply for one in stretches for reply in one.replies]
    steps = [step for reply in replies if (step := reply.inter_token_s) is not None]
    seconds = sum(one.seconds for one in stretches)
    tokens = sum(reply.tokens for reply in replies)
    step = statistics.median(steps) if steps else 0.0
    return Figures(
        requests=len(replies),
        tokens=tokens,
        tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        tokens_per_s_user=1 / step if step > 0 else 0.0,
        first_token_s=statistics.median(reply.first_token_s for reply in replies),
        inter_token_s=step,
    )


async def _counts(client: httpx.AsyncClient, server: Server, names: Mapping[str, str]) -> Counts | None:
    page = await fetch(client, server.metrics or "")
    found = read(page, names) if page is not None else Counts()
    return found if found.known else None
