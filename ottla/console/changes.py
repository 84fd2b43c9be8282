"""Finds elections and changes of the in-sync replicas, by comparing the metadata of all topics with the previous metadata.

It works with any Kafka. The snapshot asks for the metadata every `METADATA_EVERY_S`. If a change is reversed between two requests, only the
leader epoch shows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ottla.wire.messages.metadata import MetadataResponseTopic

CHANGES_MAX = 500
"""Changes kept in memory, the newest ones."""


class Change(NamedTuple):
    """A change that was seen at `at_s` (seconds since 1970)."""

    at_s: float
    partition: str
    what: str
    before: str
    after: str


class Changes:
    """The changes since the console's start, the oldest first."""

    def __init__(self) -> None:
        self.seen: deque[Change] = deque(maxlen=CHANGES_MAX)
        self._before: dict[tuple[str, int], tuple[int, int, frozenset[int]]] = {}

    def note(self, at_s: float, topics: Mapping[str, MetadataResponseTopic]) -> None:
        """Compares each partition with the previous metadata. A new partition is not a change."""
        now = {
            (name, one.partition_index): (one.leader_id, one.leader_epoch, frozenset(one.isr_nodes))
            for name, topic in topics.items()
            for one in topic.partitions
        }
        for (name, partition), (leader, epoch, in_sync) in now.items() - self._before.items():
            before = self._before.get((name, partition))
            if before is None:
                continue
            place = f"{name}-{partition}"
            if (leader, epoch) != before[:2]:
                what = "offline" if leader < 0 else "election"
                self.seen.append(Change(at_s, place, what, f"leader {before[0]}, epoch {before[1]}", f"leader {leader}, epoch {epoch}"))
            if in_sync != before[2]:
                what = "fewer in sync" if len(in_sync) < len(before[2]) else "more in sync"
                self.seen.append(Change(at_s, place, what, _numbers(before[2]), _numbers(in_sync)))
        self._before = now


def _numbers(brokers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
