"""A tiny Llama with random weights as GGUF: a byte-level vocabulary, a few layers.

Usage: make_gguf.py OUT.gguf [LAYERS WIDTH HEADS INNER CONTEXT]

Written beside its place and then moved there: a file that is there is whole.
"""

import os
import sys
from dataclasses import dataclass

import gguf
import numpy as np

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
"""llama.cpp's token kinds."""
_CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int = 2
    width: int = 64
    heads: int = 4
    inner: int = 128
    context: int = 512


def write(out: str, shape: Shape) -> None:
    """The same bytes at each call: the weights are drawn from a fixed seed."""
    part = f"{out}.part"
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_name("tiny-random-llama")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokens = _add_vocabulary(writer)
    _add_weights(writer, shape, tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, out)


def _add_vocabulary(writer: gguf.GGUFWriter) -> int:
    """Every byte and the printable characters, so that any text can be asked and any answer be shown; returns the number of tokens."""
    rows = [(b"<unk>", 0.0, _UNKNOWN), (b"<s>", 0.0, _CONTROL), (b"</s>", 0.0, _CONTROL)]
    rows += [(f"<0x{byte:02X}>".encode(), 0.0, _BYTE) for byte in range(256)]
    rows += [(piece.encode(), -float(order), _NORMAL) for order, piece in enumerate(["\u2581", *map(chr, range(33, 127))])]
    writer.add_vocab_size(len(rows))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _, _ in rows])
    writer.add_token_scores([score for _, score, _ in rows])
    writer.add_token_types([kind for _, _, kind in rows])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(_CHAT)
    return len(rows)


def _add_weights(writer: gguf.GGUFWriter, shape: Shape, tokens: int) -> None:
    random = np.random.default_rng(0)
    shapes = {"token_embd": (tokens, shape.width), "output": (tokens, shape.width)}
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        shapes |= {block + part: (shape.width, shape.width) for part in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {block + part: (shape.inner, shape.width) for part in ("ffn_gate", "ffn_up")}
        shapes |= {block + "ffn_down": (shape.width, shape.inner)}
    for name, size in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(0, 0.05, size).astype(np.float32))
    norms = ["output_norm", *(f"blk.{layer}.{norm}" for layer in range(shape.layers) for norm in ("attn_norm", "ffn_norm"))]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, np.float32))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 7):
        sys.exit(__doc__)
    write(sys.argv[1], Shape(*map(int, sys.argv[2:])))
