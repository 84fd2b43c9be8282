"""StageRecords: stores record batches outside of the log, on the leaders of their partitions, for a later AttachRecords. Ottla's extension.

Behaviour: each chunk is checked like a Produce (leader, permissions, format, CRC, sizes, timestamps) and written to a file in the log
directory, without a sync. If the same chunk is sent again, it is accepted if it has the same bytes, else it gets INVALID_RECORD. A chunk
that exceeds a quota gets THROTTLING_QUOTA_EXCEEDED; the client then sends these records in Produce requests. All chunks of a request
together may have `REQUEST_BYTES_MAX` bytes (a single chunk may be larger) and `CHUNK_BATCHES_MAX` batches. Chunks beyond these limits get
INVALID_REQUEST.

Version notes: none.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import ITEMS_PER_STEP
from ottla.base.uuids import ZERO_UUID
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import refusal_to_write
from ottla.replication.stages import ChunkToken
from ottla.storage.staged_chunk import CHUNK_BATCHES_MAX
from ottla.wire.messages.stage_records import (
    StagePartition,
    StagePartitionResult,
    StageRecordsRequest,
    StageRecordsResponse,
    StageTopicResult,
)

REQUEST_BYTES_MAX = 4 << 20
CHUNKS_PER_STEP = 20
"""Fewer than `ITEMS_PER_STEP`, because the bytes of each chunk are checked and written to a file."""


def handle(broker: Broker, request: RequestContext, body: StageRecordsRequest) -> Generator[None, None, StageRecordsResponse]:
    staging = Staging(broker, request, body)
    answer = StageRecordsResponse()
    for number, topic in enumerate(body.topics, 1):
        results = yield from staging.stage_topic(topic.name, topic.partitions)
        answer.topics.append(StageTopicResult(name=topic.name, partitions=results))
        if not number % ITEMS_PER_STEP:
            yield
    return answer


class Staging:
    """One StageRecords request, and how much it may still stage."""

    def __init__(self, broker: Broker, request: RequestContext, body: StageRecordsRequest) -> None:
        self._broker = broker
        self._request = request
        self._token = ChunkToken(request.connection.principal, body.batch_token)
        self._attempt_id = body.attempt_id
        self._now_ms = broker.clock.wall_ms()
        self._bytes = 0
        self._batches_left = CHUNK_BATCHES_MAX
        self._chunks = 0

    def stage_topic(self, topic: str, partitions: list[StagePartition]) -> Generator[None, None, list[StagePartitionResult]]:
        refusal = self._refusal_of(topic)
        results = []
        for data in partitions:
            result = StagePartitionResult(index=data.index)
            results.append(result)
            try:
                if refusal is not None:
                    raise refusal
                self._stage(topic, data)
            except ApiError as error:
                result.error_code = error.code
                result.error_message = error.message or None
            self._chunks += 1
            if not self._chunks % CHUNKS_PER_STEP:
                yield
        return results

    def _refusal_of(self, topic: str) -> ApiError | None:
        """Returns the reason to refuse all chunks of a topic, or None."""
        if self._token.secret == ZERO_UUID:
            return ApiError(ErrorCode.INVALID_REQUEST, "a batch token of zeroes")
        return refusal_to_write(self._broker, self._request, topic)

    def _stage(self, topic: str, data: StagePartition) -> None:
        partitions, size = self._broker.partitions, len(data.records)
        partition = partitions.get(topic, data.index)
        if partition is None:
            raise ApiError(partitions.absence(topic, data.index))
        stages = self._broker.stages.of(partition.leader or partition.require_leading())
        if self._bytes and self._bytes + size > REQUEST_BYTES_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"one request may stage {REQUEST_BYTES_MAX} bytes")
        self._bytes += size
        self._batches_left -= stages.stage(
            self._token, self._attempt_id, data.chunk, memoryview(data.records), now_ms=self._now_ms, batches_max=self._batches_left
        )
