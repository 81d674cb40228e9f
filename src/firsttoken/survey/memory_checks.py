"""Does it fit? Weights and cache by rank against the GPU's memory, and the load against the host's.

What is certain fails: weights larger than the share that the engine may use, or no room for what it insists on. What depends on
activations and graphs, which only a run can tell, warns. Every figure is of the rank that holds most.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from firsttoken.model.checks import Check, Part, fail, passed, skipped, warn
from firsttoken.survey.amounts import gib, tokens
from firsttoken.survey.asked import Asked
from firsttoken.survey.checkpoint import Checkpoint
from firsttoken.survey.gpus import Gpus, visible
from firsttoken.survey.kv_cache import KvSize, kv_size
from firsttoken.survey.model_config import ModelShape
from firsttoken.survey.weight_memory import Loading, RankWeights, Split, rank_weights, stage_layers

_fail, _warn = partial(fail, Part.MEMORY), partial(warn, Part.MEMORY)
_pass, _skipped = partial(passed, Part.MEMORY), partial(skipped, Part.MEMORY)
GIB = float(1 << 30)
_BELIEVABLE = 1 << 40
"""tokens; a sequence without a limit of its own"""
_TIGHT = 0.05
"""of the GPU: activations and graphs want at least so much in most starts"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Bytes. `available`: what the kernel could give; `cgroup_room`: what our own memory cgroup still allows, None without a limit."""

    total: int | None = None
    available: int | None = None
    cgroup_limit: int | None = None
    cgroup_used: int | None = None

    @property
    def room(self) -> int | None:
        """The tighter of both."""
        rooms = [self.available] if self.available is not None else []
        if self.cgroup_limit is not None:
            rooms.append(max(0, self.cgroup_limit - (self.cgroup_used or 0)))
        return min(rooms, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the launch will hold, in bytes and tokens. `room`: left for the cache on the fullest rank, None where no memory is known.

    `longest`: the longest sequence that fits; `together`: how many of the full context fit at a time."""

    weights: RankWeights
    draft: int = 0
    kv: KvSize
    context: int | None = None
    room: float | None = None
    longest: int | None = None
    together: float | None = None

    @property
    def held(self) -> int:
        """Weights of the fullest rank, draft included."""
        return self.weights.most + self.draft


def estimate(
    asked: Asked, checkpoint: Checkpoint, shape: ModelShape, draft: tuple[Checkpoint, ModelShape] | None = None
) -> Estimate | None:
    """None where the headers or the shape could not be read."""
    if not checkpoint.tensors or not shape.layers:
        return None
    split = _split(asked)
    weights = rank_weights(checkpoint.tensors, shape, split, _loading(asked, shape))
    if offloaded := (asked.number("offload_gib") or 0) * GIB:
        weights = RankWeights(by_rank=tuple(max(0, round(size - offloaded)) for size in weights.by_rank))
    stages = stage_layers(shape.layers, split.pp, split.stages)
    shape = replace(shape, dtype=_dtype(asked, shape))
    dtype = asked.text("kv_dtype")
    shared = split.attention_tp or split.tp
    kv = max((kv_size(shape, dtype=dtype, tp=shared, layers=stage) for stage in stages), key=lambda one: one.at(1 << 16))
    drafted = 0
    if draft is not None:
        other, other_shape = draft
        own = rank_weights(other.tensors, other_shape, Split(tp=split.tp), _loading(asked, other_shape))
        drafted = own.most
        more = kv_size(replace(other_shape, dtype=_dtype(asked, other_shape)), dtype=dtype, tp=shared)
        kv = KvSize(
            per_token=kv.per_token + more.per_token,
            windows=kv.windows + more.windows,
            per_sequence=kv.per_sequence + more.per_sequence,
        )
    return Estimate(weights=weights, draft=drafted, kv=kv, context=context(asked, shape))


def context(asked: Asked, shape: ModelShape) -> int | None:
    """Tokens of the longest request that the server will promise."""
    given = asked.number("context")
    return int(given) if given else shape.context


def on_gpus(asked: Asked, found: Estimate, gpus: Gpus, gpu_memory: float | None) -> tuple[Estimate, list[Check]]:
    """Against the GPUs, or `gpu_memory` bytes of a GPU that is not here. The estimate with its room, and the checks."""
    seen = visible(gpus.found, asked.env)
    here = seen[: max(1, asked.plan.sizes.ranks_here)]
    if gpu_memory is None and not here:
        return found, [_skipped("gpu-oom", f"{gpus.problem or 'no GPU is visible here'}; --gpu-memory checks for one that is elsewhere")]
    smallest = min((gpu for gpu in here if gpu.total), key=lambda gpu: gpu.total or 0, default=None)
    total = gpu_memory if gpu_memory is not None else float(smallest.total or 0) if smallest is not None else 0.0
    if not total:
        return found, [_skipped("gpu-oom", "the GPUs do not tell how much memory they have")]
    free = min((gpu.free for gpu in here if gpu.free is not None), default=None) if gpu_memory is None else None
    share = asked.number("gpu_share")
    allowed = total * share if share else total * (1 - _TIGHT)
    if free is not None:
        allowed = min(allowed, float(free))
    explicit = asked.number("kv_bytes")
    room = float(explicit) if explicit else allowed - found.held - asked.rules.overhead * GIB
    found = _with_room(found, room)
    return found, list(_judged(asked, found, total, allowed, free, share))


def _judged(asked: Asked, found: Estimate, total: float, allowed: float, free: int | None, share: float | None) -> Iterator[Check]:
    of = f"{share:g} of {gib(total)}" if share else gib(total)
    if free is not None and share and asked.rules.needs_free_share and free < total * share:
        fact = f"{gib(free)} of {gib(total)} are free, the server wants {gib(total * share)} ({of})"
        remedy = f"end what holds the rest, or lower the share to {max(0.0, int(free / total * 100) / 100 - 0.01):.2f}"
        yield _fail("leftover-process-vram", fact, remedy, "the start ends when the ranks take their GPUs")
    held = f"weights of {gib(found.held)} a rank" + (f" (draft {gib(found.draft)})" if found.draft else "")
    longest = found.longest or 0
    if found.held > allowed:
        fact = f"{held} do not fit into {gib(allowed)} ({of})"
        remedy = "more ranks (tensor parallel), a quantised model, or larger GPUs"
        yield _fail("gpu-oom", fact, remedy, "out of memory while the weights load")
        return
    if found.context and found.context > longest:
        left = f"{held} leave {gib(found.room or 0)} for the cache: {tokens(longest)}"
        fact = f"{left}, where one request of {tokens(found.context)} needs {gib(found.kv.at(found.context))}"
        remedy = f"a shorter context ({_rounded(longest)} fits)" if longest else "more ranks, or a larger share of the GPU"
        if asked.rules.must_hold_context:
            yield _fail("kv-too-small-at-start", fact, remedy, "the start ends after the weights are loaded and profiled")
        else:
            yield _warn("kv-too-small-for-request", fact, remedy, "longer requests are refused or cut")
        return
    fits = f"{held}, {gib(found.room or 0)} for the cache: {_many(found)}"
    if found.room is not None and not asked.number("kv_bytes") and found.room < _TIGHT * total:
        remedy = "fewer or smaller graphs, a shorter prefill chunk, a shorter context, or more ranks"
        yield _warn("gpu-oom", f"{fits}; activations and graphs come on top", remedy, "out of memory while profiling or capturing graphs")
        return
    yield _pass("gpu-oom", fits)


def on_host(asked: Asked, found: Estimate | None, host: Host, *, cpu: bool, file_bytes: int) -> tuple[Estimate | None, list[Check]]:
    """The load against the host's memory. `cpu`: the weights stay there. `file_bytes`: of the weight files, which pass through."""
    room = host.room
    if room is None:
        return found, [_skipped("host-oom", "the kernel tells no memory")]
    here = max(1, asked.plan.sizes.ranks_here)
    limit = f" (cgroup limit {gib(host.cgroup_limit)})" if host.cgroup_limit is not None and room < (host.available or 0) else ""
    base = here * asked.rules.rank_memory * GIB
    held = float(sum(sorted(found.weights.by_rank)[-here:]) + found.draft * here) if found is not None else float(file_bytes)
    checks: list[Check] = []
    if cpu:
        cache = (asked.number("kv_space_gib") or 0) * GIB or asked.number("kv_bytes") or 0.0
        need = base + held + cache * here
        if found is not None:
            found = _with_room(found, cache if cache else (room - base - held) / here)
        kept = f" and a cache of {gib(cache * here)}" if cache else ""
        what = f"weights of {gib(held)}{kept}" if held else f"{here} rank{'s' if here > 1 else ''} of about {gib(base)}"
        fact = f"{what} in {gib(room)} of host memory{limit}"
    else:
        need = base
        fact = f"{here} rank{'s need' if here > 1 else ' needs'} about {gib(base)} of {gib(room)} host memory{limit} while they load"
    if not need:
        return found, []
    price = "the kernel ends a rank while the weights load"
    if need > room:
        checks.append(_fail("host-oom", fact, "more memory for the container, fewer ranks here, or end other programs", price))
    elif need > 0.8 * room:
        checks.append(_warn("host-oom", fact, "leave some memory free", price))
    else:
        checks.append(_pass("host-oom", fact))
    if found is not None and cpu and need <= room and found.context and found.longest is not None and found.context > found.longest:
        fact = f"the cache holds {tokens(found.longest)}, one request may have {tokens(found.context)}"
        checks.append(_context_check(asked, fact, found.longest))
    return found, checks


def _context_check(asked: Asked, fact: str, longest: int) -> Check:
    remedy = f"a shorter context ({_rounded(longest)} fits), or a larger cache"
    if asked.rules.must_hold_context:
        return _fail("kv-too-small-at-start", fact, remedy, "the start ends after the weights are loaded")
    return _warn("kv-too-small-for-request", fact, remedy, "longer requests are refused or cut")


def _with_room(found: Estimate, room: float) -> Estimate:
    room = max(0.0, room)
    longest = found.kv.longest(room)
    of_one = found.kv.at(found.context) if found.context else 0.0
    return replace(found, room=room, longest=min(longest, _BELIEVABLE), together=room / of_one if of_one else None)


def _split(asked: Asked) -> Split:
    sizes = asked.plan.sizes
    replicas = asked.number("attention_dp") or 1
    if asked.switch("dp_attention"):
        replicas = max(1, asked.number("dp") or 1)
    attention = max(1, int(sizes.tp // replicas)) if replicas > 1 else None
    given = asked.env.get(asked.rules.stages_env, "") if asked.rules.stages_env else ""
    stages = tuple(int(word) for word in given.split(",") if word.strip().isdecimal())
    return Split(tp=sizes.tp, pp=sizes.pp, ep=sizes.ep, attention_tp=attention, stages=stages)


def _loading(asked: Asked, shape: ModelShape) -> Loading:
    method = (asked.text("quantisation") or "").lower()
    bits = asked.rules.quantises.get(method) if shape.quantisation is None else None
    speculative = (asked.text("speculative_method") or "").lower()
    own = speculative in ("mtp", "nextn", "deepseek_mtp") or speculative.endswith("_mtp")
    own = own or (speculative == "eagle" and shape.next_layers > 0 and asked.text("draft_model") is None)
    return Loading(dtype=_dtype(asked, shape), bits=bits, drafts=own, copies_latent=asked.rules.copies_latent)


def _dtype(asked: Asked, shape: ModelShape) -> str | None:
    """Engines load float32 checkpoints as 16 bits unless they are told otherwise."""
    given = asked.text("dtype")
    if given is not None and given != "auto":
        return {"half": "float16", "float": "float32"}.get(given, given)
    return "bfloat16" if shape.dtype in ("float32", None) else shape.dtype


def _many(found: Estimate) -> str:
    if found.together is None or not found.context:
        return "a cache that grows with nothing" if (found.longest or 0) >= _BELIEVABLE else tokens(found.longest or 0)
    return f"{found.together:.1f} requests of {tokens(found.context)} at a time, the longest could have {tokens(found.longest or 0)}"


def _rounded(count: int) -> str:
    return tokens(count // 1024 * 1024 if count > 4096 else count)
