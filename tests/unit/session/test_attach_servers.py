"""Which process is the server: by pid, by port, or found. On a /proc in a folder, and for ports on our own."""

import os
import socket
from pathlib import Path

import pytest
from fake_proc import FakeProc

from firsttoken.knowledge.load import profiles
from firsttoken.session.attaching.aim import NoAim, take_aim
from firsttoken.session.attaching.servers import Finder, Server
from firsttoken.wiring import plan_of_server

SERVER = "firsttoken rehearse --ranks 2 --port 8123"
CONTAINER = "ab" * 32


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path / "proc")
    fake.write("uptime", "120.00 200.00\n")
    fake.process(1, ppid=0, start=0, title="/sbin/init", comm="systemd")
    return fake


def add(proc: FakeProc, pid: int, title: str, ppid: int = 1, start: int = 2000, uid: int | None = None, environ: bytes = b"A=b\0") -> None:
    proc.process(pid, ppid=ppid, start=start, title=title, environ=environ)
    proc.write(f"{pid}/status", f"Name:\tx\nUid:\t{os.getuid() if uid is None else uid}\t0\t0\t0\n")


def finder(proc: FakeProc) -> Finder:
    return Finder(profiles(), proc.procfs)


def found(proc: FakeProc, what: str | None = None) -> Server:
    server = take_aim(what, finder(proc), plan_of_server).server
    assert server is not None
    return server


def test_a_ranks_pid_leads_to_its_server(proc: FakeProc) -> None:
    add(proc, 50, "bash run.sh")
    add(proc, 60, SERVER, ppid=50)
    add(proc, 61, "python -c spawn_main", ppid=60)
    add(proc, 62, "rehearsal::rank_TP1", ppid=61)
    aim = take_aim("62", finder(proc), plan_of_server)
    assert aim.server is not None
    assert (aim.server.process.pid, aim.server.engine) == (60, "rehearsal")
    assert aim.notes == ("process 62 belongs to the server of pid 60",)


def test_a_process_that_is_no_engine_is_taken_as_it_is(proc: FakeProc) -> None:
    add(proc, 70, "./serve --port 9")
    assert found(proc, "70").process.pid == 70
    assert found(proc, "70").engine is None


def test_a_pid_that_is_not_there_is_told_so(proc: FakeProc) -> None:
    with pytest.raises(NoAim, match="no process 99999"):
        take_aim("99999", finder(proc), plan_of_server)


def test_neither_pid_nor_address_is_a_usage_error(proc: FakeProc) -> None:
    with pytest.raises(NoAim, match="neither a pid nor an address") as raised:
        take_aim("vllm", finder(proc), plan_of_server)
    assert raised.value.code == 2


def test_the_only_server_is_found_with_its_age(proc: FakeProc) -> None:
    add(proc, 60, SERVER)
    add(proc, 61, "rehearsal::rank_TP0", ppid=60)
    server = found(proc)
    assert server.process.pid == 60
    assert server.age_s == pytest.approx(120 - 2000 / os.sysconf("SC_CLK_TCK"))


def test_of_several_none_is_picked_and_all_are_listed(proc: FakeProc) -> None:
    add(proc, 60, SERVER)
    add(proc, 80, "vllm serve /models/a --api-key sk-0123456789abcdefgh")
    with pytest.raises(NoAim) as raised:
        take_aim(None, finder(proc), plan_of_server)
    assert [server.process.pid for server in raised.value.servers] == [60, 80]
    assert "pid 60" in str(raised.value)
    assert "vllm serve" in str(raised.value)
    assert "sk-0123" not in str(raised.value)


def test_another_users_server_is_never_picked_silently(proc: FakeProc) -> None:
    add(proc, 60, SERVER, uid=os.getuid() + 1)
    with pytest.raises(NoAim, match="another user's; to take one, give its pid"):
        take_aim(None, finder(proc), plan_of_server)
    assert found(proc, "60").process.pid == 60


def test_ones_own_is_taken_beside_another_users_and_that_is_told(proc: FakeProc) -> None:
    add(proc, 60, SERVER, uid=os.getuid() + 1)
    add(proc, 80, SERVER)
    aim = take_aim(None, finder(proc), plan_of_server)
    assert aim.server is not None
    assert aim.server.process.pid == 80
    assert "other users" in aim.notes[0]


def test_nothing_to_find_says_what_to_do(proc: FakeProc) -> None:
    with pytest.raises(NoAim, match="no server of a known engine runs here"):
        take_aim(None, finder(proc), plan_of_server)


def test_who_holds_a_port_is_the_server_that_an_address_names() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        aim = take_aim(f"http://127.0.0.1:{port}", Finder(profiles()), plan_of_server)
    assert aim.server is not None
    assert aim.target is not None
    assert (aim.server.process.pid, aim.target.port) == (os.getpid(), port)


def test_an_address_where_nobody_listens_is_told_so() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(NoAim, match=f"nothing listens on port {port}"):
        take_aim(f"localhost:{port}", Finder(profiles()), plan_of_server)


@pytest.mark.parametrize(
    ("cgroup", "stop"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope", "kill 60"),
        ("0::/system.slice/llm@a.service", "systemctl stop llm@a.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service", "systemctl --user stop llm.service"),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope/container", f"podman stop {CONTAINER[:12]}"),
        (f"4:memory:/docker/{CONTAINER}", f"docker stop {CONTAINER[:12]}"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINER}.scope", f"crictl stop {CONTAINER[:12]}"),
    ],
)
def test_how_the_user_can_stop_it_is_known_from_where_it_runs(proc: FakeProc, cgroup: str, stop: str) -> None:
    add(proc, 60, SERVER)
    proc.write("60/cgroup", cgroup + "\n")
    assert found(proc, "60").how_to_stop() == stop


def test_a_shell_below_a_service_is_not_that_service(proc: FakeProc) -> None:
    add(proc, 40, "sshd")
    proc.process(40, title="sshd", comm="sshd")
    add(proc, 60, SERVER, ppid=40)
    proc.write("60/cgroup", "0::/system.slice/ssh.service\n")
    assert found(proc, "60").how_to_stop() == "kill 60"


def test_a_run_of_ours_is_stopped_by_its_own_name(proc: FakeProc) -> None:
    add(proc, 60, SERVER, environ=b"FIRSTTOKEN_RUN=20260101-000000-rehearsal-abcd\0")
    assert found(proc, "60").how_to_stop() == "firsttoken stop 20260101-000000-rehearsal-abcd"
