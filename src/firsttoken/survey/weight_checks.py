"""Can these files be loaded by this command? Facts of the checkpoint against what the command and the engine's profile say."""

import os
from collections.abc import Iterator, Sequence
from functools import partial

from firsttoken.model.checks import Check, Part, fail, passed, warn
from firsttoken.survey.amounts import gib
from firsttoken.survey.asked import Asked
from firsttoken.survey.checkpoint import INDEX, Checkpoint
from firsttoken.survey.model_config import ModelShape, inner_config
from firsttoken.survey.safetensors import Broken, Fault

_fail, _warn, _pass = partial(fail, Part.WEIGHTS), partial(warn, Part.WEIGHTS), partial(passed, Part.WEIGHTS)
_SHOWN = 3
_AGAIN = "download it again (`hf download MODEL`), or `git lfs pull` in a clone"


def weight_checks(asked: Asked, checkpoint: Checkpoint, shape: ModelShape) -> Iterator[Check]:
    """Of the target model."""
    yield from files(checkpoint)
    yield from _config(checkpoint)
    yield from _tokenizer(asked, checkpoint)
    yield from _quantisation(asked, checkpoint, shape)
    yield from _dtype(asked, shape)
    yield from _context(asked, shape)
    yield from division(asked, shape)


def files(checkpoint: Checkpoint, what: str = "") -> Iterator[Check]:
    """Index, files and headers. `what`: said in front of the fact, for a model that is not the target."""
    made = _made(checkpoint)
    for broken in checkpoint.broken[:_SHOWN]:
        waits = broken.fault is Fault.NOT_A_FILE
        yield _fail(
            "file-never-ready" if waits else "weights-corrupt",
            f"{what}{os.path.basename(broken.path)} {broken.detail}" + _more(checkpoint.broken, made),
            f"replace {broken.path} by the real file" if waits else _AGAIN,
            "the load waits for ever at this file" if waits else "the load ends at this file, after all the time before it",
        )
    if checkpoint.broken:
        return
    if checkpoint.index_problem is not None:
        fact = f"{what}{INDEX} {checkpoint.index_problem}"
        yield _fail("weights-corrupt", fact, _AGAIN, "the load ends before its first file")
    if checkpoint.lost:
        listed = ", ".join(checkpoint.lost[:_SHOWN])
        fact = f"{what}{len(checkpoint.lost)} tensors of the index are in no file ({listed})"
        remedy = f"index and files are of different versions: {_AGAIN}"
        yield _fail("weights-corrupt", fact, remedy, "weights stay as they were made: errors or noise")
    if checkpoint.twice:
        fact = f"{what}{len(checkpoint.twice)} tensors lie in two files ({', '.join(checkpoint.twice[:_SHOWN])})"
        yield _warn("weights-corrupt", fact, "remove the files of the other version from the folder", "which of the two is served is luck")
    if checkpoint.kind is None:
        hint = "; a download broke off" if checkpoint.unfinished else ""
        yield _fail("weights-corrupt", f"{what}{checkpoint.path} holds no weights{hint}", _AGAIN, "the load ends at once")
    elif checkpoint.unfinished:
        fact = f"{what}{len(checkpoint.unfinished)} downloads into this snapshot broke off"
        yield _warn("weights-corrupt", fact, _AGAIN, "what is missing is fetched at the start")
    elif not (checkpoint.lost or checkpoint.twice or checkpoint.index_problem):
        yield _pass("weights-corrupt", f"{what}{made} {'there' if checkpoint.kind == 'pickle' else 'whole'}, {gib(checkpoint.bytes)}")


