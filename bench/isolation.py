"""How many launches does isolation need, and is its answer right? In simulation, and with `--engine` on the embedded engine.

Key insight: the search is a pure function of the trials, so a simulated launch is a set comparison and 400 searches take seconds.
`mean_launches` counts as the figures of plain prefix bisection do: the barest command and the search, not the baseline (it is known
to fail) and not what is launched again at the end to verify. Both are told beside it.

`--settings N --culprits K` measures one row; without them all rows. `--suspect P`: a prior that names as many suspects as there are
culprits (or `--suspects`), each of them at fault in that share of cases. `--parallel N`: launches at once, `mean_rounds` counts how often,
verification counted in. `--fails Q`: the failure shows itself in that share of launches only; then the same is searched as git_bayesect
does (a change point in a line of commits, two beta-Bernoulli rates, greedy on the expected entropy), for one culprit.
"""

import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from cells import Book, Row, document, measure, options, say
from firsttoken.isolate.search import Answer, Problem, Tried, next_steps
from firsttoken.model.isolation import Outcome, Purpose
from isolation_engine import EXPRESSIONS, KILLED, VERIFYING, run_expression
from isolation_vllm import CELLS, run_vllm

ROWS = ((16, 1), (24, 1), (24, 2), (24, 3), (40, 3))
PLAIN = {(16, 1): 5.9, (24, 1): 6.7, (24, 2): 11.5, (24, 3): 16.3, (40, 3): 18.4}
"""Mean launches of plain prefix bisection, 400 trials."""
RATES = (0.3, 0.7)
PARALLEL = (2, 4, 8)
AT_HOME = (Purpose.FAILS_AGAIN, Purpose.FIX)
_CERTAIN = 0.95
_SUSPICION = 0.5
"""How likely the prior takes its first suspect to be at fault."""
_SHARED = 0.75
"""Several suspects share it as in `isolate.settings.weights`."""
_CAP = 1000


@dataclass(slots=True)
class Counts:
    """Launches of one search; `rounds`: how often some were made at once; `right`: the answer is the culprits and nothing else."""

    search: int = 0
    verify: int = 0
    baseline: int = 0
    rounds: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`suspect`: share of cases in which the first suspect is at fault, None without a prior; of `suspects` each is in that share.
    `fails`: share of launches that fail. `told`: the search is told that the failure comes and goes. `parallel`: launches at once."""

    settings: int
    culprits: int
    suspect: float | None = None
    suspects: int = 1
    parallel: int = 1
    fails: float = 1.0
    told: bool = True


def search(case: Case, draw: random.Random) -> Counts:
    """One simulated search for a monotone failure."""
    count = case.settings
    guilty = draw.sample(range(count), case.culprits)
    culprits = sum(1 << at for at in guilty)
    intermittent = case.fails < 1 and case.told
    problem = Problem(weights=_weights(case, guilty, draw), intermittent=intermittent, certainty=_CERTAIN, baselines=50)
    tried: list[Tried] = [] if case.fails < 1 else [Tried(problem.full, Outcome.SAME)]
    counts = Counts()
    while sum((counts.search, counts.verify, counts.baseline)) < _CAP:
        steps = next_steps(problem, tried, case.parallel)
        if isinstance(steps, Answer):
            counts.right = steps.failing == culprits and bool(steps.fix) and (steps.fix or 0) & culprits != 0
            break
        counts.rounds += 1
        home = next((step for step in steps if step.purpose in AT_HOME), None)  # one a round
        for step in (step for step in steps if step.purpose not in AT_HOME or step is home):
            if step.purpose is Purpose.BASELINE:
                counts.baseline += 1
            elif step.purpose in VERIFYING:
                counts.verify += 1
            else:
                counts.search += 1
            fails = culprits & ~step.config == 0 and draw.random() < case.fails
            tried.append(Tried(step.config, Outcome.SAME if fails else Outcome.PASSES))
    return counts


def bayesect(case: Case, draw: random.Random) -> Counts:
    """The same with git_bayesect's model: settings in a line, a launch keeps the first so many, the first with which it fails is sought."""
    count, culprit = case.settings, draw.randrange(case.settings)
    yes, no = [0] * (count + 1), [0] * (count + 1)  # by how many settings were kept
    counts = Counts()
    while counts.search < _CAP:
        sums = _Sums(yes, no)
        shares = _change_points(sums)
        best = max(range(count), key=shares.__getitem__)
        if shares[best] >= _CERTAIN:
            counts.right = best == culprit
            break
        kept = min(range(count + 1), key=lambda kept: _expected_entropy(sums, shares, kept))
        fails = kept > culprit and draw.random() < case.fails
        (yes if fails else no)[kept] += 1
        counts.search += 1
    return counts


