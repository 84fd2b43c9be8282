"""Starts three brokers with ACLs, whose only listener, for clients and for brokers, uses SASL over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.adapters.zookeeper_tools import ZooKeeperTools
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.certificates import Authority
from tests.clusters.cluster import Cluster
from tests.clusters.conftest import running

SCRAM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS = {"broker": "between brokers", "alice": "wonder", "bob": "builder"}
"""By user. `alice` and `broker` are super users, `bob` has no rights."""


@contextmanager
def secured_cluster(directory: Path, zookeeper: ZooKeeperProcess, authority: Authority) -> Iterator[Cluster]:
    client = {
        "security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.ca),
        "sasl.mechanism": SCRAM, "sasl.username": "alice", "sasl.password": PASSWORDS["alice"],
    }  # fmt: skip
    made = Cluster(
        directory, zookeeper, protocol="SASL_SSL", client=client,
        security_inter_broker_protocol="SASL_SSL", sasl_mechanism_inter_broker_protocol=SCRAM, sasl_enabled_mechanisms=SCRAM,
        sasl_jaas_config=f'{MODULE} required username="broker" password="{PASSWORDS["broker"]}";',
        ssl_keystore_location=authority.issue("broker"), ssl_truststore_location=authority.ca, ssl_client_auth="requested",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:broker;User:alice",
    )  # fmt: skip
    with ZooKeeperTools(zookeeper.connect + made.chroot) as tools:  # as kafka-configs --zookeeper does, because no broker runs yet
        for user, password in PASSWORDS.items():
            tools.alter_credentials(user, {SCRAM: (password, 4096)}, ())
    with running(made):
        yield made
