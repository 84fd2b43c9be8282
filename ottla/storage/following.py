"""Checks that batches fetched from the leader may be appended as they are.

All batches of an answer are checked before the first one is written. They must have magic 2 and the right CRC. Offsets must begin at or
after the log's end and strictly increase; gaps are legal, because compaction makes them. Leader epochs must not decrease nor exceed the
leader's current epoch (I1, I4, I16). Otherwise CORRUPT_MESSAGE is raised, and nothing is appended. Left out: what the follower does then
(`replication/follower.py`).
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.wire.batch_header import MAGIC, BatchHeader, check_crc, iter_batches

ANY_EPOCH = (1 << 31) - 1


def judge_followed(
    topic_partition: TopicPartition, batches: memoryview, *, next_offset: int, epoch: int, epoch_max: int = ANY_EPOCH
) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each whole batch. An incomplete batch at the end is ignored; the next fetch gets it again. Raises
    `ApiError`, and `WireError` for an impossible length field.
    """
    headers = list(iter_batches(batches))
    for position, header in headers:
        if header.magic != MAGIC or not check_crc(batches, position, header.size_bytes):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent a damaged batch at offset {header.base_offset}")
        if header.base_offset < next_offset or header.last_offset_delta < 0 or header.partition_leader_epoch < epoch:
            sent = f"a batch at offset {header.base_offset} of epoch {header.partition_leader_epoch}"
            message = f"{sent}, the log ends at offset {next_offset} in epoch {epoch}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent {message}")
        if header.partition_leader_epoch > epoch_max:
            sent = f"a batch at offset {header.base_offset} of epoch {header.partition_leader_epoch}"
            message = f"{sent}, which is newer than its own epoch {epoch_max}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent {message}")
        next_offset, epoch = header.next_offset, header.partition_leader_epoch
    return headers
