"""Every fault of a machine, shown once on a made one: ports, names, proxies, limits, disks, locks, tools."""

import os
from pathlib import Path
from typing import Any

import pytest
from check_lists import asked, results

from firsttoken.knowledge.profile import CacheFolder
from firsttoken.model.checks import Check, Outcome
from firsttoken.model.plan import Timer
from firsttoken.model.words import Phase
from firsttoken.survey import build_checks, limit_checks, network_checks
from firsttoken.survey.build_checks import Held
from firsttoken.survey.mounts import Mount, mount_of, parse_mounts
from firsttoken.survey.network_checks import Taken

PASS, WARN, FAIL = Outcome.PASS, Outcome.WARN, Outcome.FAIL
MIB, GIB = 1 << 20, 1 << 30


# ---------------------------------------------------------------- network


@pytest.mark.parametrize(
    ("wanted", "held", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", FAIL), ("127.0.0.1", "0.0.0.0", FAIL), (None, "127.0.0.1", FAIL), ("0.0.0.0", "::", FAIL),
        ("127.0.0.1", "10.0.0.5", PASS), ("10.0.0.5", "10.0.0.5", FAIL), ("localhost", "127.0.0.1", FAIL),
    ],
)  # fmt: skip
def test_a_port_is_taken_where_the_addresses_overlap(wanted: str | None, held: str, expected: Outcome) -> None:
    found = list(network_checks.ports([("HTTP", wanted, 8000)], [Taken(port=8000, host=held, holder="python (pid 7)")]))
    assert results(found) == {"port-in-use": expected}
    assert expected is PASS or "python (pid 7)" in found[0].fact


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({"http_proxy": "http://proxy:3128"}, {"proxy-captures-localhost": WARN}),
        ({"ALL_PROXY": "socks5://proxy:1080", "NO_PROXY": "localhost"}, {"proxy-captures-localhost": WARN}),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "localhost,127.0.0.0/8"}, {"proxy-captures-localhost": PASS}),
        ({"HTTPS_PROXY": "http://proxy:3128"}, {"proxy-captures-localhost": PASS}),
        ({"http_proxy": "http//proxy:3128"}, {"proxy-env-malformed": FAIL}),
        ({"http_proxy": "http://proxy:port"}, {"proxy-env-malformed": FAIL}),
        ({"http_proxy": "http://:3128"}, {"proxy-env-malformed": FAIL}),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "localhost,[::1]"}, {"proxy-env-malformed": FAIL}),
    ],
)
def test_proxies_that_swallow_localhost_or_cannot_be_parsed(env: dict[str, str], expected: dict[str, Outcome]) -> None:
    assert results(network_checks.proxies(env)) == expected


def test_a_proxys_password_is_never_told() -> None:
    found = list(network_checks.proxies({"http_proxy": "http://user:secret@proxy:port"}))
    assert "secret" not in "".join(f"{one.fact}{one.remedy}" for one in found)


def etc_hosts(root: Path, text: str, *, ipv6_off: bool = False) -> str:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/hosts").write_text(text)
    folder = root / "proc/sys/net/ipv6/conf/all"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "disable_ipv6").write_text("1\n" if ipv6_off else "0\n")
    return str(root)


def test_what_localhost_and_the_own_name_mean(tmp_path: Path) -> None:
    good = etc_hosts(tmp_path, "127.0.0.1 localhost\n::1 localhost # both\n10.0.0.5 me.example me\n")
    assert results(network_checks.hosts_file(asked(nodes=2), good, hostname="me")) == {}
    off = etc_hosts(tmp_path, "127.0.0.1 localhost\n::1 localhost\n", ipv6_off=True)
    assert results(network_checks.hosts_file(asked(), off, hostname="me")) == {"localhost-unresolved": WARN}
    odd = etc_hosts(tmp_path, "10.0.0.5 localhost\n")
    assert results(network_checks.hosts_file(asked(), odd, hostname="me")) == {"localhost-unresolved": WARN}
    loop = etc_hosts(tmp_path, "127.0.0.1 localhost\n127.0.1.1 me\n")
    assert results(network_checks.hosts_file(asked(nodes=2), loop, hostname="me")) == {"wrong-interface": FAIL}
    assert results(network_checks.hosts_file(asked(), loop, hostname="me")) == {}
    six = etc_hosts(tmp_path, "127.0.0.1 localhost\n", ipv6_off=True)
    assert results(network_checks.hosts_file(asked(host="::"), six, hostname="me")) == {"engine-args-invalid": FAIL}
    assert results(network_checks.hosts_file(asked(), str(tmp_path / "none"), hostname="me")) == {"localhost-unresolved": WARN}


