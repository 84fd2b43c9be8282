"""Attacks by numbers: very many small requests, connections, single bytes, scrapes and log lines."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence

from ottla.wire.messages import fetch, metadata, produce
from tests.clients.wire_client import WireClient
from tests.hostile.attacks import OTHER_PORT, Target, attack
from tests.hostile.attacks_growth import make_topic
from tests.hostile.attacks_input import create, finish_one, produce_frame, put, send_and_never_read

HTTP = f"ottla.metrics.listen=127.0.0.1:{OTHER_PORT}"
NO_HTTP_ON_KAFKA = "has no HTTP port"
SECONDS = 5


def flood(clients: Sequence[WireClient], frames: bytes, count: int, rounds: int) -> None:
    """Has each client send frames and read their answers, over and over."""
    for _ in range(rounds):
        for client in clients:
            client.send(frames)
        for client in clients:
            for _ in range(count):
                assert client.receive() is not None


@attack("50 connections that ask for ApiVersions 100 times at once, 40 times")
def ask_for_versions(target: Target) -> None:
    frame = target.request(18, 3, client_software_name="flood", client_software_version="1")
    clients = [target.connect() for _ in range(50)]
    target.begin()
    flood(clients, frame * 100, 100, target.part(40))


@attack("300 connections that ask for 200 topics each at the same moment, 25 times")
def ask_at_once(target: Target) -> None:
    names = [f"asked-{number}" for number in range(200)]
    for name in names:
        create(target, name)
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    frame = target.request(3, 9, topics=topics, allow_auto_topic_creation=False)
    clients = [target.connect() for _ in target.numbers(300)]
    target.begin()
    flood(clients, frame, 1, target.part(25))


@attack("20 connections that produce one record with acks=0, 10,000 times each")
def produce_without_answers(target: Target) -> None:
    create(target, "plain")
    data = produce.PartitionProduceData(index=0, records=memoryview(finish_one()))
    topics = [produce.TopicProduceData(name="plain", partition_data=[data])]
    frame = target.request(0, 9, acks=0, timeout_ms=1000, topic_data=topics)
    clients = [target.connect() for _ in range(20)]
    target.begin()
    for _ in target.numbers(100):
        for client in clients:
            client.send(frame * 100)
    target.hold(50)


@attack("500 connections that send their requests byte by byte")
def byte_by_byte(target: Target) -> None:
    frame = target.request(3, 8, topics=None)
    clients = [target.connect() for _ in target.numbers(500)]
    target.begin()
    for at in range(len(frame)):
        for client in clients:
            client.send(frame[at : at + 1])
    for client in clients:
        assert client.receive() is not None


@attack("3,000 connections that are opened and reset")
def open_and_reset(target: Target) -> None:
    target.begin()
    for _ in target.numbers(3000):
        with socket.create_connection(("127.0.0.1", target.port), timeout=60) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@attack(
    "3,000 connections that begin a login and never end it",
    f"listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{OTHER_PORT}",
    "sasl.enabled.mechanisms=SCRAM-SHA-256",
    not_on_kafka="its login listener needs a configuration of its own",
)
def half_a_login(target: Target) -> None:
    handshake = target.request(17, 1, mechanism="SCRAM-SHA-256")
    half = target.request(36, 2, auth_bytes=bytes(100_000))[:-1]
    target.begin()
    with contextlib.ExitStack() as stack:
        for number in target.numbers(3000):
            with contextlib.suppress(OSError):
                peer = stack.enter_context(socket.create_connection(("127.0.0.1", target.other_port), timeout=60))
                peer.sendall(handshake if number % 2 else handshake + half)
        target.hold(200)


@attack("10 connections of 50 fetches each of all there is, 2 GiB at most, that never read")
def fetch_without_end(target: Target) -> None:
    create(target, "plain")
    for _ in range(40):
        assert put(target, "plain", finish_one() + bytes(0)) == 0
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)
    topics = [fetch.FetchTopic(topic="plain", partitions=[partition] * 1)]
    frame = target.request(
        1, 12, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, max_bytes=2**31 - 1, session_epoch=-1, isolation_level=1, topics=topics
    )
    target.begin()
    for _ in range(10):
        send_and_never_read(target, frame * 50, 1)
    target.hold(200)


@attack("Produce of 5,000 batches that are refused, from 5,000 client ids with control characters")
def flood_the_log(target: Target) -> None:
    create(target, "plain")
    frame = produce_frame(target, "plain", bytes(100))
    target.begin()
    for number in target.numbers(5000):
        with contextlib.suppress(OSError):
            client = WireClient(target.port, timeout=60, client_id=f"\x1b]0;{number}\x07" + "\u202e" * 5000)
            with client:
                client.send(client.frame(target.world.request(3, 8), 8))
                client.receive()
                client.send(frame[:4] + b"\x7f\xff" + frame[6:])


@attack("6,000 connections that have sent one request with a client id of 32 kB")
def long_client_ids(target: Target) -> None:
    target.begin()
    with contextlib.ExitStack() as stack:
        for number in target.numbers(6_000):
            client = stack.enter_context(WireClient(target.port, timeout=60, client_id=f"{number}".ljust(32_000, "c")))
            client.send(client.frame(target.world.request(18, 3), 3))
            assert client.receive() is not None
        target.hold(100)


@attack("64 connections that ask for metrics 100 times at once and take none, and /healthz 100 times", HTTP, not_on_kafka=NO_HTTP_ON_KAFKA)
def scrapes_that_are_not_taken(target: Target) -> None:
    make_topic(target, "wide", 1000)
    target.begin()
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", target.other_port))
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        for _ in target.numbers(100):
            assert_is_alive(target)
        target.hold(50)


@attack("200 connections to the HTTP port that send chunked bodies and heads byte by byte", HTTP, not_on_kafka=NO_HTTP_ON_KAFKA)
def slow_http(target: Target) -> None:
    head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    target.begin()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", target.other_port), timeout=60)) for _ in target.numbers(200)]
        for at in range(len(head)):
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.sendall(head[at : at + 1])
            if not at % 20:
                assert_is_alive(target)
        assert_is_alive(target)


def assert_is_alive(target: Target) -> None:
    with socket.create_connection(("127.0.0.1", target.other_port), timeout=60) as probe:
        probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert probe.recv(100).startswith(b"HTTP/1.1 200")


@attack("64 scrapes at once of 5,000 partitions, over and over, that are not read", HTTP, not_on_kafka=NO_HTTP_ON_KAFKA)
def scrape_without_end(target: Target) -> None:
    make_topic(target, "wide", 5000)
    target.begin()
    until = time.monotonic() + SECONDS * target.share
    with contextlib.ExitStack() as stack:
        while time.monotonic() < until:
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(OSError):
                peer.connect(("127.0.0.1", target.other_port))
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.01)


@attack("64 idle connections to the HTTP port, and /healthz 200 times", HTTP, not_on_kafka=NO_HTTP_ON_KAFKA)
def idle_http(target: Target) -> None:
    target.begin()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", target.other_port), timeout=60)) for _ in range(64)]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in target.numbers(200):
            assert_is_alive(target)
