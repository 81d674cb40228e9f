"""How much memory the tokens of a sequence take: keys and values, latents, windows, and the fixed state of recurrent layers.

A rank's share: KV heads are divided over the tensor parallel ranks and repeated where there are fewer heads than ranks; a latent is the
same on every rank. A pipeline stage keeps its own layers only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from firsttoken.survey.model_config import LayerCache, ModelShape

BYTES: Mapping[str, float] = {
    "float32": 4, "float": 4, "fp32": 4, "f32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "half": 2, "fp16": 2, "f16": 2,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1,
    "nvfp4": 0.5625, "fp4_e2m1": 0.53125, "q8_0": 1.0625, "q4_0": 0.5625, "q4_1": 0.625, "q5_0": 0.6875, "q5_1": 0.75,
}  # fmt: skip
"""bytes an element, scales included"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSize:
    """Bytes on one rank. `per_token`: of each token; `windows`: (window, bytes a token) of layers that keep no more than a window of them;
    `per_sequence`: fixed, however long it is."""

    per_token: float
    windows: tuple[tuple[int, float], ...] = ()
    per_sequence: float = 0.0

    def at(self, tokens: int) -> float:
        """Bytes of one sequence of so many tokens."""
        return self.per_token * tokens + sum(size * min(tokens, window) for window, size in self.windows) + self.per_sequence

    def longest(self, room: float) -> int:
        """Tokens of the longest sequence that fits into `room` bytes."""
        if self.at(1) > room:
            return 0
        if not self.per_token:
            return 1 << 40
        low, high = 1, int(room / self.per_token) + 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at(middle) <= room else (low, middle - 1)
        return low


def kv_size(
    shape: ModelShape,
    *,
    dtype: str | None = None,
    state_dtype: str | None = None,
    tp: int = 1,
    layers: range | None = None,
    whole_windows: bool = False,
) -> KvSize:
    """Of one rank. `dtype` of the cache: the model's own where None or `auto`. `tp`: ranks that share the KV heads. `layers`: of its
    pipeline stage. `whole_windows`: the engine keeps all tokens of windowed layers too."""
    element = BYTES.get(dtype or "", BYTES.get(shape.dtype or "", 2))
    model = BYTES.get(shape.dtype or "", 2)
    state = BYTES.get(state_dtype or shape.state_dtype or "", model)
    per_token = fixed = 0.0
    windows: dict[int, float] = {}
    for index in layers if layers is not None else range(len(shape.caches)):
        cache = shape.caches[index]
        size = _per_token(cache, tp) * element + cache.index_bytes
        if cache.window is None or whole_windows:
            per_token += size
        else:
            windows[cache.window] = windows.get(cache.window, 0.0) + size
        fixed += (cache.conv * model + cache.state * state) / tp
    return KvSize(per_token=per_token, windows=tuple(sorted(windows.items())), per_sequence=fixed)


def _per_token(cache: LayerCache, tp: int) -> int:
    heads = -(-cache.heads // tp) if cache.heads else 0
    return heads * cache.head_elements + cache.latent
