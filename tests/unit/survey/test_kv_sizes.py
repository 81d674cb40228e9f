"""KV sizes of known models, from configs written after their public cards, against figures that others published or measured.

Sources of the figures:
A  llama.cpp's own allocation at 2,048 tokens of f16: https://huggingface.co/dranger003/c4ai-command-r-v01-iMat.GGUF/discussions/6
B  SGLang's log at TP 4, `#tokens: 367404, K size: 8.23 GB, V size: 8.23 GB`: https://github.com/vllm-project/vllm/issues/21348
C  vLLM's log at TP 4, `8.11 GiB`, `178,880 tokens`: the same issue
D  S. Raschka, LLM Architecture Gallery, KV cache per token in bf16: https://sebastianraschka.com/llm-architecture-gallery/
E  Insights into DeepSeek-V3 (arXiv 2505.09343), table 1: 70.272 KB, 327.680 KB and 516.096 KB a token. Seen at second hand: a summary
   that quotes 516 KB and 70 KB, and calculators that say 68.6 KiB
F  Jamba (arXiv 2403.19887), table 1: at 256K tokens of 16 bit, Llama-2 128 GB, Mistral 32 GB, Mixtral 32 GB, Jamba 4 GB. Seen at second
   hand: summaries that quote Jamba's 4 GB, an eighth of what attention alone would take
G  Kwon et al., PagedAttention (arXiv 2309.06180): 800 KB a token of OPT-13B. Not looked up again
"""

from typing import Any

import pytest

from firsttoken.survey.kv_cache import KvSize, kv_size
from firsttoken.survey.model_config import ModelShape, read_shape

MIB, GIB, K256 = 1 << 20, 1 << 30, 256 * 1024


def gqa(layers: int, hidden: int, heads: int, kv_heads: int | None = None, **more: Any) -> dict[str, Any]:
    config = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "torch_dtype": "bfloat16", **more}
    return config if kv_heads is None else {**config, "num_key_value_heads": kv_heads}


MIXTRAL = gqa(32, 4096, 32, 8, num_local_experts=8)
LLAMA_3_8B = gqa(32, 4096, 32, 8)
DEEPSEEK_V3 = gqa(61, 7168, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536)
QWEN3_235B = gqa(94, 4096, 64, 4, head_dim=128)
JAMBA = gqa(32, 4096, 32, 8, model_type="jamba", attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2)
OPT_13B = {"model_type": "opt", "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "torch_dtype": "float16"}
GPT2_XL = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25}

