"""The ZooKeeper adapter under faults: restarts, lost connections and answers, expiry, a lost leader; access lists, TLS, foreign servers."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.adapters.clock import SystemClock
from ottla.adapters.zookeeper import IN_FLIGHT_MAX, ZooKeeperStore
from ottla.adapters.zookeeper_client import TlsFiles
from ottla.base.errors import StoreUnreachable
from ottla.base.ports import Create, Operation, Outcome, SessionEvent, Set, StoreNode, StoreResult, WatchEvent
from ottla.testing.zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess, free_port
from tests.adapters.zookeeper_session import WAIT_MS, open_store, options
from tests.fakes.tcp_proxy import HOST, TcpProxy
from tests.fakes.timers import ManualTimers

OK = StoreResult.OK


@pytest.fixture
def proxy(zookeeper: ZooKeeperProcess) -> Iterator[TcpProxy]:
    with TcpProxy(zookeeper.port) as found:
        yield found


@pytest.fixture
def opened() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def open_one(connect: str, **changes: Any) -> Session:
        sessions.append(Session(open_store(connect, **changes)))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.store.close()


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name.replace('[', '-').replace(']', '')}"


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_MS / 1000
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Session:
    """A session that waits for its answers and keeps a log of events."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store
        self.log: list[object] = []
        store.listen(self.log.append)

    def until(self, is_done: Callable[[], bool]) -> None:
        assert self.store.wait(is_done, WAIT_MS), self.log

    def run(self, *operations: Operation) -> Outcome:
        answers: list[Outcome] = []
        self.store.multi(operations, answers.append)
        self.until(lambda: bool(answers))
        return answers[0]

    def get(self, path: str) -> tuple[StoreResult, StoreNode | None]:
        answers: list[tuple[StoreResult, StoreNode | None]] = []
        self.store.get(path, lambda *answer: answers.append(answer))
        self.until(lambda: bool(answers))
        return answers[0]

    def watch(self, path: str) -> None:
        """Watches a node, there or not; the watch's events go to the log."""
        answers: list[StoreResult] = []
        self.store.exists(path, answers.append, watch=self.log.append)
        self.until(lambda: bool(answers))

    def is_there(self, path: str) -> bool:
        result = self.get(path)[0]
        assert result in (OK, StoreResult.NO_NODE)
        return result is OK


