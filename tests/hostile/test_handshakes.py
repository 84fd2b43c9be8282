"""TLS handshakes that are begun and never completed are limited in number and time, and other clients are served."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.security import Security
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.certificates import Authority
from tests.clients.conftest import SETTINGS

PENDING_MAX = 100
HALF_OPEN = 5_000
OTHER_FILES = 1_000
RSS_GROWTH_BYTES_MAX = 64 << 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), need_program)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    settings = (
        *SETTINGS, "listeners=SSL://127.0.0.1:0", f"ssl.keystore.location={authority.issue('broker')}",
        f"ottla.connections.unauthenticated.max={PENDING_MAX}", "ottla.authentication.timeout.ms=5000",
    )  # fmt: skip
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def half_open_count() -> Iterator[int]:
    """Returns how many connections this process may open, with its limit raised to the maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HALF_OPEN + OTHER_FILES
    limit = max(soft, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield min(HALF_OPEN, limit - OTHER_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def client_hello() -> bytes:
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def half_open(port: int, count: int, pieces: list[bytes]) -> list[socket.socket]:
    """Opens connections that send only one of the pieces each, in turn."""
    found = []
    for number in range(count):
        sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        with contextlib.suppress(ConnectionError):
            sock.sendall(pieces[number % len(pieces)])
        sock.setblocking(False)
        found.append(sock)
    return found


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker has closed the connection. Reads and drops the bytes of the handshake that it has sent."""
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_half_open_handshakes_starve_neither_those_who_are_in_nor_those_who_come(
    broker: BrokerProcess, authority: Authority, half_open_count: int
) -> None:
    assert half_open_count > 2 * PENDING_MAX
    security = Security({"security.protocol": "SSL", "ssl.truststore.location": str(authority.ca)})
    hello = client_hello()
    with Cluster(broker.address, security=security) as early:
        assert scram_admin.describe_scram(early) == {}
        before = broker.rss_bytes()
        attackers = half_open(broker.port, half_open_count, [b"", hello[:5], hello])
        try:
            assert scram_admin.describe_scram(early) == {}
            with Cluster(broker.address, security=security) as late:
                assert scram_admin.describe_scram(late) == {}
            eventually(lambda: sum(not is_closed(sock) for sock in attackers) <= PENDING_MAX)
            assert broker.rss_bytes() - before < RSS_GROWTH_BYTES_MAX
            eventually(lambda: all(map(is_closed, attackers)))
            assert scram_admin.describe_scram(early) == {}
        finally:
            for sock in attackers:
                sock.close()


HELLO_OF_TLS_1_1 = bytes.fromhex("0302") + bytes(32) + bytes.fromhex("00 0004 002f 0035 0100")


def test_a_downgrade_to_a_version_that_is_not_enabled_is_refused(broker: BrokerProcess) -> None:
    hello = b"\x01" + len(HELLO_OF_TLS_1_1).to_bytes(3, "big") + HELLO_OF_TLS_1_1
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as sock:
        sock.sendall(bytes.fromhex("160301") + len(hello).to_bytes(2, "big") + hello)
        answer = b"".join(iter(lambda: sock.recv(4096), b""))
    assert answer[:1] == b"\x15" and answer[-2:] == b"\x02\x46", "a fatal alert: protocol_version"
