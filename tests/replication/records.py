"""Batches, partitions and requests that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.replication.appended import AppendResult
from ottla.replication.partition import Partition
from ottla.replication.progress import FollowerFetch
from ottla.replication.reads import PartitionRead
from ottla.storage.log import Log
from ottla.wire.records import Record, encode_batch, iter_batches, read_records
from tests.fakes.log_settings import log_settings

NOW = 1_000
OpenLog = Callable[..., Log]


def batch(
    *values: str, sequence: int = -1, epoch: int = -1, producer_id: int = -1, is_transactional: bool = False, codec: int = 0
) -> memoryview:
    records = [Record(0, NOW, None, value.encode()) for value in values]
    return memoryview(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
            codec=codec,
        )
    )


def mine(*values: str, sequence: int, epoch: int = 0, is_transactional: bool = False, producer_id: int = 7) -> memoryview:
    return batch(*values, sequence=sequence, epoch=epoch, producer_id=producer_id, is_transactional=is_transactional)


def append(partition: Partition, data: memoryview, *, acks: int = 1, **more: object) -> AppendResult:
    return partition.require_leading().append(data, acks=acks, now_ms=NOW, **more)  # type: ignore[arg-type]


def refusal(function: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        function()
    return caught.value.code


def values(partition: Partition, offset: int = 0, *, isolation: int = 0) -> list[str]:
    """Returns the values that a consumer reads from `offset` on, including values of aborted transactions."""
    found = []
    while True:
        read = partition.read(offset, 1 << 20, isolation=isolation)
        if read.slice is None:
            return found
        data = read.slice.read()
        for position, header in iter_batches(data):
            if not header.is_control:
                found += [(record.value or b"").decode() for record in read_records(data[position:]) if record.offset >= offset]
            offset = header.next_offset


def three(open_log: OpenLog, *, min_insync: int = 2, isr: tuple[int, ...] = (1, 2, 3)) -> Partition:
    partition = Partition(open_log(log_settings(min_insync_replicas=min_insync)), broker_id=1)
    partition.become_leader(leader_epoch=4, partition_epoch=10, replicas=[1, 2, 3], isr=isr, now_ms=0)
    return partition


def fetch(
    partition: Partition,
    replica_id: int,
    offset: int,
    *,
    now_ms: int = 0,
    epoch: int = 4,
    replica_epoch: int = 1,
    log_start_offset: int = -1,
) -> PartitionRead:
    """Records the progress of a follower's fetch, and returns the result of the read."""
    follower_fetch = FollowerFetch(replica_id, replica_epoch, offset, log_start_offset, now_ms)
    return partition.read_as_follower(follower_fetch, 1 << 20, current_leader_epoch=epoch)