def interfaces(root: Path, **states: str) -> str:
    for name, state in states.items():
        (root / "sys/class/net" / name).mkdir(parents=True, exist_ok=True)
        (root / "sys/class/net" / name / "operstate").write_text(state)
    return str(root)


@pytest.mark.parametrize(
    ("env", "nodes", "expected"),
    [
        ({"GLOO_SOCKET_IFNAME": "eth7"}, 1, FAIL),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, 1, PASS),
        ({"NCCL_SOCKET_IFNAME": "eth"}, 1, PASS),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, 1, FAIL),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, 1, PASS),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, 2, FAIL),
    ],
)
def test_interfaces_that_variables_name_must_be_there(tmp_path: Path, env: dict[str, str], nodes: int, expected: Outcome) -> None:
    root = interfaces(tmp_path, lo="unknown", eth0="up")
    assert results(network_checks.interfaces(asked(env=env, nodes=nodes, tp=2), root)) == {"wrong-interface": expected}


def test_nodes_need_an_interface_that_leads_out_and_is_up(tmp_path: Path) -> None:
    alone = interfaces(tmp_path / "a", lo="unknown", docker0="down")
    assert results(network_checks.interfaces(asked(nodes=2, tp=2), alone)) == {"wrong-interface": FAIL}
    down = interfaces(tmp_path / "b", lo="unknown", eth0="down")
    found = results(network_checks.interfaces(asked(nodes=2, tp=2, env={"GLOO_SOCKET_IFNAME": "eth0"}), down))
    assert found == {"fabric-multinode": FAIL}
    host = asked(host_address="10.9.9.9", tp=2)
    assert results(network_checks.interfaces(host, interfaces(tmp_path / "c", eth0="up"), addresses=("10.0.0.5",))) == {
        "wrong-interface": FAIL
    }


@pytest.mark.parametrize(
    ("env", "reach", "expected"),
    [({"HF_HUB_OFFLINE": "1"}, None, FAIL), ({}, False, FAIL), ({}, True, WARN), ({}, None, WARN)],
)
def test_a_model_that_is_not_in_the_cache_needs_the_hub(env: dict[str, str], reach: bool | None, expected: Outcome) -> None:
    found = network_checks.hub(asked(env=env), needed=True, reach=reach, endpoint="https://huggingface.co")
    assert results(found) == {"hub-offline-or-gated": expected}
    assert results(network_checks.hub(asked(env=env), needed=False, reach=reach, endpoint="")) == {}


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(("free", "tp", "expected"), [(64 * MIB, 2, FAIL), (512 * MIB, 2, WARN), (8 * GIB, 8, PASS), (64 * MIB, 1, PASS)])
def test_shared_memory_must_hold_the_ranks_rings(free: int, tp: int, expected: Outcome) -> None:
    assert results(limit_checks.shared_memory(asked(tp=tp), room=lambda _: (free, free))) == {"shm-too-small": expected}


def limits_of(root: Path, files: str = "1048576", processes: str = "unlimited", locked: str = "unlimited") -> str:
    (root / "proc/9").mkdir(parents=True, exist_ok=True)
    rows = [("Max processes", processes, "processes"), ("Max open files", files, "files"), ("Max locked memory", locked, "bytes")]
    head = f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}Units\n"
    (root / "proc/9/limits").write_text(head + "".join(f"{name:<26}{'1024':<21}{hard:<21}{unit}\n" for name, hard, unit in rows))
    return str(root)


