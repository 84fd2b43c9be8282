"""Password settings that are altered while brokers run: how ZooKeeper stores them, which value is in force, and what a change of
`password.encoder.secret` does. Both brokers accept logins by PLAIN. Broker 2, which is not the controller, gets another user while it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.base.errors import ErrorCode
from ottla.client.blocking.cluster import Cluster as Client
from ottla.client.errors import KafkaError
from ottla.client.security import Security
from ottla.testing.zookeeper_process import ZooKeeperProcess
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.test_secured import ask_at

USERS = "ottla.sasl.plain.users"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "for-alice"}
NAMED = 2


def make_cluster(directory: Path, zookeeper: ZooKeeperProcess) -> Cluster:
    return Cluster(
        directory, zookeeper, 2, protocol="SASL_PLAINTEXT", client=LOGIN, security_inter_broker_protocol="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN", ottla_sasl_plain_users="alice=for-alice",
    )  # fmt: skip


def restart(broker: BrokerProcess, *settings: str) -> None:
    broker.stop()
    broker.settings = [one for one in broker.settings if not one.startswith("password.encoder.")] + list(settings)
    broker.start()


def stored(cluster: Cluster) -> str:
    with cluster.nodes() as client:
        return str(json.loads(client.get(f"/config/brokers/{NAMED}")[0])["config"][USERS])


def alter(cluster: Cluster, users: str) -> tuple[int, str | None]:
    resource = AlterConfigsResource(resource_type=4, resource_name=str(NAMED), configs=[AlterableConfig(name=USERS, value=users)])
    (found,) = ask_at(cluster, NAMED, IncrementalAlterConfigsRequest(resources=[resource])).responses
    return found.error_code, found.error_message


def is_let_in(cluster: Cluster, user: str, password: str) -> bool:
    login = {**LOGIN, "sasl.username": user, "sasl.password": password}
    try:
        with Client(cluster.brokers[NAMED].address, security=Security(login)) as client:
            client.any_connection()
    except KafkaError:
        return False
    return True


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[Cluster]:
    """A cluster in which an earlier version has stored a password in clear. Broker 1 is the controller."""
    cluster = make_cluster(tmp_path / "clear", zookeeper)
    node = json.dumps({"version": 1, "config": {USERS: "alice=for-alice old=earlier"}}).encode()
    client = KazooClient(zookeeper.connect)  # there is no chroot yet
    client.start()
    client.create(f"{cluster.chroot}/config/brokers/{NAMED}", node, makepath=True)
    client.stop()
    client.close()
    try:
        for broker in cluster.brokers.values():
            broker.start()
        yield cluster
        cluster.stop()
    finally:
        cluster.kill()


def test_passwords_are_encrypted_refused_and_encrypted_again(cluster: Cluster) -> None:
    broker = cluster.brokers[NAMED]
    assert cluster.controller() != NAMED
    eventually(lambda: is_let_in(cluster, "old", "earlier"), WAIT_SECONDS)
    eventually(lambda: f"stored in clear: {USERS}; set password.encoder.secret" in broker.log_path.read_text(), WAIT_SECONDS)
    code, message = alter(cluster, "alice=for-alice bob=at-run-time")
    assert code == ErrorCode.INVALID_REQUEST and message is not None
    assert "Password encoder secret not configured: set password.encoder.secret" in message
    assert "at-run-time" not in message and stored(cluster) == "alice=for-alice old=earlier"

    restart(broker, "password.encoder.secret=first")
    eventually(lambda: "encryptedPassword:" in stored(cluster), WAIT_SECONDS)
    assert "earlier" not in stored(cluster) and is_let_in(cluster, "old", "earlier")
    assert alter(cluster, "alice=for-alice bob=at-run-time") == (0, None)
    assert "at-run-time" not in stored(cluster) and "encryptedPassword:" in stored(cluster)
    eventually(lambda: is_let_in(cluster, "bob", "at-run-time") and not is_let_in(cluster, "old", "earlier"), WAIT_SECONDS)

    by_first = stored(cluster)
    restart(broker, "password.encoder.secret=second", "password.encoder.old.secret=first")
    eventually(lambda: is_let_in(cluster, "bob", "at-run-time") and stored(cluster) != by_first, WAIT_SECONDS)
    restart(broker, "password.encoder.secret=second")
    eventually(lambda: is_let_in(cluster, "bob", "at-run-time"), WAIT_SECONDS)

    restart(broker, "password.encoder.secret=forgotten")
    eventually(lambda: f"the stored password {USERS} has no effect: it was encrypted by another secret" in broker.log_path.read_text(),
               WAIT_SECONDS)  # fmt: skip
    assert not is_let_in(cluster, "bob", "at-run-time") and is_let_in(cluster, "alice", "for-alice")
