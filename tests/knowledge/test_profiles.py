"""One suite over all engine profiles: what a data file promises, it keeps."""

import re
import time
from collections.abc import Iterator

import pytest

from firsttoken.knowledge.load import generic, profiles
from firsttoken.knowledge.profile import Chatter, ErrorLine, Fact, Milestone, Profile, Title, compiled
from firsttoken.model.plan import Routes
from firsttoken.model.words import Edge, Phase
from firsttoken.observe.log_anchors import anchor
from firsttoken.observe.log_lines import strip_ansi
from firsttoken.observe.log_prefixes import Peeler
from firsttoken.observe.log_rules import RuleBook, rules_of

ALL = [generic(), *profiles().values()]
ENGINES = list(profiles().values())
FIELDS = {
    *("host", "port", "unix_socket", "tls", "root_path", "model", "served_model", "api_key", "config_file"),
    *("tp", "pp", "pcp", "dp", "dp_local", "dp_rank", "dp_start_rank", "dp_attention", "attention_dp", "ep", "expert_parallel"),
    *("nodes", "node_rank", "master_addr", "headless", "api_servers", "executor", "disaggregation", "kv_transfer"),
    *("download_dir", "load_format", "speculative", "speculative_method", "draft_model", "eager", "graphs", "shards"),
    *("metrics", "skip_warmup", "log_level", "attention_backend"),
    *("revision", "tokenizer", "skip_tokenizer", "dtype", "quantisation", "kv_dtype", "context", "gpu_share", "kv_bytes", "kv_space_gib"),
    *("cache_tokens", "max_sequences", "offload_gib", "device", "master_port", "nccl_port", "redundant_experts", "host_address"),
}


def lines(profile: Profile) -> Iterator[Milestone | Fact | ErrorLine | Chatter]:
    yield from (*profile.milestones, *profile.facts, *profile.errors, *profile.chatter)


def patterns(profile: Profile) -> Iterator[str]:
    yield from (item.pattern for item in lines(profile))
    yield from profile.prefix.patterns
    yield from (title.pattern for title in profile.titles)
    yield from (*profile.recognise.lines, *profile.recognise.titles, *profile.recognise.scripts)
    yield from (rule.when.matches for rule in (*profile.roles, *profile.tasks) if rule.when.matches)


def message(profile: Profile, sample: str) -> str:
    peeler = Peeler(generic(), None if profile is generic() else profile, 2026)
    return peeler.peel(strip_ansi(sample.encode()).decode()).message


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_every_pattern_compiles(profile: Profile) -> None:
    for pattern in patterns(profile):
        compiled(pattern)


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_every_line_pattern_carries_samples_that_it_matches(profile: Profile) -> None:
    for item in lines(profile):
        assert item.samples, f"{item.id} has no sample"
        for sample in item.samples:
            assert compiled(item.pattern).search(message(profile, sample)), f"{item.id} does not match {message(profile, sample)!r}"


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_every_sample_is_found_through_the_index_too(profile: Profile) -> None:
    book = RuleBook(rules_of(profile, 0))
    for item in lines(profile):
        for sample in item.samples:
            found = {rule.item for rule in book.candidates(strip_ansi(sample.encode()))}
            assert item in found, f"{item.id}: {anchor(item.pattern)} misses {sample!r}"


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_every_line_pattern_holds_a_word_or_a_part_that_lines_must_have(profile: Profile) -> None:
    for pattern in (*(item.pattern for item in lines(profile)), *profile.recognise.lines):
        found = anchor(pattern)
        assert found.words or found.parts, f"{pattern!r} would be tried on every new line"


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_no_pattern_takes_long_on_a_long_line(profile: Profile) -> None:
    hostile = [
        "a" * 8000,
        " " * 8000,
        "9" * 8000,
        "a9 " * 2600,
        "[" * 8000,
        "(a" * 4000,
        "a." * 4000,
        "_a" * 4000,
        "█ " * 4000,
        "%| " * 2600,
    ]
    for pattern in patterns(profile):
        stems = [re.sub(r"\\(.)", r"\1", re.split(r"[\[(?*+.{|]", pattern.lstrip("^"))[0])]
        for text in (*hostile, *(stem + tail for stem in stems for tail in hostile)):
            began = time.thread_time()
            compiled(pattern).search(text[:8192])
            assert time.thread_time() - began < 0.2, f"{pattern!r} on {text[:30]!r}…"


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_ids_are_unique_but_for_versions_of_one_milestone(profile: Profile) -> None:
    for kind in (profile.facts, profile.errors, profile.chatter):
        ids = [item.id for item in kind]
        assert len(ids) == len(set(ids))
    keys = [(m.id, m.since, m.until, m.file) for m in profile.milestones]
    assert len(keys) == len(set(keys))
    for milestone in profile.milestones:
        same = [m for m in profile.milestones if m.id == milestone.id]
        assert len({(m.phase, m.edge, m.ready) for m in same}) == 1, f"{milestone.id} means two things"


