"""The steps of moving replicas. Kafka's tool prints them (`kafka_tools/partitions_output.py`); ours shows the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.render.rows import Row
from ottla.client.core.replica_admin import Replica

LogDirs = Mapping[Replica, tuple[str, str]]
"""The directory of each replica, and the directory that it is moved to (or an empty text)."""


class MoveRow(Row):
    """A partition that is being moved."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Planned(NamedTuple):
    """The replicas before the move, and the throttles. `log_dirs` asks the brokers for the directories."""

    before: Mapping[TopicPartition, Sequence[int]]
    rate: int | None
    log_dir_rate: int | None
    log_dirs: Callable[[], LogDirs]


class Started(NamedTuple):
    """The moves between brokers were requested."""

    partitions: Sequence[TopicPartition]
    errors: Mapping[TopicPartition, ErrorCode]


class LogDirsStarted(NamedTuple):
    """The moves between directories of a broker were requested."""

    replicas: Sequence[Replica]


class Verified(NamedTuple):
    """The wanted state of a plan beside the current one."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    now: Mapping[TopicPartition, Sequence[int]]
    moving: Collection[TopicPartition]
    log_dirs: Mapping[Replica, str]
    found: LogDirs


class Cancelled(NamedTuple):
    """The moves of these partitions were cancelled."""

    partitions: Sequence[TopicPartition]


class Cleared(NamedTuple):
    """The throttles of these brokers and topics are removed."""

    brokers: Sequence[int]
    topics: Sequence[str]
