"""Are the rules of explaining and judging held by their tests? Small changes of the code, each of which the tests of its room must notice.

Key insight: a mutant is drawn from the syntax tree (an operator, a comparison, a constant, a flag), and run in a copy of the sources that
comes first on the path, so that the working tree stays as it is and several can run beside each other. Only the tests of the mutant's own
room are run, until the first failure: what only some far test notices is not held.
"""

import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cells import Book, CellFailed, Row, measure, options, report, say

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "firsttoken"
TESTS = {
    "explain": ("tests/unit/explain", "tests/cases", "tests/knowledge/test_causes.py"),
    "judge": ("tests/unit/judge",),
}
LIMIT_S = 600.0
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header")
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """The `index`-th place of the module that can be changed, counted in the order of the tree."""

    module: str
    index: int

    @property
    def name(self) -> str:
        return f"{self.module}#{self.index}"

    @classmethod
    def parse(cls, name: str) -> "Place":
        module, _, index = name.rpartition("#")
        return cls(module, int(index))


def places(module: str) -> list[Place]:
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf8"))
    return [Place(module, index) for index, _ in enumerate(_changes(tree))]


def mutated(place: Place) -> tuple[str, str]:
    """The module's text with that change, and what was changed."""
    tree = ast.parse((PACKAGE / place.module).read_text(encoding="utf8"))
    for index, (told, change) in enumerate(_changes(tree)):
        if index == place.index:
            before = copy.deepcopy(tree)
            change()
            if ast.dump(before) == ast.dump(tree):
                raise CellFailed("the change changed nothing")
            return ast.unparse(ast.fix_missing_locations(tree)), told
    raise CellFailed(f"{place.name} is no place any more")


def _changes(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """(what, a function that does it). Texts of documentation and types are no behaviour."""
    for node in _behaviour(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare):
            for number, operator in enumerate(node.ops):
                if type(operator) in _SWAPS:
                    new = _SWAPS[type(operator)]()
                    yield (
                        f"line {line}: {type(operator).__name__} to {type(new).__name__}",
                        lambda n=node, i=number, o=new: n.ops.__setitem__(i, o),
                    )
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
            new = _SWAPS[type(node.op)]()
            yield f"line {line}: {type(node.op).__name__} to {type(new).__name__}", lambda n=node, o=new: setattr(n, "op", o)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = ast.Call(func=ast.Name("bool", ast.Load()), args=[node.operand], keywords=[])
            yield f"line {line}: not left out", lambda n=node, i=inner: _becomes(n, i)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield f"line {line}: {node.value} to {not node.value}", lambda n=node: setattr(n, "value", not n.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            new_value = node.value + 1 if abs(node.value) < 2 else node.value * 2
            yield f"line {line}: {node.value} to {new_value}", lambda n=node, v=new_value: setattr(n, "value", v)


def _behaviour(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def _becomes(node: ast.UnaryOp, other: ast.Call) -> None:
    """`not x` to `not not x`: the parent need not be known."""
    node.operand = ast.UnaryOp(op=ast.Not(), operand=other)


@cache
def failing(room: str) -> tuple[str, ...]:
    """Tests of the room that fail without any change: they would notice nothing, and are left out."""
    done = subprocess.run([*_PYTEST, *TESTS[room]], cwd=ROOT, capture_output=True, timeout=2 * LIMIT_S, start_new_session=True)
    lines = done.stdout.decode(errors="replace").splitlines()
    return tuple(line.split(" ")[1] for line in lines if line.startswith(("FAILED ", "ERROR ")))


def run_one(name: str) -> dict[str, Any]:
    place = Place.parse(name)
    text, told = mutated(place)
    room = place.module.split("/")[0]
    left_out = [word for test in failing(room) for word in ("--deselect", test)]
    with tempfile.TemporaryDirectory(prefix="firsttoken-mutant-") as scratch:
        copied = Path(scratch) / "src" / "firsttoken"
        shutil.copytree(PACKAGE, copied)  # with compiled files: theirs are as old as the sources, but for the mutant's
        (copied / place.module).write_text(text, encoding="utf8")
        command = (*_PYTEST, "-x", *left_out, *TESTS[room])
        env = {**os.environ, "PYTHONPATH": str(copied.parent)}
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=LIMIT_S, start_new_session=True)
        except subprocess.TimeoutExpired:
            return {"change": told, "killed": True, "how": "time"}
    if done.returncode not in (0, 1, 2):
        raise CellFailed(done.stdout.decode(errors="replace")[-400:])
    lines = done.stdout.decode(errors="replace").splitlines()
    failed = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), "")
    return {"change": told, "killed": done.returncode != 0, "how": failed[:200]}


def sampled(seed: int, count: int) -> list[str]:
    """As many from each module as it has places, so that long modules count for what they are."""
    found = [
        place.name
        for room in TESTS
        for file in sorted((PACKAGE / room).glob("*.py"))
        for place in places(file.relative_to(PACKAGE).as_posix())
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def summary(rows: list[Row]) -> dict[str, Any]:
    killed = sum(bool(row["killed"]) for row in rows)
    return {"mutants": len(rows), "killed": killed, "share": round(killed / len(rows), 3) if rows else None}


def _text(rows: list[Row]) -> Iterator[str]:
    yield from (f"lived: {row['cell']}: {row['change']}" for row in rows if not row["killed"])
    told = summary(rows)
    yield f"{told['killed']} of {told['mutants']} mutants killed"


def main() -> int:
    parser = options("mutants", __doc__)
    parser.add_argument("--count", type=int, default=300, help="how many, drawn by the seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="only places whose name has this in it")
    asked = parser.parse_args()
    names = [name for name in sampled(asked.seed, asked.count) if asked.only is None or asked.only in name]
    book = Book(asked.out, {"seed": asked.seed})
    for room in TESTS:  # once, before several want to know
        if any(name.startswith(room) for name in names if name not in book.rows) and failing(room):
            say(f"{room}: without any change these fail, and are left out: {', '.join(failing(room))}")
    failed = measure(
        book,
        names,
        asked.shard,
        run_one,
        lambda row: f"{'killed' if row['killed'] else 'LIVED'} {row['cell']}: {row['change']}",
        jobs=asked.jobs,
    )
    rows = book.chosen(names)
    report("mutants", asked.json, summary(rows), rows, _text(rows))
    return 1 if failed or not rows or summary(rows)["share"] < 0.8 else 0


if __name__ == "__main__":
    sys.exit(main())