def test_limits_of_files_processes_and_locked_memory(tmp_path: Path) -> None:
    def found(pids: int | None = None, rdma: bool = False, nodes: int = 1, **limits: str) -> dict[str, Outcome]:
        return results(limit_checks.limits(asked(tp=2, nodes=nodes), limits_of(tmp_path, **limits), 9, pids_room=pids, rdma=rdma))

    assert found() == {"nofile-limit": PASS}
    assert found(files="512") == {"nofile-limit": FAIL}
    assert found(files="4096") == {"nofile-limit": WARN}
    assert found(processes="300") == {"nofile-limit": PASS, "pids-limit": WARN}
    assert found(pids=100) == {"nofile-limit": PASS, "pids-limit": WARN}
    assert found(locked="65536", rdma=True, nodes=2) == {"nofile-limit": PASS, "memlock-limit": FAIL}
    assert results(limit_checks.limits(asked(), str(tmp_path), 10)) == {"nofile-limit": Outcome.NOT_CHECKED}


def test_fewer_processors_than_ranks_warn_and_say_whether_it_is_a_quota() -> None:
    assert results(limit_checks.processors(asked(tp=4), usable=2, quota=None)) == {"cpu-oversubscription": WARN}
    assert results(limit_checks.processors(asked(tp=4), usable=64, quota=1.5)) == {"cgroup-cpu-throttled": WARN}
    assert results(limit_checks.processors(asked(tp=4), usable=64, quota=None)) == {}


def test_full_disks_fail_and_nearly_full_ones_warn() -> None:
    def found(free: int, name: str = "the cache", download: int = 0) -> dict[str, Outcome]:
        return results(limit_checks.disk({name: "/x"}, room=lambda _: (GIB, free), download=download))

    assert found(MIB) == {"disk-full": FAIL}
    assert found(GIB) == {"disk-full": WARN}
    assert found(100 * GIB) == {"disk-full": PASS}
    assert found(100 * GIB, "weights", 200 * GIB) == {"disk-full": FAIL}


def test_a_long_folder_for_temporary_files_breaks_unix_sockets() -> None:
    assert results(limit_checks.temporary_folder(asked(env={"TMPDIR": "/scratch/" + "x" * 70}))) == {"ipc-path-too-long": FAIL}
    assert results(limit_checks.temporary_folder(asked(env={"TMPDIR": "/scratch"}))) == {}


def test_timers_that_fire_before_the_load_can_end_warn() -> None:
    timers = (
        Timer(name="READY_TIMEOUT", seconds=600),
        Timer(name="watchdog-timeout", seconds=300, phases=(Phase.WEIGHTS,)),
        Timer(name="LOAD_TIMEOUT", seconds=300),
        Timer(name="other", seconds=1, phases=(Phase.FIRST_TOKEN,)),
    )
    wanted = asked(timers=timers)
    found = results(limit_checks.timers(wanted, load_bytes=700 * 10**9, rate=1e9, where="measured"))
    assert found == {"ready-timeout-kills-slow-start": WARN, "watchdog-kills-slow-start": WARN, "load-timer-kills-slow-start": WARN}
    assert results(limit_checks.timers(wanted, load_bytes=100 * 10**9, rate=1e9, where="measured")) == {}
    assert results(limit_checks.timers(wanted, load_bytes=700 * 10**9, rate=None, where="")) == {}


# ---------------------------------------------------------------- file systems

