"""Third-party clients against three brokers: three replicas, transactions, groups, and consumers that read from a replica in their rack
(KIP-392).
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.blocking import cluster as client_cluster
from ottla.client.core import admin
from ottla.testing.zookeeper_process import ZooKeeperProcess, free_port
from tests.clients.broker_process import eventually
from tests.clusters.cluster import Cluster
from tests.clusters.conftest import running
from tests.clusters.foreign_clients import CLIENTS, COUNT, SECONDS, in_a_process, values

RACKS = {1: "a", 2: "b", 3: "c"}
metrics_ports: dict[int, int] = {}


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker N is in rack N of RACKS, and exports its metrics."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    made = Cluster(tmp_path_factory.mktemp("clients"), zookeeper, replica_selector_class=selector)
    for number, broker in made.brokers.items():
        metrics_ports[number] = free_port()
        broker.settings += [f"broker.rack={RACKS[number]}", f"ottla.metrics.listen=127.0.0.1:{metrics_ports[number]}"]
    with running(made):
        yield made


@pytest.mark.parametrize("name", ["confluent", "kafka-python", pytest.param("aiokafka", marks=pytest.mark.night)])
def test_records_transactions_and_groups_with_three_replicas(cluster: Cluster, name: str) -> None:
    """Clients work before and after a broker has stopped and its leaders and coordinators have moved."""
    write, read = CLIENTS[name]
    cluster.create_topic(name)
    in_a_process(write, cluster.addresses, name)
    expected = sorted([*values("plain"), *values("committed")])
    assert sorted(in_a_process(read, cluster.addresses, name, f"{name}-before", len(expected))) == expected
    victim = cluster.brokers[cluster.leader_of(name)]
    victim.stop()
    try:
        assert sorted(in_a_process(read, cluster.addresses, name, f"{name}-after", len(expected))) == expected
    finally:
        victim.start()
    cluster.wait_until_healthy(name)


# Readers of a rack


def metrics_of(broker: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_ports[broker]}/metrics", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def bytes_out(broker: int, topic: str) -> float:
    """Returns the bytes of the topic that consumers have read from a broker."""
    found = re.search(rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}} (\S+)$', metrics_of(broker), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_reader_is_served_by_the_replica_of_its_rack(cluster: Cluster) -> None:
    topic = "racks"
    cluster.create_topic(topic, partitions=1)
    cluster.wait_until_healthy(topic)
    leader = cluster.leader_of(topic)
    near = next(number for number in RACKS if number != leader)
    client = Producer({"bootstrap.servers": cluster.addresses, "acks": "all"})
    for value in values("x" * 100):
        client.produce(topic, value)
    assert client.flush(SECONDS) == 0
    settings = {"bootstrap.servers": cluster.addresses, "group.id": topic, "client.rack": RACKS[near], "fetch.wait.max.ms": 50}
    found: list[bytes] = []
    with closing(Consumer(settings)) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])

        def is_served_nearby() -> bool:
            """Reads all records repeatedly, because the first answer of the leader only names the other replica."""
            found.extend(message.value() for message in reader.consume(COUNT, 0.5) if message.error() is None)
            if len(found) >= COUNT and bytes_out(near, topic) == 0:
                found.clear()
                reader.seek(TopicPartition(topic, 0, 0))
            return len(found) >= COUNT

        eventually(is_served_nearby, SECONDS)
    assert found == values("x" * 100) and bytes_out(near, topic) > COUNT * 100
    other = next(number for number in RACKS if number not in (leader, near))
    assert bytes_out(other, topic) == 0


# Metrics of clients


def pushed_to(cluster: Cluster, client: Producer, topic: str, client_id: str) -> int | None:
    """Returns the running broker to which the client pushes its metrics, while it produces."""
    client.produce(topic, b"x")
    client.flush(1)
    running_ones = [number for number, broker in cluster.brokers.items() if broker.is_running]
    return next((number for number in running_ones if f'ottla_client_info{{client_id="{client_id}",' in metrics_of(number)), None)


def test_a_client_pushes_to_another_broker_when_its_broker_has_stopped(cluster: Cluster) -> None:
    """A client pushes to another broker when its broker has stopped. All brokers know the subscription, and a counter does not decrease
    when the client changes the broker.
    """
    topic = client_id = "pushing"
    cluster.create_topic(topic)
    with client_cluster.Cluster(cluster.addresses) as asked:
        admin.alter_configs(asked, admin.CLIENT_METRICS_RESOURCE, "all", changes={"interval.ms": "200", "metrics": "*"})
    client = Producer({"bootstrap.servers": cluster.addresses, "client.id": client_id, "log_level": 0})
    first = eventually(lambda: pushed_to(cluster, client, topic, client_id))
    victim = cluster.brokers[first]
    victim.stop()
    try:
        second = eventually(lambda: pushed_to(cluster, client, topic, client_id))
        assert second != first
        opened = re.search(rf'^kafka_client_producer_connection_creation_total{{client_id="{client_id}".* (\d+)$', metrics_of(second), re.M)
        assert opened is not None and int(opened[1]) > 1, "a sum since the client's start"
    finally:
        victim.start()
    cluster.wait_until_healthy(topic)
