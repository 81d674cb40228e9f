"""When two failures are the same one."""

from dataclasses import replace

from firsttoken.isolate.signature import compare, signature
from firsttoken.model.isolation import Outcome, Signature
from firsttoken.model.result import ExitRow, RankGroup, RanksRow, Result
from firsttoken.model.words import Phase, Verdict


def hung(phase: Phase, *places: str, in_run: bool | None = True) -> Result:
    blocker = None if in_run is None else {"process": {"pid": 7}, "in_run": in_run}
    groups = tuple(RankGroup(ranks=(at,), where=place) for at, place in enumerate(places))
    return Result(verdict=Verdict.HUNG, phase=phase, ranks=RanksRow(groups=groups), root_blocker=blocker)


def failed(reason: str, phase: Phase = Phase.CONFIG) -> Result:
    return Result(verdict=Verdict.FAILED, phase=phase, reason=reason, exit=ExitRow(code=1))


def compared(one: Result, other: Result) -> Outcome:
    base = signature(one)
    assert base is not None
    return compare(base, signature(other))


def test_a_hang_in_the_same_phase_is_the_same_whatever_the_frames() -> None:
    assert compared(hung(Phase.COMPILE, "all_reduce"), hung(Phase.COMPILE, "barrier")) is Outcome.SAME


def test_a_hang_in_the_same_place_is_the_same_though_the_phase_has_another_name() -> None:
    assert compared(hung(Phase.COMPILE, "all_reduce", "lock"), hung(Phase.KV_CACHE, "lock")) is Outcome.SAME


def test_a_hang_elsewhere_or_behind_another_kind_of_blocker_is_different() -> None:
    assert compared(hung(Phase.COMPILE, "all_reduce"), hung(Phase.WEIGHTS, "read")) is Outcome.DIFFERENT
    assert compared(hung(Phase.COMPILE, in_run=True), hung(Phase.COMPILE, in_run=False)) is Outcome.DIFFERENT


def test_a_stranger_of_whom_it_was_not_seen_how_it_blocks_may_be_any() -> None:
    seen = replace(hung(Phase.COMPILE, in_run=False), waits=({"kind": "connect", "to": {"pid": 7}},))
    other = replace(seen, waits=({"kind": "lock", "to": {"pid": 7}},))
    unseen = hung(Phase.COMPILE, in_run=False)
    assert compared(seen, unseen) is compared(unseen, seen) is Outcome.SAME
    assert compared(seen, other) is Outcome.DIFFERENT


def test_proven_and_unproven_hangs_are_alike() -> None:
    stalled = Result(verdict=Verdict.STALLED, phase=Phase.COMPILE)
    assert compared(hung(Phase.COMPILE, "all_reduce"), stalled) is Outcome.SAME


def test_errors_are_compared_by_class_and_not_by_the_numbers_in_them() -> None:
    one = failed("ended with status 1: torch.cuda.OutOfMemoryError: tried to allocate 3 GiB")
    assert compared(one, failed("OutOfMemoryError: tried to allocate 7 GiB")) is Outcome.SAME
    assert compared(one, failed("ValueError: no such flag")) is Outcome.DIFFERENT
    assert compared(failed("ended with status 1 after 3.2 s"), failed("ended with status 1 after 12.9 s")) is Outcome.SAME


def test_an_error_that_was_read_too_late_to_be_told_or_to_have_its_phase_is_no_other_error() -> None:
    told = failed("ended with status 1 after 3.2 s, before its first token: RuntimeError: no kernel 7", Phase.COMPILE)
    assert compared(told, failed("ended with status 1 after 13.9 s, before its first token", Phase.COMPILE)) is Outcome.SAME
    assert (
        compared(told, failed("ended with status 1 after 9.9 s, before its first token: RuntimeError: no kernel 9", Phase.KV_CACHE))
        is Outcome.SAME
    )
    assert compared(told, failed("RuntimeError: something else", Phase.KV_CACHE)) is Outcome.DIFFERENT


def test_what_did_not_fail_has_no_signature_and_what_could_not_be_told_is_unresolved() -> None:
    assert signature(Result(verdict=Verdict.READY)) is None
    assert signature(Result(verdict=Verdict.UNKNOWN)) is None
    assert compare(Signature(sort="blocked"), None) is Outcome.UNRESOLVED
