"""confluent-kafka (librdkafka) against a broker process: produce, consume, groups, seeks, commits, administration, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.broker_process import BrokerProcess, eventually

Fresh = Callable[[str], str]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
POLL_SECONDS = 60


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": broker.address}) as client:
        yield client


def producer(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.address, "linger.ms": 5, **settings})


def consumer(broker: BrokerProcess, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **settings,
        }
    )


def make_topic(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> str:
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
    return name


def send(broker: BrokerProcess, topic: str, values: list[bytes | None], **settings: Any) -> list[Message]:
    """Produces and waits for every delivery report; none may have an error."""
    reports: list[tuple[KafkaError | None, Message]] = []
    client = producer(broker, **settings)
    for value in values:
        client.produce(topic, value, on_delivery=lambda error, message: reports.append((error, message)))
    assert client.flush(POLL_SECONDS) == 0
    assert [error for error, _ in reports if error] == []
    assert len(reports) == len(values)
    return [message for _, message in reports]


def read(client: Consumer, count: int, seconds: float = POLL_SECONDS) -> list[Message]:
    """Returns the next `count` records."""
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        message = client.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    assert len(found) == count, f"{len(found)} records instead of {count}"
    return found


def values_of(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


@pytest.fixture
def reading(broker: BrokerProcess) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers that are closed at the end of the test."""
    made: list[Consumer] = []

    def make(group: str, **settings: Any) -> Consumer:
        made.append(consumer(broker, group, **settings))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_it_was(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer], codec: str) -> None:
    topic, values = fresh("codec"), [b"%d" % number * 50 for number in range(500)]
    send(broker, topic, values, **{"compression.type": codec})
    client = reading(fresh("group"), **{"check.crcs": True})
    client.subscribe([topic])
    assert values_of(read(client, 500)) == values


def test_offsets_timestamps_keys_headers_and_nulls(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer]) -> None:
    topic, client = fresh("records"), producer(broker)
    reports: list[Message] = []
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    client.produce(topic, b"value", b"key", headers=headers, timestamp=1_600_000_000_123, on_delivery=lambda _, m: reports.append(m))
    client.produce(topic, None, b"tombstone")
    client.produce(topic, b"", None)
    client.flush(POLL_SECONDS)
    assert reports[0].offset() == 0 and reports[0].error() is None
    reader = reading(fresh("group"))
    reader.subscribe([topic])
    first, second, third = read(reader, 3)
    assert (first.key(), first.value(), first.headers(), first.timestamp()[1]) == (b"key", b"value", headers, 1_600_000_000_123)
    assert (second.key(), second.value(), second.headers()) == (b"tombstone", None, None)
    assert (third.key(), third.value(), third.offset()) == (None, b"", 2)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer], acks: str) -> None:
    topic = fresh("acks")
    send(broker, topic, [b"a", b"b"], acks=acks)
    client = reading(fresh("group"))
    client.subscribe([topic])
    assert values_of(read(client, 2)) == [b"a", b"b"]


def test_idempotent_produce_keeps_order(broker: BrokerProcess, fresh: Fresh) -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(2000)]
    reports = send(broker, fresh("idempotent"), values, **{"enable.idempotence": True, "batch.num.messages": 50})
    assert [(report.offset(), report.value()) for report in reports] == list(enumerate(values))


def test_large_records(broker: BrokerProcess, fresh: Fresh, admin: AdminClient, reading: Callable[..., Consumer]) -> None:
    topic = make_topic(admin, fresh("large"), **{"max.message.bytes": "9000000"})
    value = bytes(range(256)) * 30_000
    send(broker, topic, [value], **{"message.max.bytes": 9_000_000})
    client = reading(fresh("group"), **{"fetch.message.max.bytes": 1_000_000, "message.max.bytes": 10_000_000})
    client.subscribe([topic])
    assert values_of(read(client, 1)) == [value]


def test_a_record_that_is_too_large_is_refused(broker: BrokerProcess, fresh: Fresh, admin: AdminClient) -> None:
    topic = make_topic(admin, fresh("small"), **{"max.message.bytes": "1000"})
    errors: list[KafkaError | None] = []
    client = producer(broker)
    client.produce(topic, bytes(2000), on_delivery=lambda error, _: errors.append(error))
    client.flush(POLL_SECONDS)
    assert [error.code() for error in errors if error] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_seek_commit_and_resume(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer]) -> None:
    topic, group = fresh("resume"), fresh("group")
    values = [b"%d" % number for number in range(20)]
    send(broker, topic, values)
    client = reading(group)
    client.subscribe([topic])
    read(client, 10)
    client.seek(TopicPartition(topic, 0, 3))
    assert values_of(read(client, 4)) == values[3:7]
    client.commit(asynchronous=False)
    assert client.committed([TopicPartition(topic, 0)], 10)[0].offset == 7
    assert client.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 20)
    client.close()
    again = reading(group)
    again.subscribe([topic])
    assert values_of(read(again, 13)) == values[7:]
    again.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert read(again, 1)[0].offset() == 0


