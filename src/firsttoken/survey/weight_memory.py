"""How many bytes of weights each rank will hold, from the tensors' headers alone.

All engines divide alike (as Megatron does): matrices are cut over the tensor parallel ranks, KV heads are repeated where there are fewer
than ranks, experts are dealt out where there is expert parallelism, layers go to pipeline stages; norms, routers and the low-rank
down-projections of latent attention stay whole. What a tensor is follows from its name, as the families of transformers name them.
Sources: get_pp_indices, `linear.py`, `vocab_parallel_embedding.py` and `mla_attention.py` of vLLM 0.32; the like of SGLang 0.5.23.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from firsttoken.survey.model_config import ModelShape
from firsttoken.survey.safetensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How the server divides its weights. `ep`: expert parallel size, 1 where experts are cut like other matrices. `attention_tp`: ranks
    over which attention is cut, where fewer than `tp`. `stages`: layers of each pipeline stage, where the user gave them."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_tp: int | None = None
    stages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What becomes of a tensor while it is loaded. `dtype`: of the unquantised weights, the checkpoint's own where None. `bits`: of a
    matrix weight that is quantised while loading. `drafts`: the model's own prediction layers are loaded too."""

    dtype: str | None = None
    bits: float | None = None
    drafts: bool = False
    copies_latent: bool = False
    """latent attention keeps a second, transposed copy of its up-projection also where it is not quantised"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes of one rank, `[stage][tensor parallel rank]` flattened; `total` of the whole server (one data parallel replica)."""

    by_rank: tuple[int, ...]

    @property
    def most(self) -> int:
        return max(self.by_rank, default=0)

    @property
    def total(self) -> int:
        return sum(self.by_rank)


_VOCABULARY_UNIT = 64
_ELEMENT: Mapping[str, int] = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|layer|blk)\.(\d+)\.")
_DIGITS = re.compile(r"\.\d+(?=\.|$)")
_UNLOADED = re.compile(r"rotary_emb\.inv_freq$|\.masked_bias$|\.attn\.bias$|(?:^|\.)t2d$|rope_freqs")
_PREDICTS = re.compile(r"(?:^|\.)mtp(?:\.|_|$)|\.nextn\.|^model\.mtp_layers")
_TOWER = re.compile(r"(?:^|\.)(?:visual|vision_(?:tower|model|embed)|audio_(?:tower|model)|multi_modal_projector|mm_projector)\.")
_EXPERT = re.compile(r"\.experts\.(?:\d+\.)?|\.local_experts\.")
_EMBEDDING = re.compile(
    r"(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embed_out|lm_head|output_layer|token_embd|output)\.weight$"
)
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_layer)\.weight$")
_WHOLE = re.compile(
    r"norm\w*\.(?:weight|bias)$|(?:^|\.)(?:ln_\w+|layernorm\w*)\.|\.(?:gate|router|wg|shared_expert_gate)\.(?:weight|bias)$"
    r"|e_score_correction_bias|\.router\.|q_a_proj|kv_a_proj|fused_qkv_a|indexer|position_embedding|embed_positions|(?:^|\.)wpe\."
    r"|(?:^|\.)fc\.weight$|(?:^|\.)d2t$|_scale_2$|input_scale|(?:k|v|q)_scale$|g_idx$|\.sinks$|cls_token|pos_embed"
)
_KV = re.compile(r"\.(?:k_proj|v_proj|key|value|attn_k|attn_v)\.")
_FUSED = re.compile(r"\.(?:qkv_proj|query_key_value|c_attn|Wqkv|W_pack|wqkv|in_proj_qkv|attn_qkv)\.")
_ATTENTION = re.compile(r"attn|attention|mixer|linear_attn|\.wo\.|query_key_value")
_COLUMN_BIAS = re.compile(r"\.(?:(?:q|k|v|qkv|gate|up|gate_up|q_b)_proj|query_key_value|c_attn|c_fc|fc1)\.bias$")
_KEPT_FLOAT = re.compile(r"scale|zero_point|e_score_correction_bias|A_log|dt_bias|\.D$|weight_scale_inv")
_ABSORBED = re.compile(r"\.kv_b_proj\.weight$")


