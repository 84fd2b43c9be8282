"""Checks that batches fetched from the leader may be appended as they are.

All are judged before the first is written: whole batches of magic 2 with the right CRC, offsets that begin at or after the log's end and
strictly increase (a gap is legal: compaction and transactions leave them), leader epochs that never go back and are not above the epoch of
the leader (I1, I4, I16). A leader that sends anything else is refused with CORRUPT_MESSAGE, and nothing is appended. Left out: what the
follower does then (`replication/follower.py`).
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.wire.batch_header import MAGIC, BatchHeader, check_crc, iter_batches

ANY_EPOCH = (1 << 31) - 1


def judge_followed(
    topic_partition: TopicPartition, batches: memoryview, *, next_offset: int, epoch: int, epoch_max: int = ANY_EPOCH
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; a cut off one at the end is left for the next fetch."""
    headers = list(iter_batches(batches))
    for position, header in headers:
        if header.magic != MAGIC or not check_crc(batches, position, header.size_bytes):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent a damaged batch at offset {header.base_offset}")
        if header.base_offset < next_offset or header.last_offset_delta < 0 or header.partition_leader_epoch < epoch:
            message = f"offset {header.base_offset} of epoch {header.partition_leader_epoch}, here are {next_offset} and {epoch}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent {message}")
        if header.partition_leader_epoch > epoch_max:
            message = f"a batch at offset {header.base_offset} of epoch {header.partition_leader_epoch}, and leads in epoch {epoch_max}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the leader sent {message}")
        next_offset, epoch = header.next_offset, header.partition_leader_epoch
    return headers
