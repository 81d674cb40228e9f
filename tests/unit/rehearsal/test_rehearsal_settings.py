"""The command line, the grammar of faults and the conditions."""

from __future__ import annotations

import pytest

from firsttoken.rehearsal.condition import BadCondition, holds
from firsttoken.rehearsal.faults import BadFault, Fault, Kind, parse_fault, refusal
from firsttoken.rehearsal.phases import Phase
from firsttoken.rehearsal.settings import Settings, parse

NAMES = {"graphs": True, "attention_backend": "fast", "ranks": 8, "draft_quality": 0.15}


def test_settings_have_defaults_and_survive_the_way_to_a_rank() -> None:
    settings = parse(["--ranks", "4", "--pace", "weights=3", "--fault", "lock@compile:rank=2:after=1:for=5", "--no-graphs"], {})
    assert (settings.ranks, settings.graphs, settings.seconds(Phase.WEIGHTS), settings.port) == (4, False, 3.0, 8000)
    assert Settings.from_main(settings.for_ranks()) == settings


def test_the_key_comes_from_the_option_or_the_environment_and_never_into_the_banner() -> None:
    assert parse([], {"REHEARSE_API_KEY": "from-env"}).api_key == "from-env"
    settings = parse(["--api-key", "sesame"], {"REHEARSE_API_KEY": "from-env"})
    assert settings.api_key == "sesame"
    assert "sesame" not in f"{settings.public()}{settings!r}{settings.for_ranks()}"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--ranks", "0"], "not a whole number from 1 to"),
        (["--pace", "lunch=3"], "phases are process_start"),
        (["--draft-quality", "2"], "not between 0 and 1"),
        (["--draft-tokens", "0"], "not a whole number from 1 to 16"),
        (["--fault", "nonsense@weights"], "there is no kind 'nonsense'"),
        (["--fault", "lock@lunch"], "there is no phase 'lunch'"),
        (["--fault", "lock"], "is not KIND@PHASE"),
        (["--fault", "lock@compile:for=x"], "for must be a number"),
        (["--fault", "lock@compile:when=3"], "is none of rank=K"),
        (["--fault", "mute@weights"], "requests are answered in first_token"),
        (["--fault", "skip@compile"], "makes no sense with one rank"),
        (["--fault", "lock@compile:rank=1"], "the last rank is 0"),
        (["--fault-when", "graphs"], "there is no --fault"),
        (["--fault", "lock@compile", "--fault-when", "__import__('os')"], "does not know"),
        (["--unknown"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_is_refused_in_a_sentence_with_status_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(argv, {})
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_fault_is_read_and_written_alike() -> None:
    text = "slow@weights:rank=3:after=1.5:for=20"
    assert parse_fault(text) == Fault(kind=Kind.SLOW, phase=Phase.WEIGHTS, rank=3, after_s=1.5, for_s=20.0)
    assert str(parse_fault(text)) == text
    for bad in ("lock@compile:for=-1", "lock@compile:rank=1.5", "lock@compile:for=nan", "lock@compile:for=1:for=2"):
        with pytest.raises(BadFault):
            parse_fault(bad)


@pytest.mark.parametrize(
    ("text", "ranks", "refused"),
    [
        ("skip@graph_capture", 2, False),
        ("skip@config", 2, True),
        ("cycle@kv_cache", 1, True),
        ("kill@weights", 1, True),
        ("orphan@weights", 1, True),
        ("orphan@weights", 2, False),
        ("fifo@compile", 1, True),
        ("fifo@weights", 1, False),
        ("stall@post_load", 1, True),
        ("peer@weights", 2, True),
        ("peer@distributed_init", 2, False),
        ("spin@warmup", 1, False),
        ("lock@config", 1, False),
        ("lock@config:rank=0", 1, True),
        ("mute@first_token:rank=0", 1, True),
        ("crash@weights:for=3", 1, True),
        ("early@weights", 1, False),
        ("early@listening", 1, True),
    ],
)
def test_cells_that_make_no_sense_are_refused(text: str, ranks: int, refused: bool) -> None:
    sentence = refusal(parse_fault(text), ranks)
    assert (sentence is not None) is refused
    assert sentence is None or sentence.endswith((".", ")."))


def test_without_a_rank_some_kinds_hit_the_last_and_the_others_all() -> None:
    assert parse_fault("skip@warmup").targets(8) == {7}
    assert parse_fault("cycle@warmup").targets(8) == {6, 7}
    assert parse_fault("cycle@warmup:rank=3").targets(8) == {2, 3}
    assert parse_fault("stop@warmup").targets(3) == {0, 1, 2}
    assert parse_fault("stop@warmup:rank=1").targets(3) == {1}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('graphs and env.REHEARSE_P2P == "1" and attention_backend == "fast"', True),
        ("not graphs or env.MISSING", False),
        ("ranks >= 8 and draft_quality < 0.2", True),
        ("1 < ranks < 4", False),
        ('attention_backend != "fast"', False),
        ("chance(1) and not chance(0)", True),
        ('env.REHEARSE_P2P < "0"', False),
        ('attention_backend < 3 or "x" > ranks', False),
    ],
)
def test_conditions_are_evaluated(expression: str, expected: bool) -> None:
    assert holds(expression, NAMES, {"REHEARSE_P2P": "1"}, lambda probability: probability >= 0.5) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "open('x')",
        "graphs.real",
        "env['X']",
        "[1]",
        "lambda: 1",
        "graphs is True",
        "chance(2)",
        "chance('1')",
        "lunch",
        "(" * 900,
    ],
)
def test_anything_else_is_no_condition(expression: str) -> None:
    with pytest.raises(BadCondition):
        holds(expression, NAMES, {}, lambda _: True)


def test_a_condition_decides_about_the_faults_and_a_seed_fixes_its_dice() -> None:
    fault = ["--fault", "stop@warmup", "--fault-when"]
    assert parse([*fault, "graphs"], {}).faults
    assert not parse([*fault, "graphs", "--no-graphs"], {}).faults
    drawn = [bool(parse([*fault, "chance(0.5)", "--seed", str(seed)], {}).faults) for seed in range(40)]
    assert drawn == [bool(parse([*fault, "chance(0.5)", "--seed", str(seed)], {}).faults) for seed in range(40)]
    assert 8 < sum(drawn) < 32
