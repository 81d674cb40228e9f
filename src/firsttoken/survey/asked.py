"""What a command asks for, as far as it matters before the start: values, whatever flags and variables they came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firsttoken.knowledge.profile import Preconditions
from firsttoken.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`values`: the plan's options by field, defaults included. `rules`: what the engine's profile says about its own preconditions."""

    plan: Plan = field(default_factory=Plan)
    values: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    rules: Preconditions = field(default_factory=Preconditions)

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if isinstance(value, tuple):
            value = value[0] if value else None
        return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None

    def number(self, name: str) -> float | None:
        """Also `32k`, `128M`, `1.5GiB`: as engines read them, k is 1000 and K is 1024."""
        return amount(self.text(name))

    def switch(self, name: str) -> bool:
        return self.values.get(name) is True


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def amount(text: str | None) -> float | None:
    """A number with an optional unit; None where it is none."""
    if text is None:
        return None
    bare = text.strip().removesuffix("B").removesuffix("b").removesuffix("i")
    unit = bare[-1:] if bare[-1:] in _UNITS and bare[-1:] else ""
    try:
        found = float(bare[: len(bare) - len(unit)]) * _UNITS[unit]
    except ValueError:
        return None
    return found if 0 <= found < 1e18 else None