@pytest.mark.parametrize("profile", ALL, ids=lambda p: p.name)
def test_a_milestone_waits_only_for_one_that_there_is(profile: Profile) -> None:
    ids = {milestone.id for milestone in profile.milestones}
    assert {milestone.after for milestone in profile.milestones if milestone.after} <= ids


@pytest.mark.parametrize("profile", ENGINES, ids=lambda p: p.name)
def test_flags_and_fields_are_unique_and_known(profile: Profile) -> None:
    flags = [flag.replace("_", "-") if profile.dashes else flag for option in profile.options for flag in option.flags]
    assert len(flags) == len(set(flags))
    fields = [option.field for option in profile.options]
    assert len(fields) == len(set(fields))
    assert set(fields) <= FIELDS, set(fields) - FIELDS
    assert {"host", "port"} <= set(fields)
    for option in profile.options:
        assert option.flags or option.env or option.position is not None or option.default is not None
        assert all(flag.startswith("-") for flag in option.flags)
        kinds = {"int": int, "bool": bool, "str": str}
        if option.default is not None and option.type in kinds:
            assert type(option.default) is kinds[option.type], option.field


@pytest.mark.parametrize("profile", ENGINES, ids=lambda p: p.name)
def test_conditions_name_options_that_there_are(profile: Profile) -> None:
    conditions = [rule.when for rule in (*profile.roles, *profile.tasks)] + [when for timer in profile.timers for when in timer.when]
    for when in conditions:
        assert when.field is None or profile.option(when.field) is not None, when
        assert any((when.flag, when.field, when.env, when.module, when.program)), when


@pytest.mark.parametrize("profile", ENGINES, ids=lambda p: p.name)
def test_order_and_phases_belong_together(profile: Profile) -> None:
    assert len(profile.order) == len(set(profile.order))
    assert profile.order[0] is Phase.PROCESS_START
    assert profile.order[-1] is Phase.FIRST_TOKEN
    used = {m.phase for m in profile.milestones} | set(profile.budgets) | {phase for timer in profile.timers for phase in timer.phases}
    assert used <= set(profile.order)
    assert set(profile.ended_by_line) == {m.phase for m in profile.milestones if m.edge is Edge.END}
    assert all(seconds > 0 for seconds in profile.budgets.values())
    assert set(profile.budgets) == set(profile.order)


@pytest.mark.parametrize("profile", ENGINES, ids=lambda p: p.name)
def test_an_engine_is_recognised_says_ready_and_has_routes(profile: Profile) -> None:
    recognise = profile.recognise
    assert recognise.programs or recognise.modules
    assert recognise.titles or not profile.checked
    assert recognise.lines
    assert any(milestone.ready for milestone in profile.milestones)
    assert profile.routes != Routes()
    assert (profile.native is not None) == (profile.routes.native is not None)
    assert profile.sources
    assert profile.checked or any("not run" in source for source in profile.sources)


@pytest.mark.parametrize("profile", ENGINES, ids=lambda p: p.name)
def test_titles_match_their_samples_and_no_other_engine_claims_them(profile: Profile) -> None:
    for title in profile.titles:
        assert title.samples
        for sample in title.samples:
            assert compiled(title.pattern).search(sample), sample
            others = [p.name for p in ENGINES if p is not profile and any(compiled(t).search(sample) for t in p.recognise.titles)]
            assert not others


def test_titles_tell_ranks() -> None:
    vllm, sglang = profiles()["vllm"], profiles()["sglang"]
    assert told(vllm.titles, "VLLM::Worker_DP1_PP0_TP3_EP7") == {"name": "Worker", "dp": "1", "pp": "0", "tp": "3", "ep": "7"}
    assert told(vllm.titles, "VLLM::EngineCore_DP1") == {"name": "EngineCore", "dp": "1"}
    assert told(vllm.titles, "VLLM::APIServer_3") == {"name": "APIServer"}
    assert told(sglang.titles, "sglang::scheduler_PP1_ATTN_CP0_MOE_DP1_TP3") == {"name": "scheduler", "pp": "1", "tp": "3"}
    assert told(sglang.titles, "sglang::scheduler_DP1_TP5_EP5") == {"name": "scheduler", "dp": "1", "tp": "5", "ep": "5"}


def told(titles: tuple[Title, ...], text: str) -> dict[str, str]:
    match = next(match for title in titles if (match := compiled(title.pattern).search(text)))
    return {name: value for name, value in match.groupdict().items() if value is not None}
