"""Tiny models with random weights, made here without a model hub, for real engines on a CPU.

Usage: models.py [--check] OUT [NAME…]      all where none is named; `llama8_noisy-0.02` gives the noise. `--check` prints what is missing.

A folder is made beside its place and moved there when it is whole; one that stands there is believed only where its weight files are
exactly as long as their headers say. Looking needs the standard library alone; making needs torch, transformers, tokenizers and
safetensors, which the environments of vLLM and SGLang hold.
"""

import json
import os
import shutil
import struct
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

VOCABULARY = 2048
_COMMON = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "tie_word_embeddings": False,
}
_SMALL = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, **_COMMON}
_CHAT = "{% for m in messages %}{{m['role']}}: {{m['content']}}\n{% endfor %}assistant:"


def missing(out: Path, names: tuple[str, ...]) -> list[str]:
    """Those of `names` (all where empty) that are not there or not whole. ValueError for a name that nobody can make."""
    makers = {name: _maker(name) for name in names or MODELS}
    return [name for name in makers if not whole(out / name)]


def whole(folder: Path) -> bool:
    """A config, and all weight files of the index, each as long as its header says."""
    try:
        json.loads((folder / "config.json").read_bytes())
        index = folder / "model.safetensors.index.json"
        names = set(json.loads(index.read_bytes())["weight_map"].values()) if index.exists() else {"model.safetensors"}
        return all(_whole_file(folder / name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return False


def make(out: Path, name: str) -> None:
    maker = _maker(name)
    os.environ["HF_HUB_OFFLINE"] = "1"
    part = out / f".{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    maker(part)
    shutil.rmtree(out / name, ignore_errors=True)
    part.rename(out / name)


# ---------------------------------------------------------------- the models


def qwen3(folder: Path) -> None:
    """For TP 1 and 2, compiled and eager."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    _save(Qwen3ForCausalLM, Qwen3Config(num_hidden_layers=4, **_SMALL), folder)


def llama4(folder: Path) -> None:
    """Four layers. EAGLE-3 on it answers its health page and dies on its first request: the taps coincide."""
    _save(*_llama(4), folder)


def llama8(folder: Path) -> None:
    """Eight layers: EAGLE-3 taps layers 2, n//2 and n-3, which must differ."""
    _save(*_llama(8), folder)


def llama8_noisy(folder: Path, noise: float = 0.15) -> None:
    """llama8 with noise: as its drafter, of a quality to choose.

    Accepted of drafted tokens at three drafts a step, greedy: 0.005: 142 of 150; 0.01: 140 of 156; 0.02: 136 of 171; 0.04: 116 of 228;
    0.07: 78 of 339; 0.1: 49 of 429; 0.15: 0 of 567.
    """
    import torch

    torch.manual_seed(0)
    cls, config = _llama(8)
    model = cls(config).to(torch.bfloat16)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * weight.float().std().to(weight.dtype) * noise)
    _write(model, folder)


def mla(folder: Path) -> None:
    """The DeepSeek-V3 and Kimi-K2 family in small: latent attention and experts."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    attention = {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 512, "q_lora_rank": 128}
    heads = {"qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128}
    experts = {
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    }
    routing = {"routed_scaling_factor": 2.5, "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
    sizes = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128, "num_hidden_layers": 3}
    _save(DeepseekV3ForCausalLM, DeepseekV3Config(**sizes, **attention, **heads, **experts, **routing, **_COMMON), folder, shard="2MB")


def mid(folder: Path) -> None:
    """287 M parameters in 28 shards, 550 MB: loading takes seconds."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 18, "num_attention_heads": 16}
    _save(LlamaForCausalLM, LlamaConfig(**sizes, num_key_value_heads=8, head_dim=64, **_COMMON), folder, shard="25MB")


def eagle3(folder: Path) -> None:
    """An EAGLE-3 head for llama8 in the format that engines expect. Random, so none of its drafts is accepted."""
    import torch
    from safetensors.torch import save_file

    hidden, inner, heads, kv_heads, head, drafted = 256, 512, 8, 4, 32, 1024
    random = torch.Generator().manual_seed(1)
    shapes = {
        "fc": (hidden, 3 * hidden),
        "lm_head": (drafted, hidden),
        "midlayer.self_attn.q_proj": (heads * head, 2 * hidden),
        "midlayer.self_attn.k_proj": (kv_heads * head, 2 * hidden),
        "midlayer.self_attn.v_proj": (kv_heads * head, 2 * hidden),
        "midlayer.self_attn.o_proj": (hidden, heads * head),
        "midlayer.mlp.gate_proj": (inner, hidden),
        "midlayer.mlp.up_proj": (inner, hidden),
        "midlayer.mlp.down_proj": (hidden, inner),
    }
    norms = ("norm", "midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm")
    weights = {f"{name}.weight": (torch.randn(*shape, generator=random) * 0.02).to(torch.bfloat16) for name, shape in shapes.items()}
    weights |= {f"{name}.weight": torch.ones(hidden, dtype=torch.bfloat16) for name in norms}
    kept = torch.arange(drafted) * 2
    to_draft = torch.zeros(VOCABULARY, dtype=torch.bool)
    to_draft[kept] = True
    weights |= {"d2t": (kept - torch.arange(drafted)).long(), "t2d": to_draft}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        **_SMALL,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": drafted,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "use_cache": True,
    }
    _write_json(folder / "config.json", config)


