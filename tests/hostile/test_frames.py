"""Hostile frames and headers (F1-F8 and H1-H4 of `test_corpus.py`) cause a closed connection or a typed error, and have no other effect."""

from __future__ import annotations

import fcntl
import resource
import socket
import struct
import termios
import time
from collections.abc import Callable

import psutil
import pytest

from ottla.handlers.served_apis import TABLE
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_response_header, write_request
from ottla.wire.messages.heartbeat import HeartbeatRequest
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient
from tests.hostile.conftest import RSS_GROWTH_BYTES_MAX, serve

Connect = Callable[[], WireClient]
CLIENT_HELLO = bytes.fromhex("160301020001 0001fc0303".replace(" ", "")) + bytes(500)
API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 7, -1)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int, client_id: bytes = b"\xff\xff") -> bytes:
    return struct.pack(">hhi", key, version, 7) + client_id


HEARTBEAT = HeartbeatRequest(group_id="grp", generation_id=-1)
"""One byte further on it has a member id of length -1."""

CLOSING = {
    "F1 size -1": struct.pack(">i", -1) + bytes(20),
    "F1 size 0": struct.pack(">i", 0),
    "F1 size 1": struct.pack(">i", 1) + b"\0",
    "F1 size 3": struct.pack(">i", 3) + bytes(3),
    "F2 size 2^31-1": struct.pack(">i", 2**31 - 1),
    "F2 size max+1": struct.pack(">i", 104857600 + 1),
    "F3 TLS hello": CLIENT_HELLO,
    "F3 HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "H1 unknown key": framed(header(9999, 0)),
    "H1 negative key": framed(header(-1, 0)),
    "H1 version -1": framed(header(3, -1)),
    "H1 version max+1": framed(header(3, TABLE[3].max_version + 1)),
    "H1 version 32767": framed(header(0, 32767)),
    "H2 header only": framed(header(1, 4)),
    "H2 truncated client id": framed(header(3, 1, struct.pack(">h", 10) + b"abc")),
    "H2 client id length -2": framed(header(3, 1, struct.pack(">h", -2)) + bytes(30)),
    "H2 client id length 32767": framed(header(3, 1, struct.pack(">h", 32767)) + bytes(30)),
    "H2 client id is not UTF-8": framed(header(3, 1, struct.pack(">h", 2) + b"\xff\xfe") + struct.pack(">i", 0)),
    "H2 2^32-1 tags": framed(header(3, 9) + b"\xff\xff\xff\xff\x0f" + bytes(20)),
    "H2 tag is larger than the frame": framed(header(3, 9) + b"\x01\x00\xff\xff\x7f" + bytes(20)),
    "H2 duplicate tags": framed(header(3, 9) + b"\x02\x05\x01\x00\x05\x01\x00" + b"\x00\x00\x00\x00\x00"),
    "H4 flexible header on a version that is not": framed(header(12, 0) + b"\0" + encoder(HeartbeatRequest, 0)(HEARTBEAT)),
    "H4 no tags on a flexible version": framed(header(32, 4) + b"\x05"),
}


@pytest.mark.parametrize("data", CLOSING.values(), ids=CLOSING)
def test_nonsense_closes_the_connection(connect: Connect, data: bytes) -> None:
    client = connect()
    client.send(data)
    assert client.receive() is None


def test_only_api_versions_answers_an_unknown_version(connect: Connect) -> None:
    client = connect()
    client.send(framed(header(18, 99) + bytes(40)))
    answer = client.receive()
    assert answer is not None
    correlation_id, at = read_response_header(18, 0, answer)
    response, _ = decoder(load(18)[1], 0)(answer, at)
    assert (correlation_id, response.error_code) == (7, 35) and response.api_keys
    client.send(framed(API_VERSIONS_V0))
    assert client.receive() is not None


def test_correlation_ids_are_given_back_whatever_they_are(connect: Connect) -> None:
    """H3: answers repeat the correlation id of the request, also a negative one or one that is used twice."""
    client = connect()
    for number in (-1, 5, 5, -(2**31)):
        client.send(framed(struct.pack(">hhih", 18, 0, number, -1)))
        answer = client.receive()
        assert answer is not None and struct.unpack_from(">i", answer)[0] == number


