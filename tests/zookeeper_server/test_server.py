"""The server as its clients see it, kazoo and plain sockets. What a store does is in tests/adapters/test_store_conformance.py."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, NoAuthError, NodeExistsError, UnimplementedError
from kazoo.protocol.states import KeeperState, WatchedEvent

from ottla.testing.zookeeper_process import EmbeddedZooKeeper
from ottla.zookeeper_server.messages import FRAME_BYTES_MAX
from ottla.zookeeper_server.sessions import TIMEOUT_MS_MIN
from tests.clients.broker_process import eventually

pytestmark = pytest.mark.foreign


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path) as running:
        yield running


@pytest.fixture
def clients(server: EmbeddedZooKeeper) -> Iterator[list[KazooClient]]:
    opened: list[KazooClient] = []
    yield opened
    for client in opened:
        client.stop()
        client.close()


def connected(clients: list[KazooClient], server: EmbeddedZooKeeper, **options: object) -> KazooClient:
    client = KazooClient(server.connect, **options)
    clients.append(client)
    client.start(timeout=60)
    return client


def test_acknowledged_writes_survive_a_kill(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    client = connected(clients, server)
    first = client.create("/kept", b"one")
    client.set("/kept", b"two")
    client.create("/number-", b"", sequence=True)
    created = client.exists(first).czxid
    server.kill()
    server.start()
    again = connected(clients, server)
    data, stat = again.get("/kept")
    assert (data, stat.version, stat.czxid) == (b"two", 1, created)
    assert again.create("/number-", b"", sequence=True) == "/number-0000000001"
    assert again.exists("/number-0000000001").czxid > created


def test_a_session_ends_once_its_client_is_silent(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    watching = connected(clients, server)
    gone = threading.Event()
    with socket.create_connection(("127.0.0.1", server.port), 60) as silent:
        silent.sendall(framed(struct.pack(">iqiq", 0, 0, 1, 0) + buffer(bytes(16)) + b"\0"))
        _version, granted_ms, session_id = struct.unpack_from(">iiq", read_frame(silent))
        assert granted_ms == TIMEOUT_MS_MIN
        create = struct.pack(">ii", 1, 1) + buffer(b"/mine") + buffer(b"") + struct.pack(">i", 0) + struct.pack(">i", 1)
        silent.sendall(framed(create))
        assert struct.unpack_from(">iqi", read_frame(silent))[2] == 0
        stat = watching.exists("/mine", watch=lambda event: gone.set())
        assert stat is None or stat.ephemeralOwner == session_id
        assert gone.wait(60)
        eventually(lambda: silent.recv(1) == b"")
    assert watching.exists("/mine") is None


def test_a_new_connection_takes_the_session_over(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    first = connected(clients, server, timeout=60)
    first.create("/mine", b"", ephemeral=True)
    session_id, password = first.client_id
    second = connected(clients, server, client_id=(session_id, password), timeout=60)
    assert second.client_id[0] == session_id
    assert second.exists("/mine").ephemeralOwner == session_id


def test_a_session_that_is_unknown_has_expired(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    states: list[KeeperState] = []
    client = KazooClient(server.connect, client_id=(12345, bytes(16)))
    clients.append(client)
    client.add_listener(states.append)
    client.start(timeout=60)
    assert client.client_id[0] != 12345


def test_a_watch_is_notified_once(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    watching, changing = connected(clients, server), connected(clients, server)
    events: list[WatchedEvent] = []
    changing.create("/a", b"")
    watching.get("/a", watch=events.append)
    watching.exists("/a", watch=partial(events.append))  # one watch for the server, another function for kazoo
    changing.set("/a", b"1")
    changing.set("/a", b"2")
    assert watching.get("/a")[0] == b"2"
    eventually(lambda: len(events) == 2)
    assert {event.type for event in events} == {"CHANGED"}


def test_a_multi_that_fails_changes_nothing(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    client = connected(clients, server)
    client.create("/there", b"")
    transaction = client.transaction()
    transaction.create("/new")
    transaction.create("/there")
    transaction.delete("/there")
    results = transaction.commit()
    assert [type(result).__name__ for result in results] == ["RolledBackError", "NodeExistsError", "RuntimeInconsistency"]
    assert client.exists("/new") is None


def test_a_stat_in_a_multi_may_be_of_a_node_that_is_deleted_later(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    client = connected(clients, server)
    client.create("/short", b"")
    transaction = client.transaction()
    transaction.set_data("/short", b"x")
    transaction.delete("/short")
    _stat, is_deleted = transaction.commit()
    assert is_deleted is True and client.exists("/short") is None


def test_what_is_not_served_is_refused_and_the_connection_stays(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    client = connected(clients, server)
    with pytest.raises(UnimplementedError):
        client.set_acls("/", client.get_acls("/")[0])
    with pytest.raises(UnimplementedError):
        client.reconfig("", "", "")
    with pytest.raises(NodeExistsError):
        client.create("/zookeeper") and client.create("/zookeeper")
    assert client.sync("/") == "/" and client.get_children("/") == ["zookeeper"]


@pytest.mark.parametrize("path", [b"", b"a", b"/a/", b"//a", b"/a//b", b"/.", b"/a/../b", b"/a\0b"])
def test_a_path_that_is_none_is_refused(server: EmbeddedZooKeeper, path: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(framed(struct.pack(">iqiq", 0, 0, 10_000, 0) + buffer(bytes(16))))
        read_frame(raw)
        raw.sendall(framed(struct.pack(">ii", 1, 3) + buffer(path) + b"\0"))
        assert struct.unpack_from(">iqi", read_frame(raw))[2] == BadArgumentsError.code


@pytest.mark.parametrize(
    "hostile",
    [
        struct.pack(">i", FRAME_BYTES_MAX + 1),
        struct.pack(">i", -5),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 8) + struct.pack(">ii", 1, 3),
        struct.pack(">i", 12) + struct.pack(">iii", 1, 3, 1000),
        struct.pack(">i", 14) + struct.pack(">iii", 1, 3, 2) + b"\xff\xfe",
        struct.pack(">i", 8) + struct.pack(">ii", 1, 14),
        struct.pack(">i", 23) + struct.pack(">ii", 1, 14) + struct.pack(">i?i", 99, False, -1) + struct.pack(">i", 2) + b"/a",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_that_are_not_the_protocol_end_their_connection_only(
    server: EmbeddedZooKeeper, clients: list[KazooClient], hostile: bytes
) -> None:
    beside = connected(clients, server)
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(framed(struct.pack(">iqiq", 0, 0, 10_000, 0) + buffer(bytes(16))))
        read_frame(raw)
        raw.sendall(hostile)
        assert is_closed(raw)
    assert beside.get_children("/") == []


def test_a_client_that_reads_nothing_is_closed(server: EmbeddedZooKeeper, clients: list[KazooClient]) -> None:
    client = connected(clients, server)
    client.create("/large", bytes(1_000_000))
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        raw.sendall(framed(struct.pack(">iqiq", 0, 0, 120_000, 0) + buffer(bytes(16))))
        read_frame(raw)
        request = framed(struct.pack(">ii", 1, 4) + buffer(b"/large") + b"\0")
        with pytest.raises(OSError):
            for _ in range(100_000):
                raw.sendall(request)
    assert client.get("/large")[1].dataLength == 1_000_000


def test_with_a_digest_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: list[KazooClient]) -> None:
    monkeypatch.setenv("OTTLA_ZOOKEEPER_DIGEST", "brokers:secret")
    with EmbeddedZooKeeper(tmp_path / "closed") as closed:
        with pytest.raises(NoAuthError):
            connected(clients, closed).get_children("/")
        member = connected(clients, closed, auth_data=[("digest", "brokers:secret")])
        assert member.create("/a") == "/a"
        wrong = KazooClient(closed.connect, auth_data=[("digest", "brokers:wrong")])
        clients.append(wrong)
        wrong.start_async()
        eventually(lambda: "its digest is wrong" in closed.log_tail())
        assert member.get_children("/") == ["a"]


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def read_frame(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", read(connection, 4))
    return read(connection, length)


def read(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        assert piece, "the connection was closed"
        found += piece
    return found


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
