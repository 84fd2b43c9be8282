"""A real ZooKeeper that takes only clients who log in by SASL (DIGEST-MD5): the store, its access lists, and logins that fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from ottla.adapters.zookeeper import ZooKeeperStore
from ottla.base.errors import StoreUnreachable
from ottla.base.ports import Create, Outcome, StoreNode, StoreResult
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.adapters.zookeeper_session import WAIT_MS, open_store
from tests.clients.broker_process import BrokerProcess

PASSWORD = 'b;e"t\\w:een'
LOGIN = ("brokers", PASSWORD)
JAAS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_brokers="b;e\\"t\\\\w:een";
};
"""

CLIENT = """Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="brokers" password="b;e\\"t\\\\w:een";
};
"""


@pytest.fixture(scope="module")
def server(need_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    directory = tmp_path_factory.mktemp("zookeeper")
    (directory / "jaas.conf").write_text(JAAS)
    settings = {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "requireClientAuthScheme": "sasl", "sessionRequireClientSASLAuth": "true",
    }  # fmt: skip
    jaas = f"-Djava.security.auth.login.config={directory / 'jaas.conf'}"
    with ZooKeeperProcess(directory, settings, [jaas]) as process:
        yield process


def create(store: ZooKeeperStore, path: str) -> StoreResult:
    outcomes: list[Outcome] = []
    store.multi([Create(path, b"x")], outcomes.append)
    assert store.wait(lambda: bool(outcomes), WAIT_MS)
    return outcomes[0].result


def get(store: ZooKeeperStore, path: str) -> StoreNode | None:
    found: list[tuple[StoreResult, StoreNode | None]] = []
    store.get(path, lambda *answer: found.append(answer))
    assert store.wait(lambda: bool(found), WAIT_MS)
    return found[0][1]


def test_nodes_belong_to_the_user_and_a_restart_ends_no_session(server: ZooKeeperProcess) -> None:
    store = open_store(server.connect, login=LOGIN, is_acl_set=True, sensitive_paths=("/secret",))
    try:
        assert create(store, "/secret") is create(store, "/open") is StoreResult.OK
        acls, _ = store._client.get_acls("/open")
        assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {("sasl", "brokers", 31), ("world", "anyone", 1)}
        session = store.session_id()
        server.restart()
        assert store.wait(lambda: store.connects > 1 and store.is_connected(), WAIT_MS)
        found = get(store, "/secret")
        assert found is not None and found.data == b"x" and store.session_id() == session
    finally:
        store.close()


def test_a_client_without_a_login_is_kept_out(server: ZooKeeperProcess) -> None:
    outsider = KazooClient(server.connect)
    outsider.start()
    try:
        with pytest.raises(KazooException):
            outsider.create("/mine", b"")
    finally:
        outsider.stop()
        outsider.close()


@pytest.mark.parametrize("login", [("brokers", "not-so"), ("alice", "not-so")])
def test_a_login_that_is_refused_is_named(server: ZooKeeperProcess, login: tuple[str, str]) -> None:
    reason = f"ZooKeeper's login as {login[0]} failed: name or password is wrong"
    with pytest.raises(StoreUnreachable, match=reason) as refusal:
        open_store(server.connect, login=login)
    assert login[1] not in str(refusal.value)


def test_a_server_without_sasl_is_named(need_zookeeper: None, tmp_path: Path) -> None:
    with ZooKeeperProcess(tmp_path) as plain, pytest.raises(StoreUnreachable, match="ZooKeeper's login as brokers failed: it has no SASL"):
        open_store(plain.connect, login=LOGIN)


@pytest.mark.parametrize("by_jaas_file", [False, True], ids=["setting", "JAAS file"])
def test_a_broker_logs_in(server: ZooKeeperProcess, tmp_path: Path, by_jaas_file: bool) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(CLIENT)
    login = f"java.security.auth.login.config={jaas}" if by_jaas_file else f"ottla.zookeeper.sasl=brokers:{PASSWORD}"
    settings = [f"zookeeper.connect={server.connect}/whole", "broker.id=1", "zookeeper.set.acl=true"]
    broker = BrokerProcess(tmp_path, [*settings, login, "offsets.topic.replication.factor=1"])
    broker.start()
    try:
        reader: Any = open_store(server.connect, login=LOGIN)
        try:
            assert get(reader, "/whole/brokers/ids/1") is not None
        finally:
            reader.close()
        assert PASSWORD not in broker.log_text()
    finally:
        broker.stop()
