"""The HTTP port of a broker in this process, with correct and incorrect requests over real sockets."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.base.ports import AddressError
from ottla.server.app import BrokerServer, StartRefused
from ottla.server.monitoring import http
from ottla.server.monitoring.http import HttpPort, parse_address, parse_head
from ottla.server.monitoring.http_access import is_loopback
from ottla.server.monitoring.port import make_port
from tests.server.conftest import MakeServer, config_for


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> dict[str, object]:
        return dict(json.loads(self.body))


Ask = Callable[[bytes], Reply]


def read_reply(data: bytes, *, is_head: bool = False) -> tuple[Reply, bytes]:
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = 0 if is_head else int(headers["content-length"])
    return Reply(int(first.split()[1]), headers, rest[:size]), rest[size:]


async def talk(port: HttpPort, data: bytes) -> bytes:
    """Sends everything, then reads until the port closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.fixture
def server(make_server: MakeServer) -> BrokerServer:
    return make_server()


@pytest.fixture
def port(server: BrokerServer, loop: asyncio.AbstractEventLoop) -> Iterator[HttpPort]:
    port = make_port(server.node, "127.0.0.1:0")
    loop.run_until_complete(port.start())
    yield port
    loop.run_until_complete(port.stop())


@pytest.fixture
def ask(port: HttpPort, loop: asyncio.AbstractEventLoop) -> Ask:
    def ask(first: bytes, *headers: bytes) -> Reply:
        data = b"\r\n".join((first + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers)) + b"\r\n\r\n"
        return read_reply(loop.run_until_complete(talk(port, data)), is_head=first.startswith(b"HEAD"))[0]

    return ask


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/healthz", "alive"),
        (b"/-/healthy", "alive"),
        (b"/readyz", "ready"),
        (b"/-/ready", "ready"),
        (b"/v1/status/ready", "ready"),
        (b"/startupz", "started"),
        (b"/readyz?verbose", "ready"),
    ],
)
def test_probes_of_a_broker_that_serves(ask: Ask, path: bytes, status: str) -> None:
    reply = ask(b"GET " + path)
    assert (reply.status, reply.said["status"]) == (200, status)


def test_a_broker_that_does_not_serve_is_alive_and_says_why(ask: Ask, server: BrokerServer) -> None:
    server.node.is_ready = False
    reply = ask(b"GET /readyz")
    assert reply.status == 503
    assert reply.said["reasons"] == {"listeners": "the broker does not accept requests"}
    assert ask(b"GET /healthz").status == 200
    assert ask(b"GET /startupz").status == 503
    server.node.is_ready = True
    assert ask(b"GET /startupz").status == 200


def test_a_broker_without_a_log_directory_is_not_ready(ask: Ask, server: BrokerServer) -> None:
    server.directories[0].go_offline("a test")
    assert ask(b"GET /readyz").said["reasons"] == {"logs": "every log directory is offline"}
    server.directories[0].is_online = True


def test_metrics_are_prometheus_text(ask: Ask) -> None:
    reply = ask(b"GET /metrics")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(reply.body.decode())}
    assert {"kafka_brokers", "process_open_fds", "ottla_eventloop_lag_seconds"} <= names


def test_head_has_no_body(ask: Ask) -> None:
    reply = ask(b"HEAD /healthz")
    assert reply.status == 200
    assert int(reply.headers["content-length"]) > 0
    assert reply.body == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /metrics HTTP/2\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_bad_requests_get_a_status_and_no_traceback(
    port: HttpPort, loop: asyncio.AbstractEventLoop, data: bytes, status: int
) -> None:
    data = data.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if status in (404, 405) else data
    reply, rest = read_reply(loop.run_until_complete(talk(port, data)))
    assert reply.status == status
    assert "error" in reply.said
    assert b"Traceback" not in reply.body
    assert rest == b""


def test_a_connection_serves_many_requests(port: HttpPort, loop: asyncio.AbstractEventLoop) -> None:
    data = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2 + b"GET /readyz HTTP/1.0\r\n\r\n"
    answer = loop.run_until_complete(talk(port, data))
    statuses = []
    while answer:
        reply, answer = read_reply(answer)
        statuses.append(reply.said["status"])
    assert statuses == ["alive", "alive", "ready"]