_NEW, _OLD = (0.9, 0.1), (0.05, 0.95)
"""git_bayesect's own priors of the rates behind and before the change"""


def _change_points(sums: "_Sums") -> list[float]:
    logs = [_log_beta(_NEW, *sums.behind(at)) + _log_beta(_OLD, *sums.before(at)) for at in range(len(sums.yes) - 1)]
    top = max(logs)
    weights = [math.exp(one - top) for one in logs]
    total = sum(weights)
    return [one / total for one in weights]


class _Sums:
    """Failures and passes of launches that held the culprit if it were at some place, and of those that did not."""

    def __init__(self, yes: Sequence[int], no: Sequence[int]) -> None:
        self.yes, self.no = list(accumulate(yes)), list(accumulate(no))

    def before(self, at: int) -> tuple[int, int]:
        return self.yes[at], self.no[at]

    def behind(self, at: int) -> tuple[int, int]:
        return self.yes[-1] - self.yes[at], self.no[-1] - self.no[at]


def _log_beta(prior: tuple[float, float], yes: int, no: int) -> float:
    a, b = prior
    return (
        math.lgamma(a + yes) + math.lgamma(b + no) - math.lgamma(a + b + yes + no)
        - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b)
    )  # fmt: skip


def _expected_entropy(sums: "_Sums", shares: Sequence[float], kept: int) -> float:
    failing, passing = [], []
    for at, share in enumerate(shares):
        (a, b), (ones, zeros) = (_NEW, sums.behind(at)) if kept > at else (_OLD, sums.before(at))
        rate = (a + ones) / (a + b + ones + zeros)
        failing.append(share * rate)
        passing.append(share * (1 - rate))
    return sum(_unnormalised_entropy(side) for side in (failing, passing))


def _unnormalised_entropy(weights: Sequence[float]) -> float:
    total = sum(weights)
    return -sum(one * math.log2(one / total) for one in weights if one > 0) if total > 0 else 0.0


def _weights(case: Case, guilty: Sequence[int], draw: random.Random) -> tuple[float, ...]:
    weights = [1.0] * case.settings
    if case.suspect is not None:
        chosen: list[int] = []
        for _ in range(case.suspects):
            right = draw.random() < case.suspect
            chosen.append(draw.choice([at for at in range(case.settings) if (at in guilty) == right and at not in chosen]))
        for at in chosen:
            weights[at] = _SUSPICION / (1 - _SUSPICION) * (case.settings - 1) / case.suspects**_SHARED
    return tuple(weights)


def simulated(case: Case, trials: int, seed: int, *, rival: bool = False) -> dict[str, Any]:
    """The figures of one case."""
    draw = random.Random(f"{seed} {case}")
    found = [(bayesect if rival else search)(case, draw) for _ in range(trials)]
    launches = [one.search for one in found]
    error = statistics.stdev(launches) / math.sqrt(trials) if trials > 1 else 0.0
    plain = PLAIN.get((case.settings, case.culprits))
    return {
        "method": "git_bayesect" if rival else "firsttoken",
        "settings": case.settings,
        "culprits": case.culprits,
        "suspect_right": case.suspect,
        "suspects": case.suspects if case.suspect is not None else None,
        "fails": case.fails,
        "parallel": case.parallel,
        "told_intermittent": case.told if case.fails < 1 else None,
        "trials": trials,
        "seed": seed,
        "mean_launches": round(statistics.mean(launches), 2),
        "standard_error": round(error, 2),
        "plain_prefix_bisection": plain if case.fails == 1 else None,
        "mean_rounds": round(statistics.mean(one.rounds for one in found), 2),
        "mean_baselines": round(statistics.mean(one.baseline for one in found), 2),
        "mean_verification": round(statistics.mean(one.verify for one in found), 2),
        "right": round(statistics.mean(one.right for one in found), 4),
    }


def all_rows(trials: int, seed: int) -> Iterator[dict[str, Any]]:
    """Without a prior, with one that is right in 70 %, with one that is always wrong; several launches at once; then intermittent
    failures, by both methods. A prior names as many suspects as there are culprits, and where these are several also just one."""
    for settings, culprits in ROWS:
        yield simulated(Case(settings=settings, culprits=culprits), trials, seed)
        for suspect in (0.7, 0.0):
            for suspects in dict.fromkeys((culprits, 1)):
                yield simulated(Case(settings=settings, culprits=culprits, suspect=suspect, suspects=suspects), trials, seed)
    for settings, culprits in ROWS:
        for parallel in PARALLEL:
            yield simulated(Case(settings=settings, culprits=culprits, parallel=parallel), trials, seed)
    for rate in RATES:
        for settings in (16, 24):
            for told in (True, False):
                yield simulated(Case(settings=settings, culprits=1, fails=rate, told=told), _fewer(trials), seed)
            yield simulated(Case(settings=settings, culprits=1, fails=rate), _fewer(trials), seed, rival=True)


