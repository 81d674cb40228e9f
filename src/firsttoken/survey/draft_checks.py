"""Does the draft model fit its target? A head that does not fit loads, and the server dies (or drafts noise) at its first request."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from firsttoken.model.checks import Check, Outcome, Part, fail, passed
from firsttoken.survey.asked import Asked
from firsttoken.survey.checkpoint import Checkpoint
from firsttoken.survey.model_config import ModelShape, inner_config
from firsttoken.survey.safetensors import Tensor
from firsttoken.survey.weight_checks import files

_fail = partial(fail, Part.WEIGHTS, "spec-draft-mismatch")
_TAPPED = 3
"""layers of the target that an EAGLE-3 head reads where it does not say so itself: 2, n // 2 and n - 3"""
_PRICE = "the server becomes ready, and dies or drafts noise at its first request"


def draft_checks(asked: Asked, target: ModelShape, draft: Checkpoint, shape: ModelShape) -> Iterator[Check]:
    """`shape`: of the draft. What cannot be read is not compared."""
    found = list(files(draft, "draft: "))
    yield from (check for check in found if check.result is not Outcome.PASS)
    if draft.config is None:
        fact = f"the draft's config.json {draft.config_problem or 'is not there'}"
        yield _fail(fact, "a whole draft model", "the start ends when the draft is loaded")
        return
    method = (asked.text("speculative_method") or "").lower()
    tensors = {tensor.name: tensor for tensor in draft.tensors}
    problems = list(_head(target, draft, shape, tensors) if _is_head(shape, tensors, method) else _whole(target, shape, asked))
    for fact, remedy in problems:
        yield _fail(fact, remedy, _PRICE)
    if not problems and not any(check.result is Outcome.FAIL for check in found):
        kind = "head" if _is_head(shape, tensors, method) else "draft model"
        yield passed(Part.WEIGHTS, "spec-draft-mismatch", f"the {kind} fits its target")


def _is_head(shape: ModelShape, tensors: Mapping[str, Tensor], method: str) -> bool:
    return method.startswith("eagle") or "eagle" in (shape.architecture or "").lower() or "fc.weight" in tensors


def _head(target: ModelShape, draft: Checkpoint, shape: ModelShape, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """An EAGLE head: it works on the target's own hidden states and tokens."""
    other = "the head that was trained for this target"
    config = draft.config or {}
    width = _int(config, "target_hidden_size") or shape.hidden
    fused = tensors.get("fc.weight")
    third = any(name in tensors for name in ("d2t", "t2d", "midlayer.hidden_norm.weight")) or "eagle3" in (shape.architecture or "").lower()
    if width and target.hidden and width != target.hidden:
        yield f"the head is made for a hidden size of {width}, the target has {target.hidden}", other
    elif fused is not None and len(fused.shape) == 2 and target.hidden and width:
        taps = len(_tapped(config)) or (_TAPPED if third else 2)
        wanted = taps * target.hidden
        if fused.shape[1] != wanted:
            yield f"its `fc` takes {fused.shape[1]} inputs, {taps} hidden states of the target are {wanted}", other
    if third and target.layers:
        layers = _tapped(config) or (2, target.layers // 2, target.layers - 3)
        if len(set(layers)) < len(layers) or not all(0 <= layer <= target.layers for layer in layers):
            listed = ", ".join(map(str, layers))
            yield f"the head reads layers {listed} of a target that has {target.layers}", f"{other}; this target is too shallow for it"
    if third and tensors and not any(name.startswith(("midlayer.", "layers.0.", "model.layers.0.", "model.midlayer.")) for name in tensors):
        yield "no `midlayer` or `layers.0` is in the file: this is no EAGLE-3 head", other
    if shape.vocabulary and target.vocabulary and shape.vocabulary != target.vocabulary:
        yield f"the head has a vocabulary of {shape.vocabulary}, the target of {target.vocabulary}", other
    small = _int(config, "draft_vocab_size")
    mapped = tensors.get("d2t")
    if small and mapped is not None and mapped.shape and mapped.shape[0] != small:
        yield f"`d2t` maps {mapped.shape[0]} tokens, config.json says {small}", other
    if small and shape.vocabulary and small < shape.vocabulary and tensors and mapped is None and third:
        yield f"the head drafts {small} of {shape.vocabulary} tokens and brings no `d2t` that says which", other


def _whole(target: ModelShape, shape: ModelShape, asked: Asked) -> Iterator[tuple[str, str]]:
    """A smaller model of the same family."""
    if shape.vocabulary and target.vocabulary and shape.vocabulary != target.vocabulary and not asked.switch("mixed_vocabulary"):
        fact = f"the draft has a vocabulary of {shape.vocabulary}, the target of {target.vocabulary}"
        yield fact, "a draft of the same family, whose tokens mean the same"


def _tapped(config: Mapping[str, Any]) -> tuple[int, ...]:
    nested = config.get("eagle_config")
    for place in (config, nested if isinstance(nested, Mapping) else {}):
        found = place.get("eagle_aux_hidden_state_layer_ids") or place.get("target_layer_ids")
        if isinstance(found, list) and all(type(layer) is int for layer in found):
            return tuple(found)
    return ()


def _int(config: Mapping[str, Any], name: str) -> int:
    found = inner_config(config).get(name) or config.get(name)
    return found if type(found) is int else 0