def gptq(folder: Path) -> None:
    """llama4 in 4-bit GPTQ. vLLM's CPU build has no int4 kernel: the server becomes healthy and dies on its first request."""
    from safetensors.torch import load_file, save_file

    llama4(folder)
    weights: dict[str, Any] = {}
    for file in sorted(folder.glob("model*.safetensors*")):
        if file.suffix == ".safetensors":
            for name, value in load_file(file).items():
                weights |= _quantised(name.removesuffix("weight"), value) if name.endswith("_proj.weight") else {name: value}
        file.unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_bytes())
    shape = {"bits": _BITS, "group_size": _GROUP, "desc_act": False, "sym": True, "quant_method": "gptq"}
    config["quantization_config"] = {**shape, "lm_head": False, "damp_percent": 0.01, "true_sequential": True}
    _write_json(folder / "config.json", config)


MODELS: dict[str, Callable[[Path], None]] = {
    maker.__name__: maker for maker in (qwen3, llama4, llama8, llama8_noisy, eagle3, mla, gptq, mid)
}


# ---------------------------------------------------------------- their parts

_BITS, _GROUP = 4, 64


def _quantised(base: str, weight: Any) -> dict[str, Any]:
    """One matrix in GPTQ's layout: eight 4-bit values an int32, along the rows; zero points, stored less one, along the columns."""
    import torch

    matrix = weight.float().t().contiguous()
    rows, columns = matrix.shape
    groups = matrix.view(rows // _GROUP, _GROUP, columns)
    scales = groups.abs().amax(1) / 7
    values = (torch.round(groups / scales[:, None]) + 8).clamp(0, 15).int().view(rows, columns)
    shifts = torch.arange(8, dtype=torch.int32) * _BITS
    zeros = torch.full((rows // _GROUP, columns), 7, dtype=torch.int32)
    return {
        f"{base}qweight": (values.view(rows // 8, 8, columns) << shifts[None, :, None]).sum(1).int(),
        f"{base}qzeros": (zeros.view(rows // _GROUP, columns // 8, 8) << shifts).sum(2).int(),
        f"{base}scales": scales.to(torch.float16),
        f"{base}g_idx": (torch.arange(rows) // _GROUP).int(),
    }


def _llama(layers: int) -> tuple[Any, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM, LlamaConfig(num_hidden_layers=layers, **_SMALL)


def _save(cls: Any, config: Any, folder: Path, shard: str = "1MB") -> None:
    import torch

    torch.manual_seed(0)
    _write(cls(config), folder, shard)


def _write(model: Any, folder: Path, shard: str = "1MB") -> None:
    import torch

    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=shard)
    _tokenizer().save_pretrained(folder)


def _tokenizer() -> Any:
    """A byte-level BPE, trained on the standard library's own source: text that is on every machine."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    text = [str(path) for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:80]]
    special = ["<s>", "</s>", "<pad>"]
    bpe.train(
        text, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=2048)
    fast.chat_template = _CHAT
    return fast


def _maker(name: str) -> Callable[[Path], None]:
    kind, _, noise = name.partition("-")
    if kind not in MODELS or (noise and kind != llama8_noisy.__name__):
        raise ValueError(f"no model is called {name}; there are: {', '.join(MODELS)}")
    return (lambda folder: llama8_noisy(folder, float(noise))) if noise else MODELS[kind]


def _whole_file(path: Path) -> bool:
    """A safetensors file: u64 length of the header, the header, then the tensors that it describes."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length)) if length < 1 << 26 else {}
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return bool(ends) and path.stat().st_size == 8 + length + max(ends)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    check, rest = "--check" in arguments, [item for item in arguments if item != "--check"]
    if not rest:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(rest[0]).absolute()
    try:
        wanted = missing(out, tuple(rest[1:]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for name in wanted:
        if not check:
            make(out, name)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
