"""When a fault happens: the expression of `--fault-when`.

Key insight: Python's own parser reads it, a whitelist of node types decides, and nothing is ever evaluated by Python, so an
expression can compare settings and environment variables but cannot call, import or reach into anything.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

Value = bool | int | float | str | None

_MAX_LENGTH = 2000


class BadCondition(ValueError):
    """An expression that is not understood: the message is a sentence for the user."""


def holds(expression: str, names: Mapping[str, Value], env: Mapping[str, str], chance: Callable[[float], bool]) -> bool:
    """Whether `expression` is true of the settings `names` and the environment `env` (a variable that is not set is "").

    `chance(P)` is asked for each `chance(...)` in the text, whether or not the rest already decides, so that the draws of a
    seeded launch do not depend on the settings. Raises BadCondition where the text is no expression of the grammar.
    """
    if len(expression) > _MAX_LENGTH:
        raise BadCondition(f"--fault-when is longer than {_MAX_LENGTH} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return bool(_Reader(names, env, chance).value(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, BadCondition):
            raise
        raise BadCondition(f"--fault-when {expression!r} is not an expression: {error}.") from None


_COMPARE: Mapping[type[ast.cmpop], Callable[[Value, Value], bool]] = MappingProxyType(
    {
        ast.Eq: lambda a, b: a == b,
        ast.NotEq: lambda a, b: a != b,
        ast.Lt: lambda a, b: bool(operator.lt(*_ordered(a, b))),
        ast.LtE: lambda a, b: bool(operator.le(*_ordered(a, b))),
        ast.Gt: lambda a, b: bool(operator.gt(*_ordered(a, b))),
        ast.GtE: lambda a, b: bool(operator.ge(*_ordered(a, b))),
    }
)


class _Reader:
    def __init__(self, names: Mapping[str, Value], env: Mapping[str, str], chance: Callable[[float], bool]) -> None:
        self._names, self._env, self._chance = names, env, chance

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.BoolOp(op=op, values=values):
                found = [bool(self.value(value)) for value in values]
                return all(found) if isinstance(op, ast.And) else any(found)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare([self.value(left), *map(self.value, comparators)], ops)
            case ast.Constant(value=bool() | int() | float() | str() | None as constant):
                return constant
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=ast.Name(id="env"), attr=variable):
                return self._env.get(variable, "")
            case ast.Call(func=ast.Name(id="chance"), args=[argument], keywords=[]):
                return self._draw(self.value(argument))
            case _:
                raise BadCondition(
                    f"--fault-when does not know {ast.unparse(node)!r}: it has and, or, not, comparisons, env.NAME, chance(P) "
                    f"and the settings {', '.join(sorted(self._names))}."
                )

    def _compare(self, values: list[Value], ops: list[ast.cmpop]) -> bool:
        verdict = True
        for left, op, right in zip(values, ops, values[1:], strict=False):
            compare = _COMPARE.get(type(op))
            if compare is None:
                raise BadCondition("--fault-when compares with ==, !=, <, <=, > and >= only.")
            verdict = compare(left, right) and verdict
        return verdict

    def _name(self, name: str) -> Value:
        if name in ("true", "false"):
            return name == "true"
        if name not in self._names:
            raise BadCondition(f"--fault-when does not know the setting {name!r}; there are {', '.join(sorted(self._names))}.")
        return self._names[name]

    def _draw(self, probability: Value) -> bool:
        if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability <= 1:
            raise BadCondition("chance(P) needs a number from 0 to 1.")
        return self._chance(float(probability))


def _ordered(left: Value, right: Value) -> tuple[float, float] | tuple[str, str]:
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    return _as_number(left), _as_number(right)


def _as_number(value: Value) -> float:
    """NaN where it is no number, which makes every order comparison false."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except ValueError:
        return math.nan
