"""Requests on one connection, and every way to fail: one line that names the host, and the connection is closed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.client.addresses import Address
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.errors import ClientError, ConnectError, MalformedResponseError, RequestTimeoutError
from ottla.client.security import Security
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.client.fake_broker import FakeBroker, HangUp

HEARTBEAT = 12
NO_NAME = Address("a..b", 9092)
"""What no broker can be found by, though one may advertise it."""
PRODUCE = 0


Opener = Callable[[FakeBroker], BlockingConnection]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens connections, and closes them at the end."""
    connections: list[BlockingConnection] = []

    def open_one(broker: FakeBroker) -> BlockingConnection:
        connections.append(BlockingConnection(Address("127.0.0.1", broker.port)))
        return connections[-1].open()

    yield open_one
    for connection in connections:
        connection.close()


def _code(code: int) -> Any:
    return lambda _body, _version: HeartbeatResponse(error_code=code)


def test_a_request_is_sent_in_the_newest_version_that_both_know(opened: Opener) -> None:
    with FakeBroker({HEARTBEAT: _code(0)}, versions={HEARTBEAT: (1, 2)}) as broker:
        connection = opened(broker)
        assert connection.request(HeartbeatRequest(group_id="g")).error_code == 0
        assert [(key, version) for key, version, _ in broker.requests] == [(18, 3), (HEARTBEAT, 2)]
        connection.close()
        assert not connection.is_open


def test_answers_come_in_the_order_of_asking(opened: Opener) -> None:
    codes = iter([1, 2, 3])
    with FakeBroker({HEARTBEAT: lambda _body, _version: HeartbeatResponse(error_code=next(codes))}) as broker:
        connection = opened(broker)
        for _ in range(3):
            connection.send(HeartbeatRequest())
        assert connection.in_flight == 3
        assert [connection.receive().error_code for _ in range(3)] == [1, 2, 3]


def test_an_old_broker_is_asked_again_in_the_form_it_knows(opened: Opener) -> None:
    def versions(_body: Any, version: int) -> Any:
        keys = [ApiVersion(api_key=18, min_version=0, max_version=0), ApiVersion(api_key=HEARTBEAT, max_version=1)]
        if version:  # the refusal has the form of version 0, whatever was asked (KIP-511)
            return b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0"
        return ApiVersionsResponse(api_keys=keys)

    with FakeBroker({18: versions, HEARTBEAT: _code(0)}) as broker:
        connection = opened(broker)
        assert connection.version_of(HEARTBEAT) == 1
        assert connection.request(HeartbeatRequest()).error_code == 0


def test_an_api_that_is_not_offered_is_refused_by_name(opened: Opener) -> None:
    with FakeBroker({}) as broker, pytest.raises(ApiError, match="does not offer Heartbeat") as caught:
        opened(broker).request(HeartbeatRequest())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_versions_without_overlap_are_refused_with_both_ranges(opened: Opener) -> None:
    with FakeBroker({HEARTBEAT: _code(0)}, versions={HEARTBEAT: (90, 99)}) as broker, pytest.raises(ApiError, match="90 to 99"):
        opened(broker).version_of(HEARTBEAT)


def test_a_refused_connection_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectError, match=f"cannot reach 127.0.0.1:{port}: connection refused"):
        BlockingConnection(Address("127.0.0.1", port)).open()