PUBLISHED = {
    "Mixtral-8x7B (A)": (MIXTRAL, 1, 2048, 256 * MIB),
    "Llama-3-8B (A)": (LLAMA_3_8B, 1, 2048, 256 * MIB),
    "Llama-3-70B (A)": (gqa(80, 8192, 64, 8), 1, 2048, 640 * MIB),
    "Qwen1.5-32B (A)": (gqa(64, 5120, 40, 8), 1, 2048, 512 * MIB),
    "Yi-1.5-34B (A)": (gqa(60, 7168, 56, 8), 1, 2048, 480 * MIB),
    "Command R (A)": (gqa(40, 8192, 64, 64), 1, 2048, 2560 * MIB),
    "Qwen3-235B, TP 4 (B)": (QWEN3_235B, 4, 367_404, 2 * 8.23 * GIB),
    "Qwen3-235B, TP 4 (C)": (QWEN3_235B, 4, 178_880, 8.11 * GIB),
    "GPT-2 XL (D)": (GPT2_XL, 1, 1, 300 * 1024),
    "OLMo 2 7B (D)": (gqa(32, 4096, 32, 32), 1, 1, 512 * 1024),
    "Llama 3.2 1B (D)": (gqa(16, 2048, 32, 8, head_dim=64), 1, 1, 32 * 1024),
    "DeepSeek-V3 (D)": (DEEPSEEK_V3, 1, 1, 68.6 * 1024),
    "DeepSeek-V3, TP 8 (E)": (DEEPSEEK_V3, 8, 1, 70_272),
    "Qwen2.5-72B (E)": (gqa(80, 8192, 64, 8), 1, 1, 327_680),
    "Llama-3.1-405B (E)": (gqa(126, 16384, 128, 8), 1, 1, 516_096),
    "Llama-2-7B (F)": (gqa(32, 4096, 32), 1, K256, 128 * GIB),
    "Mistral-7B v0.2 (F)": (gqa(32, 4096, 32, 8, sliding_window=None), 1, K256, 32 * GIB),
    "Mixtral-8x7B (F)": (MIXTRAL, 1, K256, 32 * GIB),
    "Jamba (F)": (JAMBA, 1, K256, 4 * GIB),
    "OPT-13B (G)": (OPT_13B, 1, 1, 800 * 1024),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_models_take_what_was_published_within_five_percent(name: str) -> None:
    config, tp, count, published = PUBLISHED[name]
    assert kv_size(read_shape(config), tp=tp).at(count) == pytest.approx(published, rel=0.05)


def size(config: dict[str, Any], **more: Any) -> KvSize:
    return kv_size(read_shape(config), **more)


@pytest.mark.parametrize(("tp", "told"), [(1, 65_536), (2, 131_072)])
def test_a_small_model_takes_what_vllm_0_32_logged_on_a_cpu(tp: int, told: int) -> None:
    """`CPU KV cache size: 65,536 tokens` in 128 MiB a rank; 131,072 on two ranks (tests/knowledge/logs)."""
    assert size(gqa(4, 256, 8, 4, head_dim=32), tp=tp).longest(128 * MIB) == told


def test_a_latent_is_whole_on_every_rank_and_heads_are_divided_or_repeated() -> None:
    assert size(DEEPSEEK_V3, tp=8).per_token == size(DEEPSEEK_V3).per_token
    assert size(LLAMA_3_8B, tp=8).per_token * 8 == size(LLAMA_3_8B).per_token
    assert size(LLAMA_3_8B, tp=16).per_token == size(LLAMA_3_8B, tp=8).per_token


def test_eight_bits_take_half_of_sixteen() -> None:
    assert size(LLAMA_3_8B, dtype="fp8_e4m3").per_token * 2 == size(LLAMA_3_8B, dtype="auto").per_token


def test_a_sliding_window_stops_growing_where_it_is_full() -> None:
    """Gemma 3 27B: five layers of a window of 1,024 tokens to one that attends to all (its card and config.json)."""
    config = gqa(62, 5376, 32, 16, head_dim=128, model_type="gemma3_text", sliding_window=1024, sliding_window_pattern=6)
    found = size({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": config})
    one = 2 * 16 * 128 * 2
    assert found.per_token == 10 * one
    assert found.at(1 << 17) == 10 * one * (1 << 17) + 52 * one * 1024
    assert size(config, whole_windows=True).per_token == 62 * one


def test_layer_types_say_which_layers_have_a_window() -> None:
    """gpt-oss-20b: every other layer has a window of 128 tokens."""
    kinds = ["sliding_attention", "full_attention"] * 12
    found = size(gqa(24, 2880, 64, 8, head_dim=64, sliding_window=128, layer_types=kinds, model_type="gpt_oss"))
    assert found.per_token == 12 * 2 * 8 * 64 * 2
    assert found.windows == ((128, 12 * 2 * 8 * 64 * 2.0),)


def test_a_window_that_is_switched_off_is_none() -> None:
    assert not size(gqa(28, 3584, 28, 4, sliding_window=131072, use_sliding_window=False, max_window_layers=28)).windows


def test_recurrent_layers_keep_a_state_of_fixed_size() -> None:
    """Qwen3-Next-80B: three of four layers are gated delta nets; 12 attend (config.json of the model)."""
    config = gqa(
        48, 2048, 16, 2, head_dim=256, model_type="qwen3_next", full_attention_interval=4, linear_num_value_heads=32,
        linear_num_key_heads=16, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
    )  # fmt: skip
    found = size(config)
    assert found.per_token == 12 * 2 * 2 * 256 * 2
    conv, state = (2 * 16 * 128 + 32 * 128) * 3 * 2, 32 * 128 * 128 * 4
    assert found.per_sequence == 36 * (conv + state)
    assert size(config, tp=2).per_sequence == found.per_sequence / 2


def test_hybrid_patterns_of_other_families_are_read() -> None:
    nemotron = gqa(4, 4096, 32, 8, head_dim=128, hybrid_override_pattern="M-M*", mamba_num_heads=64, mamba_head_dim=64, ssm_state_size=128)
    kimi = gqa(
        4, 2304, 32, 32, kv_lora_rank=512, qk_rope_head_dim=64,
        linear_attn_config={"full_attn_layers": [4], "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4},
    )  # fmt: skip
    granite = gqa(2, 4096, 32, 8, layer_types=["mamba", "attention"], mamba_n_heads=128, mamba_d_head=64, mamba_d_state=128)
    assert [bool(one.state) for one in read_shape(nemotron).caches] == [True, False, True, False]
    assert size(nemotron).per_token == 2 * 8 * 128 * 2
    assert size(kimi).per_token == 576 * 2
    assert size(kimi).per_sequence == 3 * (3 * 32 * 128 * 3 * 2 + 32 * 128 * 128 * 4)
    assert size(granite).per_token == 2 * 8 * 128 * 2
    assert size(granite).per_sequence == ((128 * 64 + 2 * 128) * 3 + 128 * 64 * 128) * 2


def test_a_pipeline_stage_keeps_its_own_layers_only() -> None:
    assert size(LLAMA_3_8B, layers=range(8)).per_token * 4 == size(LLAMA_3_8B).per_token


def test_the_longest_sequence_is_the_last_that_fits() -> None:
    found = KvSize(per_token=100, windows=((10, 50.0),), per_sequence=1000)
    assert found.longest(found.at(77)) == 77
    assert found.longest(found.at(78) - 1) == 77
    assert found.longest(10) == 0


def test_no_config_raises_whatever_it_holds() -> None:
    for odd in (
        {},
        {"num_hidden_layers": "x"},
        {"num_hidden_layers": -1, "layer_types": 3},
        {"num_hidden_layers": 10**9},
        {"text_config": {}},
    ):
        assert isinstance(read_shape(odd), ModelShape)
    twisted = {
        "num_hidden_layers": 2,
        "layer_types": [None, {}],
        "num_key_value_heads": [1, "a"],
        "quantization_config": {"quant_method": 3},
    }
    assert kv_size(read_shape(twisted)).at(10) >= 0
