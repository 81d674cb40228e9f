"""Cheaper variants of a command for the search: made-up weights, the first few layers only, two ranks in place of many.

Whether the failure survives that has to be seen, once, on the whole command; what is found is launched again as it really is. Layers are
left out behind the first of each kind that the model has, so that every kernel of the whole model is still compiled and run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken.knowledge.profile import ShortcutRule
from firsttoken.model.isolation import Given
from firsttoken.model.plan import Sizes
from firsttoken.survey.model_config import INNER, inner_config

LAYERS = 4
RANKS = 2
_PATTERNS = ("hybrid_override_pattern", "layers_block_type", "num_hidden_layers_list", "block_configs")
"""Where a model is told layer by layer, so that another number of layers alone does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """`add`: words behind the engine's arguments. Of the phases in `skips` nothing is left, of those in `shortens` the share `left`."""

    name: str
    add: tuple[str, ...]
    skips: tuple[str, ...] = ()
    shortens: tuple[str, ...] = ()
    left: float = 1.0

    def saves(self, took: Mapping[str, float]) -> float:
        """Seconds, of a start whose phases took so long."""
        return sum(took.get(name, 0.0) for name in self.skips) + (1 - self.left) * sum(took.get(name, 0.0) for name in self.shortens)


def shortcuts_of(
    rules: Sequence[ShortcutRule], config: Mapping[str, Any] | None, sizes: Sizes, given: Sequence[Given] = ()
) -> tuple[Shortcut, ...]:
    """Those that this model and this command allow, the boldest first. `config`: of the model, None where it cannot be read."""
    found = []
    for rule in rules:
        add, left = list(rule.add), 1.0
        if rule.ranks is not None:
            if sizes.tp <= RANKS or sizes.nodes > 1:
                continue
            as_typed = next((one.name for one in given if one.field == "tp"), rule.ranks)
            add += [as_typed, str(RANKS)]
        if rule.layers is not None:
            fewer = few_layers(config or {}, sizes.pp)
            if fewer is None:
                continue
            override, left = fewer
            add += [rule.layers, json.dumps(override)]
        found.append(Shortcut(name=rule.name, add=tuple(add), skips=rule.skips, shortens=rule.shortens, left=left))
    return tuple(found)


def few_layers(config: Mapping[str, Any], least: int = 1) -> tuple[dict[str, Any], float] | None:
    """What overrides config.json, and the share of the layers that is left; None where that would not be half of them or less."""
    text = inner_config(config)
    total = text.get("num_hidden_layers")
    if not isinstance(total, int) or any(text.get(name) for name in _PATTERNS):
        return None
    kinds = text.get("layer_types")
    kinds = kinds if isinstance(kinds, list) else []
    needed = [kinds.index(kind) + 1 for kind in dict.fromkeys(map(str, kinds)) if kind in kinds]
    dense, every = text.get("first_k_dense_replace"), text.get("full_attention_interval")
    needed += [dense + 1] if isinstance(dense, int) else []
    needed += [every] if isinstance(every, int) else []
    count = max(LAYERS, least, *needed)
    if 2 * count > total:
        return None
    override: dict[str, Any] = {"num_hidden_layers": count}
    for name in reversed(_way_to(config, text)):
        override = {name: override}
    return override, count / total


def _way_to(config: Mapping[str, Any], text: Mapping[str, Any]) -> list[str]:
    """Names of the keys that lead to the language model's part."""
    way: list[str] = []
    while config is not text:
        name = next(key for key in INNER if isinstance(config.get(key), Mapping))
        way.append(name)
        config = config[name]
    return way
