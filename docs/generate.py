"""Writes the reference pages that the program itself tells: commands and options, events. `python docs/generate.py` after a change.

Key insight: the pages are made from the declarations (click's parameters, the fields of dataclasses and the strings below them), never from
formatted help, so that they are the same on every Python and at every width. A test compares them with what this script would write.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from firsttoken.faces.cli.main import COMMANDS, cli
from firsttoken.rehearsal import settings as rehearsal_settings

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "src" / "firsttoken" / "model"
_MADE = "<!-- Made by docs/generate.py; edit the program instead. -->\n"
_TABLE = "| | what it does |\n|---|---|\n"
_CARRIED = ("process", "plan", "stillness", "gpu", "collectives")
"""modules of the model whose values events carry"""


def pages() -> dict[Path, str]:
    """Each generated page and what it should hold."""
    return {HERE / "reference" / "cli.md": cli_page(), HERE / "reference" / "events.md": events_page()}


def cli_page() -> str:
    context = click.Context(cli, info_name="firsttoken", **cli.context_settings)
    parts = [
        "# Commands and options\n",
        _MADE,
        "`firsttoken COMMAND --help` tells the same. Verdicts and exit statuses: [verdicts.md](verdicts.md); documents of `--json`: "
        "[result.md](result.md). Where RUN is left out it is the latest one; any unique part of its name will do.\n",
        "`FIRSTTOKEN_HOME` names the folder of the runs (else the platform's state folder); `NO_COLOR` leaves colours out; where "
        "`NOTIFY_SOCKET` is set, `run` tells the service manager.\n",
        "| command | what it does |\n|---|---|\n"
        + "".join(f"| [`{name}`](#{name}) | {_cell(said)} |\n" for name, said in COMMANDS.items()),
    ]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert isinstance(command, click.Command), name
        parts += _rehearse() if name == "rehearse" else _command(command, click.Context(command, info_name=name, parent=context), "##")
    return "\n".join(parts)


def events_page() -> str:
    parts = [
        "# Events\n",
        _MADE,
        inspect.cleandoc(_docstring(MODEL / "events.py")) + "\n",
        "`events.jsonl` of a run's folder and `--events` hold them, one a line. Fields that hold their default are written too. "
        "Kinds and fields are only added within a schema.\n",
        "## The envelope\n",
        "`seq` orders, from 1; `t` and `wall` as above; `node` the machine; `kind` says what follows.\n",
    ]
    carried = [entry for module in _CARRIED for entry in _classes(MODEL / f"{module}.py")]
    bodies = [entry for entry in _classes(MODEL / "events.py") if entry.kind is not None and entry.name != "UnknownEvent"]
    for body in bodies:
        parts += [f"## `{body.kind}`\n", body.says, _fields(body)]
    parts += ["# What events carry\n"]
    for value in carried:
        parts += [f"## {value.name}\n", value.says, "In JSON an array, in this order.\n" if value.is_tuple else "", _fields(value)]
    return "\n".join(part for part in parts if part)


class _Class:
    """A dataclass, a named tuple or an enumeration as its source declares it."""

    def __init__(self, node: ast.ClassDef) -> None:
        self.name = node.name
        self.kind: str | None = None
        self.is_tuple = any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
        doc = ast.get_docstring(node)
        self.says = f"{doc}\n" if doc else ""
        self.fields: list[tuple[str, str, str, str]] = []
        for here, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(here, ast.Assign) and isinstance(here.value, ast.Constant) and isinstance(here.targets[0], ast.Name):
                self.fields.append((str(here.value.value), "", "", ""))
            if not isinstance(here, ast.AnnAssign) or not isinstance(here.target, ast.Name):
                continue
            if here.target.id == "kind" and isinstance(here.value, ast.Constant) and "ClassVar" in ast.unparse(here.annotation):
                self.kind = str(here.value.value)
                continue
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            self.fields.append((here.target.id, ast.unparse(here.annotation), _default(here.value), str(said)))


def _command(command: click.Command, context: click.Context, mark: str) -> Iterator[str]:
    yield f"{mark} {context.command_path.removeprefix('firsttoken ')}\n"
    yield f"```\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        yield _TABLE + "".join(_option(option, context) for option in options)
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _command(command.commands[name], click.Context(command.commands[name], info_name=name, parent=context), mark + "#")


def _option(option: click.Option, context: click.Context) -> str:
    takes = "" if option.is_flag else f" {option.metavar or _choices(option.type)}"
    default = f" Default: {option.default}." if option.show_default else ""
    return f"| `{', '.join((*option.opts, *option.secondary_opts))}{_bars(takes)}` | {_cell((option.help or '') + default)} |\n"


def _choices(kind: Any) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange):
        return f"{kind.min}..{kind.max}"
    return str(kind.name).upper()


def _rehearse() -> Iterator[str]:
    """The embedded engine reads its own arguments."""
    parser: argparse.ArgumentParser = rehearsal_settings._parser()
    yield "## rehearse\n"
    yield "```\nfirsttoken rehearse [OPTIONS]\n```\n"
    yield f"{parser.description}\n"
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        takes = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
        rows.append(f"| `{', '.join(action.option_strings)}{_bars(takes)}` | {_cell(action.help or '')} |\n")
    yield _TABLE + "".join(rows)
    epilog = parser.epilog or ""
    yield f"```\n{epilog.partition('environment:')[0].strip()}\n```\n"
    yield f"Environment: {' '.join(epilog.partition('environment:')[2].split())}\n"


def _classes(file: Path) -> Iterator[_Class]:
    for node in ast.parse(file.read_text(encoding="utf8")).body:
        if isinstance(node, ast.ClassDef):
            yield _Class(node)


def _fields(entry: _Class) -> str:
    if not entry.fields:
        return ""
    if not any(kind for _, kind, _, _ in entry.fields):
        return f"Values: {', '.join(f'`{name}`' for name, _, _, _ in entry.fields)}\n"
    rows = (f"| `{name}` | {_code(kind)} | {_code(default)} | {_cell(said)} |\n" for name, kind, default, said in entry.fields)
    return "| field | type | default | |\n|---|---|---|---|\n" + "".join(rows)


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    factory = re.search(r"default_factory=(\w+)", ast.unparse(value))
    return factory[1] if factory else ast.unparse(value)


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf8"))) or ""


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return _bars(" ".join(text.split()))


def _bars(text: str) -> str:
    """A bar would end the table's cell, in code too."""
    return text.replace("|", "\\|")


def main() -> int:
    for file, text in pages().items():
        file.write_text(text, encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
