"""Checks that the records of a target are the beginning of the source's, before a mirror continues.

The end of the target must be in the source's log, and the last record of the target must be the source's record of the same offset. So an
unclean election at the source, which has replaced records, is found, and a topic that is not of this source.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.admin import EARLIEST, LATEST
from ottla.client.errors import OffsetOutOfRangeError
from ottla.cloning.plan import CloneError
from ottla.wire.records import Record

ALL = "read_uncommitted"
LOOK_BACK = (1, 32, 1024, 32_768)
"""How many offsets before the end the last record is looked for. Markers, aborted and compacted records take offsets without a record."""


def check_is_prefix(source: Client, target: Client, partitions: Sequence[TopicPartition]) -> None:
    """Raises `CloneError` for the first partition whose records are not the beginning of the source's, and `ClientError`."""
    ends = target.list_offsets(dict.fromkeys(partitions, LATEST), isolation=ALL)
    starts = target.list_offsets(dict.fromkeys(partitions, EARLIEST))
    source_ends = source.list_offsets(dict.fromkeys(partitions, LATEST), isolation=ALL)
    for partition in partitions:
        end, source_end = ends[partition].offset, source_ends[partition].offset
        if end > source_end:
            raise CloneError(
                f"{partition} ends at offset {end} at the target and at {source_end} at the source: the target has records that the source "
                "does not have"
            )
        last = last_record(target, partition, starts[partition].offset, end)
        if last is not None and not _has(source, partition, last):
            raise CloneError(f"{partition} has another record at offset {last.offset} at the target than at the source")


def last_record(client: Client, partition: TopicPartition, start: int, end: int) -> Record | None:
    """Returns the last record before `end`. Returns None if none of the last 32,768 offsets has a record."""
    for offsets in LOOK_BACK:
        begin = max(start, end - offsets)
        found = None
        for fetched in client.read(partition, begin, end, isolation=ALL) if begin < end else ():
            for record in fetched.records():
                found = record if record.offset < end else found
        if found is not None or begin == start:
            return found
    return None


def _has(client: Client, partition: TopicPartition, record: Record) -> bool:
    """Whether the log has this record. A source that has deleted or compacted it is believed."""
    try:
        for fetched in client.read(partition, record.offset, record.offset + 1, isolation=ALL):
            for one in fetched.records():
                if one.offset == record.offset:
                    return one == record
    except OffsetOutOfRangeError:
        pass
    return True
