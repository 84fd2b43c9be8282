"""Attacks by transactions: many partitions in one transaction, many aborted transactions, and offsets that are never committed."""

from __future__ import annotations

from typing import Any

from ottla.wire.framing import load
from ottla.wire.messages import add_partitions_to_txn, delete_topics, fetch, produce, txn_offset_commit
from tests.clients.sample_world import NEVER_EXPIRES_MS, batch
from tests.clients.wire_client import In, error_codes
from tests.hostile.attacks import Target, attack
from tests.hostile.attacks_growth import TEXT, make_topic, send_many, wait_for_coordinators

ABORTED = 3000


@attack("a transaction of 10,000 partitions, aborted, 3 times", not_on_kafka="refuses to create the topic")
def wide_transaction(target: Target) -> None:
    make_topic(target, "wide", target.part(10_000))
    wait_for_coordinators(target, 1, "x")
    target.begin()
    for _ in range(3):
        name, producer_id, epoch = target.world.transaction()
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="wide", partitions=list(target.numbers(10_000)))
        adding = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name, v3_and_below_producer_id=producer_id, v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )  # fmt: skip
        target.client.ask(adding, 3)
        target.client.ask(load(26)[0](transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=False), 3)
        target.client.ask(load(22)[0](transactional_id=name, transaction_timeout_ms=NEVER_EXPIRES_MS), 4)


@attack("3,000 aborted transactions in a partition, and 2,000 fetches of committed records at its end")
def read_behind_aborted(target: Target) -> None:
    make_topic(target, "aborted", 1)
    wait_for_coordinators(target, 1, "x")
    for _ in target.numbers(ABORTED):
        abort_one(target)
    end = target.client.ask(load(2)[0](replica_id=-1, topics=[ends("aborted")]), 7).topics[0].partitions[0].offset
    partition = fetch.FetchPartition(partition=0, fetch_offset=end - 1, partition_max_bytes=1 << 20)
    whole = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100 << 20)
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100 << 20, "session_epoch": -1, "isolation_level": 1}
    tail = target.request(1, 12, topics=[fetch.FetchTopic(topic="aborted", partitions=[partition])], **fields)
    all_of_it = target.request(1, 12, topics=[fetch.FetchTopic(topic="aborted", partitions=[whole])], **fields)
    target.begin()
    for _ in range(20):
        target.send(*[tail] * 100)
    target.send(*[all_of_it] * 20)


def ends(topic: str) -> Any:
    request = load(2)[0].__fields__
    (topics,) = [field for field in request if field.name == "topics"]
    (partitions,) = [field for field in topics.struct.__fields__ if field.name == "partitions"]
    return topics.struct(name=topic, partitions=[partitions.struct(partition_index=0, timestamp=-1)])


def abort_one(target: Target) -> None:
    """Runs a transaction with one small record, and aborts it."""
    name = "aborting"
    given = target.client.ask(load(22)[0](transactional_id=name, transaction_timeout_ms=NEVER_EXPIRES_MS), 4)
    records = batch(1, producer_id=given.producer_id, producer_epoch=given.producer_epoch, base_sequence=0, is_transactional=True)
    data = produce.PartitionProduceData(index=0, records=memoryview(records))
    topics = [produce.TopicProduceData(name="aborted", partition_data=[data])]
    adding = target.world.add_partitions(In(3), name, given.producer_id, given.producer_epoch, "aborted")
    target.client.ask(adding, 3)
    answer = target.client.ask(produce.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=topics), 9)
    assert not answer.responses[0].partition_responses[0].error_code, answer
    ending = load(26)[0](transactional_id=name, producer_id=given.producer_id, producer_epoch=given.producer_epoch, committed=False)
    target.client.ask(ending, 3)


@attack("TxnOffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups, never committed")
def pending_offsets(target: Target) -> None:
    make_topic(target, "wide", 2000)
    wait_for_coordinators(target, 0, "x")
    wait_for_coordinators(target, 1, "x")
    name, producer_id, epoch = target.world.transaction()
    target.begin()
    for group in target.numbers(80):
        adding = load(25)[0](transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=f"group-{group}")
        target.client.ask(adding, 3)
        send_many(target, ((pending(f"group-{group}", first, name, producer_id, epoch), 3) for first in range(0, 2000, 100)))


def pending(group: str, first: int, name: str, producer_id: int, epoch: int) -> txn_offset_commit.TxnOffsetCommitRequest:
    offsets = [
        txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata=TEXT)
        for number in range(first, first + 100)
    ]
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=name, group_id=group, producer_id=producer_id, producer_epoch=epoch,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name="wide", partitions=offsets)],
    )  # fmt: skip


@attack("Produce and TxnOffsetCommit in transactions while there is no __transaction_state, 2,000 times each")
def without_coordinators(target: Target) -> None:
    gone = delete_topics.DeleteTopicsRequest(topic_names=["__transaction_state"], timeout_ms=30_000)
    assert not any(error_codes(target.client.ask(gone, 5)))
    records = batch(1, producer_id=1_000_000, producer_epoch=0, base_sequence=0, is_transactional=True)
    data = produce.PartitionProduceData(index=0, records=memoryview(records))
    topics = [produce.TopicProduceData(name=target.world.topic, partition_data=[data])]
    writing = produce.ProduceRequest(transactional_id="nowhere", acks=-1, timeout_ms=5000, topic_data=topics)
    target.begin()
    answers = send_many(target, ((writing, 9 + number % 3) for number in target.numbers(2000)))
    answers += send_many(target, ((pending("group", 0, "nowhere", 1_000_000, 0), 3 + number % 2) for number in target.numbers(2000)))
    assert len(answers) == 2 * target.part(2000) and all(answers)
