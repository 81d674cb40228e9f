"""`firsttoken speculate -- COMMAND`: does speculative decoding pay?"""

import asyncio
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from firsttoken.faces.cli.amounts import Seconds
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.patience import Patience, patience_options
from firsttoken.faces.cli.say import give_up, json_option, note, print_document
from firsttoken.history.speculations import latest, save
from firsttoken.model.exits import INTERRUPTED, USAGE
from firsttoken.model.plan import Policy
from firsttoken.model.speculation import Answer, Sampling
from firsttoken.report.speculation import earlier, speculation_document, speculation_text

_MOST_USERS, _MOST_TOKENS, _MOST_BLOCKS = 1024, 4096, 500


class Concurrencies(click.ParamType):  # type: ignore[type-arg]  # generic in late versions of click only
    """Whole numbers from 1 up, with commas between, each once."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and 1 <= int(part) <= _MOST_USERS for part in parts):
            self.fail(f"{value!r} is not a list of whole numbers from 1 to {_MOST_USERS}, such as 1,4,16", param, ctx)
        return tuple(dict.fromkeys(int(part) for part in parts))


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.argument(
    "argv", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND…]", shell_complete=lambda ctx, param, part: [CompletionItem(part, "file")]
)
@click.option("--baseline", metavar="URL", help="A server without speculation that runs already; nothing is launched for it.")
@click.option("--speculative", metavar="URL", help="A server with speculation that runs already; needs --baseline, and no COMMAND.")
@click.option(
    "--concurrency",
    type=Concurrencies(),
    default="1,4,16",
    show_default=True,
    metavar="N[,N…]",
    help="Requests at a time; the first counts.",
)
@click.option("--prompts", type=click.Path(path_type=Path), metavar="FILE", help="Your own: JSON lines, or texts between empty lines.")
@click.option(
    "--output-tokens", type=click.IntRange(8, _MOST_TOKENS), default=64, show_default=True, metavar="N", help="Length of the answers."
)
@click.option(
    "--sampling",
    type=click.Choice(["both", "greedy", "sampled"]),
    default="both",
    show_default=True,
    help="How tokens are chosen; greedy answers of both servers are compared.",
)
@click.option("--temperature", type=click.FloatRange(0, 10, min_open=True), default=0.8, show_default=True, help="Of sampled answers.")
@click.option("--blocks", type=click.IntRange(4, _MOST_BLOCKS), metavar="N", help="Blocks A B B A at each concurrency (default: 8 to 24).")
@click.option("--tune", is_flag=True, help="Try other numbers of draft tokens, each in a launch of its own.")
@click.option("--max-wait", type=Seconds(), metavar="S", help="Give each start S seconds to its first token.")
@patience_options
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the servers' API key.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the bootstrap.")
@json_option
def command(
    argv: tuple[str, ...],
    baseline: str | None,
    speculative: str | None,
    concurrency: tuple[int, ...],
    prompts: Path | None,
    output_tokens: int,
    sampling: str,
    temperature: float,
    blocks: int | None,
    tune: bool,
    max_wait: float | None,
    max_waiting: float | None,
    stall_patience: float | None,
    api_key_env: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Does the speculative decoding of COMMAND pay? It is launched with and without, and both are asked the same in turns.

    The command without speculation is derived. Or give two servers: --baseline URL --speculative URL. Statuses: 0 answered, 76 cannot tell
    yet, and where a server does not serve that of its verdict: 69 failed or crashed, 70 hung, 71 unserving, 75 out of patience.
    """
    from firsttoken.drive.prompts import BadPrompts, parse, shipped
    from firsttoken.knowledge.load import profiles
    from firsttoken.plan.speculation import NotSpeculating, speculating
    from firsttoken.session.planning import local_world, working_folder
    from firsttoken.session.speculating.blocks import Load
    from firsttoken.session.speculating.servers import Stage
    from firsttoken.session.speculating.speculate import Trial

    urls = _urls(argv, baseline, speculative, tune)
    if api_key_env is not None and not os.environ.get(api_key_env):
        give_up(f"--api-key-env {api_key_env}: that variable is not set; export it, or leave the option out", USAGE)
    try:
        known = speculating(argv, local_world(dict(os.environ), working_folder()), profiles()) if argv else None
        asked = parse(prompts.read_bytes()) if prompts is not None else shipped()
    except NotSpeculating as error:
        give_up(str(error), USAGE)
    except BadPrompts as error:
        give_up(f"--prompts {prompts}: {error}", USAGE)
    except OSError as error:
        give_up(f"--prompts {prompts}: {error.strerror or error}", USAGE)
    words = Outlet(2)
    kinds = {"both": (Sampling.GREEDY, Sampling.SAMPLED), "greedy": (Sampling.GREEDY,) * 2, "sampled": (Sampling.SAMPLED,) * 2}
    trial = Trial(
        stage=Stage(
            said=lambda text: words.line(f"firsttoken: {text}"),
            policy=Patience(max_waiting, stall_patience)(Policy()),
            api_key_env=api_key_env,
            max_wait=max_wait,
        ),
        load=Load(
            prompts=asked,
            concurrencies=concurrency,
            tokens=output_tokens,
            samplings=kinds[sampling],
            temperature=temperature,
            blocks=blocks,
        ),
        prompts=str(prompts) if prompts is not None else f"{len(asked)} that come with firsttoken: code, chat, reasoning, summarising",
        speculating=known,
        urls=urls,
        tune=tune,
        key=os.environ.get(api_key_env) if api_key_env is not None else None,
        seed=seed,
    )
    try:
        answer, signalled = asyncio.run(_until_answered(trial))
    finally:
        words.close()
    if answer is None:
        note("broken off; what was launched is stopped")
        return 128 + signalled if signalled else INTERRUPTED
    return _tell(answer, urls, as_json)


