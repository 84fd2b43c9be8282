"""Fixtures: partitions with a real log on a disk in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.log_config import LogConfig
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings

KEY = TopicPartition("flights", 0)


@pytest.fixture
def disk() -> MemDisk:
    return MemDisk("/data")


@pytest.fixture
def open_log(disk: MemDisk) -> Callable[..., Log]:
    def open_it(config: LogConfig | None = None, *, was_clean: bool = False, recovery_point: int = 0) -> Log:
        settings = config or log_settings()
        return Log.open(disk, f"/data/{KEY}", KEY, settings, now_ms=1_000, was_clean=was_clean, recovery_point=recovery_point)

    return open_it


@pytest.fixture
def alone(open_log: Callable[..., Log]) -> Partition:
    """Returns a leader without followers."""
    partition = Partition(open_log(), broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    return partition
