"""`poll(0)` of a producer waits for no broker, whatever step of a conversation a broker is silent in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.errors import ClientError
from ottla.client.security import Security
from ottla.wire.framing import write_response
from ottla.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.client.blocking import waits
from tests.client.blocking.test_producer import Log, _broker
from tests.client.blocking.test_producer_transactions import Coordinating
from tests.client.blocking.waits import MOMENT_S, SECURITY, deaf_listener, silent, slow_names
from tests.client.fake_broker import FakeBroker

PRODUCE, METADATA, API_VERSIONS, ADD_PARTITIONS = 0, 3, 18, 24


def longest_poll_s(producer: Producer, until: Callable[[], bool]) -> float:
    """Polls until something is true. Returns the time of the longest `poll(0)`."""
    return waits.longest_poll_s(lambda: producer.poll(0), until)


def delivers(producer: Producer, count: int) -> Callable[[], bool]:
    return lambda: producer.delivered == count


def led_by_two(broker: FakeBroker, host: str, port: int) -> Callable[[Any, int], Any]:
    """Partition 0 of `t` is led by the first broker, partition 1 by one at `host` and `port`."""

    def answer(body: Any, version: int) -> Any:
        found = broker._metadata(body, version)
        found.brokers.append(MetadataResponseBroker(node_id=2, host=host, port=port))
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=number + 1, replica_nodes=[1], isr_nodes=[1]) for number in (0, 1)
        ]
        found.topics = [MetadataResponseTopic(name="t", partitions=partitions)]
        return found

    return answer


@pytest.fixture
def deaf() -> Iterator[int]:
    with deaf_listener() as port:
        yield port


def check_that_only_partition_1_waits(cluster: Cluster, log: Log) -> None:
    producer = Producer(cluster, linger_s=0.0, delivery_timeout_s=1.0)
    producer.produce("t", b"lost", partition=1)
    producer.produce("t", b"kept", partition=0)
    assert longest_poll_s(producer, lambda: producer.delivered == 1) < MOMENT_S
    assert log.values() == [b"kept"]
    for number in range(20):
        producer.produce("t", b"kept", partition=0)
        assert longest_poll_s(producer, delivers(producer, number + 2)) < MOMENT_S
    with pytest.raises(ClientError):
        producer.close()


def test_a_broker_that_accepts_and_is_silent_blocks_no_poll_and_no_other_partition(deaf: int) -> None:
    log = Log()
    with _broker(log, partitions=2) as broker, Cluster(broker.address, timeout_s=3.0) as cluster:
        broker.script[METADATA] = led_by_two(broker, "127.0.0.1", deaf)
        check_that_only_partition_1_waits(cluster, log)


def test_a_silent_name_server_blocks_no_poll_and_no_other_partition(monkeypatch: pytest.MonkeyPatch, deaf: int) -> None:
    log, is_over = Log(), threading.Event()
    with (
        slow_names(monkeypatch, lambda: is_over.wait(3)) as host,
        _broker(log, partitions=2) as broker,
        Cluster(broker.address, timeout_s=3.0) as cluster,
    ):
        broker.script[METADATA] = led_by_two(broker, host, deaf)
        check_that_only_partition_1_waits(cluster, log)
        is_over.set()


@pytest.mark.parametrize("properties", SECURITY)
def test_a_handshake_without_an_answer_blocks_no_poll(properties: dict[str, str], deaf: int) -> None:
    log = Log()
    with _broker(log) as broker, Cluster(broker.address, timeout_s=3.0) as cluster:
        producer = Producer(cluster, linger_s=0.0, is_idempotent=False, delivery_timeout_s=0.5)
        cluster.refresh(["t"])
        producer.produce("t", b"x")
        cluster.security = Security(properties)
        cluster.metadata.brokers[1] = Address("127.0.0.1", deaf)
        began = time.monotonic()
        assert longest_poll_s(producer, lambda: time.monotonic() > began + 1) < MOMENT_S
        with pytest.raises(ClientError):
            producer.close()


def test_a_silent_answer_to_the_question_for_a_leader_blocks_no_poll() -> None:
    log = Log()
    with _broker(log) as broker, Cluster(broker.address, timeout_s=3.0) as cluster:
        producer = Producer(cluster, linger_s=0.0)
        producer.produce("t", b"first")
        producer.flush()
        metadata, broker.script[METADATA] = broker.script[METADATA], silent
        producer.produce("t", b"second")
        cluster.metadata.forget([TopicPartition("t", 0)])
        asked = len(broker.asked(METADATA))
        assert longest_poll_s(producer, lambda: len(broker.asked(METADATA)) > asked) < MOMENT_S
        broker.script[METADATA] = metadata
        producer.close()
        assert log.values() == [b"first", b"second"]


def test_a_question_for_growth_without_an_answer_blocks_no_record() -> None:
    log = Log()
    with _broker(log) as broker, Cluster(broker.address, timeout_s=3.0) as cluster:
        producer = Producer(cluster, linger_s=0.0, metadata_age_s=0.01)
        producer.produce("t", b"first")
        producer.flush()
        metadata, broker.script[METADATA] = broker.script[METADATA], silent
        asked, number = len(broker.asked(METADATA)), 1
        while len(broker.asked(METADATA)) == asked:
            began = time.monotonic()
            producer.produce("t", b"more")
            assert time.monotonic() - began < MOMENT_S
            number += 1
            assert longest_poll_s(producer, delivers(producer, number)) < MOMENT_S
        broker.script[METADATA] = metadata
        producer.close()


def test_a_broker_that_stops_reading_blocks_no_poll() -> None:
    """A process that hangs takes nothing from its socket: more requests than the kernel keeps cannot be written."""
    reads_on, answered = threading.Event(), Log()

    def hang(body: Any, version: int) -> Any:
        reads_on.wait(30)
        return answered(body, version)

    with _broker(answered) as broker, Cluster(broker.address, timeout_s=30.0) as cluster:
        broker.script[PRODUCE] = hang
        producer = Producer(cluster, linger_s=0.0, batch_bytes=1_000_000, in_flight_max=100)
        producer.produce("t", b"first")
        assert longest_poll_s(producer, lambda: broker.asked(PRODUCE) != []) < MOMENT_S
        producer._queue.known.add(TopicPartition("t", 0))  # so that several batches are under way
        for _ in range(25):
            producer.produce("t", bytes(990_000))
            assert longest_poll_s(producer, lambda: not producer._open) < MOMENT_S
        assert producer._routes.connections[1].has_unsent
        reads_on.set()
        producer.close()
        assert producer.delivered == 26 and len(answered.values()) == 26


def test_half_an_answer_blocks_no_poll() -> None:
    log = Log()
    cuts: list[bytearray] = []

    def cut(body: Any, version: int) -> bytes:
        answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(index=0)])])
        cuts.append(write_response(ProduceResponse, version)(answer, len(cuts)))
        return bytes(cuts[0][:10])

    with _broker(log) as broker, Cluster(broker.address, timeout_s=1.0) as cluster:
        script, broker.script[PRODUCE] = broker.script[PRODUCE], cut
        producer = Producer(cluster, linger_s=0.0)
        producer.produce("t", b"x")
        assert longest_poll_s(producer, lambda: cuts != []) < MOMENT_S
        broker.script[PRODUCE] = script
        assert longest_poll_s(producer, lambda: producer.delivered == 1) < MOMENT_S
        producer.close()


def test_a_silent_coordinator_of_a_transaction_blocks_no_poll() -> None:
    with Coordinating() as broker, Cluster(broker.address, timeout_s=3.0) as cluster:
        producer = Producer(cluster, linger_s=0.0, transactional_id="x")
        add, broker.script[ADD_PARTITIONS] = broker.script[ADD_PARTITIONS], silent
        producer.begin()
        producer.produce("t", b"x")
        assert longest_poll_s(producer, lambda: broker.asked(ADD_PARTITIONS) != []) < MOMENT_S
        broker.script[ADD_PARTITIONS] = add
        producer.commit()
        assert producer.delivered == 1 and broker.ends == [True]
        producer.close()