def _urls(argv: tuple[str, ...], baseline: str | None, speculative: str | None, tune: bool) -> dict[str, str]:
    """Addresses by side. What does not go together is refused here."""
    if not argv and not (baseline and speculative):
        raise click.UsageError(
            "there is nothing to compare. Give a command that speculates (firsttoken speculate -- vllm serve MODEL -sc {…}), "
            "or two servers (--baseline URL --speculative URL)"
        )
    if argv and speculative:
        raise click.UsageError("--speculative names a server that runs already, and COMMAND is to be launched: give one of them")
    if tune and not argv:
        raise click.UsageError("--tune launches COMMAND with other numbers of draft tokens, and there is no COMMAND")
    given = {"baseline": baseline, "speculative": speculative}
    urls = {side: url if "://" in url else f"http://{url}" for side, url in given.items() if url is not None}
    for side, url in urls.items():
        if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
            raise click.UsageError(f"--{side} {given[side]}: that is no address of a server; give it as http://HOST:PORT")
    return urls


async def _until_answered(trial: Any) -> tuple[Answer | None, int]:
    """The first signal breaks off and stops the servers, the second one kills them."""
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(trial.run())
    signals: list[int] = []
    hurrying: list[asyncio.Task[None]] = []

    def asked_to_end(number: signal.Signals) -> None:
        signals.append(int(number))
        if len(signals) == 1:
            trial.stage.said(f"{number.name}: stopping what was launched; once more to kill it")
            work.cancel()
        else:
            hurrying.append(asyncio.ensure_future(trial.stage.hurry()))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, asked_to_end, number)
    try:
        return await work, 0
    except asyncio.CancelledError:
        return None, signals[0] if signals else 0
    finally:
        await asyncio.gather(*hurrying, return_exceptions=True)


def _tell(answer: Answer, urls: dict[str, str], as_json: bool) -> int:
    """Holds the answer against the last one about the same, keeps it, prints it."""
    now = datetime.now(UTC)
    doc = speculation_document(answer, f"{now:%Y-%m-%dT%H:%M:%SZ}")
    doc["urls"] = urls
    same = ("command", "urls", "concurrency", "measured.prompts", "measured.output_tokens", "measured.samplings")
    before = latest(doc, same) if answer.levels else None
    if before is not None:
        answer = replace(answer, earlier=earlier(before, answer.levels[0]))
        doc = {**speculation_document(answer, doc["at"]), "urls": urls}
    try:
        save(doc, now)
    except OSError as error:
        note(f"the answer could not be kept for later comparison: {error.strerror or error}")
    if as_json:
        print_document(doc)
    else:
        click.echo(speculation_text(answer))
    return answer.code
