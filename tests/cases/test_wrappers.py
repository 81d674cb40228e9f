"""The same report, its log as another program passes it on: prefixes, line ends and colours change no answer."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from laid_out import laid_out

from firsttoken.model.result import Result
from firsttoken.session.explain import explain_path

_REPORTS = Path(__file__).parent / "reports"
REPORTS = (
    "llamacpp-bad-magic",
    "sglang-stopped-scheduler",
    "sglang-killed-by-cgroup",
    "vllm-eaddrinuse",
    "vllm-fused-allreduce-stacks",
    "vllm-inductor-works",
)


def _prefixed(prefix: bytes) -> Callable[[bytes], bytes]:
    return lambda log: b"".join(prefix + line for line in log.splitlines(keepends=True))


WRAPPERS: dict[str, Callable[[bytes], bytes]] = {
    "compose": _prefixed(b"llm-server-1  | "),
    "kubectl": _prefixed(b"[pod/llm-7f9c-abc/server] "),
    "windows": lambda log: log.replace(b"\n", b"\r\n"),
    "coloured": lambda log: b"".join(b"\x1b[0m" + line.rstrip(b"\n") + b"\x1b[0m\n" for line in log.splitlines(keepends=True)),
    "no newline at the end": lambda log: log.rstrip(b"\n"),
}


def _answer(result: Result) -> tuple[object, ...]:
    sure = [row["cause"] for row in result.findings if row["confidence"] >= 0.5][:1]
    times = [(row.name, row.seconds and round(row.seconds)) for row in result.phases]
    return (result.engine.name, result.verdict, result.phase, tuple(result.ranks.behind), sure, times)


@pytest.mark.parametrize("name", REPORTS)
def test_a_wrapper_changes_no_answer(name: str, tmp_path: Path) -> None:
    report: dict[str, Any] = tomllib.loads((_REPORTS / f"{name}.toml").read_text(encoding="utf8"))
    folder = laid_out(report, tmp_path)
    plain = _answer(explain_path(folder))
    log = (folder / "server.log").read_bytes()
    for wrapper, wrapped in WRAPPERS.items():
        (folder / "server.log").write_bytes(wrapped(log))
        assert _answer(explain_path(folder)) == plain, wrapper