def test_a_restarted_server_keeps_the_session_and_loses_the_watches(
    need_zookeeper: None, tmp_path: Path, opened: Callable[..., Session]
) -> None:
    with ZooKeeperProcess(tmp_path) as server:
        session = opened(f"{server.connect}/kafka", session_timeout_ms=30_000)
        number = session.store.session_id()
        assert session.run(Create("/a", b"1"), Create("/e", ephemeral=True)).result is OK
        session.watch("/a")
        session.watch("/missing")
        server.kill()
        session.until(lambda: SessionEvent.SUSPENDED in session.log)
        assert session.log == [WatchEvent.LOST, WatchEvent.LOST, SessionEvent.SUSPENDED]
        assert not session.store.is_connected()
        assert session.get("/a") == (StoreResult.CONNECTION_LOST, None)
        assert session.run(Set("/a", b"2")) == Outcome(StoreResult.CONNECTION_LOST)
        server.start()
        session.until(session.store.is_connected)
        assert session.log[-1] is SessionEvent.CONNECTED and session.store.session_id() == number
        assert session.is_there("/e") and session.run(Set("/a", b"2", 0)).result is OK
        assert (session.store.disconnects, session.store.connects, session.store.expiries) == (1, 2, 0)


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_write_whose_answer_is_lost_is_unknown(
    zookeeper: ZooKeeperProcess, proxy: TcpProxy, opened: Callable[..., Session], folder: str, is_applied: bool
) -> None:
    session, witness = opened(proxy.address + folder, session_timeout_ms=30_000), opened(zookeeper.connect + folder)
    proxy.hold(requests=not is_applied, answers=True)
    log: list[object] = []
    session.store.multi([Create("/n")], log.append)
    session.store.get("/n", lambda *answer: log.append(answer))
    session.store.multi([Create("/m")], log.append)
    session.store.listen(log.append)
    eventually(lambda: witness.is_there("/m") if is_applied else f"{folder}/m".encode() in proxy.held())
    assert log == []
    proxy.cut()
    proxy.release()
    session.until(lambda: SessionEvent.CONNECTED in log)
    lost = (StoreResult.CONNECTION_LOST, None)
    assert log == [Outcome(StoreResult.UNKNOWN), lost, Outcome(StoreResult.UNKNOWN), SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    assert session.is_there("/n") is is_applied, "no request is sent again by itself"


def test_writes_that_were_not_sent_are_not_unknown(proxy: TcpProxy, opened: Callable[..., Session], folder: str) -> None:
    session = opened(proxy.address + folder, session_timeout_ms=30_000)
    proxy.hold()
    answers: list[StoreResult] = []
    for index in range(2 * IN_FLIGHT_MAX):
        session.store.multi([Create(f"/n{index}")], lambda outcome: answers.append(outcome.result))
    eventually(lambda: b"/n0" in proxy.held())
    proxy.cut(refuse=True)
    session.until(lambda: len(answers) == 2 * IN_FLIGHT_MAX)
    assert set(answers[:IN_FLIGHT_MAX]) <= {StoreResult.UNKNOWN, StoreResult.CONNECTION_LOST}
    assert StoreResult.UNKNOWN in answers[:IN_FLIGHT_MAX]
    assert set(answers[IN_FLIGHT_MAX:]) == {StoreResult.CONNECTION_LOST}


def test_thousands_of_requests_at_once_are_answered_in_order(
    zookeeper: ZooKeeperProcess, opened: Callable[..., Session], folder: str
) -> None:
    session = opened(zookeeper.connect + folder)
    answers: list[int] = []
    for index in range(3_000):
        session.store.exists(f"/n{index}", lambda result, index=index: answers.append(index))
    session.until(lambda: len(answers) == 3_000)
    assert answers == list(range(3_000))


def test_a_session_that_expires_while_cut_off_is_replaced_by_a_new_one(
    zookeeper: ZooKeeperProcess, proxy: TcpProxy, opened: Callable[..., Session], folder: str
) -> None:
    session, witness = opened(proxy.address + folder, session_timeout_ms=1_000), opened(zookeeper.connect + folder)
    number = session.store.session_id()
    session.run(Create("/e", ephemeral=True))
    session.watch("/e")
    witness.watch("/e")
    proxy.hold()
    session.until(lambda: SessionEvent.SUSPENDED in session.log)
    witness.until(lambda: bool(witness.log))
    assert witness.log == [WatchEvent.DELETED] and SessionEvent.EXPIRED not in session.log, "only a server can say that it has expired"
    refused: list[StoreResult] = []

    def ask_at_once(event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            session.store.exists("/", refused.append)

    session.store.listen(ask_at_once)
    proxy.cut()
    proxy.release()
    session.until(session.store.is_connected)
    assert session.log == [WatchEvent.LOST, SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.NEW_SESSION]
    assert refused == [StoreResult.SESSION_EXPIRED]
    assert session.store.session_id() != number and session.run(Create("/e", ephemeral=True)).result is OK


def test_the_lease_moves_with_answered_requests_only(proxy: TcpProxy, folder: str) -> None:
    timers, clock = ManualTimers(), SystemClock()
    before_ms = clock.monotonic_ms()
    store = ZooKeeperStore(
        options(proxy.address + folder, session_timeout_ms=6_000), clock=clock, timers=timers, call_on_loop=lambda function: None
    )
    assert store.lease_ends_ms() < before_ms
    store.connect(WAIT_MS)
    assert before_ms + 6_000 <= store.lease_ends_ms() <= clock.monotonic_ms() + 6_000
    time.sleep(0.05)
    first_ms = store.lease_ends_ms()
    timers.advance(1_200)
    assert store.wait(lambda: store.lease_ends_ms() > first_ms, WAIT_MS), "it asks by itself"
    proxy.hold()
    last_ms = store.lease_ends_ms()
    timers.advance(1_200)
    assert not store.wait(lambda: store.lease_ends_ms() > last_ms, 300)
    store.close()


def test_the_loss_of_an_ensembles_leader_costs_no_session(need_zookeeper: None, tmp_path: Path, opened: Callable[..., Session]) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        session = opened(ensemble.connect, session_timeout_ms=30_000)
        session.run(Create("/e", ephemeral=True))
        leader = ensemble.leader()
        assert leader is not None
        leader.kill()
        session.until(lambda: SessionEvent.SUSPENDED in session.log)  # every server of it drops its clients while it elects
        session.until(session.store.is_connected)
        assert SessionEvent.EXPIRED not in session.log and session.is_there("/e")
        assert session.run(Create("/after")).result is OK


def test_an_absent_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match=r"^no session with ZooKeeper at 127\.0\.0\.1:\d+ within 300 ms: .*$"):
        open_store_within(f"{HOST}:{free_port()}", 300)


def test_a_server_that_takes_no_writes_is_one_line(need_zookeeper: None, tmp_path: Path) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path, jvm_options=["-Dreadonlymode.enabled=true"])
    lonely = ensemble.servers[0]
    lonely.launch()
    try:
        eventually(lambda: lonely.ask("isro") == "ro")
        with pytest.raises(StoreUnreachable, match=r"^no session with ZooKeeper at .* and take writes$"):
            open_store_within(lonely.connect, 700)
    finally:
        ensemble.kill()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x02??", b"\xff\xff\xff\xff", b"\0\0\0\0"])
