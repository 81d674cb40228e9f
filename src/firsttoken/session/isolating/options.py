"""What the user of `isolate` asks for beside the command itself."""

from dataclasses import dataclass, field

from firsttoken.isolate.settings import Wishes
from firsttoken.model.plan import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`budget`: launches; `max_time`: seconds of trials; `price` an hour and `max_cost` in the user's own money. `trial_time`: seconds
    after which a start that neither fails nor gets through is left undecided. `share`: trials may disturb other servers' GPUs.
    `shortcuts`: cheap variants of trials may be used where they pay."""

    wishes: Wishes = field(default_factory=Wishes)
    policy: Policy = field(default_factory=Policy)
    budget: int = 30
    max_time: float | None = None
    price: float | None = None
    max_cost: float | None = None
    trial_time: float = 3600.0
    intermittent: bool = False
    certainty: float = 0.95
    share: bool = False
    shortcuts: bool = True
    mark: bool = True
    api_key_env: str | None = None