def test_offsets_for_times(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer]) -> None:
    topic, client = fresh("times"), producer(broker)
    for number in range(10):
        client.produce(topic, b"x", timestamp=1_600_000_000_000 + number * 1000)
    client.flush(POLL_SECONDS)
    reader = reading(fresh("group"))
    asked = [TopicPartition(topic, 0, 1_600_000_000_000 + offset) for offset in (0, 3500, 99_000)]
    assert [reader.offsets_for_times([one], 10)[0].offset for one in asked] == [0, 4, -1]


def test_topics_are_made_described_and_deleted(fresh: Fresh, admin: AdminClient) -> None:
    topic = make_topic(admin, fresh("admin"), 3)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    assert len(described.partitions) == 3 and described.topic_id is not None
    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    assert refusal.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    eventually(lambda: len(admin.list_topics(topic, 5).topics[topic].partitions) == 5)
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: topic not in admin.list_topics(timeout=60).topics)
    cluster = admin.describe_cluster().result(60)
    assert len(cluster.nodes) == 1 and cluster.cluster_id


def test_configurations_change_and_are_read_back(fresh: Fresh, admin: AdminClient) -> None:
    topic = make_topic(admin, fresh("config"), **{"retention.ms": "1000"})
    entry = ConfigEntry("retention.bytes", "5555", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    (values,) = [future.result(60) for future in found.values()]
    assert (values["retention.ms"].value, values["retention.bytes"].value) == ("1000", "5555")
    assert values["retention.ms"].source == 1 and values["cleanup.policy"].is_default
    broker_id = next(iter(admin.list_topics(timeout=60).brokers))
    (broker,) = [future.result(60) for future in admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker_id))]).values()]
    assert broker["message.max.bytes"].value == "12000000"


def test_records_are_deleted_and_offsets_listed(broker: BrokerProcess, fresh: Fresh, admin: AdminClient) -> None:
    topic = fresh("trim")
    send(broker, topic, [b"x"] * 10)
    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
    assert [future.result(60).low_watermark for future in deleted.values()] == [4]
    place = TopicPartition(topic, 0)
    for spec, offset in ((OffsetSpec.earliest(), 4), (OffsetSpec.latest(), 10), (OffsetSpec.max_timestamp(), 9)):
        found = admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED)[place].result(60)
        assert found.offset == offset or spec is OffsetSpec.max_timestamp()


