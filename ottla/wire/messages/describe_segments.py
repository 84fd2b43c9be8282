"""DescribeSegments: the segments of a partition's log on the disk of a broker, and the entries of one segment's indexes. Ottla's extension.

The segments begin with the segment that contains `first_offset`. `index_of` names a segment by its base offset. Its offset index has the
position of some batches in the file. An entry of its time index has a time and an offset: records up to the offset are not newer.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, i64, string

NO_INDEX = -1
"""`index_of` of a request that asks for no index."""


class DescribeSegmentsRequest(Request):
    topic: str = string()
    partition: int = i32()
    first_offset: int = i64()
    index_of: int = i64(default=NO_INDEX)


class SegmentDescription(Struct):
    base_offset: int = i64()
    end_offset: int = i64()
    size_bytes: int = i32()
    largest_timestamp: int = i64(default=-1)
    """-1 if the broker has not needed it since its start."""
    is_active: bool = boolean()


class OffsetEntry(Struct):
    offset: int = i64()
    position: int = i32()


class TimeEntry(Struct):
    timestamp: int = i64()
    offset: int = i64()


class DescribeSegmentsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    segments: list[SegmentDescription] = array(SegmentDescription)
    offset_entries: list[OffsetEntry] = array(OffsetEntry)
    time_entries: list[TimeEntry] = array(TimeEntry)
    is_cut: bool = boolean()
    """Whether the log has more segments, or an index has more entries."""