def test_a_slow_head_is_cut_off(port: HttpPort, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS_MAX", 0.02)
    assert loop.run_until_complete(talk(port, b"GET /healthz HT")) == b""


def test_a_crowd_of_idle_connections_does_not_keep_a_probe_out(
    port: HttpPort, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)

    async def crowd() -> tuple[bytes, list[bytes]]:
        idle = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(3)]
        for reader, writer in idle[1:]:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"alive")
        probe = await talk(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        dropped = await asyncio.wait_for(idle[0][0].read(), 5)
        for _, writer in idle:
            writer.close()
        return probe, [dropped]

    probe, dropped = loop.run_until_complete(crowd())
    assert probe.startswith(b"HTTP/1.1 200") and dropped == [b""], "the one that has waited the longest makes room"


def test_a_crowd_that_takes_no_answer_does_not_keep_a_probe_out(
    port: HttpPort, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(port._metrics, "finish", lambda _page: b"x" * (16 << 20))

    async def crowd() -> tuple[bytes, list[bool]]:
        peers = []
        for count in range(1, 4):
            _, writer = await asyncio.open_connection("127.0.0.1", port.port, limit=1)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            peers.append(writer)
            while len(port._scraping) < count or port._making is not None:
                await asyncio.sleep(0.01)
        sending = list(port._answering)
        probe = await talk(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = [task.done() for task in sending]
        for writer in peers:
            writer.close()
        return probe, found

    probe, has_ended = loop.run_until_complete(asyncio.wait_for(crowd(), 60))
    assert probe.startswith(b"HTTP/1.1 200") and has_ended == [True, False, False], "the one that was asked first makes room"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"", 400),
        (b"Host: localhost\r\nHost: localhost\r\n", 400),
        (b"Host: localhost\r\nContent-Length: 0\r\nContent-Length: 0\r\n", 400),
        (b"Host: rebound.example:9404\r\n", 421),
        (b"Host: LOCALHOST:9404\r\n", 200),
        (b"Host: [::1]:9404\r\n", 200),
        (b"Host: 127.0.0.1\r\n", 200),
        (b"Host:\r\n", 400),
        (b"Host: [::1\r\n", 400),
        (b"Host: localhost:80@rebound.example\r\n", 400),
        (b"Host: localhost:http\r\n", 400),
        (b"Host: localhost\r\nContent-Length: 0\x0b\r\n", 400),
        (b"Host: localhost\r\nX: 1\nTransfer-Encoding: chunked\r\n", 400),
        (b"Host: localhost\r\nX: 1\rTransfer-Encoding: chunked\r\n", 400),
        (b"Host: localhost\r\nTransfer-Encoding\x00: chunked\r\n", 400),
        (b"Host: localhost\r\nTransfer Encoding: chunked\r\n", 400),
        (b"Host: localhost\r\nContent-Length : 5\r\n", 400),
        (b"Host: localhost\r\nX:\tletters of any kind \xe9\r\n", 200),
    ],
)
def test_the_host_and_lengths_of_a_request(port: HttpPort, loop: asyncio.AbstractEventLoop, lines: bytes, status: int) -> None:
    data = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + lines + b"\r\n"
    assert read_reply(loop.run_until_complete(talk(port, data)))[0].status == status


