"""A broker with one consumer group of one member and records in memory, whose answers a test may replace.

`instead[key]` are answers of the protocol's key that come before the usual ones, in order: each is a function from body and version to an
answer, such as `hang_up`.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.wire.codec import encoder
from ottla.wire.messages import fetch, list_offsets, offset_commit, offset_fetch
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from ottla.wire.records import Record, encode_batch
from tests.client.fake_broker import Answer, FakeBroker, HangUp

FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 1, 2, 8, 9, 10, 11, 12, 13, 14


def hang_up(_body: Any, _version: int) -> Any:
    raise HangUp


class GroupBroker(FakeBroker):
    """See the module. `values[n]` are the records of partition n of topic `t`; `errors[n]` is the code that a Fetch answers for it."""

    def __init__(self, partitions: int) -> None:
        usual = {
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            OFFSET_COMMIT: self._commit,
            OFFSET_FETCH: self._committed,
            FIND_COORDINATOR: self.coordinator,
            JOIN: self._join,
            HEARTBEAT: lambda _body, _version: HeartbeatResponse(),
            LEAVE: lambda _body, _version: LeaveGroupResponse(),
            SYNC: self._sync,
        }
        versions = {OFFSET_FETCH: (1, 7), FIND_COORDINATOR: (0, 3), FETCH: (4, 11)}
        super().__init__({key: self._or_instead(key, answer) for key, answer in usual.items()}, versions=versions)
        self.topics["t"] = partitions
        self.instead: dict[int, list[Answer]] = {}
        self.values: dict[int, list[bytes]] = {number: [] for number in range(64)}
        self.errors: dict[int, int] = {}
        self.offsets: dict[int, int] = {}
        self.assigned: list[int] | None = None
        """What the group's leader is taken to have assigned; None for all partitions of the topic."""

    def _or_instead(self, key: int, usual: Answer) -> Answer:
        def answer(body: Any, version: int) -> Any:
            others = self.instead.get(key)
            return others.pop(0)(body, version) if others else usual(body, version)

        return answer

    def _fetch(self, body: Any, _version: int) -> fetch.FetchResponse:
        topics = [
            fetch.FetchableTopicResponse(
                topic=topic.topic, partitions=[self._fetched(part.partition, part.fetch_offset) for part in topic.partitions]
            )
            for topic in body.topics
        ]
        return fetch.FetchResponse(responses=topics)

    def _fetched(self, number: int, offset: int) -> fetch.PartitionData:
        values = self.values[number]
        code = self.errors.get(number, 0) or (1 if offset > len(values) else 0)
        records = [Record(0, 0, None, value, ()) for value in values[offset : offset + 10]] if not code else []
        data = encode_batch(records, base_offset=offset) if records else b""
        return fetch.PartitionData(partition_index=number, error_code=code, high_watermark=len(values), records=data)

    def _list_offsets(self, body: Any, _version: int) -> list_offsets.ListOffsetsResponse:
        topics = [
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, offset=0 if part.timestamp == -2 else len(self.values[part.partition_index])
                    )
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _commit(self, body: Any, _version: int) -> offset_commit.OffsetCommitResponse:
        parts = [part for topic in body.topics for part in topic.partitions]
        self.offsets.update((part.partition_index, part.committed_offset) for part in parts)
        return committed(*(part.partition_index for part in parts))

    def _committed(self, _body: Any, _version: int) -> offset_fetch.OffsetFetchResponse:
        parts = [
            offset_fetch.OffsetFetchResponsePartition(partition_index=number, committed_offset=offset)
            for number, offset in self.offsets.items()
        ]
        return offset_fetch.OffsetFetchResponse(topics=[offset_fetch.OffsetFetchResponseTopic(name="t", partitions=parts)])

    def _join(self, body: Any, _version: int) -> JoinGroupResponse:
        members = [JoinGroupResponseMember(member_id="m", metadata=body.protocols[0].metadata)]
        generation = len(self.asked(JOIN))
        return JoinGroupResponse(generation_id=generation, protocol_name="range", leader="m", member_id="m", members=members)

    def _sync(self, body: Any, _version: int) -> SyncGroupResponse:
        if self.assigned is None:
            return SyncGroupResponse(assignment=body.assignments[0].assignment)
        topic = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=self.assigned)
        data = encoder(ConsumerProtocolAssignment, 0)(ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=None))
        return SyncGroupResponse(assignment=b"\0\0" + bytes(data))


class ShrinkingBroker(GroupBroker):
    """The first Fetch is out of range, as if the oldest records had just been deleted. The answer with the new start takes a second."""

    def __init__(self) -> None:
        super().__init__(1)
        self.values[0] = [b"a", b"b"]
        self.instead[FETCH] = [self._out_of_range]

    def _out_of_range(self, body: Any, _version: int) -> fetch.FetchResponse:
        self.instead[LIST_OFFSETS] = [self._slow_start]
        parts = [fetch.PartitionData(partition_index=0, error_code=1, high_watermark=-1)]
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic=body.topics[0].topic, partitions=parts)])

    def _slow_start(self, body: Any, version: int) -> list_offsets.ListOffsetsResponse:
        time.sleep(1.0)
        return self._list_offsets(body, version)


def committed(*partitions: int, code: int = 0) -> offset_commit.OffsetCommitResponse:
    """An answer to OffsetCommit."""
    parts = [offset_commit.OffsetCommitResponsePartition(partition_index=number, error_code=code) for number in partitions]
    return offset_commit.OffsetCommitResponse(topics=[offset_commit.OffsetCommitResponseTopic(name="t", partitions=parts)])
