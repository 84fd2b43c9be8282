"""The state of one share group (KIP-932): members, targets, and the partitions with a share state.

A partition may have many readers, so no member waits for another member: each gets its whole target with its next heartbeat.

A share coordinator stores the delivery state of each partition. The group coordinator asks the share coordinator to initialize the state
before it assigns the partition. `initializing` has the partitions whose initialization is not confirmed yet. `initialized` has the
partitions that may be assigned. `deleting` has the topics whose states are being deleted.

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
"""Memory of a topic with a share state in addition to the letters of its name, and memory of each of its partitions, in bytes."""
COUNTED_SUBSCRIPTIONS = 8
"""With so many different subscriptions or more, the group counts the subscriptions of each topic. With fewer, a change of a subscription
reads all subscriptions.
"""


class ShareFacts(NamedTuple):
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


class SharePosition(NamedTuple):
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Mapping[Uuid, tuple[int, ...]] = {}


class TopicShare(NamedTuple):
    """Sorted partitions of a topic that a share coordinator has initialized or is to initialize."""

    name: str
    partitions: tuple[int, ...]


class StateTopics(NamedTuple):
    """The share states of the group's partitions, by topic id."""

    initializing: Mapping[Uuid, TopicShare] = {}
    initialized: Mapping[Uuid, TopicShare] = {}
    deleting: Mapping[Uuid, str] = {}


NO_STATE = StateTopics()


class ShareGroup(EpochGroup[ShareFacts, SharePosition]):
    """One group. `set_*` and `remove_*` apply its records."""

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
        """The number of subscriptions with each topic; None until it is needed."""

    def copy(self) -> ShareGroup:
        twin = super().copy()
        twin._counts = self._counts if self._counts is None else self._counts.copy()
        return twin

    def read_topics(self) -> KeysView[str]:
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
        """Updates the counts after a member's change: adds or subtracts a subscription that no other member shares."""
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
    """Removes these partitions of a topic, and the topic if none is left."""
    known = topics.pop(topic_id, None)
    if known is not None:
        gone = frozenset(partitions)
        rest = tuple(partition for partition in known.partitions if partition not in gone)
        if rest:
            topics[topic_id] = TopicShare(known.name, rest)