def test_a_crowd_of_scrapes_shares_a_page(
    port: HttpPort, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formerly each connection had its own page: sixty-four pages of some megabytes for clients that never read."""
    made: list[bytes] = []

    def finish(_page: object) -> bytes:
        made.append(b"%d" % len(made) + b"x" * (16 << 20))
        return made[-1]

    monkeypatch.setattr(port._metrics, "finish", finish)
    get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def until(is_true: Callable[[], bool]) -> None:
        while not is_true():
            await asyncio.sleep(0.01)

    async def crowd() -> bytes:
        writers = []
        for count in range(1, 21):
            _, writer = await asyncio.open_connection("127.0.0.1", port.port, limit=1)
            writer.write(get)
            writers.append(writer)
            await until(lambda count=count: len(port._scraping) == count and port._making is None)  # type: ignore[misc]
        answer = await talk(port, get[:-2] + b"Connection: close\r\n\r\n")
        for writer in writers:
            writer.close()
        await until(lambda: not port._scraping)
        return answer

    answer = loop.run_until_complete(asyncio.wait_for(crowd(), 60))
    assert len(made) <= http.SCRAPES_MAX + 1
    assert answer.endswith(made[-1]) and port._page is None


def test_an_open_address_needs_a_password(server: BrokerServer) -> None:
    with pytest.raises(AddressError, match=r"set ottla\.metrics\.credentials=user:password"):
        make_port(server.node, "0.0.0.0:0")


def test_metrics_want_the_password_and_probes_do_not(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop
) -> None:
    server = make_server("ottla.metrics.credentials=prometheus:secret")
    port = make_port(server.node, "127.0.0.1:0")
    loop.run_until_complete(port.start())

    def ask(path: bytes, token: bytes = b"") -> Reply:
        authorization = b"Authorization: Basic " + token + b"\r\n" if token else b""
        data = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1:9644\r\nConnection: close\r\n" + authorization + b"\r\n"
        return read_reply(loop.run_until_complete(talk(port, data)))[0]

    right = b64encode(b"prometheus:secret")
    assert ask(b"/metrics").status == 401
    assert ask(b"/metrics").headers["www-authenticate"].startswith("Basic ")
    assert ask(b"/metrics", b64encode(b"prometheus:wrong")).status == 401
    assert ask(b"/metrics", b"!!!").status == 401
    assert ask(b"/metrics", right).status == 200
    server.node.is_ready = False
    assert "reasons" not in ask(b"/readyz").said
    assert "reasons" in ask(b"/readyz", right).said
    loop.run_until_complete(port.stop())


def test_a_broker_opens_its_port_and_closes_it(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("ottla.metrics.listen=127.0.0.1:0")
    loop.run_until_complete(server.open_http())
    port = server.http
    assert port is not None
    assert loop.run_until_complete(talk(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_a_broker_refuses_a_port_that_is_taken(
    loop: asyncio.AbstractEventLoop, port: HttpPort, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = config_for(tmp_path_factory.mktemp("second"), f"ottla.metrics.listen=127.0.0.1:{port.port}")
    second = BrokerServer(loop, config)
    second.start()
    with pytest.raises(StartRefused, match=rf"127\.0\.0\.1:{port.port}: .*choose another port"):
        loop.run_until_complete(second.open_http())
    assert not second.node.is_ready


@pytest.mark.parametrize("listen", ["9404", "host:", "host:http", "host:70000"])
def test_an_invalid_address_is_refused_in_one_line(listen: str) -> None:
    with pytest.raises(AddressError, match="is not host:port"):
        parse_address(listen)


def test_addresses() -> None:
    assert parse_address("[::1]:9404") == ("::1", 9404)
    assert parse_address(" localhost:1 ") == ("localhost", 1)
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "example.org")] == [True] * 3 + [False] * 3


def test_keep_alive_is_the_default_of_its_version() -> None:
    assert parse_head(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_kept_alive
    assert not parse_head(b"GET / HTTP/1.0\r\n\r\n").is_kept_alive
    assert parse_head(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").is_kept_alive


@pytest.mark.parametrize(
    ("listen", "url"),
    [("127.0.0.1:9", "http://127.0.0.1:9"), ("[::1]:9", "http://[::1]:9"), ("localhost:9", "http://localhost:9")],
)
def test_the_url_is_what_a_user_would_type(server: BrokerServer, listen: str, url: str) -> None:
    port = make_port(server.node, listen)
    assert port.url == url


def test_a_peer_that_is_gone_behind_its_answer_is_no_error(
    port: HttpPort, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop raises an error when the end of the stream is written to a connection that was reset."""

    class Gone:
        def can_write_eof(self) -> bool:
            return True

        def is_closing(self) -> bool:
            return True

        def write(self, _data: object) -> None:
            raise RuntimeError("the handler is closed")

        write_eof = write

    async def sent(*_args: object, **_options: object) -> None:
        pass

    answer = http.HttpAnswer(HTTPStatus.OK, b"{}")
    with pytest.raises(ConnectionResetError):
        loop.run_until_complete(http.send(Gone(), answer, is_head=False, is_kept_alive=True))  # type: ignore[arg-type]

    async def converse() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        reader.feed_eof()
        await port._converse(reader, Gone())  # type: ignore[arg-type]

    monkeypatch.setattr(http, "send", sent)
    loop.run_until_complete(converse())
