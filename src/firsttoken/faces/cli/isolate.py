"""`firsttoken isolate -- COMMAND`: which of its settings is at fault, in the fewest launches."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from firsttoken.faces.cli.amounts import Count, Seconds
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.patience import Patience
from firsttoken.faces.cli.run import live_view_on
from firsttoken.faces.cli.say import give_up, json_option, note, print_document, write_out
from firsttoken.model.exits import INTERRUPTED, USAGE
from firsttoken.model.isolation import Isolation
from firsttoken.model.plan import Policy
from firsttoken.report.isolation import isolation_document, isolation_markdown, isolation_text, plan_text, progress_line, trial_line
from firsttoken.report.text import count

if TYPE_CHECKING:
    from firsttoken.session.follow import Follower
    from firsttoken.session.isolating.command import Read
    from firsttoken.session.isolating.options import Options
    from firsttoken.session.isolating.places import Place

_FOUND, _NOT_FOUND, _REFUSED = 0, 1, 3
_CANNOT_CREATE = 73


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in late versions of click only
    """`90`, `90s`, `15m`, `2h` in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration like 90s, 15m or 2h", param, ctx)
        return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


class Amount(click.ParamType):  # type: ignore[type-arg]  # generic in late versions of click only
    """A finite number, not negative, and at most `most`."""

    name = "amount"

    def __init__(self, most: float = float("inf")) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < float("inf") or amount > self._most:
            self.fail(f"{value!r} is not a number from 0 {'up' if self._most == float('inf') else f'to {self._most:g}'}", param, ctx)
        return amount


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.argument(
    "argv", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND…", shell_complete=lambda ctx, param, part: [CompletionItem(part, "file")]
)
@click.option("--dry-run", is_flag=True, help="Show settings, plan and price; launch nothing.")
@click.option("--keep", multiple=True, metavar="NAME", help="A flag or variable that stays as it is; repeatable.")
@click.option("--try", "attempt", multiple=True, metavar="'FLAG [VALUE]'", help="A flag that may go, or be set so; repeatable.")
@click.option("--try-env", multiple=True, metavar="NAME[=VALUE]", help="A variable that may go, or be set so; repeatable.")
@click.option(
    "--swap", type=(str, str), multiple=True, metavar="OLD NEW", help="A word that may become another: an image, a node, a model."
)
@click.option("--budget", type=Count(), metavar="N", help="Launches, at most (default 30; 100 with --intermittent).")
@click.option("--max-time", type=Duration(), metavar="T", help="Time of all launches together, at most: 90s, 30m, 2h.")
@click.option("--price", type=Amount(), metavar="X", help="What an hour of the machine costs; told with each answer.")
@click.option("--max-cost", type=Amount(), metavar="X", help="With --price: what all launches may cost together.")
@click.option("--trial-time", type=Duration(), default="1h", show_default=True, metavar="T", help="One launch, at most.")
@click.option("--max-waiting", type=Seconds(), default=60, show_default=True, metavar="S", help="Patience with a trial that waits.")
@click.option("--stall-patience", type=Seconds(), default=60, show_default=True, metavar="S", help="Patience with a stalled trial.")
@click.option("--intermittent", is_flag=True, help="The failure comes and goes: repeat launches until the answer is certain.")
@click.option(
    "--certainty", type=Amount(most=0.999), default=0.95, show_default=True, metavar="P", help="How certain, with --intermittent."
)
@click.option("--no-shortcuts", is_flag=True, help="No cheaper variants (dummy weights, few layers, two ranks) while searching.")
@click.option(
    "--parallel", type=Count(), default=1, show_default=True, metavar="N", help="Launches at once, each on GPUs and a port of its own."
)
@click.option("--share", is_flag=True, help="Go on although others work on the same GPUs.")
@click.option("--fresh", is_flag=True, help="Begin anew, where an earlier search for this command broke off.")
@click.option(
    "--markdown", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the answer as Markdown for an issue."
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's API key.")
@click.option("--no-mark", is_flag=True, help="Add nothing to the server's environment (FIRSTTOKEN_RUN otherwise).")
@json_option
def command(
    argv: tuple[str, ...],
    dry_run: bool,
    keep: tuple[str, ...],
    attempt: tuple[str, ...],
    try_env: tuple[str, ...],
    swap: tuple[tuple[str, str], ...],
    budget: int | None,
    max_time: float | None,
    price: float | None,
    max_cost: float | None,
    trial_time: float,
    max_waiting: float,
    stall_patience: float,
    intermittent: bool,
    certainty: float,
    no_shortcuts: bool,
    parallel: int,
    share: bool,
    fresh: bool,
    markdown: Path | None,
    api_key_env: str | None,
    no_mark: bool,
    as_json: bool,
) -> int:
    """From a command that fails to start to the settings at fault and a fix, in the fewest launches.

    Launches COMMAND again and again with settings changed: its own flags and variables, and remedies that its engine knows. Each launch
    ends as soon as it has told enough. Given again, a search that broke off goes on. Status 0 where the settings are found, 1 where not,
    3 where another server would be disturbed, 127 where the program is not found, 130 where interrupted.
    """
    from firsttoken.isolate.settings import Wishes, contradictions
    from firsttoken.session.isolating.command import read
    from firsttoken.session.isolating.options import Options

    if not argv:
        raise click.UsageError("there is no command to launch. Put it behind `--`: firsttoken isolate -- vllm serve MODEL")
    if budget == 0:
        raise click.UsageError("--budget 0 leaves no launch; --dry-run shows the plan without one")
    if max_cost is not None and price is None:
        raise click.UsageError("--max-cost needs --price: what an hour of the machine costs")
    if api_key_env is not None and not os.environ.get(api_key_env):
        give_up(f"--api-key-env {api_key_env}: that variable is not set; export it, or leave the option out", USAGE)
    wishes = Wishes(keep=keep, attempt=attempt, attempt_env=try_env, swaps=swap)
    both = contradictions(wishes)
    if both:
        raise click.UsageError(f"--keep {both[0]} says that it stays, and --try or --try-env that it may go: leave one out")
    asked = read(argv, wishes)
    if asked.idle_wishes:
        raise click.UsageError(f"{', '.join(asked.idle_wishes)}: the command has no such flag, variable or word")
    patience = Patience(max_waiting, stall_patience)
    most = budget if budget is not None else 100 if intermittent else 30
    options = Options(
        wishes=wishes, policy=patience(Policy()), budget=most, max_time=max_time, price=price, max_cost=max_cost, trial_time=trial_time,
        intermittent=intermittent, certainty=certainty, share=share, shortcuts=not no_shortcuts, mark=not no_mark, api_key_env=api_key_env,
    )  # fmt: skip
    at_once = _places(asked, parallel)
    if not asked.settings:
        give_up(f"there is nothing to change in this command: {asked.not_read or 'it has no settings'}. Offer some with --try or --try-env")
    if dry_run:
        plan = _plan(asked)
        if as_json:
            print_document(isolation_document(plan))
        else:
            click.echo(plan_text(plan, asked.not_read, [place.gpus for place in at_once]))
        return _FOUND
    if markdown is not None and not markdown.absolute().parent.is_dir():
        give_up(f"--markdown {markdown}: there is no folder {markdown.absolute().parent}; make it first", _CANNOT_CREATE)
    found = _isolate(asked, options, at_once, fresh, as_json)
    if markdown is not None:
        try:
            write_out(markdown, isolation_markdown(found))
        except OSError as error:  # what was found in hours is told all the same
            note(f"the Markdown cannot be written to {markdown}: {error.strerror or error}; it is in {found.folder}/isolation.md")
    if as_json:
        print_document(isolation_document(found))
    return found.refused_with or {"found": _FOUND, "interrupted": INTERRUPTED, "refused": _REFUSED}.get(found.state, _NOT_FOUND)


def _plan(asked: "Read") -> Isolation:
    from firsttoken.model.redact import mask_argv

    return Isolation(
        name="",
        command=mask_argv(asked.command.argv),
        settings=asked.settings,
        stays=asked.stays,
        engine=asked.plan.engine,
        state="planned",
        reason=asked.not_read or "",
        launches_left=4.0 + len(asked.settings).bit_length(),
    )


def _places(asked: "Read", parallel: int) -> "tuple[Place, ...]":
    from firsttoken.session.isolating.places import NoPlaces, places

    if not parallel:
        raise click.UsageError("--parallel 0 leaves no launch; 1 is one after the other")
    try:
        return places(asked, parallel)
    except NoPlaces as error:
        raise click.UsageError(f"--parallel {parallel}: {error}") from error


def _isolate(asked: "Read", options: "Options", at_once: "tuple[Place, ...]", fresh: bool, as_json: bool) -> Isolation:
    from firsttoken.session.isolating.isolate import Isolating

    words = Outlet(2)

    def said(text: str) -> None:
        words.line(f"firsttoken: {text}")

    def watch(follower: "Follower") -> AbstractContextManager[object]:
        view = None if as_json else live_view_on(words, prints=False)
        return view.watching(follower) if view is not None else contextlib.nullcontext()

    try:
        ledger, again = _ledger(asked, options, fresh)
        if asked.not_read is not None:
            said(asked.not_read)
        if again and ledger.trials:
            known = count(len(ledger.trials), "launch is", "launches are")
            said(f"going on with {ledger.name}: {known} known already (--fresh begins anew)")
        isolating = Isolating(read=asked, options=options, ledger=ledger, places=at_once, watch=watch)
        teller = _Teller(said, told=len(ledger.trials) if again else 0)
        isolating.changed = teller.changed
        with _interruptible() as stopping:
            isolating.interrupted = lambda: bool(stopping)
            found = asyncio.run(isolating.run())
        teller.trials(found)
        _keep(ledger, found)
        words.line(isolation_text(found))
    finally:
        words.close()
    return found


class _Teller:
    """A line for each trial, and one for what is known before the next."""

    def __init__(self, said: Callable[[str], None], told: int) -> None:
        self._said, self._told = said, told

    def changed(self, found: Isolation) -> None:
        self.trials(found)
        if found.trials and found.state == "searching":
            self._said(progress_line(found))

    def trials(self, found: Isolation) -> None:
        for trial in found.trials[self._told :]:
            self._said(trial_line(trial, found.settings))
        self._told = len(found.trials)


def _ledger(asked: "Read", options: "Options", fresh: bool) -> "tuple[Any, bool]":
    from firsttoken.isolate.settings import digest
    from firsttoken.model.redact import mask_argv
    from firsttoken.session.isolating import ledger as isolate_ledger
    from firsttoken.session.planning import working_folder

    command = mask_argv(asked.command.argv)
    about = {"cwd": working_folder(), "settings": [one.label for one in asked.settings], "intermittent": options.intermittent}
    about["digest"] = digest(asked.command, asked.settings)
    gpus = asked.sees.get("CUDA_VISIBLE_DEVICES")
    about |= {"gpus": gpus} if gpus is not None else {}
    earlier = None if fresh else isolate_ledger.unfinished(command, about)
    if earlier is not None:
        return earlier, True
    try:
        ledger = isolate_ledger.create(asked.plan.engine or os.path.basename(command[0]))
        ledger.begin(command, about)
    except OSError as error:
        give_up(f"no folder for the search can be made ({error}); set FIRSTTOKEN_HOME to a folder that can be written", _CANNOT_CREATE)
    return ledger, False


def _keep(ledger: Any, found: Isolation) -> None:
    from firsttoken.report.document import to_json

    with contextlib.suppress(OSError):
        (ledger.folder / "isolation.json").write_text(to_json(isolation_document(found)), encoding="utf8")
        (ledger.folder / "isolation.md").write_text(isolation_markdown(found), encoding="utf8")


@contextlib.contextmanager
def _interruptible() -> Iterator[list[int]]:
    """The list gets the signals that came; the trial that runs is then stopped, and the search can be taken up again."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    taken = [number for number, action in before.items() if action is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, before[number])
