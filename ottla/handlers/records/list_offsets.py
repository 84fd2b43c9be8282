"""ListOffsets: the offset for a timestamp or a special timestamp.

Behaviour: for each partition, returns the first record at or after a timestamp. Special timestamps are -1 latest (the high watermark, or
the last stable offset for read_committed; for a follower the log end), -2 earliest, -3 the record with the largest timestamp, -4 earliest
local, -5 latest tiered, and -6 earliest pending upload. If nothing is found, offset and timestamp are -1. A special timestamp that is
unknown, or newer than the version, gets UNSUPPORTED_VERSION. A stored batch that cannot be decoded is skipped. If the search succeeds, the
first skipped batch is logged. A search that must read many records runs in a worker process, and the answer waits for it. If the process
ends before it answers, the result is KAFKA_STORAGE_ERROR.

Version notes: 2 has the isolation level, 4 leader epochs (KIP-320), 7 the largest timestamp (KIP-734), 8 earliest local (KIP-405), 9 latest
tiered (KIP-1005), 11 earliest pending upload (KIP-1023).

Not done: there is no tiered storage, so -5 and -6 find nothing.
"""

from __future__ import annotations

import logging
from collections import Counter

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import may_be_broker, require
from ottla.replication.reads import LATEST, MAX_TIMESTAMP
from ottla.security.acl import AclOperation, ResourceType
from ottla.storage.time_search import BatchTimes, FindTime, SearchPaused, TimeBudget, TimeSearch
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.schema import VERSION_MAX

log = logging.getLogger("ottla.records")

LEADER_EPOCHS_SINCE = 4
SPECIAL_SINCE = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version of the request that has each special timestamp."""


def handle(broker: Broker, request: RequestContext, body: ListOffsetsRequest) -> ListOffsetsResponse | Pending:
    return LookUps(broker, request, body).answer()


class LookUps:
    """One ListOffsets request."""

    def __init__(self, broker: Broker, request: RequestContext, body: ListOffsetsRequest) -> None:
        self._broker = broker
        self._request = request
        self._isolation = body.isolation_level
        self._is_of_follower = body.replica_id >= 0 and may_be_broker(broker, request)
        self._budget = TimeBudget()
        self._unfinished = 0
        self._is_abandoned = False
        self._pending: Pending | None = None
        self._repeated = _repeated(body)
        topics = [
            ListOffsetsTopicResponse(name=topic.name, partitions=[self._begin(topic.name, asked) for asked in topic.partitions])
            for topic in body.topics
        ]
        self._response = ListOffsetsResponse(topics=topics)

    def answer(self) -> ListOffsetsResponse | Pending:
        if not self._unfinished:
            return self._response
        self._pending = Pending()
        self._pending.abandon = self._abandon
        return self._pending

    def _abandon(self) -> None:
        self._is_abandoned = True

    def _begin(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        result = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        search = None
        if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:  # Other special timestamps need no records.
            search = TimeSearch(TopicPartition(topic, asked.partition_index), self._broker.inspections.times, self._budget)
        self._look_up(topic, asked, result, search)
        return result

    def _look_up(self, topic: str, asked: ListOffsetsPartition, result: ListOffsetsPartitionResponse, search: TimeSearch | None) -> None:
        """Sets the result, or continues the search later."""
        try:
            timestamp, offset, leader_epoch = self._find(topic, asked, search)
        except SearchPaused as paused:
            assert search is not None, "only a search pauses"
            self._go_on_later(topic, asked, result, search, paused.question)
            return
        except ApiError as error:
            result.error_code = error.code
            return
        result.timestamp, result.offset = timestamp, offset
        if self._request.version >= LEADER_EPOCHS_SINCE:
            result.leader_epoch = leader_epoch
        if search is not None and search.unread:
            log.warning("%s-%d: %s", topic, asked.partition_index, search.unread)

    def _find(self, topic: str, asked: ListOffsetsPartition, search: TimeSearch | None) -> tuple[int, int, int]:
        broker, index = self._broker, asked.partition_index
        require(broker, self._request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        if (topic, index) in self._repeated:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"partition {index} of {topic!r} is named twice")
        if asked.timestamp < 0 and self._request.version < SPECIAL_SINCE.get(asked.timestamp, VERSION_MAX):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"special timestamp {asked.timestamp}")
        partition = broker.partitions.get(topic, index)
        if partition is None:
            raise ApiError(broker.partitions.absence(topic, index))
        if self._is_of_follower and asked.timestamp == LATEST:
            return partition.log_end(asked.current_leader_epoch)
        return partition.list_offset(asked.timestamp, self._isolation, asked.current_leader_epoch, search)

    def _go_on_later(
        self, topic: str, asked: ListOffsetsPartition, result: ListOffsetsPartitionResponse, search: TimeSearch,
        question: FindTime | None,
    ) -> None:  # fmt: skip
        self._unfinished += 1

        def go_on() -> None:
            self._unfinished -= 1
            if self._is_abandoned:
                return
            self._look_up(topic, asked, result, search)
            self._maybe_complete()

        def answered(times: BatchTimes | None) -> None:
            if times is not None:
                search.note(times)
                go_on()
                return
            self._unfinished -= 1
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR  # The worker process was lost.
            self._maybe_complete()

        if question is None:
            self._broker.timers.call_soon(go_on)
        else:
            self._broker.inspections.ask(self._request.connection, question, answered)

    def _maybe_complete(self) -> None:
        if not self._unfinished and self._pending is not None and not self._is_abandoned:
            self._pending.complete(self._response)


def _repeated(body: ListOffsetsRequest) -> frozenset[tuple[str, int]]:
    """Returns the partitions that occur more than once in the request."""
    named = [(topic.name, asked.partition_index) for topic in body.topics for asked in topic.partitions]
    if len(frozenset(named)) == len(named):
        return frozenset()
    return frozenset(name for name, count in Counter(named).items() if count > 1)
