"""The command as somebody pasted it: one shell command with its assignments, perhaps on several lines or with a prompt. Never raises."""

import re
import shlex

_PROMPT = re.compile(r"^\s*(?:[$%>]|(?:\([\w.-]+\) )?[\w.-]+@[\w.-]+:\S*[$#])\s+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_LIMIT = 100_000


def read_command(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """(argv, environment). Lines that continue with a backslash are joined; comment lines and fences are left out."""
    text = text[:_LIMIT].replace("\\\r\n", " ").replace("\\\n", " ")
    lines = [_PROMPT.sub("", line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "```"))]
    words = _split(" ".join(lines))
    env: dict[str, str] = {}
    if words and words[0] in ("env", "export"):
        words = words[1:]
    while words and (match := _ASSIGNMENT.fullmatch(words[0])) is not None:
        env[match[1]] = match[2]
        words = words[1:]
    return tuple(words), env


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
