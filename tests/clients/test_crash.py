"""After kill -9 of a busy broker all acknowledged records are in the log once, and the broker's other state is unchanged.
`OTTLA_CRASH_ROUNDS` is the number of kills while 40,000 records are produced. Kills under a transactional copy are in
`test_transactional_copy.py`.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.framing import load
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.sample_world import World
from tests.clients.wire_client import In, WireClient

CRASH_ROUNDS = int(os.environ.get("OTTLA_CRASH_ROUNDS", "10"))
RECORDS = 40_000
PARTITIONS = 3
RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}


def read_all(address: str, topic: str, **settings: Any) -> list[Message]:
    """Reads all records of the topic, from the beginning to the end."""
    client = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True, "check.crcs": True, **settings})
    partitions = client.list_topics(topic, 10).topics[topic].partitions
    client.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Message] = []
    ends: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ends) < len(partitions):
        messages = client.consume(5000, 0.2)
        assert time.monotonic() < deadline, "the end of the topic does not come"
        for message in messages:
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends.add(message.partition())
    client.close()
    return found


def check_once_and_in_order(messages: list[Message], acknowledged: dict[bytes, tuple[int, int]]) -> None:
    """Checks that every acknowledged value is at its reported offset, that no value is in the log twice, and that offsets have no gap."""
    places: dict[bytes, tuple[int, int]] = {}
    following: dict[int, int] = {}
    for message in messages:
        value, place = message.value(), (message.partition(), message.offset())
        assert value not in places, f"{value!r} at {places[value]} and at {place}"
        places[value] = place
        assert place[1] == following.get(place[0], 0)
        following[place[0]] = place[1] + 1
    lost = [value for value in acknowledged if value not in places]
    assert not lost, f"{len(lost)} acknowledged records are lost, the first is {lost[0]!r} at {acknowledged[lost[0]]}"
    moved = [value for value, place in acknowledged.items() if place[1] >= 0 and places[value] != place]
    assert not moved, f"{moved[0]!r} was said to be at {acknowledged[moved[0]]} and is at {places[moved[0]]}"


class CommittingConsumer:
    """Reads and commits while records are produced. Knows the highest offset of each partition whose commit was acknowledged."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self.committed: dict[int, int] = {}
        self.is_stopping = threading.Event()
        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **RECONNECT,
        }
        self.client = Consumer(settings)
        self.client.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        has_read = False
        while not self.is_stopping.is_set():
            has_read |= any(message.error() is None for message in self.client.consume(2000, 0.1))
            if not has_read:
                continue
            try:
                for one in self.client.commit(asynchronous=False):
                    if one.error is None and one.offset >= 0:
                        self.committed[one.partition] = one.offset
                has_read = False
            except KafkaException:
                continue

    def stop(self) -> dict[int, int]:
        """Waits until an offset was committed, stops, and returns the committed offsets."""
        eventually(lambda: bool(self.committed))
        self.is_stopping.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.client.close()
        return self.committed


