"""MirrorRecords: appends batches of another cluster to mirrored topics, with their offsets and leader epochs. Ottla's extension.

Behaviour: the batches of a partition are appended as a follower appends them, byte for byte, if the log ends at `expected_end` and the
topic's `ottla.mirror.source` is the source of the request (`replication/mirrored.py`). The answer waits until the in-sync replicas have
them; after `timeout_ms` the partition gets REQUEST_TIMED_OUT, and the batches stay. An entry of the answer has the log's start and end even
after a refusal. So a mirror that repeats a request learns where to continue. With ACLs the sender needs CLUSTER_ACTION.

Version notes: none.
"""

from __future__ import annotations

from itertools import islice

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.handlers.context import Broker, Pending, RequestContext, WaitingRequest
from ottla.handlers.rights import is_broker
from ottla.replication.leader import ALL_IN_SYNC, Leader
from ottla.replication.mirrored import append_mirrored
from ottla.replication.partition import Partition
from ottla.wire.batch_header import iter_batches
from ottla.wire.messages.mirror_records import (
    MirrorPartition,
    MirrorPartitionResult,
    MirrorRecordsRequest,
    MirrorRecordsResponse,
    MirrorTopicResult,
)

REQUEST_BYTES_MAX = 8 << 20
REQUEST_BATCHES_MAX = 4_000
"""Limits of one request, which is executed in one piece: about 30 ms. The first batch may be larger."""


def handle(broker: Broker, request: RequestContext, body: MirrorRecordsRequest) -> MirrorRecordsResponse | Pending:
    is_allowed = broker.authorizer.allows_clients_everything(request.connection) or is_broker(broker, request)
    mirroring = Mirroring(broker, is_allowed=is_allowed)
    for topic in body.topics:
        mirroring.append(topic.name, topic.source, topic.partitions)
    return mirroring.answer_or_wait(body.timeout_ms)


class Mirroring:
    """One MirrorRecords request: the partitions whose batches are appended and not committed yet, and the answer."""

    def __init__(self, broker: Broker, *, is_allowed: bool) -> None:
        self._broker = broker
        self._is_allowed = is_allowed
        self._open: list[tuple[Partition, Leader, int, MirrorPartitionResult]] = []
        self._led: list[tuple[Partition, Leader, MirrorPartitionResult]] = []
        self._response = MirrorRecordsResponse()
        self._pending = Pending(keeps_request=False)
        self._watch: WaitingRequest | None = None
        self._bytes = self._batches = 0

    def append(self, topic: str, source: str, partitions: list[MirrorPartition]) -> None:
        results: list[MirrorPartitionResult] = []
        for data in partitions:
            result = MirrorPartitionResult(index=data.index)
            results.append(result)
            try:
                self._append(topic, source, data, result)
            except ApiError as error:
                _refuse(result, error)
        self._response.topics.append(MirrorTopicResult(name=topic, partitions=results))

    def _append(self, topic: str, source: str, data: MirrorPartition, result: MirrorPartitionResult) -> None:
        if not self._is_allowed:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a mirror needs CLUSTER_ACTION on the cluster")
        partition = self._broker.partitions.get(topic, data.index)
        if partition is None:
            raise ApiError(self._broker.partitions.absence(topic, data.index))
        leader = partition.require_leading()
        self._led.append((partition, leader, result))
        batches = memoryview(data.records)
        self._count(batches)
        append_mirrored(
            partition, leader, batches, source=source, expected_end=data.expected_end, source_log_start=data.source_log_start
        )  # fmt: skip
        if batches:
            self._open.append((partition, leader, leader.log.log_end_offset - 1, result))

    def _count(self, batches: memoryview) -> None:
        """Raises `ApiError` RECORD_LIST_TOO_LARGE for batches that exceed the limits of the request."""
        try:
            count = sum(1 for _ in islice(iter_batches(batches), REQUEST_BATCHES_MAX + 1))
        except WireError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"no whole batches: {error}") from None
        if self._bytes and self._bytes + len(batches) > REQUEST_BYTES_MAX:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"one request may mirror {REQUEST_BYTES_MAX} bytes")
        if self._batches + count > REQUEST_BATCHES_MAX:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"one request may mirror {REQUEST_BATCHES_MAX} batches")
        self._bytes += len(batches)
        self._batches += count

    def answer_or_wait(self, timeout_ms: int) -> MirrorRecordsResponse | Pending:
        self._look()
        if not self._open:
            return self._answer()
        watch = self._watch = self._broker.waiters.watch((), max(timeout_ms, 0), self._woken, self._time_out)
        self._pending.abandon = watch.cancel
        for _, leader, last_offset, _ in self._open:
            watch.add_acknowledgement(leader, last_offset, ALL_IN_SYNC)
        return self._pending

    def _look(self) -> None:
        """Removes the partitions whose batches are committed, or can no longer be committed by this leader."""
        unfinished, self._open = self._open, []
        for entry in unfinished:
            code = entry[1].acknowledgement(entry[2], ALL_IN_SYNC)
            if code is None:
                self._open.append(entry)
            elif code:
                _refuse(entry[3], ApiError(code))

    def _woken(self) -> None:
        self._look()
        if not self._open:
            self._finish()

    def _time_out(self) -> None:
        for _, _, _, result in self._open:
            _refuse(result, ApiError(ErrorCode.REQUEST_TIMED_OUT, "too few replicas have the batches yet"))
        self._finish()

    def _finish(self) -> None:
        assert self._watch is not None, "it waits"
        self._watch.cancel()
        if not self._pending.is_done:
            self._pending.complete(self._answer())

    def _answer(self) -> MirrorRecordsResponse:
        for partition, leader, result in self._led:
            if leader.is_over:
                continue
            log = leader.log
            result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset
            result.committed_end, result.last_stable_offset = partition.high_watermark, partition.last_stable_offset
            result.leader_epoch = leader.epoch
        return self._response


def _refuse(result: MirrorPartitionResult, error: ApiError) -> None:
    result.error_code = error.code
    result.error_message = error.message or None
