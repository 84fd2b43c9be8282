"""Reads of a partition: records for consumers and followers, offsets by time, and the divergence of two logs.

Consumers read up to the high watermark. With read_committed they read up to the last stable offset and get the list of aborted transactions
that overlap the records. Followers read to the log end. Reads change nothing.

Invariants: a read_committed consumer gets nothing at or above the last stable offset (I24). A read from an offset outside of the log raises
OFFSET_OUT_OF_RANGE. A read from an offset in the log that is not visible yet returns no records. The list of aborted transactions covers
the records read, and possibly a few batches more; a read is shortened if the list would be long.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, READ_COMMITTED
from ottla.replication.state import PartitionState
from ottla.storage.file_slice import FileSlice
from ottla.storage.log import Log
from ottla.storage.time_search import TimeSearch

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

ABORTED_MAX = 5_000
"""Maximum number of aborted transactions in an answer. A read_committed read with more of them ends before the first surplus transaction
begins. A read of one batch is not shortened, and may have more."""

_new_tuple = tuple.__new__
_base_offset = attrgetter("base_offset")


class PartitionRead(NamedTuple):
    """The result of a read. `aborted` (producer id, first offset) is for read_committed, `diverging_epoch` (epoch, end offset) for
    followers."""

    slice: FileSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    diverging_epoch: tuple[int, int] | None


def read_as_consumer(state: PartitionState, offset: int, bytes_max: int, isolation: int, min_one: bool) -> PartitionRead:
    log = state.log
    high_watermark = state.high_watermark
    stable = state.last_stable_offset
    end = stable if isolation == READ_COMMITTED else high_watermark
    found: FileSlice | None = None
    aborted: list[tuple[int, int]] | None = None
    if offset < end:
        if state.damage is not None:
            bytes_max = state.damage.limit_read(log, offset, bytes_max)
        found = log.read(offset, bytes_max, end_offset=end, min_one=min_one)
        if found is not None and isolation == READ_COMMITTED:
            aborted = _aborted(log, found, offset, end)
            if len(aborted) > ABORTED_MAX:
                end = max(sorted(first for _, first in aborted)[ABORTED_MAX], offset + 1)
                found = log.read(offset, found.length, end_offset=end) or found
                aborted = _aborted(log, found, offset, end)
    elif offset > log.log_end_offset:
        raise _out_of_range(state, offset)
    read: PartitionRead = _new_tuple(PartitionRead, (found, high_watermark, stable, log.log_start_offset, aborted, None))
    return read


def _aborted(log: Log, found: FileSlice, offset: int, end: int) -> list[tuple[int, int]]:
    """Returns the aborted transactions that overlap the read records. The search ends at the first index entry after the records, so that a
    reader far behind does not get all transactions of the log.
    """
    segments, segment = log.segments, log.active
    if offset < segment.base_offset:
        # The slice may be in a later segment than the offset, if compaction has removed the end of a segment.
        number = bisect_right(segments, offset, key=_base_offset)
        while number < len(segments) and segments[number - 1].shared is not found.shared:
            number += 1
        segment = segments[number - 1]
        if number < len(segments):
            end = min(end, segments[number].base_offset)
    elif not segment.has_aborted:
        return []
    if segment.shared is found.shared:
        segment.load_indexes()
        behind = segment.index.offset_from(found.position + found.length)
        if behind >= 0:
            end = min(end, segment.base_offset + behind)
    return log.aborted_transactions(offset, end)


def read_as_follower(state: PartitionState, offset: int, bytes_max: int, min_one: bool) -> PartitionRead:
    log = state.log
    end = log.log_end_offset
    if not log.log_start_offset <= offset <= end:
        raise _out_of_range(state, offset)
    if state.damage is not None and offset < end:
        bytes_max = state.damage.limit_read(log, offset, bytes_max)
    found = log.read(offset, bytes_max, end_offset=end, min_one=min_one) if offset < end else None
    read: PartitionRead = _new_tuple(
        PartitionRead, (found, state.high_watermark, state.last_stable_offset, log.log_start_offset, None, None)
    )
    return read


def nothing_but(state: PartitionState, diverging_epoch: tuple[int, int] | None) -> PartitionRead:
    """Returns high watermark, last stable offset and log start, without records. `diverging_epoch` is where the reader's log diverges; None
    if the logs do not diverge."""
    return PartitionRead(None, state.high_watermark, state.last_stable_offset, state.log.log_start_offset, None, diverging_epoch)


def find_divergence(state: PartitionState, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Returns the divergence of the reader's log from this one as (epoch, end offset); None if this log has the record before `offset` in
    `last_fetched_epoch` too. Raises `ApiError` OFFSET_OUT_OF_RANGE if `last_fetched_epoch` is newer than every epoch of this log, if the
    log knows no epoch, or if it starts after the offset.
    """
    log = state.log
    led_epoch = state.leader_epoch if state.leader_id == state.broker_id else NO_LEADER_EPOCH
    epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset, led_epoch)
    if epoch < 0 or end_offset < 0 or offset < log.log_start_offset:
        message = f"{state.topic_partition} has no offset {offset} in epoch {last_fetched_epoch}"
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None


def list_offset(
    state: PartitionState, epoch_start_offset: int, timestamp: int, isolation: int, search: TimeSearch | None = None
) -> tuple[int, int, int]:
    """Returns (timestamp, offset, leader epoch), or (-1, -1, -1) if nothing is found. There is no tiered storage, so -5 and -6 find
    nothing. Raises `SearchPaused` if the search is not allowed to finish in one step. Raises `ApiError` UNSUPPORTED_VERSION for another
    special timestamp, and OFFSET_NOT_AVAILABLE while a new leader's high watermark is behind its epoch (KIP-207)."""
    log = state.log
    visible_end = state.last_stable_offset if isolation == READ_COMMITTED else state.high_watermark
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return NO_TIMESTAMP, start, log.epochs.epoch_at(start) if start < log.log_end_offset else state.leader_epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH
    if timestamp < MAX_TIMESTAMP:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there is no special timestamp {timestamp}")
    # A new leader's watermark may be behind until it reaches the leader's own epoch; until then "latest" might decrease (KIP-207).
    is_settled = visible_end >= epoch_start_offset or state.high_watermark >= epoch_start_offset
    if timestamp == LATEST:
        if not is_settled:
            raise _not_available(state)
        return NO_TIMESTAMP, visible_end, state.leader_epoch
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset(search)
    else:
        found = log.offset_for_timestamp(timestamp, end_offset=visible_end, search=search)
    if found is not None and found[1] < visible_end:
        return found
    if not is_settled:
        raise _not_available(state)
    return NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH


def _out_of_range(state: PartitionState, offset: int) -> ApiError:
    log = state.log
    message = f"offset {offset} of {state.topic_partition}, which reaches from {log.log_start_offset} to {log.log_end_offset}"
    return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)


def _not_available(state: PartitionState) -> ApiError:
    message = f"{state.topic_partition} has a new leader, and its high watermark has not reached epoch {state.leader_epoch} yet"
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
