"""Conditions: yes, no, or unknown for want of something."""

from attached_facts import facts, process, stack

from firsttoken.explain.findings import findings
from firsttoken.explain.rules import Matcher
from firsttoken.knowledge.causes import Cause, Condition, Weighed, parse
from firsttoken.model.attached import Attached
from firsttoken.model.words import Phase, Verdict

NO_LOG = Attached(processes=(process(31),))


def ask(condition: Condition, attached: Attached | None = None, verdict: Verdict = Verdict.HUNG) -> bool | None:
    return Matcher(facts(attached or Attached(log=b"one error\n")), verdict).answer(condition).holds


def test_a_search_is_yes_no_or_unknown() -> None:
    assert ask(Condition(log="error")) is True
    assert ask(Condition(log="warning")) is False
    assert ask(Condition(log="error"), NO_LOG) is None
    assert ask(Condition(stack="all_reduce")) is None


def test_a_setting_that_was_not_given_is_no() -> None:
    assert ask(Condition(environment="(?m)^NAME=1")) is False
    assert ask(Condition(environment="(?m)^NAME=1"), Attached(env={"NAME": "1"})) is True
    assert ask(Condition(environment="(?m)^NAME=1"), Attached(argv=("docker", "-e", "NAME=1"))) is True


def test_a_fact_that_is_not_known_is_unknown() -> None:
    answer = Matcher(facts(), Verdict.HUNG).answer(Condition(fact="compilers_busy"))
    assert answer.holds is None
    assert answer.missing == ("compilers_busy",)


def test_joins_carry_the_unknown_through() -> None:
    yes, no, unknown = Condition(log="error"), Condition(log="warning"), Condition(stack="x")
    assert ask(Condition(all=(yes, unknown))) is None
    assert ask(Condition(all=(no, unknown))) is False
    assert ask(Condition(any=(yes, unknown))) is True
    assert ask(Condition(any=(no, unknown))) is None
    assert ask(Condition(none=(unknown,))) is True
    assert ask(Condition(none=(yes,))) is False
    assert ask(Condition(count=2, of=(yes, yes, no))) is True
    assert ask(Condition(count=2, of=(yes, unknown))) is None
    assert ask(Condition(count=2, of=(yes, no))) is False


def test_values_are_compared() -> None:
    assert ask(Condition(fact="world", at_least=2)) is True
    assert ask(Condition(fact="world", at_most=1)) is False
    assert ask(Condition(fact="phase", matches="graph")) is True
    assert ask(Condition(fact="engine", equals="other")) is False
    assert ask(Condition(fact="verdict", equals="hung")) is True


def test_a_condition_may_hold_in_some_phases_only() -> None:
    assert ask(Condition(log="error", phases=(Phase.WEIGHTS,))) is False
    assert ask(Condition(log="error", phases=(Phase.GRAPH_CAPTURE,))) is True


def test_what_speaks_for_and_against_is_weighed() -> None:
    cause = Cause(
        id="x",
        meaning="m",
        speaks=(Weighed(weight=0.5, when=Condition(log="error")), Weighed(weight=0.5, when=Condition(log="one"))),
        against=(Weighed(weight=0.5, when=Condition(fact="world", at_least=2)),),
    )
    (found,) = findings(facts(Attached(log=b"one error\n")), (cause,), Verdict.HUNG)
    assert found.confidence == 0.375
    assert found.evidence == ("one error",)
    assert found.against == ("world: 2.0",)


def test_what_was_not_attached_is_asked_for() -> None:
    cause = Cause(
        id="x", meaning="m", speaks=(Weighed(weight=0.5, when=Condition(log="error")), Weighed(weight=0.4, when=Condition(stack="y")))
    )
    (found,) = findings(facts(Attached(log=b"error\n")), (cause,), Verdict.HUNG)
    assert found.unknown == ("stacks",)


def test_a_need_that_does_not_hold_leaves_the_cause_out() -> None:
    cause = Cause(
        id="x", meaning="m", needs=(Condition(fact="nodes", at_least=2),), speaks=(Weighed(weight=0.9, when=Condition(log="error")),)
    )
    assert findings(facts(Attached(log=b"error\n")), (cause,), Verdict.HUNG) == ()


def test_secrets_in_evidence_are_masked() -> None:
    cause = Cause(id="x", meaning="m", speaks=(Weighed(weight=0.9, when=Condition(log="error")),))
    (found,) = findings(facts(Attached(log=b"error: HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz123456\n")), (cause,), Verdict.HUNG)
    assert "abcdefghijkl" not in found.evidence[0]


def test_the_short_form_of_the_file_is_read() -> None:
    (cause,) = parse(b'schema = 1\n[[cause]]\nid = "a"\nmeaning = "b"\n[[cause.for]]\nweight = 0.5\nlog = "x"\nsays = "y"\n', "x.toml")
    assert cause.speaks == (Weighed(weight=0.5, when=Condition(log="x"), says="y"),)


def test_frames_are_searched_with_their_files() -> None:
    assert ask(Condition(stack=r"all_reduce \(engine/x\.py"), Attached(log=b"", stacks=(stack(1, "all_reduce"),))) is True
