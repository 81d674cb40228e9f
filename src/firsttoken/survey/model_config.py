"""What a model's config.json says about its shape: layers and what each keeps per token, heads, experts, vocabulary, quantisation.

The names of keys differ by family, their meaning hardly: tables of names here, one reader for all. What a layer keeps is told by a
`LayerCache`: so much per token, or per token of a window, or a fixed state per sequence. Names were looked up in the `configuration_*.py`
of transformers 5.19 and the models of vLLM 0.32; state shapes are those of its `mamba_utils.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
INNER = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config")
"""where a multimodal model keeps its language model"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """Elements that one layer keeps. `head_elements`: per token and KV head (keys and values together); `latent`: per token, the same on
    every tensor parallel rank. `window`: only so many tokens are kept. `conv` and `state`: elements of a sequence's fixed state."""

    heads: int = 0
    head_elements: int = 0
    latent: int = 0
    window: int | None = None
    conv: int = 0
    state: int = 0
    index_bytes: int = 0
    """bytes per token of a sparse attention's index, whatever the cache's type"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """`method`: `quant_method` of the file. `bits` of a weight and `group` (input columns that share a scale; -1: all) where they are told.

    `block`: rows and columns of a block-quantised weight."""

    method: str
    bits: float | None = None
    group: int | None = None
    block: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What could be read; 0 or None where it could not. `kv_heads` of the layers that attend; `context`: tokens that it was made for."""

    architecture: str | None = None
    model_type: str | None = None
    layers: int = 0
    hidden: int = 0
    inner: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    vocabulary: int = 0
    experts: int = 0
    expert_inner: int = 0
    tied: bool = False
    dtype: str | None = None
    context: int | None = None
    latent: bool = False
    """multi-head latent attention"""
    caches: tuple[LayerCache, ...] = ()
    state_dtype: str | None = None
    quantisation: Quantisation | None = None
    next_layers: int = 0
    """layers for multi-token prediction, which lie behind the others"""
    raw: Config = field(default_factory=dict)


