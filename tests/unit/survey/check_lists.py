"""What tests of checks share: a plan and values in a line, and the worst of a list of checks by id."""

from collections.abc import Iterable, Mapping
from typing import Any

from firsttoken.knowledge.load import profiles
from firsttoken.model.checks import Check, Outcome
from firsttoken.model.plan import Endpoint, Plan, Sizes, Timer
from firsttoken.survey.asked import Asked


def asked(
    engine: str = "vllm",
    *,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    nodes: int = 1,
    here: int | None = None,
    env: Mapping[str, str] | None = None,
    host: str | None = None,
    timers: tuple[Timer, ...] = (),
    **values: Any,
) -> Asked:
    world = tp * pp
    sizes = Sizes(tp=tp, pp=pp, ep=ep, nodes=nodes, world=world, ranks_here=world if here is None else here)
    plan = Plan(engine=engine, model="org/model", sizes=sizes, endpoint=Endpoint(host=host), timers=timers)
    return Asked(plan=plan, values=values, env=env or {}, rules=profiles()[engine].check)


def results(checks: Iterable[Check]) -> dict[str, Outcome]:
    """Of each id the worst."""
    order = [Outcome.NOT_CHECKED, Outcome.PASS, Outcome.WARN, Outcome.FAIL]
    found: dict[str, Outcome] = {}
    for check in checks:
        assert check.fact
        assert (check.result in (Outcome.FAIL, Outcome.WARN)) == (check.remedy is not None and check.price is not None)
        if check.id not in found or order.index(check.result) > order.index(found[check.id]):
            found[check.id] = check.result
    return found
