"""The beginning of the log is removed only when the records that make it redundant are synced."""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.sharing.pruning import Pruner


class Log:
    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.recovery_point = 0


class Partition:
    def __init__(self) -> None:
        self.log = Log()
        self.flushes = 0
        self.is_leading = True

    def flush(self) -> None:
        self.flushes += 1

    def delete_records(self, offset: int) -> int:
        if not self.is_leading:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.log.log_start_offset = offset
        return offset


def test_first_the_tail_is_synced_then_the_head_goes() -> None:
    partition = Partition()
    prune = Pruner(partition, partition.flush)
    partition.log.log_end_offset = 10
    prune(7)
    assert (partition.flushes, partition.log.log_start_offset) == (1, 0)
    partition.log.recovery_point = 9
    prune(7)
    assert (partition.flushes, partition.log.log_start_offset) == (2, 0), "offset 9 is not safe yet"
    partition.log.log_end_offset, partition.log.recovery_point = 12, 10
    prune(8)
    assert (partition.flushes, partition.log.log_start_offset) == (3, 7), "what the round before has found"


def test_nothing_to_prune_needs_no_sync() -> None:
    partition = Partition()
    prune = Pruner(partition, partition.flush)
    partition.log.log_end_offset = 10
    prune(0)
    prune(0)
    assert (partition.flushes, partition.log.log_start_offset) == (0, 0)


def test_a_partition_that_is_led_elsewhere_keeps_its_records() -> None:
    partition = Partition()
    prune = Pruner(partition, partition.flush)
    partition.log.log_end_offset = partition.log.recovery_point = 10
    prune(7)
    partition.is_leading = False
    prune(8)
    assert partition.log.log_start_offset == 0
