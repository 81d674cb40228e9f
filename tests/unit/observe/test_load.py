"""What is counted while weights are loaded: differences, only while shards are held."""

from pathlib import Path

from fake_proc import FakeProc

from firsttoken.observe.load import LoadWatcher


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stand(proc: FakeProc, pid: int, *, read: int = 0, stored: int = 0, major: int = 0, utime: int = 0, waited: int = 0) -> None:
    proc.process(pid, majflt=major, utime=utime)
    io = f"rchar: {read}\nwchar: 0\nsyscr: {read >> 20}\nsyscw: 0\nread_bytes: {stored}\nwrite_bytes: 0\n"
    proc.write(f"{pid}/io", io)
    proc.write(f"{pid}/task/{pid}/io", io)
    proc.write(f"{pid}/schedstat", f"5 {waited} 3\n")


def machine(proc: FakeProc, *, swapped: int, received: int) -> None:
    proc.write("vmstat", f"nr_free_pages 3\npswpin {swapped}\npswpout {swapped}\n")
    proc.write("net/dev", f"Inter-| Receive\n face |bytes\n    lo: 999 1 0\n  eth0: {received} 1 0\n")


def test_nothing_is_told_while_nobody_holds_shards(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    stand(proc, 10)
    watcher = LoadWatcher(proc.procfs)
    assert watcher.look([10], ()) is None
    assert watcher.look([10], ()) is None


def test_differences_are_summed_over_processes_and_told_until_the_look_after(tmp_path: Path) -> None:
    proc, clock = FakeProc(tmp_path), Clock()
    watcher = LoadWatcher(proc.procfs, clock=clock)
    stand(proc, 10)
    machine(proc, swapped=0, received=1000)
    assert watcher.look([10], ()) is None
    clock.now = 1.0
    stand(proc, 10, read=8 << 20, stored=4 << 20, major=7, utime=50, waited=400_000_000)
    stand(proc, 11, read=2 << 20, utime=10)
    machine(proc, swapped=1, received=6000)
    told = watcher.look([10, 11], (10,))
    assert told is not None
    assert (told.seconds, told.user_s, told.major_faults) == (1.0, 0.6, 7)
    assert (told.reads, told.read_bytes, told.stored_bytes) == (10, 10 << 20, 4 << 20)
    assert (told.swapped_bytes, told.received_bytes) == (8192, 5000)
    clock.now = 2.0
    stand(proc, 10, read=16 << 20, stored=4 << 20, major=7, utime=60, waited=900_000_000)
    told = watcher.look([10, 11], (10,))
    assert told is not None
    assert (told.readers, told.starved_s) == (1, 0.5)
    assert watcher.look([10, 11], ()) is not None, "what happened since the last look"
    assert watcher.look([10, 11], ()) is None


def test_what_cannot_be_read_is_not_told_as_zero(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10)
    watcher = LoadWatcher(proc.procfs)
    watcher.look([10], (10,))
    told = watcher.look([10, 99], (10,))
    assert told is not None
    assert (told.reads, told.stored_bytes, told.swapped_bytes, told.received_bytes) == (-1, -1, -1, -1)
    proc.write("10/io", b"\xff: 3\nrchar: -1\n")
    proc.write("10/schedstat", b"\xff")
    proc.write("10/stat", b"10 (")
    assert watcher.look([10], (10,)) is not None
