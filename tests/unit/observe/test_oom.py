import os
from pathlib import Path

import pytest
from fake_proc import Clock, FakeProc

from firsttoken.model.process import ProcessKey
from firsttoken.observe.oom import OomWatcher

KILL = "3,1204,99,-;Memory cgroup out of memory: Killed process {pid} (VLLM::Worker_TP) total-vm:1234kB, anon-rss:99kB, oom_score_adj:0\n"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def group(proc: FakeProc, tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup/run"
    folder.mkdir(parents=True)
    proc.write("self/mountinfo", f"30 20 0:26 / {tmp_path / 'cgroup'} rw - cgroup2 cgroup rw\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 5\noom 1\noom_kill 2\noom_group_kill 0\n")
    return folder


def member(proc: FakeProc, pid: int) -> ProcessKey:
    proc.write(f"{pid}/cgroup", "0::/run\n")
    return proc.process(pid)


class Kmsg:
    """A kernel log that had a line before we came; a plain file, reads of which end where it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text("3,1,1,-;Out of memory: Killed process 10 (old) total-vm:1kB\n")

    def add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)


@pytest.fixture
def kmsg(tmp_path: Path) -> Kmsg:
    return Kmsg(tmp_path / "kmsg")


def test_the_kernel_log_names_the_victim(proc: FakeProc, kmsg: Kmsg) -> None:
    keys = [member(proc, 10), member(proc, 11)]
    watcher = OomWatcher(proc.procfs, kmsg=kmsg.path)
    assert watcher.look(keys) == []
    kmsg.add(KILL.format(pid=11))
    (event,) = watcher.look(keys[:1])
    assert (event.source, event.pid) == ("kmsg", 11)
    assert event.text.startswith("Memory cgroup out of memory: Killed process 11 (VLLM::Worker_TP)")
    assert watcher.look(keys[:1]) == []
    watcher.close()


def test_victims_outside_the_run_and_from_before_it_are_not_ours(proc: FakeProc, kmsg: Kmsg, group: Path) -> None:
    keys = [member(proc, 10), member(proc, 11)]
    watcher = OomWatcher(proc.procfs, kmsg=kmsg.path)
    watcher.look(keys)
    kmsg.add(KILL.format(pid=99))
    (group / "memory.events").write_text("oom_kill 3\n")
    assert watcher.look(keys[:1]) == []
    watcher.close()


def test_without_the_kernel_log_a_count_that_grew_as_a_process_went_away_is_told(proc: FakeProc, group: Path, tmp_path: Path) -> None:
    keys = [member(proc, 10), member(proc, 11)]
    watcher = OomWatcher(proc.procfs, kmsg=tmp_path / "none")
    (missed,) = watcher.missed()
    assert "cgroup counters alone" in missed.reason
    assert watcher.look(keys) == []
    (group / "memory.events").write_text("oom_kill 3\n")
    (event,) = watcher.look(keys[:1])
    assert (event.source, event.pid) == ("cgroup", 11)
    assert "grew by 1" in event.text
    assert watcher.look(keys[:1]) == []


def test_the_count_may_come_before_the_process_is_missing(proc: FakeProc, group: Path) -> None:
    clock = Clock()
    keys = [member(proc, 10), member(proc, 11)]
    watcher = OomWatcher(proc.procfs, kmsg=None, clock=clock)
    watcher.look(keys)
    (group / "memory.events").write_text("oom_kill 3\n")
    assert watcher.look(keys) == []
    clock.now += 1
    assert [event.pid for event in watcher.look(keys[:1])] == [11]


def test_a_count_that_grew_while_all_live_is_somebody_elses_kill(proc: FakeProc, group: Path) -> None:
    clock = Clock()
    keys = [member(proc, 10), member(proc, 11)]
    watcher = OomWatcher(proc.procfs, kmsg=None, clock=clock)
    watcher.look(keys)
    (group / "memory.events").write_text("oom_kill 3\n")
    assert watcher.look(keys) == []
    clock.now += 60
    assert watcher.look(keys[:1]) == []


def test_where_no_cgroup_counts_the_machines_count_stands_in(proc: FakeProc) -> None:
    proc.write("vmstat", "pgpgin 1\noom_kill 7\n")
    keys = [proc.process(10), proc.process(11)]
    watcher = OomWatcher(proc.procfs, kmsg=None)
    watcher.look(keys)
    proc.write("vmstat", "pgpgin 1\noom_kill 8\n")
    (event,) = watcher.look(keys[:1])
    assert "this machine" in event.text


def test_in_a_container_the_machines_kernel_log_is_not_used(proc: FakeProc, kmsg: Kmsg) -> None:
    proc.link("self/ns/pid", "pid:[4026532000]")
    watcher = OomWatcher(proc.procfs, kmsg=kmsg.path)
    assert ["container" in missed.reason for missed in watcher.missed()] == [True]


def test_a_log_that_blocks_is_not_waited_for(proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    watcher = OomWatcher(proc.procfs, kmsg=path)
    assert watcher.look([proc.process(10)]) == []
    watcher.close()
