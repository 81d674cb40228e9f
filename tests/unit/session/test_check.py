"""A whole check of one command, on models and machines made for it."""

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_folders import EAGLE3, LLAMA, eagle3_tensors, write_model

from firsttoken.model.checks import CheckReport, Outcome, exit_status
from firsttoken.plan.world import World
from firsttoken.session.checking import facts as check_facts
from firsttoken.session.checking.check import check
from firsttoken.session.checking.subject import Wanted
from firsttoken.session.planning import local_world
from firsttoken.survey.network_checks import Taken

PASS, WARN, FAIL = Outcome.PASS, Outcome.WARN, Outcome.FAIL


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without caches or runs of anybody."""
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path / "firsttoken"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def world(home: Path, **env: str) -> World:
    return local_world({"HOME": str(home), "USER": "a", "PATH": os.environ["PATH"], **env}, str(home))


def checked(home: Path, *argv: str, env: dict[str, str] | None = None, **wanted: Any) -> CheckReport:
    return check(argv, Wanted(**{"quick": True, "gpu_memory": 80.0 * (1 << 30), **wanted}), world=world(home, **(env or {})))


def worst(report: CheckReport) -> dict[str, Outcome]:
    order = [Outcome.NOT_CHECKED, PASS, WARN, FAIL]
    found: dict[str, Outcome] = {}
    for one in report.checks:
        found[one.id] = max(one.result, found.get(one.id, one.result), key=order.index)
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_healthy_command_passes_and_tells_what_it_will_hold(home: Path) -> None:
    model = write_model(home / "m")
    report = checked(home, "vllm", "serve", str(model), "-tp", "2", "--max-model-len", "2048", "--port", str(free_port()))
    found = worst(report)
    assert FAIL not in found.values(), report.checks
    assert {name: found[name] for name in ("weights-corrupt", "tokenizer-missing", "gpu-oom", "port-in-use")} == {
        "weights-corrupt": PASS,
        "tokenizer-missing": PASS,
        "gpu-oom": PASS,
        "port-in-use": PASS,
    }
    assert report.memory is not None
    assert report.memory.kv_per_token == 8 * 2 * 2 * 32 * 2
    assert len(report.memory.weights_by_rank) == 2
    assert exit_status(report.checks) in (0, 1)


def test_the_names_of_the_command_are_understood_for_both_engines(home: Path) -> None:
    model = write_model(home / "m", {**LLAMA, "num_attention_heads": 6, "num_key_value_heads": 6})
    for argv in (("vllm", "serve", str(model), "-tp", "4"), ("python", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "4")):
        report = checked(home, *argv)
        assert worst(report)["tp-not-divisible"] is FAIL
        assert exit_status(report.checks) == 78


def test_a_draft_in_json_and_in_flags_is_held_against_its_target(home: Path) -> None:
    model = write_model(home / "m")
    right = write_model(home / "right", EAGLE3, shards=1, tensors=eagle3_tensors())
    wrong = write_model(home / "wrong", {**EAGLE3, "vocab_size": 99}, shards=1, tensors=eagle3_tensors())

    def vllm(draft: Path | str) -> dict[str, Outcome]:
        spoken = json.dumps({"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3})
        return worst(checked(home, "vllm", "serve", str(model), "--speculative-config", spoken))

    assert vllm(right)["spec-draft-mismatch"] is PASS
    assert vllm(wrong)["spec-draft-mismatch"] is FAIL
    assert vllm(home / "nowhere")["spec-draft-mismatch"] is FAIL
    flags = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(wrong))
    assert worst(checked(home, "python", "-m", "sglang.launch_server", "--model-path", str(model), *flags))["spec-draft-mismatch"] is FAIL


def test_a_port_that_somebody_listens_on_is_named_with_its_holder(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        report = checked(home, "firsttoken", "rehearse", "--port", port)
        assert f"(pid {os.getpid()})" in next(one.fact for one in report.checks if one.id == "port-in-use")
        assert worst(report)["port-in-use"] is FAIL
        ours = checked(home, "firsttoken", "rehearse", "--port", port, without=lambda: frozenset({os.getpid()}))
        assert worst(ours)["port-in-use"] is PASS


def test_internal_ports_are_asked_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def nobody(procfs: object, wanted: Any, **_: object) -> list[Taken]:
        asked.extend(wanted)
        return []

    monkeypatch.setattr(check_facts, "taken", nobody)
    checked(home, "vllm", "serve", "m", "--nnodes", "2", "--port", "8001")
    assert asked == [8001, 29501]
    asked.clear()
    checked(home, "python", "-m", "sglang.launch_server", "--model-path", "m", "--enable-dp-attention", "--nccl-port", "7000")
    assert asked == [30000, 7000, 30233]


def test_a_stale_baton_fails_and_a_live_lock_is_named(home: Path) -> None:
    extension = home / "ext" / "py311_cu128" / "fused"
    extension.mkdir(parents=True)
    env = {"TORCH_EXTENSIONS_DIR": str(home / "ext")}
    assert worst(checked(home, "vllm", "serve", "m", env=env))["jit-stale-lock"] is PASS
    (extension / "lock").touch()
    assert worst(checked(home, "vllm", "serve", "m", env=env))["jit-stale-lock"] is FAIL
    with (extension / "lock").open() as held:
        report = worst(checked(home, "vllm", "serve", "m", env=env))
        assert "jit-stale-lock" not in report
        assert report["foreign-lock-holder"] is WARN
        fcntl.flock(held, fcntl.LOCK_EX)
    (extension / "lock").unlink()
    (home / "ext" / ".lock").touch()
    with (home / "ext" / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert worst(checked(home, "vllm", "serve", "m", env=env))["foreign-lock-holder"] is WARN


def hub(home: Path, name: str = "org/model", revision: str = "abc", ref: str = "main") -> Path:
    folder = home / ".cache/huggingface/hub" / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(revision)
    return folder / "snapshots" / revision


def test_a_name_of_the_hub_is_found_in_the_local_cache_by_its_revision(home: Path) -> None:
    write_model(hub(home))
    write_model(hub(home, revision="def", ref="v2"), {**LLAMA, "num_attention_heads": 6})
    assert worst(checked(home, "vllm", "serve", "org/model", "-tp", "4"))["tp-not-divisible"] is PASS
    assert worst(checked(home, "vllm", "serve", "org/model", "-tp", "4", "--revision", "v2"))["tp-not-divisible"] is FAIL
    assert "weights-corrupt" not in worst(checked(home, "vllm", "serve", "org/model", env={"HF_HUB_CACHE": "/elsewhere"}))


def test_what_is_not_in_the_cache_must_be_downloaded_or_fails_offline(home: Path) -> None:
    assert worst(checked(home, "vllm", "serve", "org/model"))["hub-offline-or-gated"] is WARN
    offline = {"HF_HUB_OFFLINE": "1"}
    assert worst(checked(home, "vllm", "serve", "org/model", env=offline))["hub-offline-or-gated"] is FAIL
    model = write_model(hub(home))
    next(model.glob("*.safetensors")).unlink()
    partly = worst(checked(home, "vllm", "serve", "org/model"))
    assert partly["hub-offline-or-gated"] is WARN
    assert partly.get("weights-corrupt") is not FAIL
    assert worst(checked(home, "vllm", "serve", "org/model", env=offline))["hub-offline-or-gated"] is FAIL


def test_a_hub_that_does_not_answer_fails_and_one_that_does_warns(home: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        env = {"HF_ENDPOINT": f"http://127.0.0.1:{listening.getsockname()[1]}"}
        assert worst(checked(home, "vllm", "serve", "org/model", env=env, quick=False))["hub-offline-or-gated"] is WARN
    assert worst(checked(home, "vllm", "serve", "org/model", env=env, quick=False))["hub-offline-or-gated"] is FAIL


def test_a_path_that_is_not_there_fails(home: Path) -> None:
    assert worst(checked(home, "vllm", "serve", str(home / "none")))["weights-corrupt"] is FAIL


def test_a_part_that_does_not_answer_is_told_and_the_others_count(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from firsttoken.session.checking import check as module

    for_ever = threading.Event()
    monkeypatch.setattr(module, "read_checkpoint", lambda path: for_ever.wait(60))
    model = write_model(home / "m")
    report = checked(home, "vllm", "serve", str(model), "--port", str(free_port()), patience=2.0)
    for_ever.set()
    assert "dead" in next(one.fact for one in report.checks if one.id == "not-answered")
    assert worst(report)["port-in-use"] is PASS


def test_a_model_on_a_dead_mount_is_told_and_not_waited_for(home: Path) -> None:
    import threading

    for_ever = threading.Event()
    dead = World(env={}, cwd="/", list_folder=lambda path: for_ever.wait(60) and None)
    report = check(("vllm", "serve", "m"), Wanted(quick=True, patience=0.2), world=dead)
    for_ever.set()
    assert worst(report) == {"not-answered": WARN}
    assert exit_status(report.checks) == 1


def test_a_server_in_a_container_is_not_judged_by_our_own_limits(home: Path) -> None:
    report = worst(checked(home, "docker", "run", "-p", "8000:8000", "vllm/vllm-openai", "--model", "org/model"))
    assert report["port-in-use"] is Outcome.NOT_CHECKED
    assert "shm-too-small" not in report


def test_no_command_makes_it_raise(home: Path) -> None:
    for argv in (("nonsense",), ("vllm",), ("vllm", "serve"), ("bash", "-c", "vllm serve $X"), ("sglang", "serve", "\0")):
        assert isinstance(checked(home, *argv), CheckReport)


@pytest.fixture
def wide(home: Path) -> Iterator[Path]:
    """Llama 3.1 70B in 64 shards; all of it holes."""
    config = {
        **LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
    }  # fmt: skip
    folder = write_model(home / "wide", config, shards=64)
    yield folder
    shutil.rmtree(folder)


def test_sixty_four_shards_take_well_under_the_time_that_a_start_may_notice(home: Path, wide: Path) -> None:
    """In CPU time: the machine may be busy."""
    checked(home, "vllm", "serve", str(wide))  # modules are loaded once
    began = time.process_time()
    report = checked(home, "vllm", "serve", str(wide), "-tp", "8")
    assert time.process_time() - began < 0.3
    assert report.memory is not None
    assert sum(report.memory.weights_by_rank) == pytest.approx(141.1e9, rel=0.001)
