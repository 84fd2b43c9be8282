"""Appends batches of another cluster's partition to a partition that is led here, with their offsets and leader epochs.

The topic's `ottla.mirror.source` names the source. While it is set, clients cannot write (`mirror_rules.py`), and the batches are the
source's, byte for byte. They are appended only if the log ends where the sender expects it. So a request that is repeated, late or sent by
a second mirror changes nothing, and the log's end says where a mirror continues.

Invariant: leader epochs in the log never decrease, and this partition's own leader epoch is larger than every epoch of the source
(`ottla.leader.epoch.min`). So records that are written here after the mirroring have larger epochs, and no consumer knows a newer epoch
than the metadata has. An append that would break this is refused with UNKNOWN_LEADER_EPOCH.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, StorageError, WireError
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.wire.batch_header import iter_batches


def append_mirrored(
    partition: Partition, leader: Leader, batches: memoryview, *, source: str, expected_end: int, source_log_start: int
) -> None:
    """Appends the batches, and deletes the records before `source_log_start`. Raises `ApiError`: INVALID_REQUEST if the topic does not
    mirror `source`, OFFSET_OUT_OF_RANGE if the log does not end at `expected_end`, UNKNOWN_LEADER_EPOCH for an epoch of the source that is
    not smaller than the leader's, CORRUPT_MESSAGE for invalid batches, NOT_ENOUGH_REPLICAS."""
    log, name = leader.log, partition.topic_partition
    if not source or log.config.mirror_source != source:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name.topic!r} does not mirror {source!r}; it is not mirrored, or has another source")
    leader.require_in_sync()
    if expected_end != log.log_end_offset:
        message = f"{name} ends at offset {log.log_end_offset}, and the mirror expected {expected_end}"
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    try:
        if source_log_start > log.log_end_offset:
            # The source has deleted all records up to there. The followers restart their logs, too.
            log.truncate_fully_and_start_at(source_log_start)
            partition.state.keep_log_start()
            partition.state.note_truncated(source_log_start)
        if len(batches):
            _append(partition, leader, batches)
    except StorageError as error:
        raise partition.fail(error) from error
    if source_log_start > log.log_start_offset:
        leader.delete_records(min(source_log_start, partition.high_watermark))


def _append(partition: Partition, leader: Leader, batches: memoryview) -> None:
    log, before = leader.log, leader.log.log_end_offset
    try:
        newest = max((header.partition_leader_epoch for _, header in iter_batches(batches)), default=-1)
        if newest >= leader.epoch:
            message = f"{log.topic_partition} has leader epoch {leader.epoch}, which has to be larger than the source's {newest}"
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        log.append_as_follower(batches, newest)
    except WireError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{log.topic_partition}: no whole batches: {error}") from None
    leader.traffic.messages_in += log.log_end_offset - before
    leader.traffic.bytes_in += len(batches)
    if log.log_end_offset >= log.flush_offset:
        partition.request_flush()
    partition.state.ask_flush()
    leader.advance_high_watermark()
    partition.state.notify()