def test_bytes_of_another_kind_of_server_are_survived(answer: bytes) -> None:
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(StoreUnreachable):
            open_store_within(f"{HOST}:{listener.getsockname()[1]}", 500)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def open_store_within(connect: str, timeout_ms: int) -> None:
    store = ZooKeeperStore(options(connect), clock=SystemClock(), timers=ManualTimers(), call_on_loop=lambda function: None)
    store.connect(timeout_ms)


def test_nodes_with_access_lists_are_changed_by_their_makers_only(
    zookeeper: ZooKeeperProcess, opened: Callable[..., Session], folder: str
) -> None:
    secured = {"is_acl_set": True, "digest": "broker:secret", "sensitive_paths": ("/config/users",)}
    maker, outsider = opened(zookeeper.connect + folder, **secured), opened(zookeeper.connect + folder)
    assert maker.run(Create("/a", b"1"), Create("/config"), Create("/config/users", b"s"), Create("/config/users/u", b"s")).result is OK
    assert outsider.get("/a")[0] is OK and outsider.run(Set("/a", b"2")) == Outcome(StoreResult.REFUSED, 0)
    assert outsider.run(Create("/a/b")) == Outcome(StoreResult.REFUSED, 0)
    assert outsider.get("/config/users")[0] is StoreResult.REFUSED and outsider.get("/config/users/u") == (StoreResult.REFUSED, None)
    other_broker = opened(zookeeper.connect + folder, **secured)
    assert other_broker.run(Set("/a", b"2")).result is OK and other_broker.get("/config/users/u")[0] is OK
    assert outsider.run(Create("/mine")).result is StoreResult.REFUSED, "the chroot is the maker's as well"


def test_a_chroot_is_made_where_it_is_missing(zookeeper: ZooKeeperProcess, opened: Callable[..., Session], folder: str) -> None:
    session = opened(f"{zookeeper.connect}{folder}/deep/below")
    opened(f"{zookeeper.connect}{folder}/deep/below")
    assert session.run(Create("/a"), Create("/a/n-", is_sequential=True)).created == ("/a", "/a/n-0000000000")
    assert opened(zookeeper.connect).is_there(f"{folder}/deep/below/a")


def test_tls_proves_the_server_and_encrypts(
    need_zookeeper: None, need_program: Callable[[str], str], tmp_path: Path, opened: Callable[..., Session]
) -> None:
    key, certificate, both = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "both.pem"
    subprocess.run(
        [
            need_program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(certificate),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + certificate.read_text())
    port = free_port()
    settings = {
        "secureClientPort": str(port), "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(both), "ssl.keyStore.type": "PEM", "ssl.trustStore.location": str(certificate),
        "ssl.trustStore.type": "PEM", "ssl.hostnameVerification": "false",
    }  # fmt: skip
    with ZooKeeperProcess(tmp_path / "server", settings):
        files = TlsFiles(certificate=str(both), authorities=str(certificate))
        session = opened(f"{HOST}:{port}/kafka", tls=files)
        assert session.run(Create("/a", bytes(100_000))).result is OK
        result, node = session.get("/a")
        assert result is OK and node is not None and len(node.data) == 100_000
        outsider = ZooKeeperStore(
            options(f"{HOST}:{port}", tls=TlsFiles()), clock=SystemClock(), timers=ManualTimers(), call_on_loop=lambda function: None
        )
        with pytest.raises(StoreUnreachable):  # the certificate is not signed by an authority of the system
            outsider.connect(500)
    with pytest.raises(StoreUnreachable, match=r"^zookeeper\.ssl: "):
        open_store(f"{HOST}:{port}", tls=TlsFiles(certificate=str(tmp_path / "missing.pem")))


def test_a_session_that_another_closes_is_over(zookeeper: ZooKeeperProcess, opened: Callable[..., Session], folder: str) -> None:
    session = opened(zookeeper.connect + folder)
    number = session.store.session_id()
    other = KazooClient(zookeeper.connect, client_id=session.store._client.client_id)
    other.start()
    other.stop()
    other.close()
    session.until(lambda: SessionEvent.NEW_SESSION in session.log)
    assert session.log[0] is SessionEvent.SUSPENDED and session.store.session_id() != number
