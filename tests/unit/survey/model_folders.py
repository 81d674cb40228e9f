"""Folders of models for tests: real headers over sparse files, so that a model of any size costs nothing."""

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from firsttoken.survey.safetensors import BITS

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""name → dtype, shape"""

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 2048,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def write_shard(path: Path, tensors: Shapes, metadata: Mapping[str, str] | None = None) -> Path:
    """A safetensors file, its data a hole."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = (prod(shape) * BITS[dtype] + 7) // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return path


def decoder(config: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """All tensors of a dense decoder, as transformers names them."""
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found: dict[str, tuple[str, tuple[int, ...]]] = {"model.embed_tokens.weight": ("BF16", (vocabulary, hidden))}
    for layer in range(config["num_hidden_layers"]):
        front = f"model.layers.{layer}."
        found |= {
            front + "self_attn.q_proj.weight": ("BF16", (q, hidden)),
            front + "self_attn.k_proj.weight": ("BF16", (kv, hidden)),
            front + "self_attn.v_proj.weight": ("BF16", (kv, hidden)),
            front + "self_attn.o_proj.weight": ("BF16", (hidden, q)),
            front + "mlp.gate_proj.weight": ("BF16", (inner, hidden)),
            front + "mlp.up_proj.weight": ("BF16", (inner, hidden)),
            front + "mlp.down_proj.weight": ("BF16", (hidden, inner)),
            front + "input_layernorm.weight": ("BF16", (hidden,)),
            front + "post_attention_layernorm.weight": ("BF16", (hidden,)),
        }
    found["model.norm.weight"] = ("BF16", (hidden,))
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = ("BF16", (vocabulary, hidden))
    return found


def write_model(folder: Path, config: Mapping[str, Any] = LLAMA, *, shards: int = 3, tensors: Shapes | None = None) -> Path:
    """Config, tokenizer, index and shards."""
    folder.mkdir(parents=True, exist_ok=True)
    every = dict(tensors if tensors is not None else decoder(config))
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: value for index, (key, value) in enumerate(every.items()) if index % shards == number}
        write_shard(folder / name, part, {"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


EAGLE3: dict[str, Any] = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 1024,
}


def eagle3_tensors(hidden: int = 256, taps: int = 3, kept: int = 1024) -> dict[str, tuple[str, tuple[int, ...]]]:
    """A head in the format that engines expect."""
    return {
        "fc.weight": ("BF16", (hidden, taps * hidden)),
        "norm.weight": ("BF16", (hidden,)),
        "lm_head.weight": ("BF16", (kept, hidden)),
        "midlayer.self_attn.q_proj.weight": ("BF16", (256, 2 * hidden)),
        "midlayer.hidden_norm.weight": ("BF16", (hidden,)),
        "d2t": ("I64", (kept,)),
        "t2d": ("BOOL", (2048,)),
    }


def write_gguf(path: Path, notes: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...], int]], size: int) -> Path:
    """`tensors`: name → type, dimensions (innermost first), offset. Notes are strings, numbers and lists of strings."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(notes))
    for name, value in notes.items():
        out += text(name)
        match value:
            case str():
                out += struct.pack("<I", 8) + text(value)
            case int():
                out += struct.pack("<II", 4, value)
            case list():
                out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    for name, (kind, shape, offset) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
    begin = -(-len(out) // 32) * 32
    with path.open("wb") as file:
        file.write(out)
        file.truncate(begin + size)
    return path
