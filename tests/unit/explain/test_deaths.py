"""Errors in dead files: which is a crash, which a fallout of another's, and which was the end."""

from dataclasses import replace

import pytest
from attached_facts import error, facts, milestone, process

from firsttoken.explain.deaths import at_the_end, is_crash, is_fallout, root_error
from firsttoken.model.attached import Attached
from firsttoken.model.events import LogLine
from firsttoken.model.reading import Told
from firsttoken.model.words import Phase


def line(kind: str = "python-error", text: str = "it ended", **values: str | float) -> LogLine:
    return LogLine(offset=0, length=1, text=text, error=kind, values=values)


@pytest.mark.parametrize(
    "kind", ["segfault", "abort", "bus-error", "device-fault", "oom-kill", "killed", "device-exception", "child-signal"]
)
def test_a_death_that_no_program_chooses_is_a_crash(kind: str) -> None:
    assert is_crash(line(kind))
    assert not is_crash(line("python-error"))


@pytest.mark.parametrize("text", ["operation not permitted", "invalid device ordinal", "no kernel image is available"])
def test_what_the_device_refuses_is_no_crash_and_what_breaks_it_is(text: str) -> None:
    assert not is_crash(line("device-fault", f"CUDA error: {text}"))
    assert is_crash(line("device-fault", "CUDA error: an illegal memory access was encountered"))
    assert is_crash(line("segfault", f"Segmentation fault; before: {text}"))


@pytest.mark.parametrize("name", ["code", "exit_code", "ended_with"])
@pytest.mark.parametrize("code", [-9, -11, -6, -7, 137, 139, 134])
def test_a_status_of_a_fatal_signal_is_a_crash(name: str, code: int) -> None:
    assert is_crash(line(**{name: code}))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    "values", [{"code": 1}, {"exit_code": 0}, {"code": -15}, {"code": 143}, {"code": "-9"}, {"signal": 15}, {"signal": 2}, {}]
)
def test_an_orderly_status_and_a_polite_signal_are_none(values: dict[str, str | float]) -> None:
    assert not is_crash(line(**values))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("signal", [4, 6, 7, 8, 9, 11])
def test_a_fatal_signal_by_its_number_is_a_crash(signal: int) -> None:
    assert is_crash(line(signal=signal))


@pytest.mark.parametrize(
    "text", ["Broken pipe", "Connection reset by peer", "recvValue failed", "See root cause above", "Engine core failed to start"]
)
def test_what_only_follows_from_another_death_is_fallout(text: str) -> None:
    assert is_fallout(line(text=text))
    assert not is_fallout(line(text="ValueError: no such file"))


def test_the_root_is_the_first_error_that_is_no_fallout_and_else_the_first() -> None:
    pipe, boom, later = error("Broken pipe"), error("ValueError: x"), error("KeyError: y")
    assert root_error(facts(told=(milestone(Phase.WEIGHTS), pipe, boom, later))) == boom
    assert root_error(facts(told=(pipe, error("connection reset")))) == pipe
    assert root_error(facts(told=(milestone(Phase.WEIGHTS),))) is None


def ended(*told: Told, log: bytes = b"ValueError: x\n", ready_at: int = -1, cpu: float = 0.1) -> list[Told]:
    shown = facts(Attached(log=log, processes=(process(31, cpu=cpu),)), told=told, rank_of={31: 0})
    return at_the_end(shown, [one for one in told if one.line.error is not None], ready_at)


def test_an_error_was_the_end_where_only_a_few_lines_came_after_it() -> None:
    boom = error("ValueError: x")
    assert ended(boom, log=b"ValueError: x\n" + b"more\n" * 24) == [boom]
    assert ended(boom, log=b"ValueError: x\n" + b"more\n" * 25) == []


def test_lines_are_counted_from_the_error_on() -> None:
    before = b"fine\n" * 100
    boom = error("ValueError: x", offset=len(before))
    assert ended(boom, log=before + b"ValueError: x\n") == [boom]


def test_of_several_errors_the_last_was_the_end() -> None:
    first, last = error("ValueError: x"), error("ValueError: y", offset=14)
    assert ended(first, last, log=b"ValueError: x\nValueError: y\n") == [last]


def test_an_error_after_which_a_phase_was_told_or_a_rank_is_at_work_was_not_the_end() -> None:
    boom = error("ValueError: x")
    assert ended(milestone(Phase.WEIGHTS), boom) == [boom]
    assert ended(boom, milestone(Phase.WEIGHTS)) == []
    assert ended(boom, cpu=99.0) == []


def test_an_error_before_the_ready_line_did_not_end_it_and_one_after_it_did() -> None:
    boom, ready = error("ValueError: x"), replace_phase(milestone(Phase.LISTENING, ready=True))
    assert ended(boom, ready, ready_at=1) == []
    assert ended(ready, boom, ready_at=0) == [boom]
    assert ended(boom, ready_at=0) == []


def replace_phase(told: Told) -> Told:
    """A ready line of which no phase is known."""
    return told._replace(line=replace(told.line, phase=None, edge=None))


def test_an_error_that_says_nothing_of_an_end_is_none_wherever_it_stands() -> None:
    assert ended(error("no tokens", "no-tokens")) == []
    assert ended() == []
