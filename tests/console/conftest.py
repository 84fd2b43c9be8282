"""One console for all tests of this folder, with hostile names and records in its cluster, and a broker with an HTTP port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.acls import AclOperation, Binding, Pattern, Permission, ResourceType, Rule
from ottla.base.types import TopicPartition
from ottla.client.blocking import scram_admin
from ottla.client.blocking.client import Client
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin, share_admin
from ottla.testing.broker import Broker
from ottla.testing.zookeeper_process import free_port
from tests.console.world import SCRIPT, Visitor, commit, console_of, join_streams_group, write
from tests.spark.relay_by_hand import HandMadePipeline

SETTINGS = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}
READ = Binding(Pattern(ResourceType.TOPIC, SCRIPT), Rule("User:reader", "*", AclOperation.READ, Permission.ALLOW))


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    settings = {**SETTINGS, "ottla.metrics.listen": f"127.0.0.1:{free_port()}"}
    with Broker(topics=["orders:3", "quiet:1", "odd.json:1"], settings=settings) as broker:
        yield broker


@pytest.fixture(scope="package")
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server, client_id=SCRIPT) as cluster:
        write(cluster, "orders", f'{{"text": "{SCRIPT}"}}'.encode(), None, b"\xff\xfe binary", key=SCRIPT.encode())
        write(cluster, "orders", *(b"plain %d" % number for number in range(20)))
        commit(cluster, "shop", "orders", 3)
        commit(cluster, f"group {SCRIPT}", "orders", 1)
        share_admin.alter_share_offsets(cluster, SCRIPT, {TopicPartition("orders", 0): 1})
        join_streams_group(cluster, "streamers", "orders")
        copier = HandMadePipeline(Client(cluster), broker)
        copier.group = "copier"
        copier.run()
        acl_admin.create_acls(cluster, [READ])
        scram_admin.alter_scram(cluster, SCRIPT, passwords={"SCRAM-SHA-256": ("secret", 4096)})
        yield cluster


@pytest.fixture(scope="package")
def visitor(broker: Broker, cluster: Cluster) -> Iterator[Visitor]:
    with console_of(broker.bootstrap_server) as visitor:
        yield visitor