def test_a_tls_handshake_gets_the_time_that_connecting_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    limits: list[float | None] = []
    create_connection = socket.create_connection

    def connect_slowly(address: Address, timeout: float) -> socket.socket:
        now_s[0] += 3.0
        return create_connection(address, timeout=timeout)

    def shake_hands(plain: socket.socket, _host: str) -> socket.socket:
        limits.append(plain.gettimeout())
        raise TimeoutError

    security = Security({"security.protocol": "SSL"})
    monkeypatch.setattr("ottla.client.blocking.connection.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr("ottla.client.blocking.connection.socket.create_connection", connect_slowly)
    monkeypatch.setattr(security, "wrap", shake_hands)
    with FakeBroker({}) as broker, pytest.raises(ConnectError, match="within 4 s"):
        BlockingConnection(Address("127.0.0.1", broker.port), security=security).open(4.0)
    assert limits == [1.0]


def test_the_addresses_of_a_name_share_the_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    limits: list[float] = []

    def addresses(_host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{number}", port)) for number in (2, 3, 4)]

    def does_not_answer(_address: Address, timeout: float) -> socket.socket:
        limits.append(timeout)
        now_s[0] += timeout / len(limits)  # the second and third address refuse sooner
        raise TimeoutError

    monkeypatch.setattr("ottla.client.blocking.connection.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr("ottla.client.blocking.connection.socket.getaddrinfo", addresses)
    monkeypatch.setattr("ottla.client.blocking.connection.socket.create_connection", does_not_answer)
    with pytest.raises(ConnectError, match="within 6 s"):
        BlockingConnection(Address("brokers.test", 9092)).open(6.0)
    assert limits == [2.0, 2.0, 3.0] and now_s[0] <= 6.0


def test_a_silent_broker_is_a_timeout(opened: Opener) -> None:
    with FakeBroker({HEARTBEAT: lambda _body, _version: None}) as broker:
        connection = opened(broker)
        with pytest.raises(RequestTimeoutError, match=r"did not answer within 0\.0\d s"):
            connection.request(HeartbeatRequest(), timeout_s=0.05)
        assert not connection.is_open


def _hang_up(_body: Any, _version: int) -> Any:
    raise HangUp


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\0\0\0\x05\0\0\0\x63\0", MalformedResponseError),
        (b"\x7f\xff\xff\xff", MalformedResponseError),
        (b"\xff\xff\xff\xff", MalformedResponseError),
        (b"\0\0\0\0", MalformedResponseError),
        (struct.pack(">iiB", 5, 2, 0), MalformedResponseError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", MalformedResponseError),
    ],
)
def test_malformed_answers_close_the_connection(opened: Opener, answer: bytes, error: type[ClientError]) -> None:
    with FakeBroker({HEARTBEAT: lambda _body, _version: answer}) as broker:
        connection = opened(broker)
        with pytest.raises(error, match=f"127.0.0.1:{broker.port}"):
            connection.request(HeartbeatRequest())
        assert not connection.is_open


def test_a_lost_connection_is_an_error(opened: Opener) -> None:
    with FakeBroker({HEARTBEAT: _hang_up}) as broker:
        connection = opened(broker)
        with pytest.raises(ConnectError, match=r"closed the connection|lost"):
            connection.request(HeartbeatRequest())
        with pytest.raises(ConnectError, match="is closed"):
            connection.request(HeartbeatRequest())


def test_a_hang_up_at_the_first_request_hints_at_tls(opened: Opener) -> None:
    with FakeBroker({18: _hang_up}) as broker, pytest.raises(ConnectError, match="SSL"):
        opened(broker)


def test_metadata_goes_to_a_real_socket_and_back(opened: Opener) -> None:
    with FakeBroker({}) as broker:
        answer = opened(broker).request(MetadataRequest(topics=None))
        assert answer.cluster_id == "fake"


@pytest.mark.parametrize(("count", "size"), [(1, 9_000_000), (7, 700_000), (600, 33_000), (3, 100)])
def test_large_pieces_of_a_request_arrive_whole_and_in_order(opened: Opener, count: int, size: int) -> None:
    """They are sent without being joined: more than the kernel takes in one call, and more pieces than it takes."""
    sent = [bytes([number % 251]) * size for number in range(count)]
    data = [PartitionProduceData(index=number, records=records) for number, records in enumerate(sent)]
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=data)])
    with FakeBroker({PRODUCE: lambda _body, _version: ProduceResponse(responses=[])}) as broker:
        assert opened(broker).request(request, version=12) == ProduceResponse(responses=[])
        (received,) = (body for key, _, body in broker.requests if key == PRODUCE)
    assert [bytes(one.records) for one in received.topic_data[0].partition_data] == sent


def test_a_broker_that_takes_no_data_ends_the_sending_of_large_pieces(opened: Opener) -> None:
    with FakeBroker({PRODUCE: lambda _body, _version: None}) as broker, socket.create_server(("127.0.0.1", 0)) as deaf:
        connection = opened(broker)
        connection.request_timeout_s = 0.2
        assert connection._socket is not None
        connection._socket.close()
        connection._socket = socket.create_connection(deaf.getsockname())
        connection._socket.setblocking(False)
        data = [PartitionProduceData(index=0, records=bytes(64 << 20))]
        with pytest.raises(RequestTimeoutError, match=r"takes no data for 0\.2 s"):
            connection.send(ProduceRequest(acks=-1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=data)]))
        assert not connection.is_open


def test_a_name_that_cannot_be_looked_up_is_one_line() -> None:
    with pytest.raises(ConnectError, match=r"^cannot reach a\.\.b:9092: it is no host name$"):
        BlockingConnection(NO_NAME).open()


@pytest.mark.parametrize("is_scattered", [False, True])
def test_a_connection_may_be_closed_by_another_thread_while_it_sends(is_scattered: bool) -> None:
    """As `Cluster.close` does under an abandoned background call: the request fails as on any closed connection."""

    class ClosingSocket:
        """Closes the connection before a send returns."""

        def send(self, data: memoryview) -> int:
            connection.close()
            return len(data)

        def sendmsg(self, pieces: Iterator[memoryview]) -> int:
            return self.send(b"".join(pieces))  # type: ignore[arg-type]

        def close(self) -> None: ...

        def fileno(self) -> int:
            return -1

    connection = BlockingConnection(NO_NAME)
    connection._socket = ClosingSocket()  # type: ignore[assignment]
    pieces = [bytes(100_000)] * 3 if is_scattered else [b"a request"]
    connection._post(pieces)
    assert not connection.has_unsent
    with pytest.raises(ConnectError, match="is closed"):
        connection._read_frame(1.0)