def produce_under_kills(broker: BrokerProcess, topic: str, round_number: int) -> dict[bytes, tuple[int, int]]:
    """Runs one round: produces 40,000 records and kills the broker meanwhile. Returns the reported offset of each record."""
    acknowledged: dict[bytes, tuple[int, int]] = {}
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged[message.value()] = (message.partition(), message.offset())
        else:
            failures.append(error)

    settings = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 2,
        "batch.num.messages": 500,
        "queue.buffering.max.messages": 200_000,
    }
    client = Producer({"bootstrap.servers": broker.address, **settings, **RECONNECT})
    kill_at = RECORDS // 10 + random.Random(round_number).randrange(RECORDS // 2)
    for number in range(RECORDS):
        client.produce(topic, b"%d-%d" % (round_number, number), on_delivery=report)
        if number % 500 == 0:
            client.poll(0)
        if number == kill_at:
            eventually(lambda: client.poll(0.001) >= 0 and len(acknowledged) > kill_at // 4, pause=0)
            broker.crash()
    assert client.flush(60) == 0
    assert not failures, failures[0]
    assert len(acknowledged) == RECORDS
    return acknowledged


@pytest.mark.timeout(60 + 60 * CRASH_ROUNDS)
def test_acknowledged_records_and_offsets_survive_kills(own_broker: BrokerProcess) -> None:
    broker = own_broker.start()
    with AdminClient({"bootstrap.servers": broker.address, "log_level": 0}) as admin:
        for round_number in range(CRASH_ROUNDS):
            topic, group = f"survivors-{round_number}", f"committers-{round_number}"
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
            along = CommittingConsumer(broker.address, topic, group)
            acknowledged = produce_under_kills(broker, topic, round_number)
            committed = along.stop()
            check_once_and_in_order(read_all(broker.address, topic), acknowledged)
            found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
            kept = {one.partition: one.offset for one in found.topic_partitions}
            assert committed
            assert all(kept[partition] >= offset for partition, offset in committed.items()), (kept, committed)
            admin.delete_topics([topic])[topic].result(60)


# The state before and after


def state_of(client: WireClient, world: World) -> dict[str, Any]:
    """Returns everything that clients can ask about topics, configurations, groups, offsets, transactions and producers."""
    asked = {
        "topics": (3, 12), "offsets": (9, 8), "group": (15, 5), "configuration": (32, 4), "groups": (16, 4), "ends": (2, 7),
        "producers": (61, 0), "transactions": (66, 0), "quotas": (48, 1),
    }  # fmt: skip
    return {name: client.ask(world.request(key, version), version) for name, (key, version) in asked.items()}


def shown(state: dict[str, Any]) -> dict[str, str]:
    """Returns the state as text, without leader epochs: a broker begins a new one at its start, as Kafka does."""
    return {name: re.sub(r"leader_epoch=\d+", "", repr(answer)) for name, answer in state.items()}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_what_was_known_before_is_known_after(own_broker: BrokerProcess, is_killed: bool) -> None:
    broker = own_broker.start()
    broker.restart()  # now the port is set explicitly, also in the list of settings
    with WireClient(broker.port) as client:
        world = World(client)
        for key, version in ((33, 2), (49, 1), (37, 3), (8, 8)):
            client.ask(world.request(key, version), version)
        name, producer_id, epoch = world.transaction(world.topic)
        before = shown(state_of(client, world))
    if is_killed:
        broker.crash()
    else:
        broker.restart()
    with WireClient(broker.port) as client:
        world.client = client
        eventually(lambda: client.ask(world.request(9, 8), 8).groups[0].error_code == 0)
        after = shown(state_of(client, world))
        assert after == before
        ended = load(26)[0](transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        eventually(lambda: client.ask(ended, 3).error_code == 0)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_repeated_batch_is_known_after_a_restart(own_broker: BrokerProcess, is_killed: bool) -> None:
    broker = own_broker.start()
    with WireClient(broker.port) as client:
        world = World(client)
        producer_id = client.ask(load(22)[0](transactional_id=None, transaction_timeout_ms=1), 4).producer_id
        batches = [
            bytes(encode_batch([Record(0, 1, None, b"%d" % n)] * 2, producer_id=producer_id, producer_epoch=0, base_sequence=2 * n))
            for n in range(6)
        ]

        def send(records: bytes, to: WireClient) -> tuple[int, int]:
            answer = to.ask(world.produce(In(9), "repeated", records), 9).responses[0].partition_responses[0]
            return answer.error_code, answer.base_offset

        client.ask(world.make_topic(7, "repeated"), 7)
        first = [send(records, client) for records in batches]
        assert first == [(0, 2 * number) for number in range(6)]
    if is_killed:
        broker.crash()
    else:
        broker.restart()
    with WireClient(broker.port) as client:
        assert [send(records, client) for records in batches[1:]] == first[1:]
        assert send(batches[0], client)[0] in (45, 46)  # older than the last five batches: refused, and not appended again
        assert read_all(broker.address, "repeated")[-1].offset() == 11
