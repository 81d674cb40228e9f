"""What measuring speculation gives: speed-up with its interval, acceptance, costs, outputs, and the answer.

Two rates of acceptance are in use and they differ: of all drafted tokens (`rate`), and the mean over requests of each request's own
(`by_requests`). Each carries its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from firsttoken.model.result import Result


class Sampling(StrEnum):
    GREEDY = "greedy"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Speculative against baseline, as a factor; above 1 is faster. `low` and `high` bound it at 95 %; it is from `blocks` pairs."""

    value: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the client saw of one server, medians over its requests but for `tokens_per_s`, which is of all users together.

    `inter_token_s`: seconds a token, from the first one on; its inverse is `tokens_per_s_user`.
    """

    requests: int
    tokens: int
    tokens_per_s: float
    tokens_per_s_user: float
    first_token_s: float
    inter_token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """`rate`: accepted of drafted tokens. `length`: tokens a round, with the one that the target adds. `by_position`: of all rounds, the
    share in which the draft was right up to here. `by_requests`: mean over `requests` of each one's rate. None: it could not be seen."""

    source: str
    rate: float | None = None
    length: float | None = None
    by_position: tuple[float, ...] = ()
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    by_requests: float | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds, as the client sees them: `step_s` one step of the target alone; `round_s` one with what is drafted for it; `draft_s` what
    each draft token adds. `drafted`: draft tokens a step. `break_even`: the acceptance from which it pays here; above 1 none is enough."""

    step_s: float
    round_s: float
    drafted: float
    draft_s: float
    break_even: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Greedy or sampled answers alone. `acceptance` as a rate of drafted tokens, where the engine counts them."""

    speedup: Ratio
    acceptance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One concurrency. `speedup` is of the speed at which a user's tokens come, from the first on; `end_to_end` holds the wait too."""

    concurrency: int
    speedup: Ratio
    pays: bool | None
    end_to_end: Ratio | None
    greedy: Kind | None
    sampled: Kind | None
    baseline: Figures
    speculative: Figures
    acceptance: Acceptance
    costs: Costs | None


class Parting(StrEnum):
    """Why two greedy outputs differ, as far as it can be told."""

    TIE = "tie"
    """the two best tokens were as good as equal"""
    UNSTABLE = "unstable"
    """the baseline does not repeat its own output there"""
    CLEAR = "clear"
    """the baseline had a clear favourite, and the other server wrote something else"""
    UNTOLD = "untold"
    """the server tells no probabilities, or did not answer again"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """`at_token`: after so many tokens, by the position in the text. `margin`: between the log probabilities of the two best tokens."""

    prompt: str
    concurrency: int
    at_token: int
    baseline: str
    speculative: str
    why: Parting = Parting.UNTOLD
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Greedy outputs of both servers. `parted` holds the earliest ones; `agree` of `compared` were equal to the last token."""

    compared: int
    agree: int
    parted: tuple[Parted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A number of draft tokens that was tried out. `ratio` None: it did not serve, `note` says why."""

    draft_tokens: int
    ratio: Ratio | None
    acceptance: float | None = None
    run: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """`pays` None: it cannot be told yet, or it depends on the load. `draft_tokens`: a number that should be better than the present one.
    `cause`: one word for scripts."""

    pays: bool | None
    cause: str
    reason: str
    suggestion: str
    draft_tokens: int | None = None
    more_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The latest answer about the same command. `at`: UTC."""

    at: str
    speedup: float | None
    interval: tuple[float, float] | None
    acceptance: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was asked and how, so that two answers can be compared. `arrangement`: both servers at the same time, or in turn; `why` it."""

    arrangement: str
    why: str
    prompts: str
    route: str | None
    output_tokens: int
    samplings: tuple[Sampling, ...]
    temperature: float
    draft_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Commands have their secrets masked; they are empty for servers at an address. `runs` and `results` by side, baseline and speculative.

    `levels` in the order in which they were asked for; empty where a server did not serve: then `results` say why. `code`: the exit status.
    """

    opinion: Opinion
    code: int
    engine: str | None = None
    command: tuple[str, ...] = ()
    baseline_command: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()
    outputs: Outputs = field(default_factory=lambda: Outputs(compared=0, agree=0))
    lossless: bool | None = None
    tried: tuple[Tried, ...] = ()
    measured: Measured | None = None
    earlier: Earlier | None = None
    runs: Mapping[str, str | None] = field(default_factory=dict)
    results: Mapping[str, Result | None] = field(default_factory=dict)
    not_checked: tuple[str, ...] = ()
    seconds: float = 0.0
