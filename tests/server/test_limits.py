"""Limits of connections in a running broker: their number, their number from one address, the time without traffic, and the memory of all
together."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.base.loop.fair_slots import SESSION_PARTITION_BYTES
from ottla.base.settings.network import per_host
from ottla.server import closing
from ottla.server import listener as listener_module
from ottla.server.app import BrokerServer
from ottla.server.connection_state import FULL
from ottla.server.listener import request_bytes_max
from ottla.wire.codec import encoder
from ottla.wire.framing import write_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.server.conftest import MakeServer, Pem, config_for
from tests.server.threads import run_until


def connect(server: BrokerServer, listener: int = 0) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.node.endpoints[listener].port), timeout=10)
    sock.setblocking(False)
    return sock


def ask_versions(sock: socket.socket) -> None:
    body = encoder(ApiVersionsRequest, 0)(ApiVersionsRequest())
    sock.send(write_request(ApiVersionsRequest.API_KEY, 0, 1, "test", body))


def fill(loop: asyncio.AbstractEventLoop, server: BrokerServer, sock: socket.socket) -> None:
    """Sends requests and reads no answer, until the broker cannot send any more."""

    def is_stuck() -> bool:
        with suppress(BlockingIOError):
            for _ in range(200):
                ask_versions(sock)
        return any(connection.channel.queued_bytes for connection in server.node.listeners.connections)

    run_until(loop, is_stuck)


def ask_fetch(sock: socket.socket, *, wait_ms: int) -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])]
    body = encoder(FetchRequest, 11)(FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1000, topics=topics))
    sock.send(write_request(FetchRequest.API_KEY, 11, 1, "test", body))


def is_served(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
    """Sends a request. Returns whether it was answered; False if the broker has closed the connection."""
    answer: list[bytes] = []

    def look() -> bool:
        try:
            answer.append(sock.recv(1 << 16))
            while answer[-1]:  # answers to earlier requests may come first
                answer.append(sock.recv(1 << 16))
        except BlockingIOError:
            return bool(answer)
        except ConnectionError:
            answer.append(b"")
        return True

    try:
        ask_versions(sock)
    except ConnectionError:
        return False
    run_until(loop, look)
    return bool(answer[-1])


def is_closed(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
    """Waits until the broker sends a byte or closes the connection. Returns whether it has closed it."""
    came: list[bytes] = []
    sock.setblocking(False)

    def look() -> bool:
        try:
            came.append(sock.recv(1))
        except BlockingIOError:
            return False
        return True

    run_until(loop, look)
    return came == [b""]


def test_max_connections(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("max.connections=2")
    socks = [connect(server) for _ in range(3)]
    assert [is_served(loop, sock) for sock in socks] == [True, True, False]
    socks[0].close()
    run_until(loop, lambda: len(server.node.listeners.connections) == 1)
    again = connect(server)
    assert is_served(loop, again), "a closed connection makes room"
    for sock in (*socks, again):
        sock.close()


def test_i46_what_openssl_keeps_is_bounded_by_connections(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, pem: Pem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of OpenSSL is not accounted. Formerly 4,000 connections took 240 MiB, whatever `ottla.memory.max.bytes` was."""
    server = make_server(
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.type=PEM", f"ssl.keystore.location={pem('own')}",
    )  # fmt: skip
    monkeypatch.setattr(listener_module, "TLS_CONNECTION_BYTES", server.config.ottla_memory_max_bytes // 2)
    socks = [connect(server, listener) for listener in (1, 0, 1, 0, 1)]
    run_until(loop, lambda: len(server.node.listeners.connections) == 4)
    assert is_closed(loop, socks[-1]), "the third by TLS"
    assert [is_served(loop, sock) for sock in socks[1:4:2]] == [True, True], "others need none of it"
    socks[0].close()
    run_until(loop, lambda: len(server.node.listeners.connections) == 3)
    socks.append(connect(server, 1))
    run_until(loop, lambda: len(server.node.listeners.connections) == 4)
    for sock in socks:
        sock.close()


TWO_LISTENERS = (
    "listeners=CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0", "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
)  # fmt: skip


def test_max_connections_of_one_listener(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(*TWO_LISTENERS, "listener.name.clients.max.connections=1", "max.connections=3")
    socks = [connect(server, listener) for listener in (0, 0, 1, 1, 1)]
    assert [is_served(loop, sock) for sock in socks] == [True, False, True, True, False]
    socks[0].close()
    run_until(loop, lambda: len(server.node.listeners.connections) == 2)
    socks.append(connect(server))
    assert is_served(loop, socks[-1]), "a closed connection makes room"
    for sock in socks:
        sock.close()


def test_a_broker_takes_the_place_of_a_client_where_all_are_taken(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(*TWO_LISTENERS, "inter.broker.listener.name=BROKERS", "max.connections=2")
    clients = [connect(server) for _ in range(2)]
    assert [is_served(loop, sock) for sock in clients] == [True, True]
    brokers = [connect(server, 1) for _ in range(3)]
    assert [is_served(loop, sock) for sock in brokers] == [True, True, False], "brokers are bounded among themselves"
    assert [is_served(loop, sock) for sock in clients] == [False, False]
    for sock in (*clients, *brokers):
        sock.close()


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        (("max.connections.per.ip=1",), 1),
        (("max.connections.per.ip=1", "max.connections.per.ip.overrides=10.0.0.1:9, 127.0.0.1:2"), 2),
        (("max.connections.per.ip.overrides=127.0.0.1:0",), 0),
    ],
)
def test_connections_of_one_address(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, settings: tuple[str, ...], allowed: int
) -> None:
    server = make_server(*settings)
    socks = [connect(server) for _ in range(3)]
    assert [is_served(loop, sock) for sock in socks] == [number < allowed for number in range(3)]
    for sock in socks:
        sock.close()


def test_overrides_by_address() -> None:
    assert per_host("10.0.0.1:5,[::1]:6, ,fe80::1:7") == {"10.0.0.1": 5, "::1": 6, "fe80::1": 7}


def test_silence_ends_a_connection_and_a_pending_request_does_not(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("connections.max.idle.ms=1000")
    server.node.create_topics([("t", 1)])
    began = time.monotonic()
    silent, asking, waiting, half = (connect(server) for _ in range(4))
    ask_fetch(waiting, wait_ms=60_000)
    half.send(struct.pack(">i", 5_000_000) + b"x" * 100_000)
    run_until(loop, lambda: len(server.node.listeners.connections) == 4)

    def only_two_are_left() -> bool:
        ask_versions(asking)
        return len(server.node.listeners.connections) == 2

    run_until(loop, only_two_are_left)
    assert time.monotonic() - began > 0.9, "a connection was closed before its time"
    assert is_served(loop, asking) and not is_served(loop, silent) and not is_served(loop, half)
    for sock in (silent, asking, waiting, half):
        sock.close()


def test_a_peer_that_takes_no_answer_is_silent_too(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("connections.max.idle.ms=1000", "ottla.connection.memory.max.bytes=65536")
    sock = connect(server)

    fill(loop, server, sock)
    run_until(loop, lambda: not server.node.listeners.connections)
    assert not is_served(loop, sock)
    sock.close()


def test_a_stop_does_not_wait_for_a_peer_that_takes_no_answer(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formerly any client could prolong each stop to the maximum, half a minute by default."""
    monkeypatch.setattr(closing, "STILL_MS", 50)
    server = make_server("ottla.connection.memory.max.bytes=65536", "ottla.shutdown.timeout.ms=86400000")
    sock = connect(server)

    fill(loop, server, sock)
    loop.run_until_complete(asyncio.wait_for(server.stop(), 60))
    assert not server.node.listeners.connections
    sock.close()


def test_a_negative_time_of_silence_is_for_ever(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("connections.max.idle.ms=-1")
    sock = connect(server)
    run_until(loop, lambda: len(server.node.listeners.connections) == 1)
    for _ in range(50):
        server.node.housekeeping.sweep_connections()
    assert len(server.node.listeners.connections) == 1 and is_served(loop, sock)
    sock.close()


def test_a_waiting_request_ends_with_its_connection(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    server.node.create_topics([("t", 1)])
    sock = connect(server)
    ask_fetch(sock, wait_ms=2**31 - 1)
    run_until(loop, lambda: len(server.node.waiters.deadlines.waits()) == 1)
    sock.close()
    run_until(loop, lambda: not server.node.waiters.deadlines.waits())
    assert not server.node.listeners.connections


def test_a_client_that_waits_for_too_many_requests_is_silent_too(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    """The broker does not read from such a connection, so it cannot notice that the client has disconnected."""
    server = make_server("ottla.connection.requests.max=2", "connections.max.idle.ms=1000")
    server.node.create_topics([("t", 1)])
    sock = connect(server)
    for _ in range(4):
        ask_fetch(sock, wait_ms=2**31 - 1)
    run_until(loop, lambda: [connection.state for connection in server.node.listeners.connections] == [FULL])
    run_until(loop, lambda: not server.node.listeners.connections)
    assert not server.node.waiters.deadlines.waits()
    sock.close()


def test_i46_sessions_have_as_many_partitions_as_there_is_memory_for(make_server: MakeServer) -> None:
    broker = make_server("ottla.memory.max.bytes=4000000").node.broker
    assert broker.share_sessions.partitions_max == broker.fetch_sessions.partitions_max == 4_000_000 // SESSION_PARTITION_BYTES


def test_i46_unfinished_requests_share_the_memory(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("ottla.memory.max.bytes=4000000")
    socks = [connect(server) for _ in range(8)]
    buffers = server.node.listeners._buffers
    peak = 0

    def push() -> bool:
        nonlocal peak
        for sock in socks:
            try:
                sock.send(b"\0" * 50_000)
            except (BlockingIOError, ConnectionError):
                pass
        peak = max(peak, buffers.bytes_lent)
        return bool(buffers._waiting) and len(buffers._waiting) == len(socks)

    for sock in socks:
        sock.send(struct.pack(">i", 50_000_000))
    run_until(loop, push)
    assert 500_000 < peak <= 2_000_000
    honest = connect(server)
    assert is_served(loop, honest), "small requests are served"
    for _ in range(12):
        server.node.listeners.relieve()
    assert len(server.node.listeners.connections) <= len(socks), "those that stand still are gone"
    assert is_served(loop, honest)
    for sock in (honest, *socks):
        sock.close()


def test_i46_many_connections_have_less_each(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("ottla.memory.max.bytes=4000000")
    limits = server.node.listeners._limits
    socks = [connect(server)]
    run_until(loop, lambda: len(server.node.listeners.connections) == 1)
    assert limits.queued_bytes_max == 2_000_000
    socks += [connect(server) for _ in range(9)]
    run_until(loop, lambda: len(server.node.listeners.connections) == 10)
    assert limits.queued_bytes_max == 200_000
    for sock in socks[1:]:
        sock.close()
    run_until(loop, lambda: len(server.node.listeners.connections) == 1)
    assert limits.queued_bytes_max == 2_000_000
    socks[0].close()


def test_queued_max_request_bytes_bounds_requests_alone() -> None:
    path = Path("unused")
    assert request_bytes_max(config_for(path, "ottla.memory.max.bytes=4000000")) == 2_000_000
    assert request_bytes_max(config_for(path, "ottla.memory.max.bytes=4000000", "queued.max.request.bytes=70000")) == 70_000
    assert request_bytes_max(config_for(path, "ottla.memory.max.bytes=4000000", "queued.max.request.bytes=70000000")) == 2_000_000
