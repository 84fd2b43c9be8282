"""`--zookeeper` towards a ZooKeeper that takes only clients who log in, by a JAAS file or by a file of settings, which also has TLS: what
is made there belongs to the identity, and what is refused is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing.zookeeper_process import HOST, ZooKeeperProcess, free_port
from tests.adapters.zookeeper_session import WAIT_MS, open_store
from tests.cli.conftest import Ottla
from tests.clients.certificates import Authority

PASSWORD = "between:brokers"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
ALTER = ("--alter", "--entity-type", "users", "--entity-name", "broker", "--add-config", "SCRAM-SHA-256=[password=secret]")


class Server:
    """A ZooKeeper that takes only clients who log in, on a plain port and one with TLS."""

    def __init__(self, process: ZooKeeperProcess, tls_port: int, authority: Path) -> None:
        self.connect = process.connect
        self.tls_connect = f"{HOST}:{tls_port}"
        self.authority = authority


@pytest.fixture(scope="module")
def server(need_zookeeper: None, tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Iterator[Server]:
    directory, tls_port = tmp_path_factory.mktemp("zookeeper"), free_port()
    authority = Authority(directory, need_program)
    keystore, jaas = authority.issue("zookeeper"), directory / "jaas.conf"
    jaas.write_text(f'Server {{ {MODULE} user_brokers="{PASSWORD}"; }};')
    settings = {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider", "requireClientAuthScheme": "sasl",
        "sessionRequireClientSASLAuth": "true", "secureClientPort": str(tls_port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(keystore), "ssl.keyStore.type": "PEM", "ssl.trustStore.location": str(authority.ca),
        "ssl.trustStore.type": "PEM", "ssl.clientAuth": "none", "ssl.hostnameVerification": "false",
    }  # fmt: skip
    with ZooKeeperProcess(directory, settings, [f"-Djava.security.auth.login.config={jaas}"]) as process:
        yield Server(process, tls_port, authority.ca)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session within a time that a loaded machine keeps."""
    from ottla.adapters import zookeeper_tools

    monkeypatch.setattr(zookeeper_tools.ZooKeeperTools.__init__, "__defaults__", (None, WAIT_MS / 1000))


@pytest.fixture
def jaas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The JAAS file of the tools, which `KAFKA_OPTS` names."""
    file = tmp_path / "jaas.conf"
    file.write_text(f'Client {{ {MODULE} username="brokers" password="{PASSWORD}"; }};')
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx64m -Djava.security.auth.login.config={file}")
    return file


def owners(server: Server, path: str) -> set[tuple[str, str, int]]:
    store = open_store(server.connect, login=("brokers", PASSWORD))
    try:
        return {(acl.id.scheme, acl.id.id, acl.perms) for acl in store._client.get_acls(path)[0]}
    finally:
        store.close()


def test_a_login_by_a_jaas_file(offline: Ottla, server: Server, jaas: Path) -> None:
    made = offline("kafka-configs", "--zookeeper", f"{server.connect}/sasl", *ALTER)
    assert (made.code, made.out) == (0, "Completed updating config for entity: user-principal 'broker'.\n"), made.err
    brokers = ("sasl", "brokers", 31)
    assert owners(server, "/sasl/config/users/broker") == {brokers} == owners(server, "/sasl/config/users")
    assert owners(server, "/sasl/config") == {brokers, ("world", "anyone", 1)} == owners(server, "/sasl")
    none = offline("kafka-topics", "--zookeeper", f"{server.connect}/sasl", "--list")
    assert none.code == 3 and "no broker is registered" in none.err


def test_tls_by_a_file(offline: Ottla, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "zk.properties"
    file.write_text(
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\nzookeeper.ssl.client.enable=true\n"
        f"zookeeper.ssl.truststore.location={server.authority}\nzookeeper.ssl.truststore.type=PEM\n"
        f"ottla.zookeeper.sasl=brokers:{PASSWORD}\n"
    )
    made = offline("kafka-configs", "--zookeeper", f"{server.tls_connect}/tls", f"--zk-tls-config-file={file}", *ALTER)
    assert made.code == 0, made.err
    assert owners(server, "/tls/config/users/broker") == {("sasl", "brokers", 31)}


def is_short(errors: str) -> bool:
    """One line, besides the warning about a password among the arguments."""
    return len([line for line in errors.splitlines() if not line.startswith("warning: the list of processes")]) == 1


@pytest.mark.parametrize(
    ("client", "code", "reason"),
    [
        (f'{MODULE} username="brokers" password="topsecret";', 3, "ZooKeeper's login as brokers failed: name or password is wrong"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", 1, "by DigestLoginModule (DIGEST-MD5) alone, not by Krb5LoginModule"),
    ],
)
def test_a_login_that_is_refused(offline: Ottla, server: Server, jaas: Path, client: str, code: int, reason: str) -> None:
    jaas.write_text(f"Client {{ {client} }};")
    refused = offline("kafka-configs", "--zookeeper", f"{server.connect}/sasl", *ALTER)
    assert refused.code == code and reason in refused.err and is_short(refused.err)
    assert "topsecret" not in refused.err


def test_a_tool_without_an_identity(offline: Ottla, server: Server) -> None:
    refused = offline("kafka-configs", "--zookeeper", f"{server.connect}/none", *ALTER)
    assert refused.code == 1 and is_short(refused.err) and "/brokers/ids in ZooKeeper" in refused.err


def test_files_that_cannot_be_used(offline: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "zk.properties"
    at = ("kafka-configs", "--zookeeper", "localhost:1", "--zk-tls-config-file", file, *ALTER)
    missing = offline(*at)
    assert missing.code == 2 and f"cannot read {file}" in missing.err
    file.write_text("zookeeper.ssl.keystore.location=zk.jks\nzookeeper.ssl.keystore.type=JKS\n")
    jks = offline(*at)
    assert jks.code == 1 and "zookeeper.ssl.keystore.type" in jks.err and str(file) in jks.err and is_short(jks.err)
    file.write_text(f"zookeeper.ssl.keystore.location={tmp_path / 'none.pem'}\n")
    unread = offline(*at)
    assert unread.code == 1 and "zookeeper.ssl: " in unread.err and is_short(unread.err)
