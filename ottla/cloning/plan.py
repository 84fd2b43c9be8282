"""The plan of a clone: topics, offsets to copy, settings and committed offsets, as they were at the source when the clone began.

It is stored before the first record is copied, so that a clone continues after a kill with the same bounds. When all records are copied, it
gets the ends of the copies.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ottla.adapters.disk import OsDisk
from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.storage.small_files import write_atomically

PLAN_FILE = "clone.json"
VERSION = 1


class CloneError(OttlaError):
    """A clone cannot be made, or cannot continue. The message is one line that says what to do."""


@dataclass(slots=True)
class PartitionPlan:
    """The offsets to copy, `end` excluded. `leader_epoch` is the source's at the beginning."""

    start: int
    end: int
    leader_epoch: int


@dataclass(slots=True)
class TopicPlan:
    """The plan of one topic. `topic_id` is in hexadecimal digits. `settings` are the topic's own settings, without defaults."""

    name: str
    topic_id: str
    settings: dict[str, str]
    partitions: list[PartitionPlan]


@dataclass(slots=True)
class OffsetPlan:
    """The committed offset of a group in a partition."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(slots=True)
class ClonePlan:
    """`request` describes the options of the clone; a clone with other options starts over. `has_fixed_end` is False if partitions are
    copied up to their current ends. `is_ending`: all records up to the ends of the plan were copied; batches after these ends are markers
    of the clone.
    """

    request: str
    cluster_id: str
    has_fixed_end: bool
    is_ending: bool = False
    topics: list[TopicPlan] = field(default_factory=list)
    offsets: list[OffsetPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def partitions(self) -> list[tuple[TopicPlan, TopicPartition, PartitionPlan]]:
        """Returns every partition with its topic, its name and its bounds."""
        return [
            (topic, TopicPartition(topic.name, number), bounds) for topic in self.topics for number, bounds in enumerate(topic.partitions)
        ]


def write_plan(directory: Path, plan: ClonePlan) -> None:
    """Stores the plan durably. Raises `StorageError`."""
    write_atomically(OsDisk(), str(directory / PLAN_FILE), json.dumps({"version": VERSION, **asdict(plan)}).encode())


def read_plan(directory: Path) -> ClonePlan | None:
    """Returns the stored plan. Returns None if there is none, or if it cannot be read: then the clone starts over."""
    try:
        found: dict[str, Any] = json.loads((directory / PLAN_FILE).read_bytes())
        if found.pop("version") != VERSION:
            return None
        topics = [
            TopicPlan(one["name"], one["topic_id"], one["settings"], [PartitionPlan(**part) for part in one["partitions"]])
            for one in found.pop("topics")
        ]
        return ClonePlan(topics=topics, offsets=[OffsetPlan(**one) for one in found.pop("offsets")], **found)
    except (OSError, ValueError, KeyError, TypeError):
        return None
