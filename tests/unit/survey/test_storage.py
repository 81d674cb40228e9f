"""Where bytes come from: mount, device, read-ahead and rate, and the rate remembered."""

import os
from pathlib import Path

import pytest

from firsttoken.survey.storage import direct_rate, mount_for, storage_of
from firsttoken.survey.storage_rates import RateBook

MOUNTS = """\
22 1 254:1 / / rw - ext4 /dev/vda1 rw
30 22 0:44 / /mnt/models rw - nfs4 filer:/models rw
31 22 0:45 / /mnt/a\\040b rw - tmpfs tmpfs rw
"""


def machine(root: Path) -> str:
    def write(name: str, text: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/self/mountinfo", MOUNTS)
    write("sys/devices/vda/queue/rotational", "0\n")
    write("sys/devices/vda/vda1/partition", "1\n")
    (root / "sys/block").mkdir()
    (root / "sys/block/vda").symlink_to(root / "sys/devices/vda")
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/254:1").symlink_to(root / "sys/devices/vda/vda1")
    write("sys/class/bdi/254:1/read_ahead_kb", "4096\n")
    return str(root)


def test_a_local_file_is_told_with_its_disk_and_read_ahead(tmp_path: Path) -> None:
    found = storage_of("/models/a", os.makedev(254, 1), machine(tmp_path))
    assert found is not None
    assert (found.device, found.rotational, found.read_ahead, found.network) == ("vda", False, 4 << 20, False)
    assert found.words == "/ (ext4 on vda)"


def test_a_network_mount_is_named_without_asking_it(tmp_path: Path) -> None:
    root = machine(tmp_path)
    found = storage_of("/mnt/models/a", os.makedev(0, 44), root)
    assert found is not None
    assert (found.device, found.read_ahead, found.network, found.memory) == (None, 128 << 10, True, False)
    assert found.words == "/mnt/models (nfs4 from filer:/models)"
    mount = mount_for("/mnt/a b/c", root)
    assert mount is not None
    assert mount.point == "/mnt/a b"
    memory = storage_of("/mnt/a b/c", os.makedev(0, 45), root)
    assert memory is not None
    assert memory.memory


def test_without_mountinfo_nothing_is_known(tmp_path: Path) -> None:
    assert storage_of("/a", 0, str(tmp_path)) is None
    assert mount_for("/a", str(tmp_path)) is None


def test_a_rate_is_measured_past_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(8 << 20))
    try:
        assert direct_rate([str(path)], seconds=0.2, piece=1 << 20) > 0
    except OSError as error:
        pytest.skip(f"no direct reads here: {error}")


def test_a_file_too_short_to_measure_by_is_said(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"short")
    with pytest.raises(OSError, match=r"no file is long enough|Invalid argument|not supported"):
        direct_rate([str(path)], seconds=0.1)


def test_rates_are_remembered_with_their_age_and_damage_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "rates.json"
    book = RateBook(file)
    assert book.get("disk") is None
    book.keep("disk", 1e9)
    kept = RateBook(file).get("disk")
    assert kept is not None
    assert kept.bytes_per_s == 1e9
    assert kept.age_s < 60
    for damage in (
        b"",
        b"[]",
        b'{"disk": 3}',
        b'{"disk": {"bytes_per_s": "x", "at": 1}}',
        b'{"disk": {"bytes_per_s": -1, "at": 1}}',
        b"\xff{{",
    ):
        file.write_bytes(damage)
        assert book.get("disk") is None, damage
    book.keep("disk", 2e9)
    assert book.get("disk") is not None
