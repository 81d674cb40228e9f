"""The prober and TLS: self-signed certificates on loopback, and the wrong scheme in both directions."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from fake_http_server import HEALTHY, SECONDS, FakeServer

from firsttoken.observe.http import FirstTokenProber, first_http
from firsttoken.observe.http_target import Target


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl program is not there to make a certificate")
    folder: Path = tmp_path_factory.mktemp("tls")
    made = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=elsewhere.example",
        "-keyout",
        "key",
        "-out",
        "cert",
    ]
    subprocess.run([openssl, *made], cwd=folder, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


def test_a_self_signed_certificate_on_loopback_is_no_obstacle(tls: ssl.SSLContext) -> None:
    async def go() -> None:
        async with FakeServer(HEALTHY, tls=tls) as server:
            answer = await server.prober(tls=True, key="s3cret").ask(1)
            assert (answer.tokens, answer.error) == (5, None)
            assert answer.url == f"https://127.0.0.1:{server.port}/v1/completions"
            assert server.requests[0].headers["authorization"] == "Bearer s3cret"

    asyncio.run(asyncio.wait_for(go(), SECONDS))


def test_http_on_a_tls_port_is_said(tls: ssl.SSLContext) -> None:
    async def go() -> None:
        async with FakeServer(HEALTHY, tls=tls) as server:
            answer = await server.prober().ask(1)
            assert answer.status is None
            assert answer.error is not None
            assert "the port speaks TLS: ask it by https" in answer.error

    asyncio.run(asyncio.wait_for(go(), SECONDS))


def test_tls_on_a_plain_port_is_said() -> None:
    async def go() -> None:
        async with FakeServer(HEALTHY) as server:
            answer = await server.prober(tls=True).ask(1)
            assert answer.error is not None
            assert "plain http?" in answer.error

    asyncio.run(asyncio.wait_for(go(), SECONDS))


def test_a_candidate_that_turns_out_to_speak_tls_is_found_as_such(tls: ssl.SSLContext) -> None:
    async def go() -> None:
        async with FakeServer(HEALTHY, tls=tls) as server:
            found = await first_http([server.target()])
            assert found == server.target(tls=True)
            assert (await FirstTokenProber(found, lambda _: None).ask(1)).tokens == 5

    asyncio.run(asyncio.wait_for(go(), SECONDS))


def test_a_certificate_is_verified_only_where_a_key_would_leave_the_machine() -> None:
    here = Target(host="127.0.0.1", port=1, tls=True, key="k")
    there = Target(host="192.0.2.7", port=1, tls=True, key="k")
    assert not here.verifies
    assert not there.verifies
    assert not there.sends_key
    assert Target(host="192.0.2.7", port=1, tls=True, key="k", allow_remote_key=True).verifies
