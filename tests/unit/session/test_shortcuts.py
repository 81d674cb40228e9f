"""Cheaper variants of a command: which a model and a command allow, what they change, what they save."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from firsttoken.isolate.edit import edited
from firsttoken.isolate.settings import Wishes
from firsttoken.knowledge.load import profiles
from firsttoken.model.plan import Sizes
from firsttoken.session.isolating.command import read
from firsttoken.session.isolating.shortcuts import Shortcut, few_layers, shortcuts_of


@pytest.mark.parametrize(
    ("config", "least", "kept"),
    [
        ({"num_hidden_layers": 64}, 1, 4),
        ({"num_hidden_layers": 64}, 8, 8),
        ({"num_hidden_layers": 8}, 1, 4),
        ({"num_hidden_layers": 7}, 1, None),
        ({"num_hidden_layers": 61, "first_k_dense_replace": 3}, 1, 4),
        ({"num_hidden_layers": 61, "first_k_dense_replace": 6}, 1, 7),
        ({"num_hidden_layers": 48, "full_attention_interval": 8}, 1, 8),
        ({"num_hidden_layers": 12, "layer_types": ["a", "a", "a", "a", "a", "b"] * 2}, 1, 6),
        ({"num_hidden_layers": 10, "layer_types": ["a"] * 9 + ["b"]}, 1, None),
        ({"num_hidden_layers": 52, "hybrid_override_pattern": "M-M*"}, 1, None),
        ({"num_hidden_layers": "many"}, 1, None),
        ({}, 1, None),
    ],
)
def test_of_the_layers_the_first_few_are_left_and_one_of_each_kind(config: dict[str, Any], least: int, kept: int | None) -> None:
    found = few_layers(config, least)
    assert (found[0] if found is not None else None) == ({"num_hidden_layers": kept} if kept else None)
    assert found is None or found[1] == pytest.approx(kept / config["num_hidden_layers"])


def test_a_language_model_inside_another_is_overridden_where_it_stands() -> None:
    config = {"thinker_config": {"text_config": {"num_hidden_layers": 40}}, "vision_config": {"num_hidden_layers": 32}}
    found = few_layers(config)
    assert found is not None
    assert found[0] == {"thinker_config": {"text_config": {"num_hidden_layers": 4}}}


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")])
def test_the_boldest_comes_first_and_what_the_command_cannot_do_is_left_out(engine: str, flag: str) -> None:
    rules = profiles()[engine].shortcuts
    bold, few, dummy = shortcuts_of(rules, {"num_hidden_layers": 64}, Sizes(tp=8, world=8, ranks_here=8))
    assert bold.add == ("--load-format", "dummy", "--tensor-parallel-size", "2", flag, '{"num_hidden_layers": 4}')
    assert few.add == ("--load-format", "dummy", flag, '{"num_hidden_layers": 4}')
    assert dummy.add == ("--load-format", "dummy")
    assert shortcuts_of(rules, {"num_hidden_layers": 64}, Sizes(tp=2, world=2, ranks_here=2)) == (few, dummy)
    assert shortcuts_of(rules, None, Sizes(tp=8, world=8, ranks_here=8)) == (dummy,)
    took = {"weights": 100.0, "graph_capture": 160.0}
    assert (dummy.saves(took), few.saves(took)) == (100.0, 250.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"rope_theta": 5, "num_hidden_layers": 40}', {"rope_theta": 5, "num_hidden_layers": 4}),
        ("not json", {"num_hidden_layers": 4}),
        ("[1]", {"num_hidden_layers": 4}),
    ],
)
def test_json_of_the_user_stays_under_that_of_a_shortcut(tmp_path: Path, given: str, expected: dict[str, int]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 64, "architectures": ["LlamaForCausalLM"]}))
    found = read(("vllm", "serve", str(tmp_path), "-tp", "8", "--hf-overrides", given, "--seed", "1"), Wishes(), gpus=False)
    bold = found.shortcuts[0]
    argv = edited(found.command, (), bold.add)
    assert argv[:5] == ("vllm", "serve", str(tmp_path), "--seed", "1")
    assert argv.count("--hf-overrides") == argv.count("-tp") == 1
    assert argv[argv.index("-tp") + 1] == "2"
    assert json.loads(argv[argv.index("--hf-overrides") + 1]) == expected
    without = [one for one in found.settings if "hf-overrides" in one.label]
    assert json.loads(edited(found.command, without, bold.add)[-1]) == {"num_hidden_layers": 4}, "what the trial removed stays away"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--hf-overrides.a", "1", "--hf-overrides.b.c=x"), {"a": 1, "b": {"c": "x"}}),
        (("--hf-overrides", '{"a": 1, "b": 1}', "--hf-overrides.a", "2"), {"a": 2, "b": 1}),
        (('--hf-overrides={"a": 1, "b": 1}', "--hf_overrides", '{"a": 2}'), {"a": 2}),
    ],
)
def test_however_the_user_writes_the_json_of_a_flag_it_counts_as_for_the_engine(words: tuple[str, ...], expected: dict[str, Any]) -> None:
    found = read(("vllm", "serve", "m", *words), Wishes(), gpus=False)
    argv = edited(found.command, (), Shortcut(name="x", add=("--hf-overrides", '{"num_hidden_layers": 4}')).add)
    assert argv[:-1] == ("vllm", "serve", "m", "--hf-overrides")
    assert json.loads(argv[-1]) == {**expected, "num_hidden_layers": 4}


@pytest.mark.timeout(20)
def test_a_config_that_is_no_file_of_json_is_none(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    os.mkfifo(config)
    assert len(read(("vllm", "serve", str(tmp_path), "-tp", "8"), Wishes(), gpus=False).shortcuts) == 1
    for text in (b"\xff\x00", b"[1, 2]", b"[" * 100_000, b'{"num_hidden_layers": ' + b"9" * 5000 + b"}"):
        config.unlink()
        config.write_bytes(text)
        assert len(read(("vllm", "serve", str(tmp_path), "-tp", "8"), Wishes(), gpus=False).shortcuts) == 1


def test_nested_parts_of_both_are_kept(tmp_path: Path) -> None:
    found = read(("vllm", "serve", "m", "--hf-overrides", '{"text_config": {"a": 1}, "b": 2}'), Wishes(), gpus=False)
    word = edited(found.command, (), Shortcut(name="x", add=("--hf-overrides", '{"text_config": {"c": 3}}')).add)[-1]
    assert json.loads(word) == {"text_config": {"a": 1, "c": 3}, "b": 2}
