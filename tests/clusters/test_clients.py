"""Other people's clients against three brokers: three replicas, transactions, groups, and readers of their own rack (KIP-392)."""

from __future__ import annotations

import asyncio
import gc
import re
import urllib.request
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from ottla.testing.zookeeper_process import ZooKeeperProcess, free_port
from tests.clients.broker_process import eventually
from tests.clusters.cluster import Cluster
from tests.clusters.conftest import running

Result = TypeVar("Result")
COUNT = 300
SECONDS = 60
RACKS = {1: "a", 2: "b", 3: "c"}
metrics_ports: dict[int, int] = {}

# kafka-python and aiokafka leave the socket of a connection that was refused to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_socket_is_left_to_another_test() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker N is in rack N of RACKS, and says its metrics."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    made = Cluster(tmp_path_factory.mktemp("clients"), zookeeper, replica_selector_class=selector)
    for number, broker in made.brokers.items():
        metrics_ports[number] = free_port()
        broker.settings += [f"broker.rack={RACKS[number]}", f"ottla.metrics.listen=127.0.0.1:{metrics_ports[number]}"]
    with running(made):
        yield made


def values(prefix: str) -> list[bytes]:
    return [b"%s %d" % (prefix.encode(), number) for number in range(COUNT)]


# Each client writes some values, plain, then in a transaction that it aborts, then in one that it commits; and reads what is committed.


def write_by_confluent(address: str, topic: str) -> None:
    plain = Producer({"bootstrap.servers": address, "enable.idempotence": True, "acks": "all"})
    for value in values("plain"):
        plain.produce(topic, value)
    assert plain.flush(SECONDS) == 0
    client = Producer({"bootstrap.servers": address, "transactional.id": topic})
    client.init_transactions(SECONDS)
    for prefix in ("aborted", "committed"):
        client.begin_transaction()
        for value in values(prefix):
            client.produce(topic, value)
        if prefix == "aborted":
            client.abort_transaction(SECONDS)
        else:
            client.commit_transaction(SECONDS)


def read_by_confluent(address: str, topic: str, group: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    found: list[bytes] = []
    with closing(Consumer(settings)) as client:
        client.subscribe([topic])

        def has_all() -> bool:
            found.extend(message.value() for message in client.consume(1000, 0.2) if message.error() is None)
            return len(found) >= count

        eventually(has_all, SECONDS)
        client.commit(asynchronous=False)
    return found


def write_by_kafka_python(address: str, topic: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=address, acks="all")) as plain:
        for sent in [plain.send(topic, value) for value in values("plain")]:
            sent.get(SECONDS)
    with closing(KafkaProducer(bootstrap_servers=address, transactional_id=topic)) as client:
        client.init_transactions()
        for prefix in ("aborted", "committed"):
            client.begin_transaction()
            for sent in [client.send(topic, value) for value in values(prefix)]:
                sent.get(SECONDS)
            if prefix == "aborted":
                client.abort_transaction()
            else:
                client.commit_transaction()


def read_by_kafka_python(address: str, topic: str, group: str, count: int) -> list[bytes]:
    # A member that assigns partitions before it has the topic's metadata looks again only when that is refreshed.
    settings = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed", "metadata_max_age_ms": 1_000}
    found: list[bytes] = []
    with closing(KafkaConsumer(topic, bootstrap_servers=address, **settings)) as client:

        def has_all() -> bool:
            for records in client.poll(200).values():
                found.extend(record.value for record in records)
            return len(found) >= count

        eventually(has_all, SECONDS)
        client.commit()
    return found


def finish(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(work, SECONDS))


def write_by_aiokafka(address: str, topic: str) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True) as plain:
            await asyncio.gather(*[await plain.send(topic, value) for value in values("plain")])
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as client:
            for prefix in ("aborted", "committed"):
                await client.begin_transaction()
                await asyncio.gather(*[await client.send(topic, value) for value in values(prefix)])
                await (client.abort_transaction() if prefix == "aborted" else client.commit_transaction())

    finish(work())


def read_by_aiokafka(address: str, topic: str, group: str, count: int) -> list[bytes]:
    async def work() -> list[bytes]:
        settings = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with AIOKafkaConsumer(topic, bootstrap_servers=address, **settings) as client:
            found = [(await client.getone()).value for _ in range(count)]
            await client.commit()
            return found

    return finish(work())


Write = Callable[[str, str], None]
Read = Callable[[str, str, str, int], list[bytes]]
CLIENTS: dict[str, tuple[Write, Read]] = {
    "confluent": (write_by_confluent, read_by_confluent),
    "kafka-python": (write_by_kafka_python, read_by_kafka_python),
    "aiokafka": (write_by_aiokafka, read_by_aiokafka),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_records_transactions_and_groups_with_three_replicas(cluster: Cluster, name: str) -> None:
    """Before and after a broker has stopped: coordinators and leaders have moved."""
    write, read = CLIENTS[name]
    cluster.create_topic(name)
    write(cluster.addresses, name)
    expected = sorted([*values("plain"), *values("committed")])
    assert sorted(read(cluster.addresses, name, f"{name}-before", len(expected))) == expected
    victim = cluster.brokers[cluster.leader_of(name)]
    victim.stop()
    try:
        assert sorted(read(cluster.addresses, name, f"{name}-after", len(expected))) == expected
    finally:
        victim.start()
    cluster.wait_until_healthy(name)


# Readers of a rack


def bytes_out(broker: int, topic: str) -> float:
    """The bytes of the topic that consumers have read from a broker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_ports[broker]}/metrics", timeout=SECONDS) as answer:
        text = answer.read().decode()
    found = re.search(rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}} (\S+)$', text, re.MULTILINE)
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
            """Reads all, again and again: the first answer of the leader only names the other replica."""
            found.extend(message.value() for message in reader.consume(COUNT, 0.5) if message.error() is None)
            if len(found) >= COUNT and bytes_out(near, topic) == 0:
                found.clear()
                reader.seek(TopicPartition(topic, 0, 0))
            return len(found) >= COUNT

        eventually(is_served_nearby, SECONDS)
    assert found == values("x" * 100) and bytes_out(near, topic) > COUNT * 100
    other = next(number for number in RACKS if number not in (leader, near))
    assert bytes_out(other, topic) == 0
