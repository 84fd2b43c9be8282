"""Moves of replicas: reassignment files in Kafka's format, which name the replicas of each partition, and the steps of a move.

`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}]}`. `log_dirs` is optional; for
`any` the broker chooses the directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import UsageError
from ottla.cli.input_files import read_json
from ottla.cli.render.rows import Row
from ottla.client.core.replica_admin import Replica

LogDirs = Mapping[Replica, tuple[str, str]]
"""The directory of each replica, and the directory that it is moved to (or an empty text)."""


class MovePlan(NamedTuple):
    """The content of a file: the replicas of each partition, and the log directories that it names."""

    replicas: dict[TopicPartition, list[int]]
    log_dirs: dict[Replica, str]

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.replicas})


def read_entries(path: str) -> list[dict[str, Any]]:
    tree = read_json(path)
    entries = tree.get("partitions") if isinstance(tree, dict) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f'{path} is not {{"version": 1, "partitions": [...]}}')
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str) or not _is_number(entry.get("partition")):
            raise UsageError(f"{path}, entry {number}: needs topic and partition, not {json.dumps(entry)[:80]}")
    return entries


def _is_number(value: object) -> bool:
    """Whether the value is an integer from 0 to 2^31 - 1."""
    return type(value) is int and 0 <= value < 2**31


def read_plan(path: str) -> MovePlan:
    plan = MovePlan({}, {})
    for number, entry in enumerate(read_entries(path), 1):
        replicas, dirs = entry.get("replicas"), entry.get("log_dirs")
        if not isinstance(replicas, list) or not replicas or not all(_is_number(found) for found in replicas):
            raise UsageError(f"{path}, entry {number}: needs replicas, a list of broker ids")
        if len(set(replicas)) != len(replicas):
            raise UsageError(f"{path}, entry {number}: names a broker twice")
        if dirs is not None and (not isinstance(dirs, list) or len(dirs) != len(replicas) or not all(type(found) is str for found in dirs)):
            raise UsageError(f"{path}, entry {number}: needs as many log_dirs as replicas, each a path or any")
        partition = TopicPartition(entry["topic"], entry["partition"])
        if partition in plan.replicas:
            raise UsageError(f"{path} names {partition} twice")
        plan.replicas[partition] = replicas
        plan.log_dirs.update(
            {Replica(partition, broker): path for broker, path in zip(replicas, dirs or (), strict=False) if path != "any"}
        )
    return plan


def tree(plan: Mapping[TopicPartition, Sequence[int]], lie: LogDirs) -> dict[str, Any]:
    """The plan as Kafka's tool writes it, with the known directories."""
    entries = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(replicas),
            "log_dirs": [lie.get(Replica(key, broker), ("any", ""))[0] for broker in replicas],
        }
        for key, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": entries}


def as_json(plan: Mapping[TopicPartition, Sequence[int]], lie: LogDirs) -> str:
    return json.dumps(tree(plan, lie), separators=(",", ":"))


# The steps of moving. Kafka's tool prints them (`kafka_tools/partitions_output.py`); ours shows the result.


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