def read_shape(config: Config) -> ModelShape:
    """Never raises, whatever the file holds."""
    text = inner_config(config)
    layers = _int(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
    heads = _int(text, "num_attention_heads", "n_head", "n_heads", "num_heads")
    hidden = _int(text, "hidden_size", "n_embd", "d_model", "model_dim")
    head_size = _int(text, "head_dim", "kv_channels", "attention_head_dim") or (hidden // heads if heads else 0)
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    return ModelShape(
        architecture=_first(config.get("architectures")) or _first(text.get("architectures")),
        model_type=_text(config, "model_type"),
        layers=layers,
        hidden=hidden,
        inner=_int(text, "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_size=head_size,
        vocabulary=_int(text, "vocab_size", "padded_vocab_size") or _int(config, "vocab_size"),
        experts=_int(text, "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
        expert_inner=_int(text, "moe_intermediate_size", "expert_ffn_hidden_size") or _int(text, "intermediate_size"),
        tied=tied is True or (tied is None and _tied_by_default(text)),
        dtype=_dtype(text) or _dtype(config),
        context=_int(text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length") or None,
        latent=_int(text, "kv_lora_rank") > 0,
        caches=_caches(text, layers, heads, head_size),
        state_dtype=_text(text, "mamba_ssm_dtype") or ("float32" if _has_matrix_state(text) else None),
        quantisation=_quantisation(config) or _quantisation(text),
        next_layers=_int(text, "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
        raw=config,
    )


def inner_config(config: Config) -> Config:
    """The language model's own part."""
    for _ in range(3):
        inner = next((config[key] for key in INNER if isinstance(config.get(key), Mapping)), None)
        if inner is None or not inner:
            return config
        config = inner
    return config


# ---------------------------------------------------------------- what each layer keeps


def _caches(text: Config, layers: int, heads: int, head_size: int) -> tuple[LayerCache, ...]:
    if not 0 < layers <= 10_000:
        return ()
    shared = _int(text, "num_kv_shared_layers")
    kinds = _kinds(text, layers)
    return tuple(
        LayerCache() if index >= layers - shared > 0 else _cache(text, kind, index, heads, head_size) for index, kind in enumerate(kinds)
    )


_STATEFUL = ("mamba", "mamba2", "linear_attention", "recurrent", "conv", "kda", "linear", "lightning", "gated_deltanet")


def _kinds(text: Config, layers: int) -> list[str]:
    """Of each layer: full, window, chunk, state, both or none."""
    listed = text.get("layer_types") or text.get("layers_block_type") or text.get("block_types") or text.get("hybrid_layer_types")
    if isinstance(listed, Sequence) and not isinstance(listed, str) and listed:
        names = [str(listed[index % len(listed)]).lower() for index in range(layers)]
        return [_kind_of(name) for name in names]
    if isinstance(pattern := text.get("hybrid_override_pattern"), str) and pattern:
        return [{"*": "full", "M": "state"}.get(mark, "none") for mark in pattern.ljust(layers, "-")[:layers]]
    if isinstance(kinds := text.get("attn_type_list"), Sequence) and kinds:
        return ["full" if kind in (1, "1") else "state" for kind in list(kinds)[:layers]]
    if isinstance(linear := text.get("linear_attn_config"), Mapping) and isinstance(linear.get("full_attn_layers"), Sequence):
        full = {number for number in linear["full_attn_layers"] if isinstance(number, int)}
        return ["full" if index + 1 in full else "state" for index in range(layers)]
    if isinstance(attending := text.get("attn_layer_indices") or text.get("full_attn_idxs"), Sequence):
        return ["full" if index in attending else "state" for index in range(layers)]
    if (period := _int(text, "attn_layer_period")) > 0:
        offset = _int(text, "attn_layer_offset")
        return ["full" if index % period == offset else "state" for index in range(layers)]
    if (interval := _int(text, "full_attention_interval")) > 0 and _int(text, "linear_num_value_heads"):
        return ["full" if (index + 1) % interval == 0 else "state" for index in range(layers)]
    if _text(text, "model_type") == "falcon_h1":
        return ["both"] * layers
    if _int(text, "state_size", "mamba_d_state", "d_state") and not _int(text, "num_attention_heads", "n_head"):
        return ["state"] * layers
    if _int(text, "sliding_window", "window_size") and text.get("use_sliding_window") is not False:
        return _windowed(text, layers)
    if isinstance(no_rope := text.get("no_rope_layers"), Sequence) and _int(text, "attention_chunk_size"):
        return ["chunk" if index < len(no_rope) and no_rope[index] else "full" for index in range(layers)]
    return ["full"] * layers


def _kind_of(name: str) -> str:
    if "sliding" in name or name == "local":
        return "window"
    if "chunk" in name:
        return "chunk"
    if name == "hybrid":
        return "both"
    if "full" in name or name in ("attention", "global", "global_attention") or name.startswith("attention"):
        return "full"
    return "state" if name.startswith(_STATEFUL) else "none" if name in ("mlp", "moe", "ffn") else "full"


def _windowed(text: Config, layers: int) -> list[str]:
    """`sliding_window_pattern` N: each Nth layer attends fully; `max_window_layers`: the first so many do."""
    pattern = _int(text, "sliding_window_pattern", "_sliding_window_pattern")
    if pattern > 1:
        return ["full" if (index + 1) % pattern == 0 else "window" for index in range(layers)]
    model = _text(text, "model_type")
    if model == "gemma2":
        return ["window" if index % 2 == 0 else "full" for index in range(layers)]
    if text.get("use_sliding_window") is True and "max_window_layers" in text:
        first = _int(text, "max_window_layers")
        return ["full" if index < first else "window" for index in range(layers)]
    return ["window"] * layers


def _cache(text: Config, kind: str, index: int, heads: int, head_size: int) -> LayerCache:
    if kind == "none":
        return LayerCache()
    if kind == "state":
        conv, state = _state(text, heads)
        return LayerCache(conv=conv, state=state)
    window = None
    if kind == "window":
        window = _int(text, "sliding_window", "window_size", "sliding_window_size") or None
    elif kind == "chunk":
        window = _int(text, "attention_chunk_size") or None
    if rank := _int(text, "kv_lora_rank"):
        sparse = _int(text, "index_head_dim")
        # the index keeps a byte an element and a scale of 4 bytes for each 128 of them
        return LayerCache(
            latent=rank + _int(text, "qk_rope_head_dim"), window=window, index_bytes=sparse + -(-sparse // 128) * 4 if sparse else 0
        )
    key = _int(text, "global_head_dim") if kind == "full" and _int(text, "global_head_dim") else head_size
    value = _int(text, "v_head_dim") or key
    counted = _at(text, "num_key_value_heads", index) or _kv_heads(text, heads)
    if kind == "full" and _int(text, "num_global_key_value_heads"):
        counted = _int(text, "num_global_key_value_heads")
    conv, state = _state(text, heads) if kind == "both" else (0, 0)
    return LayerCache(heads=counted, head_elements=key + value, window=window, conv=conv, state=state)


def _state(text: Config, heads: int) -> tuple[int, int]:
    """Elements of a sequence's state in one recurrent layer: of its convolution and of its recurrence."""
    if value_heads := _int(text, "linear_num_value_heads"):  # gated delta rule
        key_size, value_size = _int(text, "linear_key_head_dim"), _int(text, "linear_value_head_dim")
        width = 2 * _int(text, "linear_num_key_heads") * key_size + value_heads * value_size
        return width * max(0, _int(text, "linear_conv_kernel_dim") - 1), value_heads * key_size * value_size
    if isinstance(linear := text.get("linear_attn_config"), Mapping):  # Kimi delta attention
        count, size = _int(linear, "num_heads"), _int(linear, "head_dim")
        return 3 * count * size * max(0, _int(linear, "short_conv_kernel_size") - 1), count * size * size
    if "attn_type_list" in text:  # lightning attention
        size = _int(text, "head_dim")
        return 0, heads * size * size
    if length := _int(text, "conv_L_cache"):  # a short convolution alone
        return (_int(text, "conv_dim") or _int(text, "hidden_size")) * (length - 1), 0
    hidden = _int(text, "hidden_size", "d_model")
    expand = text.get("mamba_expand", text.get("expand", 2))
    size = _int(text, "mamba_d_state", "state_size", "ssm_state_size", "d_state") or 16
    kernel = max(0, (_int(text, "mamba_d_conv", "conv_kernel", "d_conv") or 4) - 1)
    count = _int(text, "mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    head = _int(text, "mamba_d_head", "mamba_head_dim", "mamba_headdim")
    width = _int(text, "mamba_d_ssm") or (count * head) or int(hidden * (expand if isinstance(expand, int | float) else 2))
    if count:  # the second form of Mamba keeps B and C in its convolution too
        groups = _int(text, "mamba_n_groups", "n_groups", "mamba_ngroups") or 1
        return (width + 2 * groups * size) * kernel, width * size
    return width * kernel, width * size


def _has_matrix_state(text: Config) -> bool:
    return "linear_attn_config" in text or "attn_type_list" in text or "linear_num_value_heads" in text


# ---------------------------------------------------------------- the rest


def _kv_heads(text: Config, heads: int) -> int:
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups", "n_kv_heads")
    return _int(text, *names) or heads


def _quantisation(config: Config) -> Quantisation | None:
    found = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(found, Mapping):
        return None
    method = _text(found, "quant_method") or _text(found, "quant_algo")
    if method is None:
        return None
    bits = _number(found, "bits", "w_bit", "weight_bits")
    group = _signed(found, "group_size", "q_group_size")
    groups = found.get("config_groups")
    if isinstance(groups, Mapping) and bits is None:
        weights = next((one.get("weights") for one in groups.values() if isinstance(one, Mapping)), None)
        if isinstance(weights, Mapping):
            bits, group = _number(weights, "num_bits"), _signed(weights, "group_size")
    if bits is None and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        bits = 4.0 if found.get("load_in_4bit") else 8.0
    block = found.get("weight_block_size")
    sizes = tuple(block) if isinstance(block, Sequence) and all(isinstance(one, int) and one > 0 for one in block) else ()
    return Quantisation(method=method.lower(), bits=bits, group=group, block=(sizes[0], sizes[1]) if len(sizes) == 2 else None)


def _tied_by_default(text: Config) -> bool:
    return str(text.get("model_type", "")).startswith(("gemma", "gpt2", "opt", "bloom", "falcon", "cohere", "command", "lfm2"))


def _dtype(config: Config) -> str | None:
    found = config.get("dtype") or config.get("torch_dtype")
    return found.removeprefix("torch.") if isinstance(found, str) else None


def _at(text: Config, name: str, index: int) -> int:
    """Of a key that a model gives one value a layer."""
    found = text.get(name)
    if isinstance(found, Sequence) and not isinstance(found, str) and index < len(found):
        return found[index] if isinstance(found[index], int) else 0
    return 0


def _int(text: Config, *names: str) -> int:
    """The first that is a whole number above zero; 0 where none is. Of a list of numbers the largest."""
    for name in names:
        found = text.get(name)
        if isinstance(found, list | tuple) and found and all(type(one) is int for one in found):
            found = max(found)
        if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 50:
            return found
    return 0


def _signed(text: Config, *names: str) -> int | None:
    return next((text[name] for name in names if type(text.get(name)) is int), None)


def _number(text: Config, *names: str) -> float | None:
    return next((float(text[name]) for name in names if isinstance(text.get(name), int | float)), None)


def _text(text: Config, name: str) -> str | None:
    found = text.get(name)
    return found if isinstance(found, str) and found else None


def _first(found: Any) -> str | None:
    return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else None
