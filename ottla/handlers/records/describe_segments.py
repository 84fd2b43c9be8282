"""DescribeSegments: the segments of a partition's log on this broker, and the entries of one segment's indexes.

Behaviour: followers answer too, with the files of their own log. The answer has at most `SEGMENTS_MAX` segments and `ENTRIES_MAX` entries
of each index, so that it stays small. The indexes of a sealed segment are loaded, as for a look-up. DESCRIBE on the topic is needed.

Version notes: 0 is the first.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import NO_TIMESTAMP
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.storage.log import Log
from ottla.storage.segment import Segment
from ottla.wire.messages.describe_segments import (
    DescribeSegmentsRequest,
    DescribeSegmentsResponse,
    OffsetEntry,
    SegmentDescription,
    TimeEntry,
)

SEGMENTS_MAX = 1_000
ENTRIES_MAX = 1_000


def handle(broker: Broker, request: RequestContext, body: DescribeSegmentsRequest) -> DescribeSegmentsResponse:
    try:
        log = _log(broker, request, body)
    except ApiError as error:
        return DescribeSegmentsResponse(error_code=error.code, error_message=error.message or None)
    first = max(0, bisect_right(log.segments, body.first_offset, key=lambda segment: segment.base_offset) - 1)
    shown = log.segments[first : first + SEGMENTS_MAX]
    response = DescribeSegmentsResponse(
        segments=[_described(log, segment) for segment in shown], is_cut=first + SEGMENTS_MAX < len(log.segments)
    )
    for segment in log.segments:
        if segment.base_offset == body.index_of:
            _add_index(response, segment)
    return response


def _log(broker: Broker, request: RequestContext, body: DescribeSegmentsRequest) -> Log:
    """Returns the log of the partition. Raises `ApiError`."""
    require(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, body.topic)
    partition = broker.partitions.get(body.topic, body.partition)
    if partition is None:
        known = broker.metadata.partition(body.topic, body.partition) is not None
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not partition.is_online:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    return partition.log


def _described(log: Log, segment: Segment) -> SegmentDescription:
    is_active = segment is log.active
    return SegmentDescription(
        base_offset=segment.base_offset, end_offset=log.log_end_offset if is_active else segment.end_offset, size_bytes=segment.size,
        largest_timestamp=segment.max_timestamp if segment.is_max_known else NO_TIMESTAMP, is_active=is_active,
    )  # fmt: skip


def _add_index(response: DescribeSegmentsResponse, segment: Segment) -> None:
    segment.load_indexes()
    base, index, times = segment.base_offset, segment.index, segment.times
    pairs = zip(index.offsets, index.positions, strict=True)
    response.offset_entries = [OffsetEntry(offset=base + offset, position=at) for offset, at in islice(pairs, ENTRIES_MAX)]
    moments = zip(times.timestamps, times.offsets, strict=True)
    response.time_entries = [TimeEntry(timestamp=at, offset=base + offset) for at, offset in islice(moments, ENTRIES_MAX)]
    response.is_cut = response.is_cut or max(len(index), len(times)) > ENTRIES_MAX
