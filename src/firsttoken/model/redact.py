"""Masks secrets in commands, environments, texts and raw logs, before they are written anywhere.

Two signs betray a secret: the *name* in front of it (`--api-key`, `HF_TOKEN=`, `"password":`) and its own *shape* (`hf_…`, `sk-…`,
a JWT, `user:password@`). Names are judged by their word parts, for engines count tokens, batch tokens and hash keys all day:
`--max-num-batched-tokens`, `--tokenizer`, `--ssl-keyfile`, `eos_token` are no secrets. Everything works on spans of the text, so that
a mask of equal length costs nothing and offsets into a raw log stay true; a mask is never masked again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

MASK = "****"


def mask_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments with every secret value replaced by `MASK`: flags' values (several where a flag takes a list), assignments, and
    what stands inside JSON arguments and shell strings."""
    return tuple(_replaced(token, spans) for token, spans in _argv_spans(argv))


def secrets_in_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The values that `mask_argv` would mask: to be looked for in what such a command writes."""
    return tuple(token[begin:end] for token, spans in _argv_spans(argv) for begin, end in spans)


def secrets_in_env(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values that `mask_env` would mask."""
    named = [value for name, value in env.items() if _secret_name(name) and _is_secret_value(name, value)]
    return (*named, *(found for value in env.values() for found in secrets_in_text(value)))


