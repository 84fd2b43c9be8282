"""`--zookeeper` of Kafka's older tools: brokers are found where they register, and what must be there before them is written there."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.security.scram_server import make_credential
from ottla.testing.cluster import Cluster
from ottla.testing.zookeeper_process import ZooKeeperProcess, free_port
from tests.cli.conftest import Ottla, Result


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess) -> Iterator[Cluster]:
    with Cluster(1, zookeeper=f"{zookeeper.connect}/kafka") as cluster:
        yield cluster


def elsewhere(cluster: Cluster) -> str:
    """A part of the same ZooKeeper in which no broker has ever been."""
    return cluster.zookeeper_connect.replace("/kafka", "/new")


def node(cluster: Cluster, path: str) -> dict[str, str]:
    from kazoo.client import KazooClient

    client = KazooClient(elsewhere(cluster))
    client.start()
    try:
        found: dict[str, str] = json.loads(client.get(path)[0])["config"]
        return found
    finally:
        client.stop()
        client.close()


def words(result: Result) -> str:
    assert result.code == 0, result.err
    return result.out


def test_tools_go_on_with_the_brokers_that_are_registered(offline: Ottla, cluster: Cluster, tmp_path: Path) -> None:
    at = ("--zookeeper", cluster.zookeeper_connect)
    assert words(offline("kafka-topics", "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1", *at)).endswith(
        "Created topic t.\n"
    )
    listed = offline("kafka-topics.sh", f"--zookeeper={cluster.zookeeper_connect}", "--list")
    assert "t\n" in words(listed) and f"--bootstrap-server {cluster.direct_server}" in listed.err and listed.err.count("\n") == 1
    words(offline("kafka-configs", *at, "--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.ms=5000"))
    assert "retention.ms=5000" in words(offline("kafka-configs", *at, "--describe", "--entity-type", "topics", "--entity-name", "t"))
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    words(offline("kafka-configs", *at, "--alter", *of_broker, "--add-config", "log.cleaner.backoff.ms=16000"))
    assert "log.cleaner.backoff.ms=16000" in words(offline("kafka-configs", *at, "--describe", *of_broker))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
    assert "is completed" in words(offline("kafka-reassign-partitions", *at, "--verify", "--reassignment-json-file", file))
    words(offline("kafka-preferred-replica-election", *at))
    words(offline("kafka-leader-election", *at, "--election-type", "preferred", "--all-topic-partitions"))


def test_credentials_are_there_before_the_first_broker(offline: Ottla, cluster: Cluster) -> None:
    at = ("--zookeeper", elsewhere(cluster), "--force", "--alter", "--entity-type", "users", "--entity-name", "admin")
    made = offline("kafka-configs", *at, "--add-config", "SCRAM-SHA-256=[iterations=5000,password=secret],SCRAM-SHA-512=[password=other]")
    assert words(made) == "Completed updating config for entity: user-principal 'admin'.\n" and "secret" not in made.err
    found = node(cluster, "/config/users/admin")
    assert sorted(found) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    fields = dict(part.split("=", 1) for part in found["SCRAM-SHA-256"].split(","))
    expected = make_credential("SCRAM-SHA-256", "secret", base64.b64decode(fields["salt"]), 5000)
    assert (base64.b64decode(fields["stored_key"]), base64.b64decode(fields["server_key"])) == (expected.stored_key, expected.server_key)
    words(offline("kafka-configs", *at, "--delete-config", "SCRAM-SHA-512"))
    assert sorted(node(cluster, "/config/users/admin")) == ["SCRAM-SHA-256"]
    refused = offline("kafka-configs", *at, "--add-config", "SCRAM-SHA-256=[password=x],producer_byte_rate=1")
    assert refused.code == 2 and "producer_byte_rate" in refused.err


def test_a_chroot_without_a_cluster_beside_one_with_a_cluster_is_refused(offline: Ottla, cluster: Cluster) -> None:
    """It is probably a mistake: no broker would read what is written there."""
    ensemble = cluster.zookeeper_connect.partition("/")[0]
    for wrong in (ensemble, f"{ensemble}/kafak"):
        at = ("kafka-configs", "--zookeeper", wrong, "--alter", "--entity-type")
        for what in (("users", "--entity-name", "a", "--add-config", "SCRAM-SHA-256=[password=x]"), ("brokers", "--entity-default",
                     "--add-config", "message.max.bytes=5000")):  # fmt: skip
            refused = offline(*at, *what)
            assert (refused.code, refused.out, refused.err.count("error: ")) == (1, "", 1), refused
            assert f"no cluster at {wrong}, but one at {ensemble}/" in refused.err.splitlines()[-1] and "--force" in refused.err


def test_settings_of_brokers_that_do_not_run(offline: Ottla, cluster: Cluster) -> None:
    at = ("--zookeeper", elsewhere(cluster), "--force", "--alter", "--entity-type", "brokers")
    words(offline("kafka-configs", *at, "--entity-name", "7", "--add-config", "log.cleaner.backoff.ms=77"))
    words(offline("kafka-configs", *at, "--entity-default", "--add-config", "message.max.bytes=5000"))
    assert node(cluster, "/config/brokers/7") == {"log.cleaner.backoff.ms": "77"}
    assert node(cluster, "/config/brokers/<default>") == {"message.max.bytes": "5000"}
    bad = offline("kafka-configs", *at, "--entity-name", "7", "--add-config", "message.max.bytes=many")
    assert bad.code == 2 and bad.err.count("\n") == 1


def test_what_cannot_be_is_one_line(offline: Ottla, cluster: Cluster, tmp_path: Path) -> None:
    missing = offline("kafka-topics", "--zookeeper", elsewhere(cluster), "--list")
    assert missing.code == 3 and "no broker is registered" in missing.err and missing.err.count("\n") == 1
    both = offline("kafka-topics", "--zookeeper", elsewhere(cluster), "--bootstrap-server", "h:1", "--list")
    assert both.code == 2 and "Only one of" in both.err
    secure = tmp_path / "client.properties"
    secure.write_text("security.protocol=SASL_SSL\n")
    no_listener = offline("kafka-topics", "--zookeeper", cluster.zookeeper_connect, "--list", "--command-config", secure)
    assert no_listener.code == 3 and "SASL_SSL" in no_listener.err and no_listener.err.count("\n") == 1
    wrong = offline("kafka-topics", "--zookeeper", "host:port:2181", "--list")
    assert wrong.code == 1 and wrong.err.count("\n") == 1


def test_a_zookeeper_that_does_not_answer(offline: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.adapters import zookeeper_tools

    monkeypatch.setattr(zookeeper_tools.ZooKeeperTools.__init__, "__defaults__", (None, 0.3))
    silent = offline("kafka-topics", "--zookeeper", f"127.0.0.1:{free_port()}/kafka", "--list")
    assert silent.code == 3 and "no session with ZooKeeper" in silent.err and silent.err.count("\n") == 1


def test_a_connection_that_is_lost_while_brokers_are_read_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from kazoo.exceptions import ConnectionLoss

    from ottla.adapters import zookeeper_tools

    class Lost:
        def get_children(self, path: str) -> list[str]:
            return ["1"]

        def get(self, path: str) -> tuple[bytes, None]:
            raise ConnectionLoss

        def end(self, seconds_max: float) -> None: ...

    monkeypatch.setattr(zookeeper_tools.ZooKeeperTools, "_begin", lambda *_: Lost())
    with zookeeper_tools.ZooKeeperTools("zoo:2181") as tools, pytest.raises(StorageError, match="at zoo:2181: ConnectionLoss"):
        tools.brokers()


def test_a_user_is_added_before_the_first_broker(offline: Ottla, cluster: Cluster, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("between brokers\n")
    add = ("user", "add", "broker", "--mechanism", "SCRAM-SHA-512", "--password-file", password)
    mistaken = offline(*add, "--zookeeper", cluster.zookeeper_connect.replace("/kafka", "/kafak"))
    assert mistaken.code == 1 and mistaken.err.count("\n") == 1
    assert f"but one at {cluster.zookeeper_connect.partition('/')[0]}/" in mistaken.err and "say that, or --force" in mistaken.err
    made = offline(*add, "--zookeeper", elsewhere(cluster), "--force")
    assert words(made) == "User broker can log in by SCRAM-SHA-512.\n" and "between" not in made.err
    found = node(cluster, "/config/users/broker")
    fields = dict(part.split("=", 1) for part in found["SCRAM-SHA-512"].split(","))
    assert base64.b64decode(fields["stored_key"]) == make_credential(
        "SCRAM-SHA-512", "between brokers", base64.b64decode(fields["salt"]), 4096
    ).stored_key  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        (("--zookeeper", "a:1", "-b", "b:1"), 2, "give --zookeeper or --bootstrap-server, not both"),
        (("--zookeeper", ","), 1, "Expected host:port,host:port/chroot"),
    ],
)
def test_a_user_for_a_wrong_place_is_refused_in_one_line(
    offline: Ottla, tmp_path: Path, wrong: tuple[str, ...], code: int, said: str
) -> None:
    password = tmp_path / "password"
    password.write_text("p\n")
    refused = offline("user", "add", "broker", "--password-file", password, *wrong)
    assert (refused.code, refused.err.count("\n")) == (code, 1) and said in refused.err