def rank_weights(tensors: Iterable[Tensor], shape: ModelShape, split: Split, loading: Loading) -> RankWeights:
    """`tensors` of the checkpoint, each name once. A hundred thousand tensors take about a third of a second."""
    stages = stage_layers(shape.layers, split.pp, split.stages)
    stage_of = [stage for stage, layers in enumerate(stages) for _ in layers]
    first = [0.0] * split.pp
    """bytes of a stage's largest tensor parallel rank"""
    known: dict[tuple[str, str], _Rule] = {}
    seen_head, embedding = False, 0.0
    for tensor in tensors:
        kind = (_DIGITS.sub(".#", tensor.name), tensor.dtype)
        rule = known.get(kind)
        if rule is None:
            rule = known[kind] = _rule(tensor, shape, split, loading)
        if rule.skip:
            continue
        found = _LAYER.search(tensor.name) if rule.in_layer else None
        layer = int(found[1]) if found is not None else None
        if layer is not None and shape.layers and layer >= shape.layers and not loading.drafts:
            continue
        size = (tensor.bytes if rule.element is None else tensor.elements * rule.element) + tensor.elements * rule.extra
        size *= rule.share
        if rule.vocabulary and tensor.shape and tensor.elements:
            rows = -(-tensor.shape[0] // _VOCABULARY_UNIT) * _VOCABULARY_UNIT
            size *= rows / tensor.shape[0]
        if rule.head:
            if shape.tied:
                continue
            seen_head = True
            first[-1] += size
        elif layer is None:
            stage = split.pp - 1 if rule.last else 0
            first[stage] += size
            embedding = max(embedding, size if rule.vocabulary else 0.0)
        else:
            first[stage_of[layer] if layer < len(stage_of) else split.pp - 1] += size
    if shape.tied and not seen_head and split.pp > 1:
        first[-1] += embedding  # the last stage needs its own copy of the table
    return RankWeights(by_rank=tuple(round(size) for size in first for _ in range(split.tp)))


def stage_layers(layers: int, pp: int, given: tuple[int, ...] = ()) -> tuple[range, ...]:
    """The layers of each pipeline stage: evenly, the rest to stages before the last."""
    counts = list(given) if len(given) == pp and sum(given) == layers else [layers // pp] * pp
    if not given:
        for index in range(2, layers % pp + 2):
            counts[-index % pp] += 1
    begins = [sum(counts[:stage]) for stage in range(pp)]
    return tuple(range(begin, begin + count) for begin, count in zip(begins, counts, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What holds for all tensors of one name (numbers aside). `element`: bytes an element once loaded, None: as it lies in the file."""

    share: float = 1.0
    element: float | None = None
    extra: float = 0.0
    """bytes an element that are made from it besides"""
    skip: bool = False
    vocabulary: bool = False
    head: bool = False
    last: bool = False
    in_layer: bool = False


def _rule(tensor: Tensor, shape: ModelShape, split: Split, loading: Loading) -> _Rule:
    name = tensor.name
    if _UNLOADED.search(name) or (_PREDICTS.search(name) and not loading.drafts):
        return _Rule(skip=True)
    tower = bool(_TOWER.search(name))
    in_layer = not tower and not _PREDICTS.search(name) and bool(_LAYER.search(name))
    head = bool(_HEAD.search(name)) and not in_layer
    element = _element(tensor, loading)
    if not in_layer and _EMBEDDING.search(name):
        return _Rule(share=1 / split.tp, element=element, vocabulary=True, head=head, last=head)
    share = _share(tensor, shape, split)
    extra = 0.0
    if _ABSORBED.search(name) and (element is None or loading.copies_latent):
        extra = _ELEMENT.get(loading.dtype or "", 2)  # for decoding, in the model's own type
    return _Rule(share=share, element=element, extra=extra, in_layer=in_layer, last=not in_layer and not tower)


def _share(tensor: Tensor, shape: ModelShape, split: Split) -> float:
    name = tensor.name
    if _EXPERT.search(name) and not _WHOLE.search(name):
        return 1 / (split.ep if split.ep > 1 else split.tp)
    if _WHOLE.search(name):
        return 1.0
    if len(tensor.shape) < 2 and not _COLUMN_BIAS.search(name) and prod(tensor.shape) < 1 << 16:
        return 1.0
    tp = split.attention_tp or split.tp if _ATTENTION.search(name) else split.tp
    if shape.kv_heads and _KV.search(name):
        return max(1, shape.kv_heads / tp) / shape.kv_heads
    if shape.kv_heads and _FUSED.search(name) and shape.heads:
        held = shape.heads / tp + 2 * max(1, shape.kv_heads / tp)
        return held / (shape.heads + 2 * shape.kv_heads)
    return 1 / tp


def _element(tensor: Tensor, loading: Loading) -> float | None:
    """Bytes an element once loaded; None where it stays as it is (quantised already, scales, whole numbers)."""
    if tensor.dtype not in _FLOATS or _KEPT_FLOAT.search(tensor.name):
        return None
    matrix = len(tensor.shape) >= 2 and not _EMBEDDING.search(tensor.name) and not _WHOLE.search(tensor.name)
    if loading.bits is not None and matrix and not _TOWER.search(tensor.name):
        return loading.bits / 8
    wanted = _ELEMENT.get(loading.dtype or "")
    return wanted if wanted is not None else {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}[tensor.dtype]
