"""Checks that the records of a target are the beginning of the source's log, before a mirror continues.

The end of the target must be in the source's log, and the last record of the target must be the source's record of the same offset. The
check finds an unclean election at the source that has replaced records, and a target topic with records of another source.
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
    """Raises `CloneError` for the first partition whose records are not the beginning of the source's log, and `ClientError` if a cluster
    does not answer.
    """
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
    """Whether the log has this record. Returns True if the source has deleted or compacted the record, because it can no longer be
    compared.
    """
    try:
        for fetched in client.read(partition, record.offset, record.offset + 1, isolation=ALL):
            for one in fetched.records():
                if one.offset == record.offset:
                    return one == record
    except OffsetOutOfRangeError:
        pass
    return True
