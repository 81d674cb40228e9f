"""Causes ranked: which are candidates at all, how what speaks for and against adds up, and what is not worth a line."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from attached_facts import facts

from firsttoken.explain.findings import LEAST, Finding, beside_checks, findings
from firsttoken.knowledge.causes import Cause, Condition, Setting, Weighed
from firsttoken.model.attached import Attached
from firsttoken.model.words import Phase, Verdict

YES, NO, UNKNOWN = Condition(log="error"), Condition(log="warning"), Condition(stack="x")


def cause(*weights: float, name: str = "x", **told: object) -> Cause:
    """Each weight for something that holds."""
    return replace(Cause(id=name, meaning="m", speaks=tuple(Weighed(weight=one, when=YES) for one in weights)), **told)  # type: ignore[arg-type]  # fields by name


def found(
    *causes: Cause, verdict: Verdict = Verdict.HUNG, log: bytes = b"one error\n", phase: Phase = Phase.GRAPH_CAPTURE
) -> Sequence[Finding]:
    return findings(facts(Attached(log=log), phase=phase), causes, verdict)


def sure(*causes: Cause, verdict: Verdict = Verdict.HUNG) -> float:
    (one,) = found(*causes, verdict=verdict)
    return one.confidence


def test_a_cause_as_sure_as_the_least_is_told_and_one_below_is_not() -> None:
    assert sure(cause(0.16)) == pytest.approx(0.16)
    assert found(cause(0.14)) == ()
    assert sure(cause(0.6, against=(Weighed(weight=0.75, when=YES),))) == LEAST


def test_two_weak_signs_are_stronger_together_and_nothing_is_ever_more_than_sure() -> None:
    assert sure(cause(0.5, 0.5)) == 0.75
    assert sure(cause(1.0, 0.9)) == 1.0


def test_what_does_not_hold_adds_nothing_and_what_is_not_known_is_asked_for() -> None:
    mixed = cause(0.5, speaks=(Weighed(weight=0.5, when=YES), Weighed(weight=0.9, when=NO), Weighed(weight=0.9, when=UNKNOWN)))
    (one,) = found(mixed)
    assert (one.confidence, one.unknown) == (0.5, ("stacks",))


def test_what_speaks_against_lowers_it_and_what_is_not_known_does_not() -> None:
    assert sure(cause(0.8, against=(Weighed(weight=0.5, when=YES), Weighed(weight=0.9, when=NO), Weighed(weight=0.9, when=UNKNOWN)))) == 0.4


def test_words_of_the_rule_come_before_the_line_that_matched() -> None:
    (one,) = found(cause(speaks=(Weighed(weight=0.9, when=YES, says="in words"),), against=(Weighed(weight=0.1, when=YES, says="but"),)))
    assert (one.evidence, one.against) == (("in words",), ("but",))
    (one,) = found(cause(speaks=(Weighed(weight=0.9, when=YES),), against=(Weighed(weight=0.1, when=YES),)))
    assert (one.evidence, one.against) == (("one error",), ("one error",))


def test_the_same_evidence_is_told_once_and_never_more_than_a_few_pieces() -> None:
    (one,) = found(cause(0.5, 0.5, 0.5))
    assert one.evidence == ("one error",)
    many = tuple(Weighed(weight=0.2, when=YES, says=f"sign {n}") for n in range(9))
    (one,) = found(cause(speaks=many))
    assert one.evidence == tuple(f"sign {n}" for n in range(6))
    (one,) = found(cause(0.99, against=tuple(replace(each, weight=0.01) for each in many)))
    assert len(one.against) == 6


def test_a_start_that_succeeded_after_all_makes_a_cause_unlikely_unless_it_is_one_of_a_running_server() -> None:
    assert sure(cause(0.9), verdict=Verdict.READY) == pytest.approx(0.27)
    assert sure(cause(0.9, verdicts=(Verdict.READY,)), verdict=Verdict.READY) == 0.9
    assert found(cause(0.4), verdict=Verdict.READY) == ()


def test_a_cause_of_another_engine_phase_or_verdict_is_no_candidate() -> None:
    assert found(cause(0.9, engines=("other",))) == ()
    assert len(found(cause(0.9, engines=("other", "engine")))) == 1
    assert found(cause(0.9, phases=(Phase.WEIGHTS,))) == ()
    assert len(found(cause(0.9, phases=(Phase.WEIGHTS,)), phase=Phase.WEIGHTS)) == 1
    assert found(cause(0.9, verdicts=(Verdict.SLOW,))) == ()
    assert len(found(cause(0.9, verdicts=(Verdict.SLOW,)), verdict=Verdict.SLOW)) == 1


@pytest.mark.parametrize(("need", "told"), [(YES, 1), (NO, 0), (UNKNOWN, 0)])
def test_a_need_must_be_known_to_hold(need: Condition, told: int) -> None:
    assert len(found(cause(0.9, needs=(need,)))) == told


def test_the_surest_comes_first_and_of_equally_sure_ones_the_first_by_name() -> None:
    told = found(cause(0.5, name="b"), cause(0.9, name="c"), cause(0.5, name="a"))
    assert [one.cause.id for one in told] == ["c", "a", "b"]


def test_a_long_list_of_causes_helps_nobody() -> None:
    told = found(*[cause(0.2 + n / 100, name=f"c{n:02}") for n in range(12)])
    assert [one.cause.id for one in told] == [f"c{n:02}" for n in range(11, 3, -1)]


def test_a_row_of_the_result_has_the_remedy_and_what_to_try() -> None:
    (one,) = found(cause(2 / 3, remedy="do it", settings=(Setting(kind="env", name="A", value="1"),), sources=("https://x",)))
    assert one.row() == {
        "cause": "x", "confidence": 0.67, "summary": "m", "evidence": ["one error"], "against": [], "remedy": "do it",
        "settings": [{"kind": "env", "name": "A", "value": "1", "action": "add"}], "sources": ["https://x"], "unknown": [],
    }  # fmt: skip


def test_only_a_cause_that_may_name_ranks_does() -> None:
    (nobody,) = found(cause(0.9))
    assert nobody.behind is None
    (named,) = found(cause(0.9, behind="never_born"))
    assert named.behind == (1,)


def test_what_a_check_saw_before_the_start_names_the_thing_and_the_remedy() -> None:
    seen = {"id": "x", "result": "fail", "fact": "port 8000 is held by pid 7", "remedy": "another port", "price": None}
    warned = {**seen, "result": "warn", "fact": "port 8001 may be held", "remedy": "look"}
    one = Finding(cause=cause(0.5), confidence=0.5, evidence=("Address in use",))
    (told,) = beside_checks([one], [warned, seen])
    assert told.evidence == ("before the start: port 8000 is held by pid 7", "before the start: port 8001 may be held", "Address in use")
    assert told.confidence == pytest.approx(0.8)
    assert told.row()["remedy"] == "another port"
    (told,) = beside_checks([one], [warned])
    assert (told.confidence, told.row()["remedy"]) == (0.5, "look")
    assert beside_checks([one], [{**seen, "id": "another"}]) == (one,)


def test_a_check_alone_is_no_cause_since_the_start_may_have_ended_for_another_reason() -> None:
    assert beside_checks([], [{"id": "x", "result": "fail", "fact": "held", "remedy": "r", "price": None}]) == ()
