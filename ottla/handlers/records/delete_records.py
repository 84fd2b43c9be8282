"""DeleteRecords: raises the log start offset; the records before it are deleted.

Behaviour: offset -1 selects the high watermark; an offset above it gets OFFSET_OUT_OF_RANGE. Retention removes whole segments below the new
log start. The answer is sent when every replica on a live broker, and every replica that may be elected leader, has the new log start. It
contains the low watermark: the smallest log start of these replicas. If such a follower does not have the new log start within
`timeout_ms`, the answer is REQUEST_TIMED_OUT. The leader's checkpoint may take `NOTE_MS_MAX` longer, so a timeout of 0 succeeds if there
are no followers. Internal topics get INVALID_TOPIC_EXCEPTION, topics that are only compacted POLICY_VIOLATION.

Version notes: 1 and 2 change only the encoding.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import INTERNAL_TOPICS
from ottla.handlers.context import Broker, Pending, RequestContext, WaitingRequest
from ottla.handlers.rights import require
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NOTE_MS_MAX = 5_000
"""Additional wait for the leader's checkpoint after the request's timeout, in milliseconds. The timeout itself is for followers."""


def handle(broker: Broker, request: RequestContext, body: DeleteRecordsRequest) -> DeleteRecordsResponse | Pending:
    return Deletions(broker, request, body).answer_or_wait(body.timeout_ms)


class Deletion:
    """A raised log start offset of one partition that followers or the checkpoint do not have yet."""

    __slots__ = ("leader", "partition", "result", "start")

    def __init__(self, partition: Partition, leader: Leader, start: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.leader = leader
        self.start = start
        self.result = result


class Deletions:
    """One DeleteRecords request."""

    def __init__(self, broker: Broker, request: RequestContext, body: DeleteRecordsRequest) -> None:
        self._broker = broker
        self._request = request
        self._unfinished: list[Deletion] = []
        self._pending = Pending()
        self._is_late = False
        self._watch: WaitingRequest | None = None
        topics = [
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[self._delete(topic.name, asked.partition_index, asked.offset) for asked in topic.partitions]
            )
            for topic in body.topics
        ]
        self._response = DeleteRecordsResponse(topics=topics)

    def answer_or_wait(self, timeout_ms: int) -> DeleteRecordsResponse | Pending:
        self._look()
        if not self._unfinished:
            return self._response
        self._wait(timeout_ms)
        return self._pending

    def _wait(self, timeout_ms: int) -> None:
        watched = [deletion.partition.notifier for deletion in self._unfinished]
        watch = self._watch = self._broker.waiters.watch(watched, timeout_ms, self._woken, self._give_up)
        self._pending.abandon = watch.cancel

    def _delete(self, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
        try:
            partition = self._find(topic, index)
            leader = partition.require_leading()
            self._unfinished.append(Deletion(partition, leader, leader.delete_records(offset), result))
        except ApiError as error:
            result.error_code = error.code
        return result

    def _find(self, topic: str, index: int) -> Partition:
        require(self._broker, self._request, AclOperation.DELETE, ResourceType.TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {topic!r} are not deleted by clients")
        partition = self._broker.partitions.get(topic, index)
        if partition is None:
            raise ApiError(self._broker.partitions.absence(topic, index))
        if not partition.log.config.is_deleted:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic!r} has no cleanup.policy=delete")
        return partition

    def _look(self) -> None:
        """Completes the partitions whose new start is on all replicas that the answer waits for, and the partitions that this broker no
        longer leads."""
        live = self._broker.metadata.brokers
        unfinished, self._unfinished = self._unfinished, []
        for deletion in unfinished:
            low_watermark = deletion.leader.low_watermark(live)
            if deletion.leader.is_over:
                deletion.result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif low_watermark >= deletion.start:
                deletion.result.low_watermark = low_watermark
            else:
                self._unfinished.append(deletion)

    def _woken(self) -> None:
        self._look()
        if not self._unfinished:
            self._finish()

    def _give_up(self) -> None:
        self._look()
        live, unfinished = self._broker.metadata.brokers, self._unfinished
        self._unfinished = []
        for deletion in unfinished:
            if not self._is_late and deletion.leader.followed_log_start(live) >= deletion.start:
                self._unfinished.append(deletion)
            else:
                deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        if self._unfinished:
            self._is_late = True
            assert self._watch is not None, "it waits"
            self._watch.cancel()
            self._wait(NOTE_MS_MAX)
        else:
            self._finish()

    def _finish(self) -> None:
        assert self._watch is not None, "it waits"
        if not self._watch.is_cancelled:
            self._watch.cancel()
            self._pending.complete(self._response)
