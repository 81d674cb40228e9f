"""Which sockets are asked, at which address, and where a key may go."""

import pytest

from firsttoken.model.plan import Endpoint
from firsttoken.model.process import ListenSocket
from firsttoken.observe.http_target import Target, is_loopback, reachable, target_of_url, targets


def tcp(host: str, port: int) -> ListenSocket:
    return ListenSocket(7, host, port, None)


def where(found: list[Target]) -> list[tuple[str | None, int | None]]:
    return [(one.host, one.port) for one in found]


def test_the_planned_port_is_asked_and_no_other() -> None:
    sockets = [tcp("127.0.0.1", 41234), tcp("0.0.0.0", 8000), tcp("0.0.0.0", 29500)]
    assert where(targets(sockets, Endpoint(host="0.0.0.0", port=8000))) == [("127.0.0.1", 8000)]


def test_a_planned_port_that_does_not_listen_yet_leads_to_no_guess() -> None:
    sockets = [tcp("0.0.0.0", 29500)]
    assert targets(sockets, Endpoint(port=8000)) == []
    assert where(targets(sockets, Endpoint(port=8000), guess=True)) == [("127.0.0.1", 29500)]


def test_without_a_known_port_all_are_candidates_and_ephemeral_ones_come_last() -> None:
    sockets = [
        tcp("127.0.0.1", 40000),
        tcp("10.0.0.5", 9000),
        tcp("127.0.0.1", 9100),
        tcp("0.0.0.0", 8080),
        ListenSocket(7, None, None, "/s"),
    ]
    assert where(targets(sockets, Endpoint())) == [("127.0.0.1", 8080), ("127.0.0.1", 9100), ("10.0.0.5", 9000), ("127.0.0.1", 40000)]


def test_port_0_is_no_known_port() -> None:
    assert where(targets([tcp("127.0.0.1", 40000)], Endpoint(port=0))) == [("127.0.0.1", 40000)]


def test_of_two_sockets_on_the_planned_port_the_planned_address_comes_first() -> None:
    sockets = [tcp("127.0.0.1", 8000), tcp("10.0.0.5", 8000)]
    assert where(targets(sockets, Endpoint(host="10.0.0.5", port=8000)))[0] == ("10.0.0.5", 8000)


def test_workers_that_share_a_port_are_one_target() -> None:
    assert len(targets([tcp("0.0.0.0", 8000), tcp("0.0.0.0", 8000)], Endpoint(port=8000))) == 1


def test_any_ipv6_address_is_asked_by_both_loopbacks() -> None:
    assert where(targets([tcp("::", 8000)], Endpoint(port=8000))) == [("::1", 8000), ("127.0.0.1", 8000)]


def test_a_unix_socket_is_asked_only_where_it_is_planned() -> None:
    sockets = [ListenSocket(7, None, None, "/run/a.sock"), tcp("127.0.0.1", 8000)]
    assert [one.unix_socket for one in targets(sockets, Endpoint(unix_socket="/run/a.sock"))] == ["/run/a.sock"]
    assert targets(sockets, Endpoint(unix_socket="/run/b.sock")) == []
    assert all(one.unix_socket is None for one in targets(sockets, Endpoint()))


def test_what_is_common_to_all_targets_is_taken_over() -> None:
    endpoint = Endpoint(port=8000, tls=True, root_path="/r", served_model="m")
    [found] = targets([tcp("10.0.0.5", 8000)], endpoint, Target(key="k", key_source="--api-key", task="embed"))
    assert (found.tls, found.root_path, found.served_model, found.key, found.task) == (True, "/r", "m", "k", "embed")
    assert found.base_url == "https://10.0.0.5:8000"


@pytest.mark.parametrize(
    ("bound", "asked"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("[::]", "::1"),
        ("", "127.0.0.1"),
        (None, "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::ffff:0.0.0.0", "127.0.0.1"),
        ("10.0.0.5", "10.0.0.5"),
        ("localhost", "localhost"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_bound_address_is_reached_at(bound: str | None, asked: str) -> None:
    assert reachable(bound) == asked


def test_a_key_goes_to_loopback_and_unix_sockets_alone() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "localhost", None):
        assert Target(host=host, port=1, key="k").sends_key
    for host in ("10.0.0.5", "example.com", "192.168.1.1", "2001:db8::1", "localhost.evil.example"):
        assert not Target(host=host, port=1, key="k").sends_key
        assert Target(host=host, port=1, key="k", allow_remote_key=True).sends_key
    assert Target(unix_socket="/s", key="k").sends_key
    assert not Target(host="127.0.0.1", port=1).sends_key


def test_a_key_is_not_shown_with_its_target() -> None:
    assert "s3cret" not in repr(Target(key="s3cret"))


def test_a_typed_url_becomes_a_target() -> None:
    assert target_of_url("https://gpu1:9/pre/fix/") == Target(host="gpu1", port=9, tls=True, root_path="/pre/fix")
    assert target_of_url("127.0.0.1:8000").base_url == "http://127.0.0.1:8000"
    assert target_of_url("http://[::1]:8000").base_url == "http://[::1]:8000"
    assert target_of_url("https://example.com").port == 443
    for wrong in ("", "ftp://x", "http://", "http://x:99999"):
        with pytest.raises(ValueError, match=r"server|[Pp]ort"):
            target_of_url(wrong)


def test_garbage_for_a_host_is_no_loopback() -> None:
    assert not is_loopback("not an address")
