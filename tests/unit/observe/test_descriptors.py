"""What descriptors lead to, by links, fdinfo and mountinfo."""

from pathlib import Path

import pytest
from fake_proc import FakeProc
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.descriptors import Descriptors, parse_fdinfo, parse_mounts


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        ("pipe:[12]", "pipe"),
        ("socket:[13]", "socket"),
        ("anon_inode:[eventpoll]", "eventpoll"),
        ("anon_inode:[eventfd]", "eventfd"),
        ("anon_inode:inotify", "inotify"),
        ("anon_inode:[pidfd]", "pidfd"),
        ("/dev/pts/3", "terminal"),
        ("/dev/nvidia0", "device"),
        ("/dev/shm/sem.x", "file"),
        ("/models/a.safetensors", "file"),
    ],
)
def test_a_link_tells_the_kind(tmp_path: Path, link: str, kind: str) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10)
    proc.link("10/fd/4", link)
    found = Descriptors(proc.procfs, 10).get(4)
    assert found is not None
    assert (found.kind, found.link) == (kind, link)


def test_a_descriptor_that_is_not_there_is_none(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10)
    assert Descriptors(proc.procfs, 10).get(4) is None


def test_a_file_is_identified_as_in_the_table_of_locks(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10)
    proc.link("10/fd/4", "/data/a lock")
    proc.write(
        "10/fdinfo/4", "pos:\t0\nflags:\t02100002\nmnt_id:\t27\nino:\t2189735\nlock:\t1: FLOCK  ADVISORY  WRITE 10 fe:00:2189735 0 EOF\n"
    )
    proc.write("10/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 0:50 / /data rw - nfs4 host:/x rw\n")
    descriptors = Descriptors(proc.procfs, 10)
    found = descriptors.get(4)
    assert found is not None
    assert (found.identity, found.mode) == (("fe:00", 2189735), 2)
    remote = descriptors.mount_of("/data/b")
    assert remote is not None
    assert remote.remote
    local = descriptors.mount_of("/database")
    assert local is not None
    assert not local.remote


def test_fdinfo_tells_what_an_epoll_set_watches_and_whose_pidfd_it_is() -> None:
    assert parse_fdinfo(b"pos:\t0\nflags:\t02\ntfd:        3 events:       19 data: 3\ntfd:       11 events: 1 data: b\n").watched == (
        3,
        11,
    )
    assert parse_fdinfo(b"pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t3\nPid:\t4242\nNSpid:\t4242\n").pid == 4242


def test_mount_points_with_blanks_are_read() -> None:
    mounts = parse_mounts(b"40 1 0:41 / /mnt/my\\040models rw,relatime shared:5 - fuse.sshfs me@host: rw\n")
    assert mounts[40].point == "/mnt/my models"
    assert mounts[40].remote
    assert mounts[40].device == "00:29"


@given(st.binary(max_size=300))
def test_no_bytes_are_too_odd(raw: bytes) -> None:
    parse_fdinfo(raw)
    parse_mounts(raw)
