import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fake_nvml import Cards, cards

from firsttoken.model.events import Body, Gpus, Missed
from firsttoken.model.gpu import GpuSample
from firsttoken.observe.gpu import GpuWatcher, present

__all__ = ["cards"]
DEADLINE = 20.0


@pytest.fixture
def watcher(cards: Cards) -> Iterator[GpuWatcher]:
    with closing(GpuWatcher()) as watcher:
        yield watcher


def until(watcher: GpuWatcher, wanted: Callable[[Body], bool]) -> Body:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        for body in watcher.look(0.0):
            if wanted(body):
                return body
        time.sleep(0.02)
    raise AssertionError("it never came")


def sample(watcher: GpuWatcher, wanted: Callable[[GpuSample], bool] = lambda _: True) -> GpuSample:
    body = until(watcher, lambda body: isinstance(body, Gpus) and wanted(body.samples[0]))
    assert isinstance(body, Gpus)
    return body.samples[0]


def test_a_card_at_work_is_told_with_power_memory_traffic_and_processes(cards: Cards, watcher: GpuWatcher) -> None:
    cards.does("healthy", gpus=2, pids="11:12", foreign=99)
    body = until(watcher, lambda body: isinstance(body, Gpus) and body.samples[1].dram is not None)
    assert isinstance(body, Gpus)
    assert (body.source, body.driver) == ("nvml", "999.1")
    card = body.samples[1]
    assert (card.index, card.name, card.uuid, card.compute_capability) == (1, "Fake 100", "GPU-1", "9.0")
    assert (card.busy, card.dram, card.sm, card.power, card.power_limit) == (1.0, 0.35, 0.99, 550.0, 700.0)
    assert card.pcie_rx == card.nvlink_tx == 1500 * (1 << 20)
    assert card.processes is not None
    assert [(p.pid, p.memory) for p in card.processes] == [(12, 9 << 30), (99, 1 << 30)]
    assert (card.throttled, card.xids, card.link_width, card.link_width_most) == ((), (), 16, 16)


def test_a_card_without_gpm_is_asked_for_its_older_counters(cards: Cards, watcher: GpuWatcher) -> None:
    cards.does("healthy", gpm=0)
    card = sample(watcher, lambda card: card.nvlink_rx is not None)
    assert (card.dram, card.sm, card.memory_busy, card.pcie_rx) == (None, None, 0.4, 2e9)


def test_errors_are_told_once(cards: Cards, watcher: GpuWatcher) -> None:
    cards.does("xid")
    assert sample(watcher, lambda card: bool(card.xids)).xids == (79,)
    assert sample(watcher).xids == ()


def test_throttling_is_told_and_a_power_cap_is_none(cards: Cards, watcher: GpuWatcher) -> None:
    assert sample(watcher).throttled == ()
    cards.does("throttled")
    assert sample(watcher, lambda card: bool(card.throttled)).throttled == ("hardware thermal slowdown",)


def test_a_card_that_fell_off_the_bus_is_told(cards: Cards, watcher: GpuWatcher) -> None:
    cards.does("lost")
    assert sample(watcher).lost


def test_a_driver_that_never_answers_holds_nobody_up(cards: Cards) -> None:
    cards.does("wedged")
    with closing(GpuWatcher(answers_within=0.5)) as watcher:
        body = until(watcher, lambda _: True)
        assert isinstance(body, Missed)
        assert "the driver gave no answer" in body.reason
        began = time.process_time()
        assert watcher.look(0.0) == []
        assert time.process_time() - began < 0.1


def test_a_question_waits_for_its_time(watcher: GpuWatcher) -> None:
    end = time.monotonic() + DEADLINE
    while not watcher.look(60.0):
        assert time.monotonic() < end
        time.sleep(0.02)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        assert watcher.look(60.0) == []
        time.sleep(0.02)


def test_without_a_gpu_nothing_is_started_and_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTTOKEN_NVML", raising=False)
    assert not present(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert present(tmp_path)
    watcher = GpuWatcher(("/nowhere/probe",), present=lambda: False)
    assert watcher.look(0.0) == []


def test_where_only_nvidia_smi_is_there_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "  *compute-apps*) echo 'GPU-7, 41, 512' ;;\n"
        "  *compute_cap*) echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2 ;;\n"
        "  *) echo '0, GPU-7, Old 10, 98, 3, 600, 16000, 61.20, [N/A]' ;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("FIRSTTOKEN_NVML", "/nowhere/libnvidia-ml.so.1")
    watcher = GpuWatcher()
    body = until(watcher, lambda body: isinstance(body, Gpus))
    watcher.close()
    assert isinstance(body, Gpus)
    (card,) = body.samples
    assert (body.source, card.name, card.busy, card.power, card.power_limit) == ("nvidia-smi", "Old 10", 0.98, 61.2, None)
    assert card.processes is not None
    assert [(p.pid, p.memory) for p in card.processes] == [(41, 512 << 20)]


def test_a_probe_that_can_tell_nothing_says_why_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("FIRSTTOKEN_NVML", "/nowhere/libnvidia-ml.so.1")
    with closing(GpuWatcher()) as watcher:
        body = until(watcher, lambda _: True)
        assert isinstance(body, Missed)
        assert "no nvidia-smi" in body.reason
        assert watcher.look(0.0) == []


def test_a_probe_that_dies_is_told_and_not_started_at_once(tmp_path: Path) -> None:
    watcher = GpuWatcher((sys.executable, "-c", "raise SystemExit(3)"), present=lambda: True)
    body = until(watcher, lambda _: True)
    assert isinstance(body, Missed)
    assert "status 3" in body.reason
    assert watcher.look(0.0) == []


def test_garbage_from_a_probe_is_passed_over(tmp_path: Path) -> None:
    script = "import sys\nfor _ in sys.stdin: print('[]\\n{\\n{\"gpus\": 3, \"source\": 1}\\n' + 'x' * 5000, flush=True)"
    watcher = GpuWatcher((sys.executable, "-c", script), present=lambda: True, answers_within=0.3)
    end = time.monotonic() + 1.0
    told = []
    while time.monotonic() < end and not told:
        told = [body for body in watcher.look(0.0) if isinstance(body, Gpus)]
        time.sleep(0.02)
    watcher.close()
    assert not told


def test_the_probe_ends_with_its_input(cards: Cards) -> None:
    probe = subprocess.Popen(
        [sys.executable, "-P", "-m", "firsttoken.observe.gpu_probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    out, _ = probe.communicate(b"\n", timeout=DEADLINE)
    assert probe.returncode == 0
    assert out.count(b"\n") == 1
