"""The mount behind a path, from its table alone: links are followed up to the first mount that may not answer."""

import pytest

from firsttoken.survey.mounts import Mount, mount_behind, parse_mounts

MOUNTS = parse_mounts("""\
22 1 254:1 / / rw - ext4 /dev/vda1 rw
30 22 0:44 / /nas rw - nfs4 filer:/models rw
31 22 0:45 / /data rw - xfs /dev/vdb rw
32 31 0:46 / /data/far rw - fuse.sshfs me@host: rw
33 22 0:47 / /home rw - autofs auto.home rw
""")
LINKS = {"/models": "nas/models", "/data/m": "../models/m", "/data/up": "..", "/loop": "/loop", "/nas/out": "/data", "/a": "/data/far/x"}


def read_link(path: str) -> str:
    assert not path.startswith(("/nas/", "/data/far/", "/home/")), "a mount that may be dead was asked"
    if path not in LINKS:
        raise OSError("no link")
    return LINKS[path]


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/etc/hosts", "/"),
        ("/data/x/y", "/data"),
        ("/nas", "/nas"),
        ("/models/llama", "/nas"),
        ("/data/m", "/nas"),
        ("/data/up/nas/x", "/nas"),
        ("/nas/out/x", "/nas"),
        ("/a/b", "/data/far"),
        ("/home/me/.cache", "/home"),
        ("/loop/x", "/"),
        ("/data/../etc", "/"),
    ],
)
def test_a_mount_is_told_without_being_asked(path: str, point: str) -> None:
    found = mount_behind(path, MOUNTS, read_link)
    assert found is not None
    assert found.point == point
    assert found.here == (point in ("/", "/data"))


def test_what_is_not_known_may_not_answer() -> None:
    assert not Mount(point="/x", kind="newfs", source="none").here
    assert mount_behind("/x", ()) is None
    assert mount_behind("/x\0y", MOUNTS) is not None