def test_groups_are_listed_described_altered_and_deleted(
    broker: BrokerProcess, fresh: Fresh, admin: AdminClient, reading: Callable[..., Consumer]
) -> None:
    topic, group = fresh("grouped"), fresh("group")
    send(broker, topic, [b"x"] * 10)
    client = reading(group, **{"client.id": "member"})
    client.subscribe([topic])
    read(client, 10)
    client.commit(asynchronous=False)
    listed = {found.group_id: found for found in admin.list_consumer_groups().result(60).valid}
    assert listed[group].state.name == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert [member.client_id for member in described.members] == ["member"]
    assert described.members[0].assignment.topic_partitions == [TopicPartition(topic, 0)]
    client.close()
    moved = GroupPartitions(group, [TopicPartition(topic, 0, 5)])
    admin.alter_consumer_group_offsets([moved])[group].result(60)
    fetched = admin.list_consumer_group_offsets([GroupPartitions(group)])[group].result(60)
    assert [(one.topic, one.offset) for one in fetched.topic_partitions] == [(topic, 5)]
    admin.delete_consumer_groups([group])[group].result(60)
    assert group not in {found.group_id for found in admin.list_consumer_groups().result(60).valid}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_the_partitions(
    broker: BrokerProcess, fresh: Fresh, admin: AdminClient, reading: Callable[..., Consumer], strategy: str
) -> None:
    topic, group = make_topic(admin, fresh("shared"), 4), fresh("group")
    members = [reading(group, **{"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}) for _ in range(2)]
    for member in members:
        member.subscribe([topic])

    def is_shared() -> bool:
        for member in members:
            member.poll(0.05)
        owned = [sorted(one.partition for one in member.assignment()) for member in members]
        return sorted(owned[0] + owned[1]) == [0, 1, 2, 3] and all(owned)

    eventually(is_shared)
    members[0].close()
    eventually(lambda: members[1].poll(0.05) is None and len(members[1].assignment()) == 4)
    assert sorted(one.partition for one in members[1].assignment()) == [0, 1, 2, 3]
    members[1].close()


def transactional(broker: BrokerProcess, name: str) -> Producer:
    client = producer(broker, **{"transactional.id": name})
    client.init_transactions(POLL_SECONDS)
    return client


def test_transactions_commit_and_abort(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer]) -> None:
    topic, client = fresh("transactions"), transactional(broker, fresh("transactional"))
    for number, is_committed in enumerate((True, False, True)):
        client.begin_transaction()
        for part in range(3):
            client.produce(topic, b"%d-%d" % (number, part))
        if is_committed:
            client.commit_transaction(POLL_SECONDS)
        else:
            client.flush(POLL_SECONDS)
            client.abort_transaction(POLL_SECONDS)
    committed = reading(fresh("group"), **{"isolation.level": "read_committed"})
    committed.subscribe([topic])
    assert values_of(read(committed, 6)) == [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2"]
    everything = reading(fresh("group"), **{"isolation.level": "read_uncommitted"})
    everything.subscribe([topic])
    assert [message.offset() for message in read(everything, 9)] == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_open_transactions_hold_readers_back(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer]) -> None:
    topic, client = fresh("open"), transactional(broker, fresh("transactional"))
    client.begin_transaction()
    client.produce(topic, b"open")
    client.flush(POLL_SECONDS)
    send(broker, topic, [b"behind"])
    reader = reading(fresh("group"), **{"isolation.level": "read_committed"})
    reader.subscribe([topic])
    assert reader.poll(1.0) is None
    client.commit_transaction(POLL_SECONDS)
    assert values_of(read(reader, 2)) == [b"open", b"behind"]


def test_offsets_travel_in_the_transaction(broker: BrokerProcess, fresh: Fresh, reading: Callable[..., Consumer]) -> None:
    source, target, group = fresh("source"), fresh("target"), fresh("group")
    send(broker, source, [b"a", b"b"])
    client, reader = transactional(broker, fresh("transactional")), reading(group)
    reader.subscribe([source])
    for number, is_committed in enumerate((False, True)):
        message = read(reader, 1)[0]
        client.begin_transaction()
        client.produce(target, message.value())
        client.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), POLL_SECONDS)
        if is_committed:
            client.commit_transaction(POLL_SECONDS)
        else:
            client.abort_transaction(POLL_SECONDS)
            reader.seek(TopicPartition(source, 0, 0))
        committed = reader.committed([TopicPartition(source, 0)], 10)[0].offset
        assert committed == (1 if is_committed else -1001), number


def test_the_older_producer_of_a_transactional_id_is_fenced(broker: BrokerProcess, fresh: Fresh) -> None:
    topic, name = fresh("fenced"), fresh("transactional")
    old = transactional(broker, name)
    old.begin_transaction()
    old.produce(topic, b"old")
    old.flush(POLL_SECONDS)
    transactional(broker, name)
    with pytest.raises(KafkaException) as refusal:
        old.commit_transaction(POLL_SECONDS)
    assert refusal.value.args[0].fatal()


def test_the_new_group_protocol(broker: BrokerProcess, fresh: Fresh, admin: AdminClient, reading: Callable[..., Consumer]) -> None:
    """KIP-848: the broker assigns the partitions; members commit, leave and are described like members of a classic group."""
    topic, group = make_topic(admin, fresh("kip848"), 4), fresh("group")
    client = producer(broker)
    for number in range(12):
        client.produce(topic, b"%d" % number, partition=number % 4)
    assert client.flush(POLL_SECONDS) == 0
    members = [reading(group, **{"group.protocol": "consumer"}) for _ in range(2)]
    for member in members:
        member.subscribe([topic])

    def is_shared_and_read() -> bool:
        for member in members:
            member.poll(0.05)
        owned = [sorted(one.partition for one in member.assignment()) for member in members]
        read_up_to = [one.offset for member in members for one in member.position(member.assignment())]
        return len(owned[0]) == len(owned[1]) == 2 and sorted(owned[0] + owned[1]) == [0, 1, 2, 3] and read_up_to == [3, 3, 3, 3]

    eventually(is_shared_and_read)
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert len(described.members) == 2 and described.state.name == "STABLE" and described.type.name == "CONSUMER"
    for member in members:
        member.commit(asynchronous=False)
        member.close()
    fetched = admin.list_consumer_group_offsets([GroupPartitions(group)])[group].result(60)
    assert sum(one.offset for one in fetched.topic_partitions) == 12