def test_a_large_announcement_costs_nothing(attacked: BrokerProcess, honest: World, connect: Connect) -> None:
    """F4: a hundred connections announce frames of 100 MiB and send a byte now and then; the broker's memory does not grow."""
    before = attacked.rss_bytes()
    clients = [connect() for _ in range(100)]
    for client in clients:
        client.send(struct.pack(">i", 100 << 20))
    for _ in range(5):
        for client in clients:
            client.send(b"\0")
        time.sleep(0.05)
        serve(honest)
    assert attacked.rss_bytes() - before < 16 << 20


def test_half_a_frame_and_a_reset(connect: Connect, honest: World) -> None:
    """F6: a half-closed socket and a reset in the middle of a frame do not harm the broker."""
    half = connect()
    half.send(framed(API_VERSIONS_V0)[:9])
    half.socket.shutdown(socket.SHUT_WR)
    assert half.receive() is None
    reset = connect()
    reset.send(framed(API_VERSIONS_V0)[:9])
    reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.socket.close()
    serve(honest)


def pipelined(honest: World, key: int, version: int, count: int) -> bytes:
    request = honest.request(key, version)
    return write_request(key, version, 7, "flood", encoder(type(request), version)(request)) * count


@pytest.mark.parametrize(("key", "version"), [(18, 3), (3, 12), (32, 4), (1, 12), (1, 4)])
def test_requests_without_reading_the_answers(attacked: BrokerProcess, honest: World, connect: Connect, key: int, version: int) -> None:
    """F7: a connection sends 10,000 requests and does not read the answers; the broker stops reading from it, and its memory does not grow.
    """
    client, before = connect(), attacked.rss_bytes()
    client.socket.settimeout(2)
    try:
        client.send(pipelined(honest, key, version, 10_000))
    except TimeoutError:
        pass
    serve(honest)
    assert attacked.rss_bytes() - before < RSS_GROWTH_BYTES_MAX
    client.socket.settimeout(20)
    for _ in range(20):
        answer = client.receive()
        assert answer is not None and struct.unpack_from(">i", answer)[0] == 7


def waiting(client: WireClient) -> int:
    """Returns the number of bytes that have arrived and are not read yet."""
    count = fcntl.ioctl(client.socket, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", count)[0])


def test_a_reader_that_wakes_up_gets_every_answer(honest: World, connect: Connect) -> None:
    client, count = connect(), 300
    client.socket.settimeout(10)
    data = pipelined(honest, 32, 4, count)
    client.send(data)

    def has_stopped() -> bool:
        """Whether the broker has filled the socket, and has written no more while it served another connection."""
        before = waiting(client)
        serve(honest)
        return waiting(client) == before > 0

    eventually(has_stopped, 60, 0)
    for _ in range(count):
        assert client.receive() is not None


def test_a_storm_of_connections(honest: World, connect: Connect) -> None:
    """F8, with fewer connections: clients connect and close, connect and send nothing, or connect and disappear without closing."""
    for _ in range(30):
        for _ in range(50):
            connect().socket.close()
        serve(honest)
    for _ in range(6):
        for _ in range(50):
            connect()
        serve(honest)
    assert honest.client.ask(honest.request(3, 12), 12) is not None


def test_running_out_of_descriptors(own_broker: BrokerProcess) -> None:
    """F8: if clients open more connections than the process may have descriptors, existing connections are served, and new ones are
    accepted again after some were closed.
    """
    broker = own_broker.start()
    limit = 120
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
    with WireClient(broker.port) as client:
        world = World(client)
        others = []
        for _ in range(200):
            others.append(socket.create_connection(("127.0.0.1", broker.port), timeout=60))
        eventually(lambda: psutil.Process(broker.pid).num_fds() == limit, 60)
        assert client.ask(world.request(3, 12), 12) is not None
        for other in others:
            other.close()

    def is_served_again() -> bool:
        with WireClient(broker.port, timeout=20) as again:
            again.send(framed(API_VERSIONS_V0))
            return again.receive() is not None

    eventually(is_served_again, 20)


def test_a_limit_of_connections(own_broker: BrokerProcess) -> None:
    own_broker.settings += ["max.connections.per.ip=5"]
    own_broker.start()
    clients = [WireClient(own_broker.port, timeout=5) for _ in range(8)]
    answered = 0
    for client in clients:
        try:
            client.send(framed(API_VERSIONS_V0))
            answered += client.receive() is not None
        except OSError:
            continue
    assert answered == 5
    for client in clients:
        client.socket.close()
