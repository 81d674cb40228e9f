"""Every fault of weights and of drafts, shown once by making it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from check_lists import asked, results
from model_folders import EAGLE3, LLAMA, eagle3_tensors, write_gguf, write_model, write_shard

from firsttoken.model.checks import Check, Outcome
from firsttoken.survey.checkpoint import Checkpoint, read_checkpoint
from firsttoken.survey.draft_checks import draft_checks
from firsttoken.survey.model_config import read_shape
from firsttoken.survey.weight_checks import division, weight_checks

PASS, WARN, FAIL = Outcome.PASS, Outcome.WARN, Outcome.FAIL


def checked(folder: Path, **wanted: Any) -> list[Check]:
    found = read_checkpoint(str(folder))
    assert found is not None
    return list(weight_checks(asked(**wanted), found, read_shape(found.config or {})))


def test_a_whole_model_passes(tmp_path: Path) -> None:
    found = results(checked(write_model(tmp_path / "m"), tp=2))
    assert found == {"weights-corrupt": PASS, "tokenizer-missing": PASS, "tp-not-divisible": PASS}


def test_truncated_and_missing_shards_and_pointers_fail_by_name(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    first, second, third = sorted(folder.glob("*.safetensors"))
    os.truncate(first, first.stat().st_size - 1)
    second.unlink()
    third.write_text("version https://git-lfs.github.com/spec/v1\noid\n")
    facts = [check.fact for check in checked(folder) if check.id == "weights-corrupt"]
    assert [fact.split(" ")[0] for fact in facts] == [path.name for path in (first, second, third)]
    assert "1 are missing" in facts[0]
    assert "not there" in facts[1]
    assert "Git LFS" in facts[2]


def test_a_shard_that_is_a_pipe_would_be_waited_for(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    shard = min(folder.glob("*.safetensors"))
    shard.unlink()
    os.mkfifo(shard)
    assert results(checked(folder))["file-never-ready"] is FAIL


def test_index_and_files_of_different_versions_fail_and_twins_warn(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    index = folder / "model.safetensors.index.json"
    told = json.loads(index.read_text())
    told["weight_map"]["model.layers.9.x"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(told))
    assert results(checked(folder))["weights-corrupt"] is FAIL
    index.unlink()
    write_shard(folder / "other.safetensors", {"model.norm.weight": ("BF16", (256,))})
    assert results(checked(folder))["weights-corrupt"] is WARN
    index.write_text("{}")
    assert results(checked(folder))["weights-corrupt"] is FAIL


def test_no_weights_no_config_and_no_tokenizer_fail(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    for name in ("config.json", "tokenizer.json"):
        (folder / name).unlink()
    found = results(checked(folder))
    assert found["model-unsupported"] is FAIL
    assert found["tokenizer-missing"] is FAIL
    assert "tokenizer-missing" not in results(checked(folder, tokenizer="elsewhere"))
    (tmp_path / "empty").mkdir()
    assert results(checked(tmp_path / "empty"))["weights-corrupt"] is FAIL


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        ({}, {"tp": 3}),
        ({"num_attention_heads": 12, "num_key_value_heads": 6}, {"tp": 4}),
        ({"intermediate_size": 510}, {"tp": 4}),
        ({"num_local_experts": 6}, {"tp": 4, "ep": 4, "engine": "sglang"}),
        ({}, {"pp": 9}),
    ],
    ids=["heads", "kv-heads", "inner", "experts", "stages"],
)
def test_sizes_that_do_not_divide_fail(change: dict[str, Any], sizes: dict[str, Any]) -> None:
    assert results(division(asked(**sizes), read_shape({**LLAMA, **change})))["tp-not-divisible"] is FAIL


def test_blocks_of_a_quantisation_that_a_rank_would_cut_fail() -> None:
    block = {**LLAMA, "intermediate_size": 768, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert results(division(asked(tp=4), read_shape(block)))["quant-shape-unsupported"] is FAIL
    assert results(division(asked(tp=2), read_shape(block)))["tp-not-divisible"] is PASS
    group = {**LLAMA, "intermediate_size": 384, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    assert results(division(asked(tp=2), read_shape(group)))["quant-shape-unsupported"] is FAIL


def test_one_latent_head_serves_any_number_of_ranks() -> None:
    latent = {**LLAMA, "num_attention_heads": 8, "num_key_value_heads": 3, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert results(division(asked(tp=8), read_shape(latent))) == {"tp-not-divisible": PASS}


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        ({"quant_method": "unheard-of"}, {}, ("model-unsupported", WARN)),
        ({"quant_method": "gptq", "bits": 4}, {"quantisation": "awq"}, ("engine-args-invalid", FAIL)),
        ({"quant_method": "gptq", "bits": 4}, {"quantisation": "gptq_marlin"}, ("model-unsupported", PASS)),
        ({"quant_method": "compressed-tensors"}, {}, ("model-unsupported", PASS)),
        (None, {"quantisation": "awq"}, ("engine-args-invalid", FAIL)),
        ({"quant_method": "awq", "bits": 4}, {"dtype": "float32"}, ("engine-args-invalid", FAIL)),
        (None, {"context": "8k"}, ("engine-args-invalid", FAIL)),
    ],
)
def test_what_the_command_says_is_held_against_the_file(
    tmp_path: Path, config: dict[str, Any] | None, values: dict[str, Any], expected: tuple[str, Outcome]
) -> None:
    folder = write_model(tmp_path / "m", {**LLAMA, **({"quantization_config": config} if config else {})})
    assert results(checked(folder, **values))[expected[0]] is expected[1]


def test_a_gguf_file_is_for_engines_that_read_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, {"token_embd.weight": (1, (8, 8), 0)}, 128)
    assert results(checked(path))["model-unsupported"] is WARN
    assert results(checked(path, engine="sglang")) == {"weights-corrupt": PASS, "model-unsupported": PASS}


def test_a_context_that_was_stretched_or_allowed_is_not_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
    assert "engine-args-invalid" not in results(checked(folder, context="8192"))
    plain = write_model(tmp_path / "n")
    assert "engine-args-invalid" not in results(checked(plain, context="8192", env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}))
    assert "engine-args-invalid" not in results(checked(plain, context="2048"))


# ---------------------------------------------------------------- drafts


def drafted(folder: Path, target: dict[str, Any] | None = None, **values: Any) -> list[Check]:
    draft = read_checkpoint(str(folder))
    assert draft is not None
    values = {"speculative_method": "eagle3", **values}
    return list(draft_checks(asked(**values), read_shape(target or LLAMA), draft, read_shape(draft.config or {})))


def head(folder: Path, config: dict[str, Any] | None = None, **tensors: Any) -> Path:
    return write_model(folder, {**EAGLE3, **(config or {})}, shards=1, tensors=eagle3_tensors(**tensors))


def test_the_right_head_passes(tmp_path: Path) -> None:
    assert results(drafted(head(tmp_path / "d"))) == {"spec-draft-mismatch": PASS}


@pytest.mark.parametrize(
    ("config", "tensors", "target", "says"),
    [
        ({"hidden_size": 128}, {}, {}, "hidden size of 128"),
        ({}, {"taps": 2}, {}, "takes 512 inputs"),
        ({"vocab_size": 1024}, {}, {}, "vocabulary of 1024"),
        ({"draft_vocab_size": 512}, {}, {}, "maps 1024 tokens"),
        ({}, {}, {"num_hidden_layers": 4}, "layers 2, 2, 1"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 4, 30]}, {}, {}, "layers 1, 4, 30"),
    ],
    ids=["width", "taps", "vocabulary", "map", "shallow", "named"],
)
def test_a_head_of_another_target_fails(
    tmp_path: Path, config: dict[str, Any], tensors: dict[str, Any], target: dict[str, Any], says: str
) -> None:
    found = [check for check in drafted(head(tmp_path / "d", config, **tensors), {**LLAMA, **target}) if check.result is FAIL]
    assert any(says in check.fact for check in found), found


def test_a_file_that_is_no_eagle3_head_fails(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "d", EAGLE3, shards=1, tensors={"d2t": ("I64", (1024,)), "fc.weight": ("BF16", (256, 768))})
    assert any("no EAGLE-3 head" in check.fact for check in drafted(folder))


def test_a_draft_of_another_vocabulary_fails_and_a_broken_one_too(tmp_path: Path) -> None:
    other = write_model(tmp_path / "d", {**LLAMA, "vocab_size": 1000}, shards=1, tensors={"lm_head.weight": ("BF16", (1000, 256))})
    assert results(drafted(other, speculative_method="draft_model"))["spec-draft-mismatch"] is FAIL
    os.truncate(next(other.glob("*.safetensors")), 100)
    assert results(drafted(other, speculative_method="draft_model"))["weights-corrupt"] is FAIL
    (other / "config.json").unlink()
    assert results(drafted(other))["spec-draft-mismatch"] is FAIL


def test_a_small_model_of_the_same_family_passes(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "d", {**LLAMA, "num_hidden_layers": 2, "hidden_size": 128})
    assert results(drafted(folder, speculative_method="draft_model")) == {"spec-draft-mismatch": PASS}


def test_nothing_raises_for_an_empty_checkpoint() -> None:
    assert list(weight_checks(asked(), Checkpoint(path="x"), read_shape({})))
