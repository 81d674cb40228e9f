"""The prober: proves readiness with a real generated token.

Key insight: a 200 from a health page is a claim. The model is asked for by the name that the server itself lists, and one small generation
goes through the first route that exists. Every request is told by an `HttpAsked`, every question by one `HttpAnswer` at its end: a refusal
on the way ("no such route") is a `Missed`, and becomes the answer only where nothing better came. A generation is never cancelled here:
it ends when the server ends it. A stream that goes on and on after its first text is answer enough; its rest is read and dropped.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace

from firsttoken.model.events import Body, HttpAnswer, HttpAsked, Missed
from firsttoken.model.redact import MASK, mask_text
from firsttoken.model.words import ProbeKind
from firsttoken.observe.http_stream import Reading, StreamParser, error_of, parse_whole
from firsttoken.observe.http_target import Target
from firsttoken.observe.http_ways import Way, after_refusal, body_for, is_missing_route, name_from_list, refuses_stream, ways
from firsttoken.observe.http_wire import Exchange, exchange, speaks_tls
from firsttoken.observe.sanity import Generation, sane, sane_numbers

MODELS_S = 10.0
HEALTH_S = 30.0
"""Some health routes generate a token themselves and give up after 20 s: a probe must wait longer than that."""
GOES_ON_S = 8.0
"""from the first text of a stream that has not ended: some servers ignore how few tokens were asked for"""
BODY_CHARS = 2000
TEXT_CHARS = 400
_FINAL = frozenset({401, 403, 503})
"""statuses that no other form of the same request would change"""


class FirstTokenProber:
    """Asks one server. Hands every event to `emit` and returns the answer too. Raises for nothing that a server does."""

    def __init__(self, target: Target, emit: Callable[[Body], None]) -> None:
        self.target = target
        self._emit = emit
        self._prefix = target.root_path.rstrip("/")
        self._model: str | None = None
        self._listed = False
        self._way: Way | None = None
        self._streams = True
        self._wants_tls: bool | None = None
        self._spoken: dict[int, Generation] = {}
        self._going_on: set[asyncio.Task[Exchange]] = set()

    async def models(self, *, deadline: float = MODELS_S) -> HttpAnswer:
        """GET the list of models; `model` is the name that generations will ask for."""
        route = self.target.routes.models
        if route is None:
            return HttpAnswer(probe=ProbeKind.MODELS, url=self.target.base_url, error="this engine has no list of models")
        got = await self._get(ProbeKind.MODELS, route, deadline)
        if self._prefix and got.status is not None and is_missing_route(got.status, _told(got)):
            # behind a proxy that strips the root path the server itself may not know it
            bare = await exchange(self.target, route, deadline=deadline)
            if bare.status == 200:
                got, self._prefix = bare, ""
        name = None
        if got.status == 200:
            payloads = parse_whole(got.body)
            name = name_from_list(payloads[0], self.target.served_model) if payloads else None
        self._listed = self._listed or name is not None
        self._model = name or self._model
        return self._tell(replace(self._answer(ProbeKind.MODELS, route, got), model=name))

    async def health(self, *, deadline: float = HEALTH_S) -> HttpAnswer:
        """GET the health route, or the list of models where the engine has none. A claim, not a proof."""
        route = self.target.routes.health or self.target.routes.models or "/"
        return self._tell(self._answer(ProbeKind.HEALTH, route, await self._get(ProbeKind.HEALTH, route, deadline)))

    async def ask(self, prompt_no: int) -> HttpAnswer:
        """One real generation (or embedding, or ranking), for as long as the server takes. `sane` is over all prompts asked so far.

        Numbers that follow each other ask with different prompts. Log probabilities are read where a server gives them and never asked
        for: a path of their own may have to be compiled first (measured: 19 s on vLLM 0.32 for CPU).
        """
        if not self._listed:
            await self.models()
        left = ways(self.target)
        if self._way is not None:
            left = (self._way, *(way for way in left if way != self._way))
        kept: _Asked | None = None
        while left:
            asked = await self._ask_by(left[0], prompt_no)
            status = asked.got.status
            following = None if status is None or status == 200 else after_refusal(status, _told(asked.got), asked.way, left[1:])
            kept = _better(kept, asked)
            if following is None:
                break
            self._miss(f"a token by {asked.way.kind}", asked.got)
            left = following
        if kept is None:
            return self._tell(
                HttpAnswer(probe=ProbeKind.COMPLETION, url=self.target.base_url, error="no route is known to ask for a token")
            )
        return self._tell(self._conclude(kept, prompt_no))

    async def _ask_by(self, way: Way, prompt_no: int) -> "_Asked":
        """One way: streamed, and whole where the server refuses to stream."""
        stream = way.generates and self._streams
        asked = await self._post(way, prompt_no, stream=stream)
        if stream and asked.got.status is not None and refuses_stream(asked.got.status, _told(asked.got)):
            self._streams = False
            self._miss("the time of the first token", asked.got)
            asked = await self._post(way, prompt_no, stream=False)
        return asked

    async def _post(self, way: Way, prompt_no: int, *, stream: bool) -> "_Asked":
        model = self._model or self.target.served_model
        body = body_for(way, self.target, prompt_no, model, stream=stream)
        parser, reading = StreamParser(), Reading(text_path=self.target.native_text if way.kind is ProbeKind.NATIVE else None)
        text_came, enough = asyncio.Event(), False

        def take(chunk: bytes, at: float) -> bool:
            if enough:
                return False
            for payload in parser.feed(chunk):
                reading.take(payload, at)
            if reading.first_at is not None:
                text_came.set()
            return reading.done

        self._emit(HttpAsked(probe=way.kind, url=self._url(way.path)))
        whole = await self._until_told(exchange(self.target, self._prefix + way.path, body=body, take=take), text_came)
        enough = True
        goes_on = Exchange(status=200, body=b"", seconds=(reading.first_at or 0.0) + GOES_ON_S, event_stream=True)
        got = await self._noting_tls(goes_on if whole is None else whole)
        if got.event_stream:
            for payload in parser.finish():
                reading.take(payload, got.seconds)
            if not reading.anything:
                got = replace(got, event_stream=False)  # called a stream, and is none
        if got.status == 200 and not got.event_stream:
            for payload in parse_whole(got.body):
                reading.take(payload, got.seconds)
            reading.first_at = None  # it came whole: when its first token was made is not known
        return _Asked(way=way, got=got, reading=reading, generation=reading.generation(got.event_stream))

    async def _until_told(self, talk: Coroutine[None, None, Exchange], text_came: asyncio.Event) -> Exchange | None:
        """The whole answer, or None where it has brought text and does not end; the rest is then read in the background."""
        task = asyncio.ensure_future(talk)
        text = asyncio.ensure_future(text_came.wait())
        try:
            await asyncio.wait({task, text}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({task}, timeout=GOES_ON_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            text.cancel()
        if task.done():
            return task.result()
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        self._emit(Missed(request="the end of the answer", reason=f"the stream still goes on {GOES_ON_S:.0f} s after its first text"))
        return None

    def _conclude(self, asked: "_Asked", prompt_no: int) -> HttpAnswer:
        answer = self._answer(asked.way.kind, asked.way.path, asked.got)
        if asked.got.status != 200:
            return answer
        reading, generation = asked.reading, asked.generation
        error = answer.error or reading.error
        if asked.brought and asked.got.event_stream and asked.got.too_big:
            error = reading.error  # it ignored how little was asked for, and brought it all the same
        if asked.brought:
            self._way = asked.way
        if not asked.way.generates:
            if not asked.brought:
                return replace(answer, error=self._masked(error or "the answer holds no vector and no score"))
            many = f"{len(reading.numbers)} number{'s' if len(reading.numbers) > 1 else ''}"
            return replace(answer, text=many, sane=sane_numbers(reading.numbers), error=self._masked(error), body=None)
        if asked.brought:
            self._spoken[prompt_no] = generation
        elif error is None:
            error = "the answer ended without a token"
        return replace(
            answer,
            first_token_s=reading.first_at,
            text=self._masked(generation.text[:TEXT_CHARS]),
            tokens=generation.tokens,
            sane=sane(self._spoken.values()) if asked.brought else None,
            error=self._masked(error),
            body=None if asked.brought and error is None else answer.body,
        )

    async def _get(self, probe: ProbeKind, route: str, deadline: float) -> Exchange:
        self._emit(HttpAsked(probe=probe, url=self._url(route)))
        return await self._noting_tls(await exchange(self.target, self._prefix + route, deadline=deadline))

    async def _noting_tls(self, got: Exchange) -> Exchange:
        if got.no_http and not self.target.tls and self._wants_tls is None:
            self._wants_tls = await speaks_tls(self.target)
        return replace(got, error=f"{got.error}; the port speaks TLS: ask it by https") if got.no_http and self._wants_tls else got

    def _answer(self, probe: ProbeKind, route: str, got: Exchange) -> HttpAnswer:
        error = got.error
        if error is None and got.location is not None:
            error = f"it sends us elsewhere ({got.location[:200]}), and we do not follow"
        if got.status in (401, 403) and self.target.key is not None and not self.target.sends_key:
            error = "the key was not sent, because the address is not on loopback"
        return HttpAnswer(
            probe=probe,
            url=self._url(route),
            status=got.status,
            seconds=got.seconds,
            model=self._model or self.target.served_model,
            error=self._masked(error),
            body=None if got.status == 200 and probe in (ProbeKind.MODELS, ProbeKind.HEALTH) else self._excerpt(got.body),
            key_source=self.target.key_source if self.target.sends_key else None,
        )

    def _excerpt(self, body: bytes) -> str | None:
        return self._masked(body.decode("utf8", "replace")[: 2 * BODY_CHARS]) if body else None

    def _masked(self, text: str | None) -> str | None:
        if text is None:
            return None
        if self.target.key:
            text = text.replace(self.target.key, MASK)
        return mask_text(text)[:BODY_CHARS]

    def _url(self, route: str) -> str:
        return self.target.base_url + self._prefix + route

    def _miss(self, request: str, got: Exchange) -> None:
        told = got.error or _told(got).strip()[:300]
        self._emit(Missed(request=request, reason=self._masked(told if got.status is None else f"HTTP {got.status}: {told}") or ""))

    def _tell(self, answer: HttpAnswer) -> HttpAnswer:
        self._emit(answer)
        return answer


async def first_http(candidates: Sequence[Target], *, deadline: float = 3.0) -> Target | None:
    """Which of several ports is the server: the first that lists models, else wants a key or still loads, else speaks HTTP.

    Each is sent one GET of its list of models, and no event is told of it. A port that turns out to speak TLS is returned as such.
    """
    graded = await asyncio.gather(*(_grade(candidate, deadline) for candidate in candidates))
    found = [one for one in graded if one is not None]
    return min(found, key=lambda one: one[0])[1] if found else None


async def _grade(candidate: Target, deadline: float) -> tuple[int, Target] | None:
    route = candidate.root_path.rstrip("/") + (candidate.routes.models or candidate.routes.health or "/")
    got = await exchange(candidate, route, deadline=deadline)
    if got.no_http and not candidate.tls and await speaks_tls(candidate):
        candidate = replace(candidate, tls=True)
        got = await exchange(candidate, route, deadline=deadline)
    if got.status is None:
        return None
    if got.status == 200 and any(name_from_list(payload, None) for payload in parse_whole(got.body)):
        return 0, candidate
    return (1 if got.status in _FINAL else 2), candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    way: Way
    got: Exchange
    reading: Reading
    generation: Generation

    @property
    def brought(self) -> bool:
        """A token came, or the numbers that stand for one."""
        if self.got.status != 200:
            return False
        return bool(self.generation.text or self.generation.tokens) if self.way.generates else bool(self.reading.numbers)


def _told(got: Exchange) -> str:
    """The error's own words: the message of an error object, else the body."""
    text = got.body[:16384].decode("utf8", "replace")
    for payload in parse_whole(got.body[:16384]):
        told = error_of(payload)
        if told is not None:
            return told
    return text


def _better(kept: _Asked | None, asked: _Asked) -> _Asked:
    """A missing route tells least: it never replaces another answer."""
    status = asked.got.status
    return kept if kept is not None and status is not None and is_missing_route(status, _told(asked.got)) else asked
