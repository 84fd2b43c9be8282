"""Checks that batches fetched from the leader may be appended as they are.

All batches of an answer are checked before the first one is written. They must have magic 2 and the right CRC. Offsets must begin at or
after the log's end and strictly increase; gaps are legal, because compaction makes them. Leader epochs must not decrease nor exceed the
leader's current epoch (I1, I4, I16). Otherwise CORRUPT_MESSAGE is raised, and nothing is appended. `replication/follower.py` handles the
refusal.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.wire.batch_header import ATTRIBUTES_AT, LOG_OVERHEAD, MAGIC, BatchHeader, iter_batches
from ottla.wire.checksum import crc32c

ANY_EPOCH = (1 << 31) - 1


def judge_followed(
    topic_partition: TopicPartition, batches: memoryview, *, next_offset: int, epoch: int, epoch_max: int = ANY_EPOCH
) -> list[tuple[int, BatchHeader]]:
    """Returns (position, header) of each whole batch. An incomplete batch at the end is ignored; the next fetch gets it again. Raises
    `ApiError`, and `WireError` for an impossible length field.
    """
    headers = list(iter_batches(batches))
    for position, header in headers:
        base_offset, batch_epoch, last_offset_delta = header[0], header[2], header[6]
        if header[3] != MAGIC or crc32c(batches[position + ATTRIBUTES_AT : position + LOG_OVERHEAD + header[1]]) != header[4]:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent a damaged batch at offset {base_offset}")
        if base_offset < next_offset or last_offset_delta < 0 or batch_epoch < epoch:
            message = f"a batch at offset {base_offset} of epoch {batch_epoch}, the log ends at offset {next_offset} in epoch {epoch}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent {message}")
        if batch_epoch > epoch_max:
            message = f"a batch at offset {base_offset} of epoch {batch_epoch}, which is newer than its own epoch {epoch_max}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent {message}")
        next_offset, epoch = base_offset + last_offset_delta + 1, batch_epoch
    return headers
