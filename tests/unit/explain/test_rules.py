"""Conditions: yes, no, or unknown for want of something."""

from attached_facts import error, facts, process, stack

from firsttoken.explain.findings import findings
from firsttoken.explain.rules import Matcher
from firsttoken.knowledge.causes import Cause, Condition, Weighed, parse
from firsttoken.model.attached import Attached, Probes
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


def test_a_search_of_the_end_of_the_log_takes_its_last_lines_only_and_empty_ones_do_not_count() -> None:
    log = b"error\n" + b"fine\n\n  \n" * 39
    assert ask(Condition(last_log="error"), Attached(log=log)) is True
    assert ask(Condition(last_log="error"), Attached(log=log + b"fine\n")) is False
    assert ask(Condition(log="error"), Attached(log=log + b"fine\n")) is True
    assert ask(Condition(last_log="error"), NO_LOG) is None


def test_each_kind_of_search_has_its_own_text() -> None:
    every = Attached(
        log=b"in log\n", processes=(process(31, title="in process"),), command="serve --in-command", env={"IN": "env"},
        probes=Probes(text="in probe"),
    )  # fmt: skip
    assert ask(Condition(process="^in process"), every) is True
    assert ask(Condition(process="in log"), every) is False
    assert ask(Condition(probe="in probe"), every) is True
    assert ask(Condition(probe="in process"), every) is False
    assert ask(Condition(command="--in-command"), every) is True
    assert ask(Condition(command="in log"), every) is False
    assert ask(Condition(environment="^IN=env"), every) is True
    assert ask(Condition(log="in process"), every) is False


def test_what_was_not_attached_is_unknown_and_named_and_a_command_that_was_not_given_is_no() -> None:
    def missing(condition: Condition) -> tuple[str, ...]:
        return Matcher(facts(Attached()), Verdict.HUNG).answer(condition).missing

    assert missing(Condition(log="x")) == ("log",)
    assert missing(Condition(process="x")) == ("processes",)
    assert missing(Condition(probe="x")) == ("probes",)
    assert ask(Condition(process="x"), Attached()) is None
    assert ask(Condition(command="x"), Attached()) is False


def test_a_line_of_evidence_is_the_whole_line_that_matched_and_a_long_one_is_cut() -> None:
    def evidence(log: bytes, condition: Condition | None = None) -> tuple[str, ...]:
        return Matcher(facts(Attached(log=log)), Verdict.HUNG).answer(condition or Condition(log="err")).evidence

    assert evidence(b"before\n  the error came \nafter\n") == ("the error came",)
    assert evidence(b"an error at the very end") == ("an error at the very end",)
    assert evidence(b"error at the very begin\nafter\n") == ("error at the very begin",)
    assert evidence(b"err" + b"x" * 297 + b"\n") == ("err" + "x" * 297,)
    assert evidence(b"err" + b"x" * 298 + b"\n") == ("err" + "x" * 296 + "…",)
    assert evidence(b"fine\n") == ()


def test_an_error_of_the_profile_is_told_by_its_first_line() -> None:
    told = (error("first boom", "boom"), error("second boom", "boom"), error("other", "other"))
    answer = Matcher(facts(told=told), Verdict.HUNG).answer(Condition(error="boom"))
    assert (answer.holds, answer.evidence) == (True, ("first boom",))
    assert Matcher(facts(told=told), Verdict.HUNG).answer(Condition(error="nothing")).holds is False


def test_a_condition_of_other_phases_or_verdicts_is_no_though_it_would_hold_or_is_unknown() -> None:
    assert ask(Condition(log="error", verdicts=(Verdict.READY,))) is False
    assert ask(Condition(log="error", verdicts=(Verdict.HUNG,))) is True
    assert ask(Condition(stack="x", phases=(Phase.WEIGHTS,))) is False, "elsewhere nobody need attach stacks"
    assert ask(Condition(stack="x", verdicts=(Verdict.READY,))) is False
    assert ask(Condition(stack="x", phases=(Phase.GRAPH_CAPTURE,), verdicts=(Verdict.HUNG,))) is None
    assert ask(Condition(log="warning", phases=(Phase.GRAPH_CAPTURE,))) is False


def test_bounds_of_a_value_belong_to_it() -> None:
    assert ask(Condition(fact="world", at_least=2.0)) is True
    assert ask(Condition(fact="world", at_least=2.1)) is False
    assert ask(Condition(fact="world", at_most=2.0)) is True
    assert ask(Condition(fact="world", at_most=1.9)) is False
    assert ask(Condition(fact="world", at_least=1.0, at_most=1.9)) is False
    assert ask(Condition(fact="world", at_least=2.1, at_most=9.0)) is False
    assert ask(Condition(fact="phase", at_least=0.0)) is True, "a word is no number"
    assert ask(Condition(fact="phase", at_least=1.0)) is False
    assert ask(Condition(fact="engine", equals="engine")) is True
    assert ask(Condition(fact="engine", matches="^gin")) is False


def test_a_fact_that_is_true_is_told_in_words_and_others_with_their_value() -> None:
    def evidence(condition: Condition) -> tuple[str, ...]:
        return Matcher(facts(claims_ready=True), Verdict.HUNG).answer(condition).evidence

    assert evidence(Condition(fact="claims_ready")) == ("claims ready",)
    assert evidence(Condition(fact="ranks_missing")) == ("ranks missing",)
    assert evidence(Condition(fact="recorded")) == ()
    assert evidence(Condition(fact="recorded", equals="False")) == ("not recorded",)
    assert evidence(Condition(fact="engine", equals="engine")) == ("engine: engine",)


def test_joins_tell_all_that_held_and_all_that_is_missing_once() -> None:
    yes, also, unknown = Condition(log="one"), Condition(fact="engine", equals="engine"), Condition(stack="x")
    matcher = Matcher(facts(Attached(log=b"one\n")), Verdict.HUNG)
    assert matcher.answer(Condition(all=(yes, also, yes))).evidence == ("one", "engine: engine")
    assert matcher.answer(Condition(any=(unknown, also, yes))).evidence == ("engine: engine",)
    assert matcher.answer(Condition(all=(yes, unknown, Condition(process="p"), unknown))).missing == ("stacks", "processes")
    assert matcher.answer(Condition(any=(unknown, Condition(process="p"), unknown))).missing == ("stacks", "processes")
    assert matcher.answer(Condition(count=2, of=(yes, unknown, Condition(fact="nodes", equals="9")))).missing == ("stacks",)
    assert matcher.answer(Condition(count=3, of=(yes, yes, unknown))).holds is None
    assert matcher.answer(Condition(count=3, of=(yes, also, yes))).evidence == ("one", "engine: engine")
    assert matcher.answer(Condition(count=3, of=(yes, unknown))).holds is False


def test_a_condition_that_asks_for_nothing_holds() -> None:
    assert ask(Condition()) is True
    assert ask(Condition(phases=(Phase.WEIGHTS,))) is False