def division(asked: Asked, shape: ModelShape) -> Iterator[Check]:
    """Heads, experts and quantisation blocks over the ranks that share them."""
    sizes, problems = asked.plan.sizes, list[tuple[str, str]]()
    tp = sizes.tp
    if shape.layers and sizes.pp > shape.layers:
        problems.append(("tp-not-divisible", f"{shape.layers} layers for {sizes.pp} pipeline stages"))
    if tp > 1 and not asked.switch("dp_attention"):
        if shape.heads and shape.heads % tp:
            problems.append(("tp-not-divisible", f"{shape.heads} attention heads do not divide by {tp}"))
        elif shape.kv_heads and not shape.latent and max(shape.kv_heads, tp) % min(shape.kv_heads, tp):
            problems.append(("tp-not-divisible", f"{shape.kv_heads} KV heads and {tp} ranks do not divide"))
    if tp > 1 and not shape.experts and shape.inner % tp:
        problems.append(("tp-not-divisible", f"the inner width {shape.inner} does not divide by {tp}"))
    expert = sizes.ep if sizes.ep > 1 else 1
    redundant = int(asked.number("redundant_experts") or 0)
    if expert > 1 and shape.experts and (shape.experts + redundant) % expert and not asked.rules.uneven_experts:
        problems.append(("tp-not-divisible", f"{shape.experts + redundant} experts do not divide by {expert}"))
    if tp > 1 and (block := _block(shape)) and not (shape.experts and expert > 1):
        width, size = shape.expert_inner if shape.experts else shape.inner, block
        if width and width % tp == 0 and (width // tp) % size:
            fact = f"a rank's part of the inner width ({width} / {tp} = {width // tp}) is no multiple of the quantisation block {size}"
            problems.append(("quant-shape-unsupported", fact))
    for name, fact in problems:
        fits = ", ".join(str(size) for size in (1, 2, 4, 8, 16) if size != tp and shape.heads and shape.heads % size == 0)
        remedy = f"another tensor parallel size ({fits} divide the heads)" + (", or expert parallelism" if shape.experts else "")
        yield _fail(name, fact, remedy, "every rank ends while it builds the model")
    if not problems and tp * sizes.pp * expert > 1 and shape.heads:
        yield _pass("tp-not-divisible", f"{shape.heads} heads, {shape.kv_heads} KV heads over {tp} ranks")


def _config(checkpoint: Checkpoint) -> Iterator[Check]:
    if checkpoint.kind == "gguf":
        return
    if checkpoint.config_problem is not None:
        yield _fail("model-unsupported", f"config.json {checkpoint.config_problem}", _AGAIN, "the start ends at once")
    elif checkpoint.config is None and "params.json" not in checkpoint.names:
        yield _fail("model-unsupported", f"{checkpoint.path} holds no config.json", _AGAIN, "the start ends at once")
    elif checkpoint.config is not None and not checkpoint.config.get("architectures") and not checkpoint.config.get("model_type"):
        fact, price = "config.json names no architecture", "the engine may not know what to build"
        yield _warn("model-unsupported", fact, "add `architectures`", price)


def _tokenizer(asked: Asked, checkpoint: Checkpoint) -> Iterator[Check]:
    if asked.text("tokenizer") is not None or asked.switch("skip_tokenizer") or checkpoint.kind == "gguf":
        return
    if checkpoint.tokenizer:
        yield _pass("tokenizer-missing", "the tokenizer is there")
    else:
        remedy = "put tokenizer.json beside the weights, or name another tokenizer (`--tokenizer`)"
        yield _fail("tokenizer-missing", f"{checkpoint.path} holds no tokenizer", remedy, "the start ends before the weights are loaded")


def _quantisation(asked: Asked, checkpoint: Checkpoint, shape: ModelShape) -> Iterator[Check]:
    """What the file says against what the command says, and both against what the engine can."""
    found = shape.quantisation.method if shape.quantisation is not None else "gguf" if checkpoint.kind == "gguf" else None
    wanted = (asked.text("quantisation") or "").lower() or None
    known = asked.rules.quantisations
    if found is not None and known and _plain(found) not in {_plain(name) for name in known}:
        fact = f"the weights are quantised by {found!r}, which this engine does not know (checked: {asked.rules.checked or 'its profile'})"
        remedy = "weights of another quantisation, or another engine"
        yield _warn("model-unsupported", fact, remedy, "the start ends while the model is built")
    elif found is not None and wanted is not None and not _same_family(found, wanted):
        fact = f"the weights are quantised by {found!r}, the command says {wanted!r}"
        yield _fail("engine-args-invalid", fact, "leave the option out: the file says it itself", "the start ends with a value error")
    elif found is None and wanted is not None and wanted in _ONLY_FROM_FILE and not asked.rules.quantises.get(wanted):
        fact = f"the command says {wanted!r}, but config.json tells of no quantised weights"
        yield _fail("engine-args-invalid", fact, "leave the option out, or take weights of that kind", "the start ends with a value error")
    elif found is not None:
        yield _pass("model-unsupported", f"quantised by {found!r}, which the engine knows")


def known_dtype(asked: Asked) -> Iterator[Check]:
    """Whatever the weights are."""
    wanted, known = asked.text("dtype"), asked.rules.dtypes
    if wanted is not None and known and wanted not in known:
        fact = f"--dtype {wanted}: the engine knows {', '.join(known)} (checked: {asked.rules.checked})"
        yield _fail("engine-args-invalid", fact, "one of these", "the start ends with a usage error")


def _dtype(asked: Asked, shape: ModelShape) -> Iterator[Check]:
    wanted = asked.text("dtype")
    method = shape.quantisation.method if shape.quantisation is not None else None
    if method in ("awq", "gptq") and wanted in ("float32", "float"):
        fact = f"{method} weights with --dtype {wanted}"
        yield _fail("engine-args-invalid", fact, "--dtype float16 or auto", "the start ends with a value error")


def _context(asked: Asked, shape: ModelShape) -> Iterator[Check]:
    """Engines refuse a context beyond that which the model was made for, unless a variable allows it. One that is stretched has its own."""
    wanted, allowed = asked.number("context"), asked.rules.longer_context_env
    stretched = inner_config(shape.raw).get("rope_scaling") or "factor" in str(inner_config(shape.raw).get("rope_parameters"))
    if (
        not allowed
        or not wanted
        or not shape.context
        or wanted <= shape.context
        or stretched
        or asked.env.get(allowed, "0") in ("1", "true")
    ):
        return
    fact = f"a context of {int(wanted):,} tokens is asked for, config.json says {shape.context:,} (max_position_embeddings)"
    yield _fail(
        "engine-args-invalid", fact, f"at most {shape.context:,}, or {allowed}=1 at your own risk", "the start ends with a value error"
    )


_ONLY_FROM_FILE = frozenset({"awq", "gptq", "awq_marlin", "gptq_marlin", "compressed-tensors", "modelopt", "auto-round", "quark"})


def _same_family(found: str, wanted: str) -> bool:
    one, other = _plain(found), _plain(wanted)
    return one.split("marlin")[0] == other.split("marlin")[0] or one in other or "moewna16" in other


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").removeprefix("auto")


def _block(shape: ModelShape) -> int | None:
    found = shape.quantisation
    if found is None:
        return None
    if found.block is not None:
        return found.block[0]
    return found.group if found.group is not None and found.group > 1 else None


def _made(checkpoint: Checkpoint) -> str:
    count = len(checkpoint.files)
    return f"{count} file{'s' if count != 1 else ''}"


def _more(broken: Sequence[Broken], made: str) -> str:
    return f" ({len(broken)} of {made} are broken)" if len(broken) > 1 else ""
