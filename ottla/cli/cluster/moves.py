"""Partition reassignments: files in Kafka's format with the replicas of each partition, and the steps that are reported.

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
"""The current directory of each replica and the target directory of its move (an empty text without a move)."""


class MovePlan(NamedTuple):
    """The content of a file: the replicas of each partition, and the log directory of each replica that has one other than `any`."""

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
    """Returns whether the value is an integer from 0 to 2^31 - 1."""
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
    """Returns the plan in Kafka's file format. A replica with an unknown directory has `any`."""
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


# The steps of a move. `kafka-reassign-partitions` prints each step (`kafka_tools/partitions_output.py`), ours only the result.


class MoveRow(Row):
    """A partition that is being moved."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Planned(NamedTuple):
    """Before the move: the current replicas and the throttles in bytes/s. Calling `log_dirs` asks the brokers for the directories."""

    before: Mapping[TopicPartition, Sequence[int]]
    rate: int | None
    log_dir_rate: int | None
    log_dirs: Callable[[], LogDirs]


class Started(NamedTuple):
    """Moves between brokers were requested. `errors` has the refused partitions."""

    partitions: Sequence[TopicPartition]
    errors: Mapping[TopicPartition, ErrorCode]


class LogDirsStarted(NamedTuple):
    """Moves between directories of a broker were requested for these replicas."""

    replicas: Sequence[Replica]


class Verified(NamedTuple):
    """The replicas and directories of a plan (`replicas`, `log_dirs`) and the current ones (`now`, `found`)."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    now: Mapping[TopicPartition, Sequence[int]]
    moving: Collection[TopicPartition]
    log_dirs: Mapping[Replica, str]
    found: LogDirs


class Cancelled(NamedTuple):
    """The moves of these partitions were cancelled."""

    partitions: Sequence[TopicPartition]


class Cleared(NamedTuple):
    """The throttles of these brokers and topics are about to be removed."""

    brokers: Sequence[int]
    topics: Sequence[str]
