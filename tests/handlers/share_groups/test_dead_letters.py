"""Dead letters with real partitions: what is copied to a dead-letter topic, on which broker, and when a copy is tried again or given up."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.controller.api import NewTopic, TopicResult
from ottla.handlers.share_groups.dead_letter_records import read_originals
from ottla.handlers.share_groups.dead_letters import ATTEMPTS_MAX, COPIES_MAX, RETRY_FIRST_MS, DeadLetterCopies
from ottla.replication.partition import Partition
from ottla.sharing.dead_letters import DeadLetterCounts, DeadLetters
from ottla.sharing.registry import SharePartitions
from ottla.sharing.sessions import ShareSessions
from ottla.wire.compression import CODEC_GZIP
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import Record, encode_batch, iter_batches, read_records
from tests.fakes.log_settings import log_settings
from tests.handlers.records_world import NOW_MS, TOPIC_ID
from tests.handlers.share_world import GROUP, LOCK_MS, ShareWorld

ACCEPT, RELEASE, REJECT = 1, 2, 3
DLQ = "dlq.t"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
Letter = tuple[bytes | None, bytes | None, dict[str, str]]


class DeadLetterWorld(ShareWorld):
    """A broker with topic `t` and a group with the dead-letter topic `dlq.t`. The two partitions of `dlq.t` are `letters`; this broker
    leads them unless a test moves them to broker 3."""

    def __init__(
        self, *settings: str, copies: bool = True, topic: dict[str, str] | None = None, partitions: int = 1, lock_ms: int = LOCK_MS
    ) -> None:
        super().__init__(partitions=partitions)
        self.terms = self.terms._replace(has_dead_letters=True, delivery_count_max=2, lock_duration_ms=lock_ms)
        self.letters = [self._lead(index, False, log_settings()) for index in (10, 11)]
        self.own = {"errors.deadletterqueue.topic.name": DLQ}
        if copies:
            self.own["errors.deadletterqueue.copy.record.enable"] = "true"
        self.topic: dict[str, str] | None = topic
        self.leader = 0
        self.created: list[NewTopic] = []
        self.creation = ErrorCode.NONE
        partitions_of_t = self.broker.partitions
        get = partitions_of_t.get
        partitions_of_t.get = lambda name, index: self._letters(index) if name == DLQ else get(name, index)
        self.broker.config = load(assignments=settings)[0]
        self.broker.controller_link = SimpleNamespace(create_topics=self._create)
        self.broker.metadata = SimpleNamespace(
            topic_by_id=self.broker.metadata.topic_by_id, topic=self._topic, configs=lambda _kind, _name: self.own, brokers={},
        )  # fmt: skip
        self.counts = self.broker.dead_letters = DeadLetterCounts()
        self.copies = DeadLetterCopies(self.broker, self.peers, self.threads, self.timers)
        self.shares = SharePartitions(
            persister=self.persister, clock=self.clock, timers=self.timers, terms_of=lambda group_id: self.terms,
            copy_dead_letters=self.copies.copy, in_turn=self.waiters.turns.call_in_turn,
        )  # fmt: skip
        self.broker.share_partitions = self.shares
        self.sessions = self.broker.share_sessions = ShareSessions(self.shares, 10)

    def _letters(self, index: int) -> Partition | None:
        return self.letters[index] if self.topic is not None and self.leader == 0 else None

    def _topic(self, name: str) -> Any:
        if name != self.own["errors.deadletterqueue.topic.name"] or self.topic is None:
            return None
        partitions = [SimpleNamespace(leader=self.leader, leader_epoch=0)] * 2
        return SimpleNamespace(name=name, topic_id=b"d" * 16, partitions=partitions, configs=self.topic)

    def _create(self, topics: list[NewTopic], _validate_only: bool, done: Any) -> None:
        self.created += topics
        if not self.creation:
            self.topic = dict(topics[0].configs)  # type: ignore[arg-type]
        done([TopicResult(name=topics[0].name, error=self.creation)])

    def reject(self, *offsets: int, epoch: int = 1, partition: int = 0) -> None:
        answer = self.acknowledge(epoch, *((partition, offset, offset, [REJECT]) for offset in offsets))
        assert not answer.error_code and all(p.error_code == 0 for topic in answer.responses for p in topic.partitions), answer
        self.settle()

    def written(self, index: int = 0) -> list[Letter]:
        """Returns the dead letters of a partition: key, value and headers."""
        read = self.letters[index].read(0, 1 << 20)
        if read.slice is None:
            return []
        data = memoryview(read.slice.read())
        found = [record for at, header in iter_batches(data) for record in read_records(data[at : at + 12 + header.batch_length])]
        return [(one.key, one.value, {name: (value or b"").decode() for name, value in one.headers}) for one in found]

    @property
    def start(self) -> int:
        """Returns the start offset of the share partition."""
        return next(iter(self.shares)).flight.start


def world_with_records(*settings: str, **options: Any) -> DeadLetterWorld:
    """Three records in one batch, which member `a` has."""
    world = DeadLetterWorld(*settings, **options)
    records = [Record(0, NOW_MS, b"k%d" % number, b"v%d" % number, (("trace", b"%d" % number),)) for number in range(3)]
    world.partitions[0].require_leading().append(memoryview(encode_batch(records)), acks=-1, now_ms=NOW_MS)
    world.fetch(0, partitions=(0,))
    return world


CONTEXT = {
    "__dlq.errors.topic": "t", "__dlq.errors.partition": "0", "__dlq.errors.offset": "1", "__dlq.errors.group": GROUP,
    "__dlq.errors.delivery.count": "1", "__dlq.errors.message": "A member of the group has rejected the record.",
}  # fmt: skip


def test_a_rejected_record_with_its_context() -> None:
    world = world_with_records(topic=ENABLED)
    world.reject(1)
    assert world.written() == [(b"k1", b"v1", {"trace": "1", **CONTEXT})]
    world.acknowledge(2, (0, 0, 0, [ACCEPT]), (0, 2, 2, [ACCEPT]))
    assert (world.start, world.counts.copied, world.counts.given_up) == (3, 1, 0)


def test_only_the_context_without_the_copy() -> None:
    world = world_with_records(topic=ENABLED, copies=False)
    world.reject(1)
    assert world.written() == [(None, None, CONTEXT)]


def test_a_record_that_was_delivered_too_often() -> None:
    world = world_with_records(topic=ENABLED)
    world.acknowledge(1, (0, 0, 2, [RELEASE]))
    world.fetch(2, max_records=1)
    world.timers.advance(LOCK_MS)
    world.settle()
    assert [value for _, value, _ in world.written()] == [b"v0", b"v1", b"v2"]
    for _, _, context in world.written():
        assert context["__dlq.errors.delivery.count"] == "2"
        assert context["__dlq.errors.message"] == "The record was delivered as often as the group permits."


def test_the_partition_of_the_letters() -> None:
    world = DeadLetterWorld(topic=ENABLED, partitions=4)
    world.append(1, partition=3)
    world.fetch(0, partitions=(3,))
    world.reject(0, partition=3)
    assert [len(world.written(index)) for index in (0, 1)] == [0, 1]
    assert world.written(1)[0][2]["__dlq.errors.partition"] == "3"


@pytest.mark.parametrize(
    ("topic", "name", "reason"),
    [
        ({}, DLQ, "does not permit it; set its errors.deadletterqueue.group.enable=true"),
        (ENABLED, "payments", "does not begin with 'dlq.'"),
        (ENABLED, "__t", "the group has no errors.deadletterqueue.topic.name"),
        (ENABLED, "", "the group has no errors.deadletterqueue.topic.name"),
    ],
)
def test_a_topic_that_is_not_permitted(topic: dict[str, str] | None, name: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, the records are archived without a copy. One log line says what the operator can do."""
    world = world_with_records(topic=topic)
    world.own["errors.deadletterqueue.topic.name"] = name
    world.reject(0)
    world.reject(1, epoch=2)
    assert (world.written(), world.start, world.counts.given_up, world.created) == ([], 2, 2, [])
    (line,) = [record.message for record in caplog.records]
    assert reason in line and f"share group '{GROUP}'" in line and "offset 0 of t-0" in line