def _fewer(trials: int) -> int:
    """They are many times as long."""
    return max(1, trials // 4)


def _line(row: dict[str, Any]) -> str:
    named = f"{row['suspects']} suspects, each" if row["suspects"] != 1 else "the suspect"
    prior = "no prior" if row["suspect_right"] is None else f"{named} right in {100 * row['suspect_right']:.0f} %"
    prior = prior if row["parallel"] == 1 else f"{row['parallel']} at once, {row['mean_rounds']:.1f} rounds"
    how = prior if row["fails"] == 1 else f"fails in {100 * row['fails']:.0f} %{'' if row['told_intermittent'] else ', untold'}"
    plain = f" (plain prefix bisection {row['plain_prefix_bisection']})" if row["plain_prefix_bisection"] else ""
    launches = f"{row['mean_launches']:6.2f} ± {row['standard_error']:.2f} launches"
    return (
        f"{row['method']:<12} {row['settings']}/{row['culprits']}  {how:<30} {launches}{plain}, {row['mean_verification']:.1f} to verify, "
        f"right in {100 * row['right']:.1f} %"
    )


def main() -> int:
    parser = options("isolation", __doc__)
    parser.add_argument("--settings", type=int, help="how many settings there are")
    parser.add_argument("--culprits", type=int, default=1, help="how many of them it takes (default: %(default)s)")
    parser.add_argument("--trials", type=int, default=400, help="searches a row (default: %(default)s)")
    parser.add_argument("--suspect", type=float, metavar="P", help="share of cases in which the prior's first suspect is at fault")
    parser.add_argument("--suspects", type=int, metavar="N", help="how many settings the prior suspects (default: as many as culprits)")
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="launches at once; mean_rounds tells how often")
    parser.add_argument("--fails", type=float, default=1.0, metavar="Q", help="share of launches that fail (default: all)")
    parser.add_argument("--untold", action="store_true", help="the search is not told that the failure comes and goes")
    parser.add_argument("--engine", action="store_true", help="expressions of --fault-when on the embedded engine instead")
    parser.add_argument("--vllm", action="store_true", help="ten settings of a real vLLM instead, told in its healthy starts")
    parser.add_argument("--only", help="with --engine or --vllm: only what has this in its name")
    asked = parser.parse_args()
    if asked.engine:
        return _on_an_engine(asked, (*EXPRESSIONS, *KILLED), run_expression)
    if asked.vllm:
        return _on_an_engine(asked, tuple(CELLS), run_vllm)
    if asked.settings is None:
        rows = []
        for row in all_rows(asked.trials, asked.seed):
            rows.append(row)
            say(_line(row))
    else:
        case = Case(
            settings=asked.settings, culprits=asked.culprits, suspect=asked.suspect, suspects=asked.suspects or asked.culprits,
            parallel=asked.parallel, fails=asked.fails, told=not asked.untold,
        )  # fmt: skip
        rows = [simulated(case, asked.trials, asked.seed)]
    if asked.json:
        first = rows[0]
        print(json.dumps({**document("isolation", first if len(rows) == 1 else {}, rows), "mean_launches": first["mean_launches"]}))
    elif asked.settings is not None:
        print(_line(rows[0]))
    return 0


def _on_an_engine(asked: Any, cells: Sequence[str], run: Callable[[str], Row]) -> int:
    names = [name for name in cells if asked.only is None or asked.only in name]
    book = Book(asked.out, {})
    failed = measure(book, names, asked.shard, run, _told)
    rows = book.chosen(names)
    summary = {
        "expressions": len(rows),
        "right": sum(row["right"] for row in rows),
        "launches": sum(row["launches"] for row in rows),
        "mean_launches": round(statistics.mean(row["launches"] for row in rows), 2) if rows else None,
    }
    print(json.dumps(document("isolation", summary, rows)) if asked.json else json.dumps(summary))
    return 1 if failed or not all(row["right"] for row in rows) else 0


def _told(row: Row) -> str:
    mark = "ok " if row["right"] else "BAD"
    starts = "found in the time of {found_in_healthy_starts} healthy starts, verified in {verified_in_healthy_starts}"
    healthy = f"; {starts.format(**row)}" if "found_in_healthy_starts" in row else ""
    return f"{mark} {row['cell']}: {' and '.join(row['failing'] or ['-'])} in {row['launches']} launches, {row['seconds']:.0f} s{healthy}"


if __name__ == "__main__":
    sys.exit(main())
