"""Weights and cache against GPUs and host: what fits, what does not, and what only might."""

from typing import Any

import pytest
from check_lists import asked, results
from model_folders import LLAMA, decoder
from test_weight_memory import tensors

from firsttoken.model.checks import Check, Outcome
from firsttoken.survey.asked import amount
from firsttoken.survey.checkpoint import Checkpoint
from firsttoken.survey.gpus import Gpu, Gpus
from firsttoken.survey.memory_checks import Estimate, Host, estimate, on_gpus, on_host
from firsttoken.survey.model_config import read_shape

GIB = 1 << 30
BIG = {
    **LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
"""Llama 3.1 70B: 141 GB of weights, 320 KiB of cache a token"""


def estimated(config: dict[str, Any], **wanted: Any) -> Estimate:
    found = estimate(asked(**wanted), Checkpoint(path="m", tensors=tuple(tensors(decoder(config)))), read_shape(config))
    assert found is not None
    return found


def gpus(count: int, total: float = 80, used: float = 0.0) -> Gpus:
    rows = [
        Gpu(index=n, uuid=f"GPU-{n}", total=int(total * GIB), used=int(used * GIB), free=int((total - used) * GIB)) for n in range(count)
    ]
    return Gpus(found=tuple(rows))


def placed(count: int, total: float = 80, used: float = 0.0, config: dict[str, Any] = BIG, **wanted: Any) -> tuple[Estimate, list[Check]]:
    return on_gpus(asked(**wanted), estimated(config, **wanted), gpus(count, total, used), None)


def test_seventy_billion_parameters_fit_on_four_gpus_with_room_for_their_context() -> None:
    found, checks = placed(4, tp=4, gpu_share="0.92")
    assert results(checks) == {"gpu-oom": Outcome.PASS}
    assert found.weights.total == pytest.approx(141.1e9, rel=0.001)
    assert found.room == pytest.approx(80 * GIB * 0.92 - found.held - 0.6 * GIB)
    assert found.longest == int((found.room or 0) / 80 / 1024)
    assert found.together is not None
    assert found.together > 3


def test_weights_larger_than_their_share_fail() -> None:
    _, checks = placed(1, tp=1, gpu_share="0.92")
    assert results(checks) == {"gpu-oom": Outcome.FAIL}


def test_a_context_that_leaves_no_room_for_one_request_fails_or_warns_as_the_engine_takes_it() -> None:
    _, strict = placed(2, tp=2, gpu_share="0.92")
    assert results(strict) == {"kv-too-small-at-start": Outcome.FAIL}
    assert "fits" in (strict[0].remedy or "")
    _, lenient = placed(2, engine="sglang", tp=2, gpu_share="0.9")
    assert results(lenient) == {"kv-too-small-for-request": Outcome.WARN}
    _, shorter = placed(2, tp=2, gpu_share="0.92", context="16k")
    assert results(shorter)["gpu-oom"] in (Outcome.PASS, Outcome.WARN)


def test_little_room_beside_the_weights_warns() -> None:
    _, checks = placed(2, tp=2, gpu_share="0.92", context="1024")
    assert results(checks) == {"gpu-oom": Outcome.PASS}
    _, tight = placed(2, 76, tp=2, gpu_share="0.92", context="1024")
    assert results(tight) == {"gpu-oom": Outcome.WARN}


def test_memory_that_others_hold_fails_where_the_engine_refuses_it() -> None:
    _, checks = placed(4, used=20, tp=4, gpu_share="0.92")
    assert results(checks)["leftover-process-vram"] is Outcome.FAIL
    assert "0.74" in (checks[0].remedy or "")
    _, other = placed(4, used=20, engine="sglang", tp=4, gpu_share="0.9")
    assert "leftover-process-vram" not in results(other)


def test_a_gpu_that_is_elsewhere_is_taken_at_its_word_and_none_is_not_checked() -> None:
    found = estimated(BIG, tp=4, gpu_share="0.92")
    _, elsewhere = on_gpus(asked(tp=4, gpu_share="0.92"), found, Gpus(), 80.0 * GIB)
    assert results(elsewhere) == {"gpu-oom": Outcome.PASS}
    _, nowhere = on_gpus(asked(tp=4), found, Gpus(problem="nvidia-smi is not installed here"), None)
    assert results(nowhere) == {"gpu-oom": Outcome.NOT_CHECKED}


def test_a_cache_of_a_given_size_is_not_what_the_share_leaves() -> None:
    found, _ = placed(4, tp=4, gpu_share="0.92", kv_bytes="1G")
    assert found.room == GIB
    assert found.longest == GIB // (80 * 1024)


def test_offloaded_weights_leave_the_gpu() -> None:
    assert estimated(BIG, tp=4).held - estimated(BIG, tp=4, offload_gib="10").held == 10 * GIB


def test_a_draft_adds_its_weights_and_its_cache() -> None:
    small = Checkpoint(path="d", tensors=tuple(tensors(decoder(LLAMA))))
    main = Checkpoint(path="m", tensors=tuple(tensors(decoder(BIG))))
    found = estimate(asked(tp=1), main, read_shape(BIG), (small, read_shape(LLAMA)))
    assert found is not None
    assert found.draft == sum(one.bytes for one in small.tensors)
    assert found.kv.per_token == 80 * 2 * 8 * 128 * 2 + 8 * 2 * 4 * 32 * 2


def test_float32_is_loaded_as_sixteen_bits_unless_it_is_asked_for() -> None:
    config = {**LLAMA, "dtype": "float32"}
    assert estimated(config, dtype="float32").held == 2 * estimated(config, dtype="auto").held


def host(available: float, limit: float | None = None, used: float = 0.0) -> Host:
    cgroup = int(limit * GIB) if limit is not None else None
    return Host(total=64 * GIB, available=int(available * GIB), cgroup_limit=cgroup, cgroup_used=int(used * GIB))


def test_ranks_need_host_memory_while_they_load_and_a_cgroup_counts() -> None:
    found = estimated(BIG, tp=4)
    for memory, expected in (
        (host(60), Outcome.PASS),
        (host(7), Outcome.WARN),
        (host(60, 5), Outcome.FAIL),
        (host(60, 16, 12), Outcome.FAIL),
    ):
        _, checks = on_host(asked(tp=4), found, memory, cpu=False, file_bytes=0)
        assert results(checks) == {"host-oom": expected}, memory
    _, unknown = on_host(asked(tp=4), found, Host(), cpu=False, file_bytes=0)
    assert results(unknown) == {"host-oom": Outcome.NOT_CHECKED}


def test_on_a_cpu_the_weights_stay_in_host_memory() -> None:
    found = estimated(BIG, tp=2)
    _, checks = on_host(asked(tp=2), found, host(60), cpu=True, file_bytes=0)
    assert results(checks)["host-oom"] is Outcome.FAIL
    small = estimated({**LLAMA, "max_position_embeddings": 1 << 20}, tp=2)
    told, fits = on_host(asked(tp=2, kv_space_gib="1"), small, host(60), cpu=True, file_bytes=0)
    assert results(fits) == {"host-oom": Outcome.PASS, "kv-too-small-at-start": Outcome.FAIL}
    assert told is not None
    assert told.longest == GIB // (8 * 2 * 2 * 32 * 2)


def test_nothing_is_estimated_without_headers_or_shape() -> None:
    assert estimate(asked(), Checkpoint(path="m"), read_shape(LLAMA)) is None
    assert estimate(asked(), Checkpoint(path="m", tensors=tuple(tensors(decoder(LLAMA)))), read_shape({})) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32k", 32000),
        ("1K", 1024),
        ("128M", 128 << 20),
        ("1.5GiB", 1.5 * GIB),
        ("8192", 8192),
        ("auto", None),
        ("-1", None),
        ("", None),
        ("k", None),
    ],
)
def test_amounts_have_units_as_engines_read_them(text: str, expected: float | None) -> None:
    assert amount(text) == expected
