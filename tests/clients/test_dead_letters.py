"""Dead letters of share groups on a real broker: consumers reject records, the broker is killed, and every rejected record is in the
dead-letter topic.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.share_consumer import ShareConsumer as OwnShareConsumer
from ottla.client.core.admin import GROUP_RESOURCE, LATEST, OffsetAt, alter_configs, create_topic, list_offsets
from ottla.client.core.share_admin import share_offsets
from ottla.client.core.share_session import RECORD_LIMIT, REJECT
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.dead_letters import DLQ, GROUP, TOPIC, Letter, Rejecting, is_done, letters, prepare_group

SETTINGS = (
    "errors.deadletterqueue.auto.create.topics.enable=true",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.max.delivery.count.limit=25",
    "share.coordinator.state.topic.num.partitions=3",
    "offsets.topic.num.partitions=3",
    "ottla.log.format=text",
)
DLQ_NAME = "errors.deadletterqueue.topic.name"
CRASHES = 3
RECORDS = 400


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", SETTINGS).start()
    yield process
    process.stop()


def prepare(broker: BrokerProcess, records: int, **settings: str) -> None:
    """Makes a topic with records, and a group with a dead-letter topic that does not exist yet."""
    with Cluster(broker.address) as cluster:
        create_topic(cluster, TOPIC, partitions=1)
    prepare_group(broker.address, records, **settings)


def test_librdkafka_rejects_and_the_copy_has_the_record_and_its_context(own_broker: BrokerProcess) -> None:
    prepare(own_broker, 3)
    settings = {"bootstrap.servers": own_broker.address, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([TOPIC])
        given = []
        while len(given) < 3:
            given += consumer.poll(1)
        for message in given:
            consumer.acknowledge(message, AcknowledgeType.REJECT if message.offset() == 1 else AcknowledgeType.ACCEPT)
        assert list(consumer.commit_sync(10.0).values()) == [None]
    eventually(lambda: is_done(own_broker.address))
    context = {
        "__dlq.errors.topic": TOPIC, "__dlq.errors.partition": "0", "__dlq.errors.offset": "1", "__dlq.errors.group": GROUP,
        "__dlq.errors.delivery.count": "1", "__dlq.errors.message": "A member of the group has rejected the record.",
    }  # fmt: skip
    assert letters(own_broker.address) == [Letter(b"k1", b"v1", {"trace": "1", **context})]


def test_no_dead_letter_is_lost_when_the_broker_is_killed(own_broker: BrokerProcess) -> None:
    """The broker is killed between the stored rejection, the copy and the end of the copy. Each rejected record is copied at least once,
    and no other record is copied.
    """
    prepare(own_broker, RECORDS, **{"share.delivery.count.limit": "25"})
    member = Rejecting(own_broker.address)
    try:
        for number in range(CRASHES):
            goal = RECORDS * (number + 1) // (CRASHES + 2)
            eventually(lambda: member.seen > goal, seconds=120, pause=0.001)  # noqa: B023 - called before the next round
            time.sleep(random.Random(number).random() * 0.02)
            own_broker.crash()
        eventually(lambda: is_done(own_broker.address), seconds=180)
    finally:
        member.is_over = True
        member.thread.join()
    found = letters(own_broker.address)
    copies = Counter(int(letter.headers["__dlq.errors.offset"]) for letter in found)
    assert set(copies) == set(range(0, RECORDS, 2))
    assert all(letter.value == b"v" + letter.headers["__dlq.errors.offset"].encode() for letter in found)
    assert len(found) <= len(copies) + 100 * CRASHES, "copied again only after a crash"


def test_a_topic_without_permission_gets_nothing_and_stops_no_member(own_broker: BrokerProcess) -> None:
    prepare(own_broker, 2)
    with Cluster(own_broker.address) as cluster:
        create_topic(cluster, DLQ, partitions=1)
        with OwnShareConsumer(cluster, GROUP, is_explicit=True) as consumer:
            consumer.subscribe([TOPIC])
            given = []
            while len(given) < 2:
                given += consumer.poll(1)
            for one in given:
                consumer.acknowledge(one, REJECT)
            consumer.commit()
            eventually(lambda: is_done(own_broker.address))
    assert letters(own_broker.address) == []
    assert "the topic 'dlq.t' does not permit it; set its errors.deadletterqueue.group.enable=true" in own_broker.log_text()


ACL_SETTINGS = ("authorizer.class.name=acl", "allow.everyone.if.no.acl.found=true", *SETTINGS[1:])
"""Without the automatic creation of dead-letter topics."""
CLOSED = {"payments": "does not begin with 'dlq.'", "dlq.closed": "does not permit it", "dlq.missing": "does not exist"}
OPEN = "dlq.open"


def deny_writing(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    permissions = ((AclOperation.WRITE, AclPermissionType.DENY), (AclOperation.DESCRIBE, AclPermissionType.ALLOW))
    rules = [
        AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
        for name in (*CLOSED, OPEN)
        for operation, permission in permissions
    ]
    for future in admin.create_acls(rules).values():
        future.result(30)


def test_a_user_cannot_write_through_a_group_into_a_topic_that_its_owner_has_not_opened(tmp_path: Path) -> None:
    """A group cannot write dead letters to a topic unless a setting of the topic allows it. With the setting the broker writes, although
    the user has no permission.
    """
    broker = BrokerProcess(tmp_path, ACL_SETTINGS).start()
    try:
        deny_writing(broker.address)
        prepare(broker, len(CLOSED) + 1)
        with Cluster(broker.address) as cluster:
            create_topic(cluster, "payments", partitions=1, configs={"errors.deadletterqueue.group.enable": "true"})
            create_topic(cluster, "dlq.closed", partitions=1)
            create_topic(cluster, OPEN, partitions=1, configs={"errors.deadletterqueue.group.enable": "true"})
            with pytest.raises(ApiError, match="internal topics"):
                alter_configs(cluster, GROUP_RESOURCE, GROUP, changes={DLQ_NAME: "__consumer_offsets"})
            with OwnShareConsumer(cluster, GROUP, is_explicit=True, records_max=1, acquire_mode=RECORD_LIMIT) as consumer:
                consumer.subscribe([TOPIC])
                for offset, name in enumerate((*CLOSED, OPEN)):
                    alter_configs(cluster, GROUP_RESOURCE, GROUP, changes={DLQ_NAME: name})
                    given = eventually(lambda: consumer.poll(1))
                    assert [one.record.offset for one in given] == [offset]
                    consumer.acknowledge(given[0], REJECT)
                    consumer.commit()
                    eventually(lambda: has_dealt_with(broker, offset), seconds=90)  # noqa: B023 - called in this round
            ends = list_offsets(cluster, {TopicPartition(name, 0): LATEST for name in ("payments", "dlq.closed", OPEN)})
        found = {place.topic: end.offset for place, end in ends.items() if isinstance(end, OffsetAt)}
        assert found == {"payments": 0, "dlq.closed": 0, OPEN: 1}
        for reason in CLOSED.values():
            assert reason in broker.log_text()
        broker.stop()
    finally:
        broker.kill()


def has_dealt_with(broker: BrokerProcess, offset: int) -> bool:
    """Whether the group has completed all records up to `offset`."""
    with Cluster(broker.address) as cluster:
        return share_offsets(cluster, GROUP)[TopicPartition(TOPIC, 0)].lag == len(CLOSED) - offset