def secrets_in_text(text: str) -> tuple[str, ...]:
    """The values that `mask_text` would mask."""
    return tuple(text[begin:end] for begin, end in _merged(text))


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with secret values masked, by name and by shape."""
    return {name: MASK if _secret_name(name) and _is_secret_value(name, value) else mask_text(value) for name, value in env.items()}


def mask_text(text: str, *, equal_length: bool = False) -> str:
    """Free text: log lines, process titles, shell strings, JSON, URLs. `equal_length`: as many asterisks as the secret had characters."""
    return _replaced(text, _merged(text), equal_length=equal_length)


def mask_bytes(data: bytes) -> bytes:
    """Raw bytes of any encoding, masked at equal length: offsets into them stay true."""
    return mask_text(data.decode("latin-1"), equal_length=True).encode("latin-1")


_STRONG = frozenset({
    "secret", "secrets", "password", "passwords", "passwd", "passphrase", "credential", "credentials", "apikey", "apikeys",
    "creds", "passcode",
})  # fmt: skip
_LAST = frozenset({"key", "keys", "token", "tokens", "pwd", "authorization", "cookie", "cookies"})
"""Secret where they end a name: `hf_token`, but not `token_map`."""
_OWNERS = frozenset({"api", "auth", "access", "bearer", "hf", "hub", "refresh", "session", "admin", "private", "client", "user"})
"""Words that make even the plural `tokens` secret."""
_PASS_OWNERS = frozenset({"db", "user", "admin", "root", "smtp", "redis", "mysql", "postgres", "pg", "http", "basic", "auth", "proxy"})
_PAT_OWNERS = frozenset({"git", "github", "gitlab", "gh", "azure", "ado", "hub"})
_KINDS_OF_PASS = frozenset({
    "one", "two", "multi", "single", "first", "second", "last", "per", "forward", "backward", "fusion", "compile", "prefill", "by", "all",
})  # fmt: skip
"""Words before a last `pass` of a variable that make it a run over something."""
_COUNTED = frozenset({
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "start", "end", "begin", "image", "audio", "video", "vision",
    "think", "thinking", "tool", "per", "first", "inter", "next", "last", "special", "output", "prompt", "input", "draft",
    "speculative", "cache", "cached", "group", "sort", "hash", "prefix", "block", "kv", "primary", "foreign", "partition",
    "routing", "metric", "label", "config", "dict", "registry", "model", "layer", "state", "weight", "tensor", "param", "store",
    "lookup", "event", "query", "value", "compile",
})  # fmt: skip
"""Words before `token` or `key` that make it a vocabulary entry, a count or an index."""
_DESCRIBES = frozenset({
    "file", "files", "path", "dir", "folder", "name", "names", "type", "id", "ids", "len", "length", "size", "count", "limit",
    "num", "threshold", "ratio", "map", "format", "header", "env", "var", "cmd", "command", "timeout", "ttl", "index", "mode",
    "policy", "labels", "label", "hash", "provider", "error", "errors", "required",
})  # fmt: skip
"""Last words that make a name tell *about* a secret: `password_file`, `api-key-env`."""
_SWITCHES = frozenset({"allow", "enable", "disable", "no", "skip", "return"})

_HINT = re.compile(
    r"(?i:key|token|secret|pass|pwd|pw=|cred|cookie|_pat|auth|bearer|sig=|signature=|sas=|curl)|(?:hf|gh\w|pat|r8)_|(?:sk|pat|api|xox\w)-"
    r"|A[KS]IA|AIza|eyJ|@"
)
"""Most lines have none of these, and then no secret."""
_SHELL_STRING = re.compile(r"-[a-z]*c")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_PLAIN = re.compile(r"(?:none|null|true|false|nil|\*+|\$\w+|\$\{\w+\}|<[^<>]*>)?", re.I)
_NUMBERS = re.compile(r"[\d.,eE+\-\s\[\]()]+")
_SHAPES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{16,}",
        r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_\-]{16,}",
        r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|xox[abeprs]-[\w\-]{10,}|nvapi-[\w\-]{20,}|r8_\w{20,})",
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])",
        r"(?<![A-Za-z0-9])AIza[\w\-]{35}",
        r"(?<![\w\-])eyJ[\w\-]{8,}\.[\w\-]{4,}(?:\.[\w\-]*)?",
        r"(?i:\bbearer[ ]+|\bauthorization\\*[\"']?\s*[:=]\s*\\*[\"']?(?:(?:basic|bearer)[ ]+)?)(?P<value>[^\s\"'\\,;(){}\[\]]{4,})",
        r"(?i)\b[a-z][a-z0-9+.\-]{0,30}://[^\s/:@\"']{0,200}:(?P<value>[^\s/\"']+)@",
        r"(?i)\bhttps?://(?P<value>[^\s/:@\"']{8,})@",
        r"(?i)[?&](?:[\w.\-]{0,60}-)?(?:sig|signature|token|key|apikey|auth|sas|pwd|pass|secret)=(?P<value>[^\s&#\"'<>]{4,})",
        r"(?i)\b(?:set-)?cookie\\*[\"']?[ \t]*:[ \t]*\\*[\"']?(?P<value>[^\s\"'\\][^\r\n\"'\\]{2,})",
        r"(?i)\bcurl\b[^\n|;&]{0,400}?[ \t](?:-u|--user)[ =]?[\"']?[^\s:\"']{1,200}:(?P<value>[^\s\"']+)",
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<value>.*?)(?:-----END|\Z)",
    )
)
_NAMED = re.compile(
    r"""(?<![A-Za-z0-9_.\-])(?P<dashes>-{0,2})(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{0,80})
        (?:(?P<close>\\*["'])?(?:[ \t]{0,4}:(?!//)[ \t]{0,4}|[ \t]{1,4}=[ \t]{0,4}|=)|(?P<gap>[ \t]+))""",
    re.X,
)
_VALUE = re.compile(
    r"""\\*(?:"(?P<double>(?:\\.|[^"\\\n])*)"?|'(?P<single>(?:\\.|[^'\\\n])*)'?)|(?P<bare>[^\s"',;&|()<>{}\[\]]+)""",
)
_MORE = re.compile(r"[ \t]+(?P<more>[^\s\-\"'|&;<>][^\s\"'|&;<>]*)")
_ESCAPED = re.compile(r"""\\+(?P<quote>["'])(?P<inner>[^"'\\\n]*)""")


def _words(name: str) -> list[str]:
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip("-"))
    words = [word.lower().strip("0123456789") for word in re.split(r"[-_.\s]+", split)]
    return [word for word in words if word] or [""]


def _secret_name(name: str) -> bool:
    words = _words(name)
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _DESCRIBES or words[0] in _SWITCHES:
        return False
    if _STRONG.intersection(words) or (last in ("pass", "pw") and before in _PASS_OWNERS) or (last == "pat" and before in _PAT_OWNERS):
        return True
    if last == "pass":
        return bool(before) and name.isupper() and before not in _KINDS_OF_PASS  # MY_PASS, as variables are named
    if last == "tokens":
        return before in _OWNERS
    return last in _LAST and before not in _COUNTED


def _is_secret_value(name: str, value: str) -> bool:
    """Switches, references to variables and what is masked already are no secrets; nor is a number behind a name that counts tokens."""
    if _PLAIN.fullmatch(value):
        return False
    words = _words(name)
    return not (words[-1] in ("token", "tokens") and not _OWNERS.intersection(words) and _NUMBERS.fullmatch(value))


def _random(value: str) -> bool:
    """Looks drawn, not written: long, one word, letters and digits mixed."""
    return len(value) >= 20 and all(re.search(sign, value) for sign in (r"^[\w\-+/=.~]+$", r"\d", r"[A-Za-z]"))


def _argv_spans(argv: Sequence[str]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Each argument with where its secrets stand."""
    behind: str | None = None  # the secret flag whose values are being read
    shell = False  # the next argument is a shell's command string
    for token in argv:
        if shell and not token.startswith("-"):
            yield token, _merged(token)
            shell = False
        elif token.startswith("-"):
            flag, equals, value = token.partition("=")
            behind = flag if not equals and _secret_name(flag) else None
            named = bool(equals) and _secret_name(flag) and _is_secret_value(flag, value)
            yield token, [(len(flag) + 1, len(token))] if named else _merged(token)
            shell = _SHELL_STRING.fullmatch(token) is not None
        elif behind is not None:
            yield token, [(0, len(token))] if _is_secret_value(behind, token) else []
            # argparse lists: `--api-key one two`; other flags take one value, and what follows is a positional argument
            behind = behind if _words(behind)[-1] in ("key", "keys", "tokens") else None
        else:
            name, equals, value = token.partition("=")
            whole = bool(equals) and _NAME.fullmatch(name) and _secret_name(name) and _is_secret_value(name, value)
            yield token, [(len(name) + 1, len(token))] if whole else _merged(token)


def _replaced(text: str, spans: Sequence[tuple[int, int]], *, equal_length: bool = False) -> str:
    if not spans:
        return text
    parts: list[str] = []
    done = 0
    for begin, end in spans:
        parts += (text[done:begin], "*" * (end - begin) if equal_length else MASK)
        done = end
    return "".join((*parts, text[done:]))


def _merged(text: str) -> list[tuple[int, int]]:
    if _HINT.search(text) is None:
        return []
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in _spans(text) if span[0] < span[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return [(begin, end) for begin, end in merged if set(text[begin:end]) != {"*"}]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for shape in _SHAPES:
        group: int | str = "value" if "value" in shape.groupindex else 0
        yield from (found.span(group) for found in shape.finditer(text) if not _PLAIN.fullmatch(found[group]))
    position = 0
    while (named := _NAMED.search(text, position)) is not None:
        position = named.end("name")
        name = named["name"]
        if (named["gap"] and not named["dashes"]) or not _secret_name(name) or _words(name)[-1] == "authorization":
            continue  # what follows `Authorization:` has a shape of its own
        # a lone `key:` or `token=` in running text is no name of a secret unless what follows looks like one
        lone = len(_words(name)) == 1 and _words(name)[0] in _LAST and not named["dashes"]
        for begin, end in _values(text, named):
            value = text[begin:end]
            if _is_secret_value(name, value) and (_random(value) if lone else True):
                yield begin, end
            position = max(position, end)


def _values(text: str, named: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Where the value, or a list's values, behind a secret name stand."""
    at = named.end()
    if text[at : at + 1] in ("[", "(") and not named["gap"]:
        stop = re.compile(r"[\])\n]").search(text, at + 1)
        end = stop.start() if stop else len(text)
        at += 1
        while (value := _VALUE.search(text, at, end)) is not None and value.end() > at:
            yield _inner(value)
            at = value.end()
        return
    escaped = _ESCAPED.match(text, at)
    if escaped is not None:
        yield escaped.span("inner")
        return
    if (value := _VALUE.match(text, at)) is not None and not (named["gap"] and value[0].startswith("-")):
        yield _inner(value)
        # `--api-key one two` in a shell string: further words only where they look like keys
        at = value.end()
        while named["gap"] and (more := _MORE.match(text, at)) is not None:
            if not (len(more["more"]) >= 8 and re.search(r"\d", more["more"]) and "/" not in more["more"]):
                return
            yield more.span("more")
            at = more.end()


def _inner(value: re.Match[str]) -> tuple[int, int]:
    kind = next(kind for kind in ("double", "single", "bare") if value[kind] is not None)
    return value.span(kind)
