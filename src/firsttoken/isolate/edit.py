"""A command with some of its settings changed: the algebra of changes, word by word.

Everything else stays as the user typed it, so that the difference between two commands is exactly the settings that differ.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from firsttoken.isolate.settings import Command
from firsttoken.model.isolation import Change, Given, Setting


def edited(command: Command, changed: Iterable[Setting], extra: Sequence[str] = ()) -> tuple[str, ...]:
    """The command with these settings changed, and with the words `extra` behind the engine's arguments."""
    changes = [change for setting in changed for change in setting.changes]
    words: list[str | None] = list(command.argv)
    first = command.first if command.first is not None else len(words)
    behind = list(extra)
    flags: dict[str, tuple[str, ...]] = {}
    gone = {change.name for change in changes if change.kind == "flag" and change.action == "remove"}
    variables: dict[str, str | None] = {}
    for change in changes:
        match change.kind, change.action:
            case "env", "remove":
                variables[change.name] = None
            case "env", _:
                variables[change.name] = change.values[0] if change.values else ""
            case "word", _:
                words = [change.values[0] if word == change.name else word for word in words]
            case "key", _:
                _without_keys(command, words, first, [one for one in changes if one.kind == "key" and (one.name, one.at) == _same(change)])
            case "flag", "remove":
                _blank(command, words, first, change.name, change.at)
            case "flag", "set" if change.name in gone:
                pass  # what it belongs to goes
            case _:
                for at in range(sum(one.name == change.name for one in command.given) if change.action == "set" else 0):
                    _blank(command, words, first, change.name, at)
                flags[change.name] = change.values
    behind += [word for name, values in flags.items() for word in (name, *values)]
    theirs: dict[str, Any] = {}
    for one in command.given:  # what a shortcut sets is not given twice
        if one.name in extra:
            begin, end = first + one.begin, first + one.end
            if words[begin:end] != [None] * (end - begin):
                theirs[one.name] = _with_value(theirs.get(one.name), command.argv[begin], one)
            words[begin:end] = [None] * (end - begin)
    for flag, value in theirs.items():
        behind = _merged(behind, flag, value)
    end = command.argv.index("--", first) if "--" in command.argv[first:] else len(words)
    ahead = _with_variables(command, words[: command.program], variables)
    return tuple(word for word in (*ahead, *words[command.program : end], *behind, *words[end:]) if word is not None)


def _same(change: Change) -> tuple[str, int]:
    return change.name, change.at


def _with_value(before: Any, word: str, one: Given) -> Any:
    """What a flag says that is given as `word`, after `before`: `--flag JSON` says all, `--flag.key value` one key more."""
    text = one.values[-1] if one.values else ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    keys = word.partition("=")[0].split(".")[1:] if word.startswith("--") else []
    for key in reversed(keys):
        value = {key: value}
    return _over(before if isinstance(before, dict) else {}, value) if keys else value


def _merged(behind: list[str], flag: str, theirs: Any) -> list[str]:
    """A shortcut's JSON over the one that the user gave to the same flag."""
    at = behind.index(flag) + 1
    try:
        ours = json.loads(behind[at])
    except (ValueError, IndexError, RecursionError):
        return behind
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return behind
    return [*behind[:at], json.dumps(_over(theirs, ours)), *behind[at + 1 :]]


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {key: _over(below[key], value) for key, value in above.items() if isinstance(value, dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **both}


def _blank(command: Command, words: list[str | None], first: int, name: str, number: int) -> None:
    """Words keep their places until all changes are made."""
    alike = [one for one in command.given if one.name == name]
    if number < len(alike):
        words[first + alike[number].begin : first + alike[number].end] = [None] * (alike[number].end - alike[number].begin)


def _without_keys(command: Command, words: list[str | None], first: int, changes: Sequence[Change]) -> None:
    """The flag without some keys of its JSON; without any left, without the flag."""
    name, number = _same(changes[0])
    alike = [one for one in command.given if one.name == name]
    if number >= len(alike) or not alike[number].values:
        return
    value = json.loads(alike[number].values[-1])
    left = {key: item for key, item in value.items() if all(key not in change.values for change in changes)}
    at = first + alike[number].end - 1
    word = command.argv[at]
    flag, equals, _ = word.partition("=") if word.startswith("-") else ("", "", "")
    if left:
        words[at] = f"{flag}{equals}{json.dumps(left)}"
    else:
        _blank(command, words, first, name, number)


def _with_variables(command: Command, ahead: list[str | None], variables: dict[str, str | None]) -> list[str | None]:
    """The words in front of the program. What is assigned there is changed there, the rest right before the program."""
    if command.client:
        return _for_client(ahead, variables)
    unset: list[str] = []
    put: list[str] = []
    for name, value in variables.items():
        places, _ = command.assigned.get(name, ((), ""))
        for at in places:
            ahead[at] = None
        if places and value is not None:
            ahead[places[-1]] = f"{name}={value}"
        elif value is not None:
            put.append(f"{name}={value}")
        elif name in command.environment:
            unset += ["-u", name]
    left: list[str | None] = [word for word in ahead if word is not None]
    if variables and left == ["env"]:
        left = []
    if not unset and not put:
        return left
    if left and left[0] == "env" and not any(word.startswith("-") or "=" not in word for word in left[1:] if word is not None):
        return ["env", *unset, *left[1:], *put]
    return [*left, "env", *unset, *put]


def _for_client(ahead: list[str | None], variables: dict[str, str | None]) -> list[str | None]:
    """`-e NAME=value` behind `run` or `exec`; of what is given already the last one counts."""
    words = [word for word in ahead if word is not None]
    added: list[str] = []
    for name, value in variables.items():
        left: list[str] = []
        for word in words:
            pair = next((word.removeprefix(form) for form in ("--env=", "-e") if word.startswith(f"{form}{name}=")), word)
            if not pair.startswith(f"{name}="):
                left.append(word)
            elif pair == word and left and left[-1] in ("-e", "--env"):
                left.pop()
        words = left
        added += ["-e", f"{name}={value}"] if value is not None else []
    at = next((index + 1 for index, word in enumerate(words) if word in ("run", "exec")), 0)
    return [*words[:at], *added, *words[at:]]
