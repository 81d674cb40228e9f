"""Tells a run as events, second by second, without a clock: the judge's tests read like the stories they are about."""

from dataclasses import dataclass, field, replace

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.state import State
from firsttoken.model.events import (
    Body,
    Counters,
    Event,
    Exited,
    HttpAnswer,
    HttpAsked,
    Launched,
    Listening,
    LogActivity,
    LogLine,
    Planned,
)
from firsttoken.model.plan import Endpoint, Plan, Policy, Sizes
from firsttoken.model.process import ListenSocket, ProcessKey, RankTag, Sample
from firsttoken.model.words import Edge, Phase, ProbeKind

ROOT = ProcessKey("node", 100, 1)


def plan(**changes: object) -> Plan:
    usual = Plan(
        command=("engine", "serve"),
        engine="engine",
        endpoint=Endpoint(port=8000),
        ended_by_line=(Phase.DISTRIBUTED_INIT, Phase.WEIGHTS, Phase.GRAPH_CAPTURE),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]  # tests name the fields


@dataclass
class Story:
    """`t` is the story's clock. Counters of the root move only where `work` says so."""

    state: State = field(default_factory=initial)
    t: float = 0.0
    seq: int = 0
    sample: Sample = Sample(100, 1, "S", 0, 0, 0, 0, 0, 0, 0, 1000, 4)
    events: list[Event] = field(default_factory=list)

    def tell(self, *bodies: Body) -> "Story":
        for body in bodies:
            self.seq += 1
            event = Event(seq=self.seq, t=self.t, wall=1e9 + self.t, node="node", body=body)
            self.events.append(event)
            self.state = advance(self.state, event)
        return self

    def launch(self, of: Plan | None = None, policy: Policy | None = None) -> "Story":
        return self.tell(Planned(plan=of or plan(), policy=policy or Policy()), Launched(process=ROOT, argv=("engine", "serve")))

    def line(self, phase: Phase, edge: Edge = Edge.BEGIN, *, rank: int | None = None, **values: str | float) -> "Story":
        tag = RankTag(rank=rank) if rank is not None else None
        scope = "one" if rank is None else "rank"
        return self.tell(
            LogLine(
                offset=0,
                length=1,
                text=f"{phase} {edge}",
                tag=tag,
                milestone=f"{phase}_{edge}",
                phase=phase,
                edge=edge,
                scope=scope,
                values=values,
            )
        )

    def ready_line(self) -> "Story":
        return self.tell(
            LogLine(offset=0, length=1, text="ready", milestone="ready", phase=Phase.LISTENING, edge=Edge.BEGIN, claims_ready=True)
        )

    def error(self, text: str, *, fatal: bool = True, **values: str | float) -> "Story":
        return self.tell(LogLine(offset=0, length=1, text=text, error="e", fatal=fatal, values=values))

    def seconds(self, n: int, *, work: int = 0, ticks: int = 0, log: int = 0) -> "Story":
        """`n` rounds of counters a second apart; `work` bytes, `ticks` of CPU and `log` fresh lines in each."""
        for _ in range(n):
            self.t += 1
            s = self.sample
            self.sample = s._replace(rw_bytes=s.rw_bytes + work, ticks=s.ticks + ticks, main_ticks=s.main_ticks + ticks)
            if log:
                self.tell(LogActivity(bytes=10, lines=log, fresh=log, offset=0, last="something new"))
            self.tell(Counters(interval=1.0, samples=(self.sample,)))
        return self

    def listen(self, port: int = 8000) -> "Story":
        return self.tell(Listening(sockets=(ListenSocket(100, "127.0.0.1", port, None),)))

    def ask(self) -> "Story":
        return self.tell(HttpAsked(probe=ProbeKind.COMPLETION, url="http://127.0.0.1:8000/v1/completions"))

    def answer(
        self,
        status: int | None = 200,
        *,
        tokens: int | None = 8,
        sane: bool | None = True,
        error: str | None = None,
        body: str | None = None,
    ) -> "Story":
        return self.tell(
            HttpAnswer(
                probe=ProbeKind.COMPLETION,
                url="http://127.0.0.1:8000/v1/completions",
                status=status,
                tokens=tokens,
                sane=sane,
                text=" the" if tokens else None,
                first_token_s=0.5 if tokens else None,
                error=error,
                body=body,
            )
        )

    def exit(self, code: int | None = None, signal: int | None = None) -> "Story":
        return self.tell(Exited(process=ROOT, code=code, signal=signal, root=True))


def ranks(n: int) -> Plan:
    return plan(sizes=Sizes(tp=n, world=n, ranks_here=n))
