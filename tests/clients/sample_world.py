"""The objects that sample requests name: a broker with a topic and its records, a group with a member and offsets, and open transactions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.wire.framing import load
from ottla.wire.messages import add_partitions_to_txn as add_partitions
from ottla.wire.messages import (
    create_topics,
    join_group,
    metadata,
    offset_commit,
    produce,
    stage_records,
    sync_group,
)
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import Request
from tests.clients.broker_process import eventually
from tests.clients.wire_client import In, WireClient

NEVER_EXPIRES_MS = 60_000
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


def batch(count: int = 3, **options: Any) -> bytes:
    """Returns a batch of small records with timestamps of the year 2023."""
    return bytes(encode_batch([Record(0, 1_700_000_000_000 + n, b"key", b"value", (("h", b"1"),)) for n in range(count)], **options))


class World:
    """A broker with topics, records, groups and transactions."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.topic = "world"
        self.numbers = itertools.count()
        client.ask(self.make_topic(7, self.topic), 7)
        answer = client.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=self.topic)]), 12)
        self.topic_id = answer.topics[0].topic_id
        client.ask(self.produce(In(9), self.topic), 9)
        for kind, key in enumerate(("group", "transaction")):
            eventually(lambda kind=kind, key=key: client.ask(load(10)[0](key=key, key_type=kind), 2).error_code == 0)
        self.join("group")
        client.ask(self.offset_commit(In(8)), 8)

    @staticmethod
    def make_topic(version: int, name: str, **fields: Any) -> Request:
        make = In(version)
        topic = make(create_topics.CreatableTopic, name=name, num_partitions=2, replication_factor=1, **fields)
        request: Request = make(create_topics.CreateTopicsRequest, topics=[topic])
        return request

    def fresh(self, prefix: str) -> str:
        return f"{prefix}-{next(self.numbers)}"

    def fresh_topic(self) -> str:
        name = self.fresh("topic")
        self.client.ask(self.make_topic(7, name), 7)
        return name

    def join(self, group: str) -> tuple[str, int]:
        """Makes a member join and get its assignment; returns (member id, generation)."""
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(8))
        request = join_group.JoinGroupRequest(
            group_id=group, session_timeout_ms=NEVER_EXPIRES_MS, rebalance_timeout_ms=NEVER_EXPIRES_MS,
            protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        answers: list[Any] = []
        eventually(lambda: answers.append(self.client.ask(request, 3)) or answers[-1].error_code not in NOT_YET)
        joined = answers[-1]
        assert joined.error_code == 0, joined
        assignment = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
        synced = self.client.ask(
            sync_group.SyncGroupRequest(
                group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
            ),
            3,
        )
        assert synced.error_code == 0 and synced.assignment == b"mine"
        return joined.member_id, joined.generation_id

    def transaction(self, topic: str | None = None) -> tuple[str, int, int]:
        """Begins a transaction, with `topic` one that has a partition of it; returns (transactional id, producer id, epoch)."""
        name = self.fresh("transaction")
        init = load(22)[0](transactional_id=name, transaction_timeout_ms=NEVER_EXPIRES_MS)
        answer = self.client.ask(init, 4)
        if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # which Apache Kafka answers for a moment
            answer = eventually(lambda: None if (found := self.client.ask(init, 4)).error_code in NOT_YET else found)
        assert answer.error_code == 0, answer
        if topic is not None:
            added = self.client.ask(self.add_partitions(In(3), name, answer.producer_id, answer.producer_epoch, topic), 3)
            assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, added
        return name, answer.producer_id, answer.producer_epoch

    def produce(self, make: In, topic: str, records: bytes | None = None, acks: int = -1, transactional_id: str | None = None) -> Request:
        partition = make(produce.PartitionProduceData, index=0, records=records or batch())
        data = make(produce.TopicProduceData, name=topic, topic_id=getattr(self, "topic_id", bytes(16)), partition_data=[partition])
        request: Request = make(produce.ProduceRequest, transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[data])
        return request

    def offset_commit(self, make: In) -> Request:
        partition = make(offset_commit.OffsetCommitRequestPartition, partition_index=0, committed_offset=2, committed_metadata="m")
        topic = make(offset_commit.OffsetCommitRequestTopic, name=self.topic, topic_id=self.topic_id, partitions=[partition])
        request: Request = make(offset_commit.OffsetCommitRequest, group_id="offsets", topics=[topic])
        return request

    def stage(self, token: bytes, records: bytes, *, chunk: int = 0, attempt: int = 1) -> stage_records.StageRecordsRequest:
        """Stages a chunk for the topic's first partition."""
        partition = stage_records.StagePartition(index=0, chunk=chunk, records=records)
        topic = stage_records.StageTopic(name=self.topic, partitions=[partition])
        return stage_records.StageRecordsRequest(batch_token=token, attempt_id=attempt, topics=[topic])

    @staticmethod
    def add_partitions(make: In, name: str, producer_id: int, epoch: int, topic: str) -> Request:
        topics = [add_partitions.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
        fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
        one = make(add_partitions.AddPartitionsToTxnTransaction, verify_only=False, **fields)
        old = {f"v3_and_below_{field}": value for field, value in fields.items()}
        request: Request = make(add_partitions.AddPartitionsToTxnRequest, transactions=[one], **old)
        return request

    def first_heartbeat(self, group: str) -> dict[str, Any]:
        """Returns the heartbeat by which a member of the consumer protocol joins."""
        return {
            "group_id": group, "member_id": self.fresh("member"), "member_epoch": 0, "rebalance_timeout_ms": NEVER_EXPIRES_MS,
            "subscribed_topic_names": [self.topic], "server_assignor": "range", "topic_partitions": [],
        }  # fmt: skip

    def request(self, key: int, version: int) -> Request:
        """Returns a request that this broker executes without an error."""
        from tests.clients.sample_requests import REQUESTS  # its makers need this class

        made: Request = REQUESTS[key](self, In(version), load(key)[0])
        return made


def broker_id_of(world: World) -> int:
    answer = world.client.ask(load(60)[0](), 0)
    broker_id: int = answer.brokers[0].broker_id
    return broker_id


Maker = Callable[[World, In, Any], Any]


def plain(**fields: Any) -> Maker:
    """Returns a function that makes requests which name no object of the world."""
    return lambda _world, make, cls: make(cls, **fields)
