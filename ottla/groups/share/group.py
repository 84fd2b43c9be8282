"""The state of one share group (KIP-932): for which partitions something is remembered.

A partition may have many readers, so no member waits for another: it has its whole target with its next heartbeat.

What became of the records of a partition is remembered by a share coordinator, once it is asked to begin. `initializing` holds the
partitions for which it has not said yet that it did, `initialized` the others, `deleting` the topics that it is asked to forget. Only
initialized partitions are assigned.

Invariants: a partition is initializing, initialized or neither, never both.
"""

from __future__ import annotations

from collections.abc import Collection, KeysView, Mapping
from typing import NamedTuple

from ottla.base.share_state import SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.groups.modern.group import EpochGroup
from ottla.groups.states import GroupType

SHARE_PROTOCOL_TYPE = "share"
TOPIC_BYTES, PARTITION_BYTES = 400, 40
"""What a topic that something is remembered of takes in memory beside the letters of its name, and each of its partitions."""
COUNTED_SUBSCRIPTIONS = 8
"""From so many different subscriptions on it is kept how many of them have a topic: with each heartbeat that changes something it would
be their sum to look at."""


class ShareFacts(NamedTuple):
    """What a member says of itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


class SharePosition(NamedTuple):
    """What a member has, and which epoch it has reached."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Mapping[Uuid, tuple[int, ...]] = {}


class TopicShare(NamedTuple):
    """Partitions of a topic, in ascending order, that a share coordinator knows or is to know."""

    name: str
    partitions: tuple[int, ...]


class StateTopics(NamedTuple):
    """What share coordinators were asked about the group's partitions, by topic id."""

    initializing: Mapping[Uuid, TopicShare] = {}
    initialized: Mapping[Uuid, TopicShare] = {}
    deleting: Mapping[Uuid, str] = {}


NO_STATE = StateTopics()


class ShareGroup(EpochGroup[ShareFacts, SharePosition]):
    """One group. `set_*` and `remove_*` are the folds of its records."""

    __slots__ = ("_counts", "state_topics")

    type = GroupType.SHARE
    protocol_type = SHARE_PROTOCOL_TYPE
    word = "share"
    fields = (*EpochGroup.fields, "state_topics")
    new_position = SharePosition()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_topics = NO_STATE
        self._counts: dict[str, int] | None = None
        """The topics that members read, each with how many subscriptions have it; None while that was not needed."""

    def copy(self) -> ShareGroup:
        twin = super().copy()
        twin._counts = self._counts if self._counts is None else self._counts.copy()
        return twin

    def read_topics(self) -> KeysView[str]:
        """Every topic that a member reads."""
        if self._counts is not None:
            return self._counts.keys()
        subscriptions, counts = self.subscriptions(), dict[str, int]()
        if len(subscriptions) < COUNTED_SUBSCRIPTIONS:
            for names in subscriptions:
                counts.update(dict.fromkeys(names, 1))
            return counts.keys()
        for names in subscriptions:
            _count(counts, names, 1)
        self._counts = counts
        return counts.keys()

    def subscribed_topics(self) -> list[str]:
        return sorted(self.read_topics())

    def held_bytes(self) -> int:
        """Roughly the memory that the members take, and what is remembered of topics."""
        return super().held_bytes() + state_topics_bytes(self.state_topics)

    def initializing_keys(self) -> list[SharePartitionKey]:
        return [
            SharePartitionKey(self.group_id, topic_id, partition)
            for topic_id, share in self.state_topics.initializing.items()
            for partition in share.partitions
        ]

    def set_state_topics(self, topics: StateTopics) -> None:
        self.state_topics = topics

    def set_member(self, member_id: str, facts: ShareFacts) -> None:
        before = self.facts.get(member_id)
        super().set_member(member_id, facts)
        self._count_changed(before, self.facts[member_id], member_id)

    def remove_member(self, member_id: str) -> None:
        before = self.facts.get(member_id)
        super().remove_member(member_id)
        self._count_changed(before, None, member_id)

    def _count_changed(self, before: ShareFacts | None, after: ShareFacts | None, member_id: str) -> None:
        """Counts what a member has begun and ceased to read, where it is the only one with that very subscription."""
        counts = self._counts
        if counts is None or (before is not None and after is not None and before.topics is after.topics):
            return
        others = {id(facts.topics) for known_id, facts in self.facts.items() if known_id != member_id}
        if after is not None and id(after.topics) not in others:
            _count(counts, after.topics, 1)
        if before is not None and id(before.topics) not in others:
            _count(counts, before.topics, -1)


def state_topics_bytes(topics: StateTopics) -> int:
    shares = (*topics.initializing.values(), *topics.initialized.values())
    deleting = sum([topic_bytes(name) for name in topics.deleting.values()])
    return sum([topic_bytes(share.name, len(share.partitions)) for share in shares]) + deleting


def topic_bytes(name: str, partitions: int = 0) -> int:
    """Roughly the memory of what is remembered of one topic."""
    return TOPIC_BYTES + len(name) + PARTITION_BYTES * partitions


def _count(counts: dict[str, int], names: Collection[str], by: int) -> None:
    for name in names:
        count = counts.get(name, 0) + by
        if count:
            counts[name] = count
        else:
            del counts[name]


def add_partitions(topics: dict[Uuid, TopicShare], topic_id: Uuid, name: str, partitions: Collection[int]) -> None:
    known = topics.get(topic_id)
    merged = {*partitions, *(known.partitions if known is not None else ())}
    topics[topic_id] = TopicShare(name, tuple(sorted(merged)))


def remove_partitions(topics: dict[Uuid, TopicShare], topic_id: Uuid, partitions: Collection[int]) -> None:
    """Takes these partitions of a topic out, and the topic itself with the last of them."""
    known = topics.pop(topic_id, None)
    if known is not None:
        gone = frozenset(partitions)
        rest = tuple(partition for partition in known.partitions if partition not in gone)
        if rest:
            topics[topic_id] = TopicShare(known.name, rest)
