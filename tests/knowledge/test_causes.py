"""All cause rules: schema, ids, samples, and that they ask only for what there is."""

import re
from collections.abc import Iterator

import pytest

from firsttoken.explain.facts import gather
from firsttoken.explain.singled import PREDICATES
from firsttoken.knowledge.causes import Cause, Condition, causes, parse
from firsttoken.knowledge.load import KnowledgeError, generic, profiles
from firsttoken.knowledge.signs import signs
from firsttoken.model.attached import Attached
from firsttoken.model.words import Verdict
from firsttoken.session.reading import fold

CAUSES = causes()
BY_ID = {cause.id: cause for cause in CAUSES}


def conditions(cause: Cause) -> Iterator[Condition]:
    def below(condition: Condition) -> Iterator[Condition]:
        yield condition
        for inner in (*condition.all, *condition.any, *condition.none, *condition.of):
            yield from below(inner)

    for top in (*cause.needs, *(item.when for item in cause.speaks), *(item.when for item in cause.against)):
        yield from below(top)


def speaking_log_patterns(cause: Cause) -> list[str]:
    """Log patterns that alone speak for the cause."""
    return [pattern for item in cause.speaks if (pattern := item.when.log or item.when.last_log) is not None]


def test_ids_are_unique_and_well_formed() -> None:
    ids = [cause.id for cause in CAUSES]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name) for name in ids)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_a_cause_says_what_it_means_what_to_do_and_where_that_stands(cause: Cause) -> None:
    assert cause.meaning
    assert cause.remedy
    assert cause.speaks
    assert cause.sources
    assert all(source.startswith("https://") for source in cause.sources)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_weights_are_shares_and_patterns_compile(cause: Cause) -> None:
    assert all(0 < item.weight < 1 for item in (*cause.speaks, *cause.against))
    for condition in conditions(cause):
        for pattern in (condition.log, condition.last_log, condition.stack, condition.process, condition.probe, condition.command):
            if pattern is not None:
                re.compile(pattern)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_a_rule_asks_only_for_what_there_is(cause: Cause) -> None:
    known = set(gather(Attached(log=b""), fold(Attached(log=b"")).reading, signs()).values) | {"verdict"}
    errors = {error.id for profile in (*profiles().values(), generic()) for error in profile.errors}
    for condition in conditions(cause):
        assert condition.fact is None or condition.fact in known, condition.fact
        assert condition.error is None or condition.error in errors, condition.error
    assert cause.behind is None or cause.behind in PREDICATES
    assert set(cause.engines) <= set(profiles())


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause.samples], ids=lambda cause: cause.id)
def test_every_sample_is_matched_by_a_pattern_of_its_own_cause(cause: Cause) -> None:
    patterns = [
        c.log or c.last_log for item in cause.speaks for c in conditions(Cause(id="x", meaning="", speaks=(item,))) if c.log or c.last_log
    ]
    for sample in cause.samples:
        assert any(re.search(pattern, sample) for pattern in patterns if pattern), sample


def test_every_pattern_that_alone_speaks_for_a_cause_has_a_cause_with_samples() -> None:
    without = [cause.id for cause in CAUSES if any(item.weight >= 0.8 and item.when.log for item in cause.speaks) and not cause.samples]
    assert without == []


def strong_log_patterns(cause: Cause) -> Iterator[str]:
    """Log patterns that make the cause sure by themselves, also as one of several."""
    for item in cause.speaks:
        if item.weight >= 0.5:
            for condition in (item.when, *item.when.any):
                yield from (pattern for pattern in (condition.log, condition.last_log) if pattern is not None)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_no_pattern_matches_a_negative_of_any_cause(cause: Cause) -> None:
    for pattern in (*speaking_log_patterns(cause), *strong_log_patterns(cause)):
        assert not [text for text in cause.negatives if re.search(pattern, text)], pattern
    for pattern in strong_log_patterns(cause):
        assert not [(other.id, text) for other in CAUSES for text in other.negatives if re.search(pattern, text)], pattern


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_every_pattern_that_decides_alone_matches_a_sample_of_its_own(cause: Cause) -> None:
    for item in cause.speaks:
        if item.weight >= 0.8 and item.when.log is not None:
            assert any(re.search(item.when.log, sample) for sample in cause.samples), item.when.log


_ALIKE = {
    frozenset(pair)
    for pair in (
        ("jit-build-failed", "jit-oom"),
        ("host-oom", "jit-oom"),
        ("pcie-p2p-broken", "watchdog-kills-slow-start"),
        ("gpu-kernel-spin", "gpu-xid"),
        ("hub-offline-or-gated", "cache-dir-not-writable"),
        ("custom-allreduce-hang", "kernel-crash-first-request"),
        ("probe-kills-slow-start", "probe-timeout-too-short"),
        ("fabric-multinode", "nccl-version-bug"),
        ("kernel-crash-first-request", "nccl-version-bug"),
        ("wrong-interface", "other-rank-died-first"),
        ("engine-args-invalid", "port-in-use"),
        ("leftover-process-vram", "gpu-oom"),
    )
}
"""causes that share a symptom: the other facts of their rules tell them apart"""


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_a_pattern_that_decides_alone_matches_no_sample_of_another_cause(cause: Cause) -> None:
    for item in cause.speaks:
        if item.weight < 0.8 or item.when.log is None:
            continue
        for other in CAUSES:
            if other.id != cause.id and frozenset((cause.id, other.id)) not in _ALIKE:
                assert not [text for text in other.samples if re.search(item.when.log, text)], other.id


def test_signs_match_their_samples() -> None:
    for sign in signs().process:
        assert all(signs().of_title(sample) == sign.sign for sample in sign.samples), sign.sign
    for frame in signs().frame:
        assert all(re.search(frame.pattern, sample) for sample in frame.samples), frame.sign


def test_a_cause_with_a_verdict_says_one_that_files_can_show() -> None:
    assert all(cause.verdict not in (Verdict.READY, Verdict.UNKNOWN) for cause in CAUSES)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"schema = 2\n", "schema"),
        (b'schema = 1\n[[cause]]\nid = "a"\nmeaning = "b"\nremdy = "c"\n', "remdy"),
        (b'schema = 1\n[[cause]]\nid = "a"\nmeaning = "b"\n[[cause.for]]\nweight = 0.5\nlogg = "x"\n', "logg"),
        (b'schema = 1\n[[cause]]\nmeaning = "b"\n', "id"),
        (b"not toml", "TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_key(text: bytes, part: str) -> None:
    with pytest.raises(KnowledgeError, match=part):
        parse(text, "x.toml")
