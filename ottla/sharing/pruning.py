"""Raises the start of `__share_group_state`, only after the snapshots that replace the removed records are synced.

Records before the oldest needed snapshot are redundant only while that snapshot exists. A crash can remove the unsynced end of a log, and
the snapshot with it. Pruning therefore has two rounds. The first round notes the offset and the end of the log, and requests a sync. The
next round raises the log start to the noted offset, if the log is synced up to the noted end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import ApiError, StorageError


class PrunedLog(Protocol):
    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is synced."""


class PrunedPartition(Protocol):
    """The leader of the partition, for one term of leadership (`replication/leader.py`)."""

    @property
    def log(self) -> PrunedLog: ...

    def delete_records(self, offset: int) -> int:
        """Raises the start of the log; raises `ApiError`."""


class Pruner:
    """Prunes one partition. The machine calls it periodically with the current end of the redundant records."""

    __slots__ = ("_flush", "_partition", "_redundant_end", "_synced_end")

    def __init__(self, partition: PrunedPartition, flush: Callable[[], object]) -> None:
        self._partition = partition
        self._flush = flush
        self._redundant_end = 0
        self._synced_end = 0

    def __call__(self, redundant_end: int) -> None:
        log = self._partition.log
        if self._redundant_end > log.log_start_offset and log.recovery_point >= self._synced_end:
            try:
                self._partition.delete_records(self._redundant_end)
            except (ApiError, StorageError):
                return  # no longer the leader, or a disk failure; the next leader prunes
        self._redundant_end, self._synced_end = redundant_end, log.log_end_offset
        if redundant_end > log.log_start_offset and log.recovery_point < self._synced_end:
            self._flush()
