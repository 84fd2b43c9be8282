"""A broker with only what reading by share groups needs: that of `records_world`, with share partitions, sessions and a persister in
memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.handlers.share_groups import share_acknowledge, share_fetch
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.partition_memory import PartitionMemory
from ottla.sharing.registry import SharePartitions
from ottla.sharing.sessions import ShareSessions
from ottla.sharing.share_partition import GroupTerms
from ottla.wire.messages.share_acknowledge import AcknowledgementBatch as SaidBatch
from ottla.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.fakes.answers import answer_of
from tests.fakes.persister import MemoryPersister
from tests.handlers.records_world import TOPIC_ID, RecordsWorld, batch

GROUP = "g"
LOCK_MS = 30_000
Said = tuple[int, int, int, list[int]]
"""Partition, first offset, last offset, acknowledge types."""


def connection() -> ConnectionInfo:
    return ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT")


class ShareWorld(RecordsWorld):
    """One broker, one topic `t`, one group whose partitions begin with the log."""

    def __init__(self, *, partitions: int = 1, sessions_max: int = 10, is_initialized: bool = True) -> None:
        super().__init__(partitions=partitions)
        self.terms = GroupTerms(
            lock_duration_ms=LOCK_MS, delivery_count_max=5, in_flight_max=200, offset_reset="earliest", is_read_committed=False,
            may_renew=True,
        )  # fmt: skip
        self.persister = MemoryPersister()
        if is_initialized:
            for index in range(partitions):
                self.persister.states[SharePartitionKey(GROUP, TOPIC_ID, index)] = ShareState(0, 0, -1, -1)
        self.memory = CoordinatorMemory()
        self.shares = SharePartitions(
            persister=self.persister, clock=self.clock, timers=self.timers, terms_of=lambda group_id: self.terms,
            memory=PartitionMemory(self.memory),
        )  # fmt: skip
        self.sessions = ShareSessions(self.shares, sessions_max)
        self.broker.share_partitions = self.shares
        self.broker.share_sessions = self.sessions
        known = SimpleNamespace(name="t", partitions=[SimpleNamespace(leader=3, leader_epoch=9)] * partitions)
        self.broker.metadata = SimpleNamespace(
            topic_by_id=lambda topic_id: known if topic_id == TOPIC_ID else None,
            brokers={3: SimpleNamespace(broker_id=3, endpoints={"PLAINTEXT": ("three", 9092)}, rack=None)},
        )
        self.connection = connection()

    def append_to_each(self) -> None:
        """Appends a record to each partition."""
        for partition in range(len(self.broker.metadata.topic_by_id(TOPIC_ID).partitions)):
            self.append(1, partition=partition)

    def append(self, *sizes: int, partition: int = 0, **options: Any) -> None:
        for size in sizes:
            self.partitions[partition].require_leading().append(batch(*[b"v"] * size, **options), acks=-1, now_ms=self.clock.wall_ms())

    def fetch(
        self, epoch: int, *, member: str | None = "a", group: str | None = GROUP, partitions: tuple[int, ...] = (),
        said: tuple[Said, ...] = (), forgotten: tuple[int, ...] = (), connection: ConnectionInfo | None = None, version: int = 2,
        topic_id: bytes = TOPIC_ID, **options: Any,
    ) -> Any:  # fmt: skip
        """Returns the answer, or the `Pending` that waits for it."""
        named = dict.fromkeys([*partitions, *(partition for partition, _, _, _ in said)])
        wanted = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for partition, first, last, types in said
                    if partition == index
                ],
            )
            for index in named
        ]
        settings: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "max_records": 500, "batch_size": 500, **options}
        body = ShareFetchRequest(
            group_id=group, member_id=member, share_session_epoch=epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))] if forgotten else [],
            **settings,
        )  # fmt: skip
        return answer_of(share_fetch.handle(self.broker, self._request(version, connection), body))

    def acknowledge(
        self, epoch: int, *said: Said, member: str | None = "a", group: str | None = GROUP, version: int = 2, topic_id: bytes = TOPIC_ID,
        is_renewing: bool = False,
    ) -> Any:  # fmt: skip
        named = dict.fromkeys(partition for partition, _, _, _ in said)
        partitions = [
            AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    SaidBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for partition, first, last, types in said
                    if partition == index
                ],
            )
            for index in named
        ]
        body = ShareAcknowledgeRequest(
            group_id=group, member_id=member, share_session_epoch=epoch, is_renew_ack=is_renewing,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
        )  # fmt: skip
        return answer_of(share_acknowledge.handle(self.broker, self._request(version, None), body))

    def _request(self, version: int, connection: ConnectionInfo | None) -> RequestContext:
        return RequestContext(version, "test", connection or self.connection)


def acquired(response: ShareFetchResponse) -> dict[int, list[tuple[int, int, int]]]:
    """Returns, by partition, the acquired ranges: first offset, last offset, delivery count."""
    assert not response.error_code, response
    return {
        partition.partition_index: [(run.first_offset, run.last_offset, run.delivery_count) for run in partition.acquired_records]
        for topic in response.responses
        for partition in topic.partitions
        if partition.acquired_records
    }


def codes(response: ShareFetchResponse | ShareAcknowledgeResponse) -> dict[int, ErrorCode]:
    """Returns, by partition, the error of the read, or else of the acknowledgement."""
    return {
        partition.partition_index: ErrorCode(getattr(partition, "acknowledge_error_code", 0) or partition.error_code)
        for topic in response.responses
        for partition in topic.partitions
    }
