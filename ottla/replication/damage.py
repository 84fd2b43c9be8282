"""The damaged ranges of an open log. Reads of these ranges are refused; all other records are served.

A read that starts before a damaged range ends at the range. A read that starts within it is refused. The error is KAFKA_STORAGE_ERROR while
another replica may repair the range, because clients then look for the leader and retry. It is CORRUPT_MESSAGE, which clients report, if no
other replica has the records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from ottla.base.errors import ApiError, ErrorCode
from ottla.storage.log import Log
from ottla.storage.segment_check import DamagedRange

_base_offset = attrgetter("base_offset")


class Damage:
    """The damaged ranges of one log, in the order of their offsets."""

    __slots__ = ("is_final", "ranges")

    def __init__(self, ranges: Iterable[DamagedRange], *, is_final: bool = False) -> None:
        self.ranges = tuple(sorted(ranges, key=attrgetter("first_offset")))
        self.is_final = is_final
        """Whether no other replica is known that could repair the ranges."""

    def limit_read(self, log: Log, offset: int, bytes_max: int) -> int:
        """Returns how many bytes may be read from `offset` on, at most `bytes_max`. Raises `ApiError` if the offset is damaged,
        `StorageError` like `Log.read`.
        """
        number = bisect_right(log.segments, offset, key=_base_offset) - 1
        if number < 0:
            return bytes_max  # the read itself reports OFFSET_OUT_OF_RANGE
        while number < len(log.segments):
            segment = log.segments[number]
            near = [found for found in self.ranges if found.base_offset == segment.base_offset]
            self._refuse(log, offset, near, -1)
            position = segment.position_of(offset)
            if position < segment.size:
                self._refuse(log, offset, near, position)
                return min([bytes_max, *(found.position - position for found in near if found.position > position)])
            number += 1  # compaction has removed the end of this segment, so the offset is in the next one
        return bytes_max

    def _refuse(self, log: Log, offset: int, near: list[DamagedRange], position: int) -> None:
        for found in near:
            if found.first_offset <= offset < found.end_offset or found.position <= position < found.end_position:
                code = ErrorCode.CORRUPT_MESSAGE if self.is_final else ErrorCode.KAFKA_STORAGE_ERROR
                message = f"offsets {found.first_offset} to {found.end_offset - 1} of {log.topic_partition} are damaged"
                raise ApiError(code, message)
