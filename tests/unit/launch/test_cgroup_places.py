"""Where a group can be made, read from fake mount tables."""

from pathlib import Path

from firsttoken.launch.cgroup import create, recorded


def mounted(at: Path, kind: str, root: str = "/", options: str = "rw") -> str:
    return f"30 20 0:1 {root} {at} rw,relatime shared:1 - {kind} none {options}\n"


def writable(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def with_procs(group: Path) -> None:
    """A plain folder has no cgroup.procs of its own, as the kernel's would: the test puts it there beforehand."""
    group.mkdir()
    (group / "cgroup.procs").write_text("12\n13\n")


def test_version_two_is_preferred_beside_the_own_group(tmp_path: Path) -> None:
    own = writable(tmp_path / "two" / "user" / "session")
    with_procs(own / "firsttoken-r")
    table = mounted(tmp_path / "freezer", "cgroup", options="rw,freezer") + mounted(tmp_path / "two", "cgroup2")
    group = create("r", mountinfo=table, membership="3:freezer:/x\n0::/user/session\n")
    assert group is not None
    assert group.path == own / "firsttoken-r"
    assert group.pids() == (12, 13)


def test_the_freezer_is_taken_where_version_two_is_not_there(tmp_path: Path) -> None:
    own = writable(tmp_path / "freezer" / "a b")
    with_procs(own / "firsttoken-r")
    table = mounted(tmp_path / "pids", "cgroup", options="rw,pids") + mounted(tmp_path / "freezer", "cgroup", options="rw,freezer")
    group = create("r", mountinfo=table, membership="7:pids:/a b\n6:freezer:/a b\n")
    assert group is not None
    assert group.path == own / "firsttoken-r"


def test_a_mount_that_shows_a_part_of_the_hierarchy_is_read_relative_to_it(tmp_path: Path) -> None:
    own = writable(tmp_path / "two" / "inner")
    with_procs(own / "firsttoken-r")
    group = create("r", mountinfo=mounted(tmp_path / "two", "cgroup2", root="/docker/abc"), membership="0::/docker/abc/inner\n")
    assert group is not None
    assert group.path == own / "firsttoken-r"


def test_there_is_none_where_none_can_be_made(tmp_path: Path) -> None:
    assert create("r", mountinfo="", membership="0::/\n") is None
    assert create("r", mountinfo=mounted(tmp_path / "gone", "cgroup2"), membership="0::/\n") is None
    assert create("r", mountinfo="garbage - \n x", membership="nonsense") is None


def test_only_groups_with_our_name_are_taken_from_a_record(tmp_path: Path) -> None:
    ours, other = tmp_path / "firsttoken-r", tmp_path / "system.slice"
    with_procs(ours)
    with_procs(other)
    assert recorded(str(ours)) is not None
    assert recorded(str(other)) is None
    assert recorded(str(tmp_path / "firsttoken-gone")) is None
    assert recorded(None) is None
