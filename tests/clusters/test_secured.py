"""Three brokers whose only listener is secured, for clients and for each other: by SASL_SSL as a user of SCRAM, or by certificates."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from ottla.adapters.zookeeper_tools import ZooKeeperTools
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clients.certificates import Authority
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running

SCRAM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), need_program)


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    client = {
        "security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.ca),
        "sasl.mechanism": SCRAM, "sasl.username": "alice", "sasl.password": "wonder",
    }  # fmt: skip
    made = Cluster(
        tmp_path_factory.mktemp("secured"), zookeeper, protocol="SASL_SSL", client=client,
        security_inter_broker_protocol="SASL_SSL", sasl_mechanism_inter_broker_protocol=SCRAM, sasl_enabled_mechanisms=SCRAM,
        sasl_jaas_config=f'{MODULE} required username="broker" password="between brokers";',
        ssl_keystore_location=authority.issue("broker"), ssl_truststore_location=authority.ca, ssl_client_auth="requested",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:broker;User:alice",
    )  # fmt: skip
    with ZooKeeperTools(zookeeper.connect + made.chroot) as tools:  # as kafka-configs --zookeeper: before there is a broker to ask
        tools.alter_credentials("broker", {SCRAM: ("between brokers", 4096)}, ())
        tools.alter_credentials("alice", {SCRAM: ("wonder", 4096)}, ())
    with running(made):
        yield made


def test_a_stock_producer_goes_on_while_a_broker_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    cluster.wait_until_healthy("killed")
    with Load(cluster, "killed") as load:
        victim = cluster.brokers[cluster.leader_of("killed")]
        victim.kill()
        load.flows()
        victim.start()
        cluster.wait_until_healthy("killed")
        load.flows()
    assert load.verdict() == ""


def test_nothing_readable_is_answered_without_tls(cluster: Cluster, authority: Authority) -> None:
    broker = cluster.brokers[1]
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as plain:
        plain.sendall(bytes.fromhex("00000014 0012 0000 00000001 000a") + b"confluent!")
        assert len(plain.recv(4096)) < 100, "an alert at most"
    context = ssl.create_default_context(cafile=str(authority.ca))
    with context.wrap_socket(socket.create_connection(("127.0.0.1", broker.port), timeout=60), server_hostname="127.0.0.1") as tls:
        assert tls.version() == "TLSv1.3"


def test_the_controller_is_killed_among_brokers_that_know_each_other_by_certificates(
    zookeeper: ZooKeeperProcess, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The subject of the brokers' certificate has the right to CLUSTER_ACTION; the client's certificate is of the same authority."""
    own = str(authority.issue("client", "/CN=client"))
    client = {
        "security.protocol": "SSL", "ssl.ca.location": str(authority.ca), "ssl.certificate.location": own, "ssl.key.location": own,
    }  # fmt: skip
    made = Cluster(
        tmp_path_factory.mktemp("mutual"), zookeeper, protocol="SSL", client=client, security_inter_broker_protocol="SSL",
        ssl_keystore_location=authority.issue("broker"), ssl_truststore_location=authority.ca, ssl_client_auth="required",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", allow_everyone_if_no_acl_found="true",
        ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/,DEFAULT", super_users="User:broker",
    )  # fmt: skip
    with running(made):
        made.create_topic("mutual")
        made.wait_until_healthy("mutual")
        with Load(made, "mutual") as load:
            victim = made.controller()
            made.brokers[victim].kill()
            load.flows()
            eventually(lambda: made.controller() != victim, WAIT_SECONDS)
            made.brokers[victim].start()
            made.wait_until_healthy("mutual")
            load.flows()
        assert load.verdict() == ""
        assert "is not taken for a broker" not in made.logs()