def test_a_missing_topic_may_not_be_known_yet(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that has just started waits for the topic. Once a log line has said that the topic is missing, later records do not wait for
    it."""
    world = world_with_records(topic=None, lock_ms=600_000)
    world.reject(0)
    assert world.counts.given_up == 0
    for _ in range(ATTEMPTS_MAX):
        world.timers.advance(RETRY_FIRST_MS << ATTEMPTS_MAX)
        world.settle()
    assert "does not exist; create it, or set errors.deadletterqueue.auto.create.topics.enable=true" in caplog.text
    world.reject(1, epoch=2)
    assert (world.counts.given_up, world.start) == (2, 2)
    world.topic = ENABLED
    world.reject(2, epoch=3)
    assert [value for _, value, _ in world.written()] == [b"v2"]


def test_any_name_without_a_prefix() -> None:
    world = world_with_records("errors.deadletterqueue.topic.name.prefix=", topic=ENABLED)
    world.reject(1)
    assert len(world.written()) == 1


def test_a_missing_topic_is_created() -> None:
    world = world_with_records("errors.deadletterqueue.auto.create.topics.enable=true")
    world.reject(1)
    (made,) = world.created
    assert (made.name, made.num_partitions, made.replication_factor) == (DLQ, -1, -1)
    assert made.configs == {**ENABLED, "message.timestamp.type": "CreateTime"}
    assert len(world.written()) == 1


def test_a_topic_that_cannot_be_created(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with_records("errors.deadletterqueue.auto.create.topics.enable=true")
    world.creation = ErrorCode.POLICY_VIOLATION
    world.reject(0)
    assert (world.start, world.counts.given_up) == (1, 1) and "POLICY_VIOLATION" in caplog.text


def test_a_failed_write_is_tried_again() -> None:
    world = world_with_records(topic=ENABLED)
    world.letters[0].become_follower(leader_epoch=1, partition_epoch=1, leader_id=3, replicas=(0, 3), isr=(0, 3))
    world.leader = -1
    world.reject(1)
    assert (world.counts.copied, world.counts.given_up) == (0, 0)
    world.letters[0].become_leader(leader_epoch=2, partition_epoch=2, replicas=(0,), isr=(0,), now_ms=0)
    world.leader = 0
    world.timers.advance(RETRY_FIRST_MS)
    world.settle()
    assert len(world.written()) == 1


def test_a_write_that_fails_too_often_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with_records(topic=ENABLED)
    world.leader = -1
    world.reject(0)
    for _ in range(ATTEMPTS_MAX):
        assert world.counts.given_up == 0
        world.timers.advance(RETRY_FIRST_MS << ATTEMPTS_MAX)
        world.settle()
        if world.counts.given_up:
            break
    assert (world.counts.given_up, world.start) == (1, 1) and "has no leader" in caplog.text


def test_records_that_the_topic_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """The dead-letter topic is compacted and the record has no key, so a second attempt would not help."""
    world = world_with_records(topic={**ENABLED, "cleanup.policy": "compact"}, copies=False)
    world.letters[0].configure(log_settings(is_compacted=True))
    world.reject(0)
    assert (world.counts.given_up, world.start) == (1, 1) and "compact" in caplog.text


def test_letters_on_another_broker() -> None:
    world = world_with_records(topic=ENABLED)
    world.leader = 3
    world.reject(1)
    (asked,) = world.peers.asked
    (topic,) = asked.request.topic_data
    (data,) = topic.partition_data
    assert (asked.broker_id, asked.request.acks, topic.name, topic.topic_id, data.index) == (3, -1, DLQ, b"d" * 16, 0)
    assert [record.value for record in read_records(data.records)] == [b"v1"]
    asked.done(None, ErrorCode.NETWORK_EXCEPTION)
    world.timers.advance(RETRY_FIRST_MS)
    world.settle()
    done = PartitionProduceResponse(index=0)
    world.peers.asked[1].done(ProduceResponse(responses=[TopicProduceResponse(name=DLQ, partition_responses=[done])]), 0)
    world.settle()
    assert world.counts.copied == 1


def test_batches_are_as_large_as_the_topic_permits() -> None:
    world = DeadLetterWorld(topic={**ENABLED, "max.message.bytes": "1000"})
    world.letters[0].configure(log_settings(max_message_bytes=1000))
    records = [Record(0, NOW_MS, None, bytes(200)) for _ in range(10)]
    world.partitions[0].require_leading().append(memoryview(encode_batch(records)), acks=-1, now_ms=NOW_MS)
    world.fetch(0, partitions=(0,))
    world.acknowledge(1, (0, 0, 9, [REJECT]))
    world.settle()
    assert [letter[2]["__dlq.errors.offset"] for letter in world.written()] == [str(offset) for offset in range(10)]
    assert world.start == 10


def test_a_compressed_batch_is_read_as_far_as_the_broker_decodes_others() -> None:
    """Of a larger batch, only the context headers are copied."""
    world = DeadLetterWorld(topic=ENABLED)
    large = encode_batch([Record(0, NOW_MS, None, bytes(1 << 20))], codec=CODEC_GZIP)
    world.partitions[0].require_leading().append(memoryview(large), acks=-1, now_ms=NOW_MS)
    world.partitions[0].configure(log_settings(decompressed_bytes_max=1000))
    world.fetch(0, partitions=(0,))
    world.reject(0)
    assert [(key, value) for key, value, _ in world.written()] == [(None, None)]


def test_a_batch_of_many_tiny_records_takes_no_more_memory_than_its_bytes() -> None:
    """The object of a decoded record is thirty times as large as the record. One record of the batch is rejected."""
    count = 50_000
    batch = encode_batch([Record(0, NOW_MS, None, None)] * count, codec=CODEC_GZIP)
    world = DeadLetterWorld(topic=ENABLED)
    world.partitions[0].require_leading().append(memoryview(batch), acks=-1, now_ms=NOW_MS)
    found = world.partitions[0].read(0, 1).slice
    assert found is not None
    tracemalloc.start()
    try:
        originals = read_originals(found, 100, 100, bytes_max=1 << 20, decompressed_bytes_max=1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (list(originals.records), originals.last_offset) == ([100], 100)
    assert peak < 40 * count, "bytes; each record has seven"


def test_records_that_retention_has_removed() -> None:
    """The records are deleted before they are read; the copies have only the context headers."""
    world = world_with_records(topic=ENABLED)
    world.acknowledge(1, (0, 0, 0, [REJECT]))
    world.append(1)
    world.partitions[0].require_leading().delete_records(3)
    world.settle()
    assert [(key, value, context["__dlq.errors.offset"]) for key, value, context in world.written()] == [(None, None, "0")]


def test_the_next_leader_copies_what_this_one_does_not_lead() -> None:
    world = world_with_records(topic=ENABLED)
    world.acknowledge(1, (0, 0, 0, [REJECT]))
    world.partitions[0].become_leader(leader_epoch=5, partition_epoch=5, replicas=(0,), isr=(0,), now_ms=0)
    world.settle()
    assert world.written() == [] and list(world.shares) == []


def test_few_copies_are_in_progress() -> None:
    world = DeadLetterWorld(topic=ENABLED, partitions=10)
    world.leader = 3
    for partition in range(10):
        world.append(1, partition=partition)
    world.fetch(0, partitions=tuple(range(10)))
    for partition in range(10):
        world.acknowledge(1 + partition, (partition, 0, 0, [REJECT]))
    world.settle()
    assert len(world.peers.asked) == COPIES_MAX
    world.copies.close()
    world.peers.close()
    world.settle()
    assert world.counts.copied == world.counts.given_up == 0


def test_a_copy_of_a_group_that_reads_nothing_here() -> None:
    """Another broker leads the partition, and copies the records."""
    world = DeadLetterWorld(topic=ENABLED)
    answers: list[bool] = []
    (key,) = world.persister.states
    world.copies.copy(DeadLetters(key._replace(partition=9), 0, 0, 0, 1, True), answers.append)
    assert answers == [False] and key.topic_id == TOPIC_ID
