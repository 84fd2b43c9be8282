"""Two brokers log in to ZooKeeper (`ottla.zookeeper.digest`, `zookeeper.set.acl`). The tests show what other identities may read and change
there, and that a delegation token of one broker works on the other.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ottla.client.blocking.cluster import Cluster as Client
from ottla.client.core import token_admin
from ottla.client.errors import KafkaError
from ottla.client.security import Security
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clients.test_delegation_tokens import by_token
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "for-alice",
}  # fmt: skip
SECRET = ("/delegation_token/tokens", "/config/users", "/config/brokers", "/cluster/secret")
"""Nodes that only brokers may read."""


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(
        tmp_path_factory.mktemp("access"), zookeeper, 2, protocol="SASL_PLAINTEXT", client=LOGIN,
        security_inter_broker_protocol="SASL_PLAINTEXT", sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        ottla_sasl_plain_users="alice=for-alice", delegation_token_secret_key="a key of the brokers",
        zookeeper_set_acl="true", ottla_zookeeper_digest="brokers:between brokers",
    )  # fmt: skip
    with running(made):
        yield made


def connect(cluster: Cluster, broker: int, properties: dict[str, str]) -> Client:
    return Client(cluster.brokers[broker].address, security=Security(properties))


def test_a_token_made_on_one_broker_logs_in_on_the_other_until_it_is_ended(cluster: Cluster) -> None:
    with connect(cluster, 1, LOGIN) as alice:
        token = token_admin.create_token(alice)
        login = by_token(token.token_id, base64.b64encode(token.hmac).decode())

        def is_let_in(broker: int) -> bool:
            with connect(cluster, broker, login) as worker:
                try:
                    token_admin.describe_tokens(worker)
                except KafkaError as error:
                    return "invalid credentials" not in str(error)  # a user who has logged in by a token may not ask about tokens
            raise AssertionError("a client with a token asks about tokens")

        for broker in (1, 2):
            eventually(lambda broker=broker: is_let_in(broker), WAIT_SECONDS)
        token_admin.expire_token(alice, token.hmac)
        for broker in (1, 2):
            eventually(lambda broker=broker: not is_let_in(broker), WAIT_SECONDS)
        assert token_admin.describe_tokens(alice) == []


def test_others_change_nothing_in_zookeeper_and_read_no_secrets(cluster: Cluster) -> None:
    outsider, broker = KazooClient(cluster.zookeeper.connect + cluster.chroot), KazooClient(
        cluster.zookeeper.connect + cluster.chroot, auth_data=[("digest", "brokers:between brokers")]
    )
    for client in (outsider, broker):
        client.start()
    try:
        assert sorted(outsider.get_children("/brokers/ids")) == ["1", "2"]
        for path in SECRET:
            with pytest.raises(NoAuthError):
                outsider.get(path)
            broker.get(path)
        for attack in (
            lambda: outsider.create("/brokers/topics/mine", b"{}"), lambda: outsider.set("/controller", b"{}"),
            lambda: outsider.delete("/brokers/ids/1"), lambda: outsider.set("/delegation_token/tokens", b""),
            lambda: outsider.create("/config/users/eve", b"{}"),
        ):  # fmt: skip
            with pytest.raises(NoAuthError):
                attack()
    finally:
        for client in (outsider, broker):
            client.stop()
            client.close()
