"""A fake broker that lends records of one partition: the least of KIP-932 that a share consumer needs, with answers that tests replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.messages.share_acknowledge import PartitionData as AcknowledgedPartition
from ottla.wire.messages.share_acknowledge import ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse
from ottla.wire.messages.share_fetch import AcquiredRecords, PartitionData, ShareFetchableTopicResponse, ShareFetchResponse
from ottla.wire.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions
from ottla.wire.records import Record, encode_batch
from tests.client.fake_broker import FakeBroker

TOPIC_ID = b"\x33" * 16
FETCH, ACKNOWLEDGE, HEARTBEAT = 78, 79, 76

Answer = Callable[[Any], Any]


def batch(first: int, count: int) -> bytes:
    return bytes(encode_batch([Record(0, 1000, None, b"%d" % (first + n), ()) for n in range(count)], base_offset=first))


def lends(first: int, count: int, number: int = 1, **fields: Any) -> ShareFetchResponse:
    """An answer that lends records for the `number`th time."""
    acquired = [AcquiredRecords(first_offset=first, last_offset=first + count - 1, delivery_count=number)] if count else []
    records = batch(first, count) if count else b""
    part = PartitionData(partition_index=0, records=records, acquired_records=acquired, **fields)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=30_000, responses=[ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])]
    )


def acknowledged(error_code: int = 0) -> ShareAcknowledgeResponse:
    part = AcknowledgedPartition(partition_index=0, error_code=error_code)
    return ShareAcknowledgeResponse(responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[part])])


class FakeShareGroup(FakeBroker):
    """`fetches` and `acknowledgements` are answered in turn, the last of each again and again; an exception is raised."""

    def __init__(self) -> None:
        super().__init__(
            {
                10: self.coordinator,
                HEARTBEAT: lambda body, _: self.beat(body),
                FETCH: lambda _body, _version: self._next(self.fetches),
                ACKNOWLEDGE: lambda _body, _version: self._next(self.acknowledgements),
            }
        )
        self.topics["t"], self.topic_ids["t"] = 1, TOPIC_ID
        self.fetches: list[Any] = [lends(0, 0)]
        self.acknowledgements: list[Any] = [acknowledged()]
        self.beat: Answer = self.assigns

    def assigns(self, body: Any) -> ShareGroupHeartbeatResponse:
        """Assigns partition 0 to each member."""
        found = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0])]) if body.member_epoch == 0 else None
        return ShareGroupHeartbeatResponse(
            member_id=body.member_id, member_epoch=max(1, body.member_epoch), heartbeat_interval_ms=50, assignment=found
        )

    def _next(self, answers: list[Any]) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer
