"""What a server is asked: prompts of several kinds that come with the package, or the user's own.

Every request of one side has its like on the other, and no prompt is repeated as it is: a server that keeps prefixes would answer the
second time from its cache. Where there are too few, a line with a number in front makes new ones of the old.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

LONGEST = 1 << 20
"""characters of a prompt that are taken"""


class BadPrompts(ValueError):
    """The user's prompts cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`name`: for people, `code 3` or `line 12`."""

    name: str
    text: str


@cache
def shipped() -> tuple[Prompt, ...]:
    """The package's own, their kinds in turn: whoever takes the first few gets some of each."""
    rows = tomllib.loads(resources.files("firsttoken.drive").joinpath("prompts.toml").read_text("utf8"))["prompt"]
    by_kind: dict[str, list[str]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row["text"].strip())
    longest = max(map(len, by_kind.values()))
    return tuple(
        Prompt(name=f"{kind} {number + 1}", text=texts[number])
        for number in range(longest)
        for kind, texts in by_kind.items()
        if number < len(texts)
    )


def parse(content: bytes) -> tuple[Prompt, ...]:
    """The user's: a JSON object a line (`prompt`, `text`, `messages`), else texts with an empty line between. BadPrompts where none is."""
    text = content.decode("utf8", "replace").replace("\r\n", "\n").strip()
    lines = text.splitlines()
    if lines and lines[0].lstrip().startswith("{"):
        found = [Prompt(name=f"line {number}", text=_of_line(line, number)) for number, line in enumerate(lines, 1) if line.strip()]
    else:
        blocks = [block.strip() for block in text.split("\n\n")]
        found = [Prompt(name=f"prompt {number}", text=block[:LONGEST]) for number, block in enumerate(filter(None, blocks), 1)]
    if not found:
        raise BadPrompts("there is no prompt in it; give texts with an empty line between them, or one JSON object with `prompt` a line")
    return tuple(found)


def draw(prompts: Sequence[Prompt], number: int) -> Prompt:
    """The prompt of this number; from the second round on with a line in front, so that no two are the same."""
    prompt = prompts[number % len(prompts)]
    rounds = number // len(prompts)
    return prompt if rounds == 0 else Prompt(name=f"{prompt.name}, round {rounds + 1}", text=f"(Request {number}.)\n{prompt.text}")


def _of_line(line: str, number: int) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPrompts(f"line {number} is no JSON: {error}") from error
    row = row if isinstance(row, dict) else {}
    for key in ("prompt", "text", "question"):
        if isinstance(row.get(key), str) and row[key].strip():
            return str(row[key])[:LONGEST]
    messages = row.get("messages") or row.get("conversations")
    for message in messages if isinstance(messages, list) else ():
        content = (message.get("content") or message.get("value")) if isinstance(message, dict) else None
        role = message.get("role") or message.get("from") if isinstance(message, dict) else None
        if isinstance(content, str) and content.strip() and role in ("user", "human", None):
            return content[:LONGEST]
    raise BadPrompts(f"line {number} holds no prompt: it needs `prompt`, `text` or `messages`")
