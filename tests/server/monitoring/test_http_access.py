"""The HTTP port with a token, with TLS and under other host names, over real sockets; and the settings with which it refuses to open."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.analysis.metrics_text import MetricsRefused, scrape
from ottla.base.ports import AddressError
from ottla.client.errors import ConnectError
from ottla.server.app import BrokerServer, StartRefused
from ottla.server.monitoring import http
from ottla.server.monitoring.http import HttpPort
from ottla.server.monitoring.http_access import HttpAccess
from ottla.server.monitoring.port import make_port
from ottla.testing.broker import Broker
from tests.server.conftest import MakeServer, Pem
from tests.server.monitoring.test_http import Reply, read_reply

TOKEN = "0123456789abcdef-token"
OpenPort = Callable[..., HttpPort]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def open_port(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> Iterator[OpenPort]:
    ports: list[HttpPort] = []

    def make(*settings: str, listen: str = "127.0.0.1:0") -> HttpPort:
        port = make_port(make_server(*settings).node, listen)
        loop.run_until_complete(port.start())
        ports.append(port)
        return port

    yield make
    for port in ports:
        loop.run_until_complete(port.stop())


@pytest.fixture
def ask(loop: asyncio.AbstractEventLoop) -> Callable[..., Reply]:
    async def talk(port: HttpPort, path: str, headers: dict[str, str], trusted: Path | None) -> Reply:
        context = None
        if trusted is not None:
            context = ssl.create_default_context(cafile=trusted)
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=context)
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", "Connection": "close", **headers}.items())
        writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        data = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return read_reply(data)[0]

    def ask(port: HttpPort, path: str, authorization: str = "", host: str = "localhost", trusted: Path | None = None) -> Reply:
        headers = {"Host": host, **({"Authorization": authorization} if authorization else {})}
        return loop.run_until_complete(talk(port, path, headers, trusted))

    return ask


Ask = Callable[..., Reply]


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200), (f"bearer  {TOKEN}", 200), (f"Bearer {TOKEN[:-1]}", 401), (f"Bearer {TOKEN}x", 401), ("Bearer", 401),
        ("Bearer ä", 401), ("", 401), (TOKEN, 401), (f"Basic {b64encode(TOKEN.encode()).decode()}", 401),
    ],
)  # fmt: skip
def test_metrics_by_token(open_port: OpenPort, ask: Ask, token_file: Path, authorization: str, status: int) -> None:
    port = open_port(f"ottla.metrics.token.file={token_file}")
    reply = ask(port, "/metrics", authorization)
    assert reply.status == status
    assert reply.headers.get("www-authenticate", "") == ("" if status == 200 else 'Bearer realm="ottla"')


def test_the_log_needs_the_right_to_read_metrics(open_port: OpenPort, ask: Ask, token_file: Path) -> None:
    port = open_port(f"ottla.metrics.token.file={token_file}", "ottla.metrics.probes.open=true")
    assert [ask(port, path, "").status for path in ("/healthz", "/log", "/metrics")] == [200, 401, 401]
    assert ask(port, "/log", f"Bearer {TOKEN}").headers["content-type"] == "text/plain; charset=utf-8"


def test_token_and_password_are_alternatives(open_port: OpenPort, ask: Ask, token_file: Path) -> None:
    port = open_port(f"ottla.metrics.token.file={token_file}", "ottla.metrics.credentials=a:b")
    assert ask(port, "/metrics", f"Bearer {TOKEN}").status == 200
    assert ask(port, "/metrics", f"Basic {b64encode(b'a:b').decode()}").status == 200
    assert ask(port, "/metrics", f"Basic {b64encode(b':').decode()}").status == 401


@pytest.mark.parametrize(("setting", "status"), [("true", 200), ("false", 401)])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/startupz"])
def test_probes_may_need_the_token(open_port: OpenPort, ask: Ask, token_file: Path, path: str, setting: str, status: int) -> None:
    port = open_port(f"ottla.metrics.token.file={token_file}", f"ottla.metrics.probes.open={setting}")
    assert ask(port, path).status == status
    assert ask(port, path, f"Bearer {TOKEN}").status == 200


def test_a_token_is_renewed_by_a_reload_and_a_bad_one_changes_nothing(open_port: OpenPort, ask: Ask, token_file: Path) -> None:
    port = open_port(f"ottla.metrics.token.file={token_file}")
    token_file.write_text("another-token-altogether")
    assert ask(port, "/metrics", f"Bearer {TOKEN}").status == 200
    port.reload()
    assert ask(port, "/metrics", f"Bearer {TOKEN}").status == 401
    token_file.write_text("short")
    port.reload()
    assert ask(port, "/metrics", "Bearer another-token-altogether").status == 200


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        ("", "broker.example:9404", 421), ("broker.example", "broker.example:9404", 200), ("broker.example", "BROKER.example", 200),
        ("broker.example", "evil.example", 421), ("broker.example", "localhost", 200), ("", "192.0.2.1", 421),
    ],
)  # fmt: skip
def test_names_by_which_the_port_is_asked(open_port: OpenPort, ask: Ask, hosts: str, host: str, status: int) -> None:
    assert ask(open_port(f"ottla.metrics.hosts={hosts}"), "/healthz", host=host).status == status


@pytest.mark.parametrize(("hosts", "name", "is_served"), [
    ((), "any.example", True), (("a.example",), "any.example", False), (("a.example",), "a.example", True), (("a.example",), "::1", True),
])  # fmt: skip
def test_names_of_an_address_that_is_not_loopback(hosts: tuple[str, ...], name: str, is_served: bool) -> None:
    assert HttpAccess(credentials="a:b", hosts=hosts).is_host(name, "0.0.0.0") == is_served


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"])
def test_only_reading_methods_are_served(open_port: OpenPort, loop: asyncio.AbstractEventLoop, method: str) -> None:
    port = open_port()

    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        data = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return data

    assert read_reply(loop.run_until_complete(talk()))[0].status == 405


# TLS


def test_over_tls(open_port: OpenPort, ask: Ask, pem: Pem) -> None:
    port = open_port(f"ottla.metrics.ssl.certificate={pem('first')}")
    assert port.url.startswith("https://")
    assert ask(port, "/metrics", trusted=pem("first")).status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(port, "/metrics", trusted=pem("second"))


def test_plain_bytes_and_old_tls_are_turned_away(open_port: OpenPort, pem: Pem, loop: asyncio.AbstractEventLoop) -> None:
    port = open_port(f"ottla.metrics.ssl.certificate={pem('first')}")
    assert port._access.tls is not None and port._access.tls.minimum_version is ssl.TLSVersion.TLSv1_2

    async def plain() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            data = await asyncio.wait_for(reader.read(), 60)
        except ConnectionResetError:
            data = b""
        writer.close()
        return data

    assert b"HTTP" not in loop.run_until_complete(plain())


def test_half_open_handshakes_do_not_keep_a_probe_out(
    open_port: OpenPort, ask: Ask, pem: Pem, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
    port = open_port(f"ottla.metrics.ssl.certificate={pem('first')}")

    async def half_open() -> asyncio.StreamWriter:
        return (await asyncio.open_connection("127.0.0.1", port.port))[1]

    writers = [loop.run_until_complete(half_open()) for _ in range(5)]
    assert ask(port, "/healthz", trusted=pem("first")).status == 200
    for writer in writers:
        writer.close()


def test_the_command_line_reads_it_from_a_broker_process(pem: Pem, token_file: Path) -> None:
    settings = {"listen": "127.0.0.1:0", "ssl.certificate": str(pem("first")), "token.file": str(token_file)}
    with Broker(settings={f"ottla.metrics.{name}": value for name, value in settings.items()}) as broker:
        found = re.search(r"metrics and health on (https://\S+?)[\"\s]", broker.log)
        assert found is not None
        for _ in range(10):
            assert "kafka_brokers 1" in scrape(found[1], token_file=str(token_file), ca_file=str(pem("first")))
        with pytest.raises(MetricsRefused, match=r"401 Unauthorized; add .*--token-file"):
            scrape(found[1], ca_file=str(pem("first")))
        with pytest.raises(ConnectError, match=r"is not trusted .*--ca"):
            scrape(found[1], ca_file=str(pem("second")))


def test_a_certificate_is_renewed_by_a_reload(open_port: OpenPort, ask: Ask, pem: Pem, tmp_path: Path) -> None:
    current = tmp_path / "current.pem"
    current.write_bytes(pem("first").read_bytes())
    port = open_port(f"ottla.metrics.ssl.certificate={current}")
    current.write_bytes(pem("second").read_bytes())
    port.reload()
    assert ask(port, "/healthz", trusted=pem("second")).status == 200
    current.write_text("nonsense")
    port.reload()
    assert ask(port, "/healthz", trusted=pem("second")).status == 200


# Refusals


@pytest.mark.parametrize("text", ["", "\n", "short", "x" * 5000, "one-line-of-a-token\nanother-line"])
def test_a_token_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(AddressError, match="a token is one line of 16 to 4096 bytes"):
        HttpAccess(token_file=str(path))


def test_files_that_cannot_be_used_are_refused_in_one_line(pem: Pem, tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("nonsense")
    encrypted = tmp_path / "encrypted.pem"
    key = subprocess.run(
        ["openssl", "pkey", "-aes256", "-passout", "pass:secret", "-in", str(pem("first"))], check=True, capture_output=True, timeout=60
    )
    encrypted.write_bytes(key.stdout)
    cases = [
        ({"token_file": str(tmp_path / "none")}, "No such file"),
        ({"certificate_file": str(tmp_path / "none")}, "No such file"),
        ({"certificate_file": str(tmp_path / "nonsense")}, "nonsense"),
        ({"certificate_file": str(pem("first")), "key_file": str(pem("second").with_suffix(".key"))}, "key values mismatch"),
        ({"certificate_file": str(pem("first")), "key_file": str(encrypted)}, "encrypted"),
        ({"key_file": str(encrypted)}, "without ottla.metrics.ssl.certificate"),
    ]
    pem("second")
    for options, reason in cases:
        with pytest.raises(AddressError, match=reason) as refused:
            HttpAccess(**options)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value) and "secret" not in str(refused.value)


def test_a_broker_does_not_start_half_secured(make_server: MakeServer, loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    server: BrokerServer = make_server("ottla.metrics.listen=127.0.0.1:0", f"ottla.metrics.token.file={tmp_path / 'none'}")
    with pytest.raises(StartRefused, match=r"ottla\.metrics\.token\.file=.*No such file"):
        loop.run_until_complete(server.open_http())


def test_the_token_stands_in_no_answer(open_port: OpenPort, ask: Ask, token_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = open_port(f"ottla.metrics.token.file={token_file}")
    replies = [ask(port, path, f"Bearer {TOKEN}x") for path in ("/metrics", "/nothing", "/healthz")]
    assert all(TOKEN.encode() not in reply.body for reply in replies)
    assert TOKEN not in caplog.text