MOUNTINFO = """\
21 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
30 21 0:40 / /mnt/models rw - nfs4 server:/export rw
31 21 0:41 / /mnt/my\\040bucket rw - fuse.gcsfuse bucket rw
32 21 0:42 / /mnt/models/local rw - xfs /dev/nvme0n1 rw
33 21 0:43 / /fuse rw - fuse.encfs encfs rw
broken
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/home/a", "ext4", False), ("/mnt/models/x", "nfs4", True), ("/mnt/models/local/x", "xfs", False), ("/mnt/models2", "ext4", False),
        ("/mnt/my bucket/x", "fuse.gcsfuse", True), ("/fuse/x", "fuse.encfs", False),
    ],
)  # fmt: skip
def test_the_file_system_of_a_path_is_the_nearest_mount_above_it(path: str, kind: str, network: bool) -> None:
    found = mount_of(path, parse_mounts(MOUNTINFO))
    assert found is not None
    assert (found.kind, found.network) == (kind, network)


def test_weights_and_caches_on_the_network_warn() -> None:
    nfs = Mount(point="/mnt", kind="nfs4", source="server:/x")
    assert results(limit_checks.storage("the model", "/mnt/m", nfs, weights=True)) == {"mmap-network-storage": WARN}
    assert results(limit_checks.storage("a cache", "/mnt/c", nfs, weights=False)) == {"cache-on-network-storage": WARN}
    assert results(limit_checks.storage("a cache", "/c", Mount(point="/", kind="ext4", source="/dev/a"), weights=False)) == {}


# ---------------------------------------------------------------- building

CACHE = CacheFolder(name="extensions", env=("EXT_DIR",), below="sub", default="~/.cache/$USER", batons=("*/lock",))


def test_a_cache_lies_where_its_variable_says_or_at_home() -> None:
    assert build_checks.place(CACHE, {"EXT_DIR": "/x"}) == "/x/sub"
    assert build_checks.place(CACHE, {"HOME": "/home/a", "USER": "a"}) == "/home/a/.cache/a"
    assert build_checks.place(CACHE, {}) is None


def test_a_baton_that_nobody_holds_is_stale_and_one_that_is_held_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext/lock").touch()
    folders = [(CACHE, str(tmp_path))]
    stale = list(build_checks.locks(folders, (), lambda _: None))
    assert results(stale) == {"jit-stale-lock": FAIL}
    assert stale[0].remedy == f"rm {tmp_path}/ext/lock"
    assert results(build_checks.locks(folders, (), lambda _: "ninja (pid 4)")) == {"foreign-lock-holder": WARN}
    (tmp_path / "ext/lock").unlink()
    assert results(build_checks.locks(folders, (), lambda _: None)) == {"jit-stale-lock": PASS}
    held = Held(path=f"{tmp_path}/x/.lock", holder="python (pid 5)")
    assert results(build_checks.locks(folders, (held,), lambda _: None)) == {"foreign-lock-holder": WARN}


def test_caches_on_the_network_or_not_writable_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [(CACHE, str(tmp_path / "not/there/yet"))]
    assert results(build_checks.cache_folders(folders, lambda _: None)) == {}
    nfs = Mount(point=str(tmp_path), kind="nfs", source="s:/x")
    assert results(build_checks.cache_folders(folders, lambda _: nfs)) == {"cache-on-network-storage": WARN}
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert results(build_checks.cache_folders(folders, lambda _: None)) == {"cache-dir-not-writable": WARN}


def test_compilers_are_looked_for_where_the_engine_will(tmp_path: Path) -> None:
    def tool(folder: str, *names: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in names:
            (tmp_path / folder / name).write_text("#!/bin/sh\n")
            (tmp_path / folder / name).chmod(0o755)
        return str(tmp_path / folder)

    def found(env: dict[str, str], **more: Any) -> list[Check]:
        return list(build_checks.tools(env, beside=more.get("beside"), gpu=more.get("gpu", False), root=str(tmp_path)))

    empty, compilers, venv = tool("empty"), tool("bin", "gcc", "g++"), tool("venv", "ninja")
    assert results(found({"PATH": empty})) == {"jit-build-failed": WARN}
    assert results(found({"PATH": compilers})) == {"jit-build-failed": PASS}
    missing = found({"PATH": compilers}, gpu=True)
    assert "ninja" in missing[0].fact
    assert "nvcc" in missing[0].fact
    tool("cuda")
    tool("cuda/bin", "nvcc")
    assert results(found({"PATH": compilers, "CUDA_HOME": str(tmp_path / "cuda")}, gpu=True, beside=venv)) == {"jit-build-failed": PASS}


def test_packages_that_belong_together_must_be_of_one_version() -> None:
    group = (("a", "a-cubin", "a-cache"),)
    assert results(build_checks.packages(group, {"a": "0.6.1", "a-cubin": "0.6.0"})) == {"dependency-abi-mismatch": FAIL}
    assert results(build_checks.packages(group, {"a": "0.6.1", "a-cache": "0.6.1+cu129"})) == {"dependency-abi-mismatch": PASS}
    assert results(build_checks.packages(group, {"a": "0.6.1"})) == {}
