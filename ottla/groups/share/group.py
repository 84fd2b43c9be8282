"""The state of one share group (KIP-932): members, epochs, the target assignment, and for which partitions something is remembered.

All of it is hard state, a fold of the group's records. Values are immutable and replaced as a whole, so a decision can try its changes on
a `copy`. The epochs are those of a consumer group; but a partition may have many readers, so nobody waits for anybody: a member has its
whole target as soon as it is heard of.

What became of the records of a partition is remembered by a share coordinator, which has to be told to begin. `initializing` holds the
partitions for which it has not said yet that it did, `initialized` the others, `deleting` the topics that it has been told to forget. Only
initialized partitions are assigned.

Invariants: a partition is initializing, initialized or neither, never both; a target or position belongs to a member.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ottla.base.share_state import SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.groups.consumer.assignors import Assignment
from ottla.groups.states import EMPTY, STABLE, GroupState, GroupType

SHARE_PROTOCOL_TYPE = "share"
FIRST_EPOCH = 1
"""Of a group without a past: whoever comes first raises it, so the first member's epoch is 2, as in Kafka."""


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
    """What a share coordinator was told about the group's partitions, by topic id."""

    initializing: Mapping[Uuid, TopicShare] = {}
    initialized: Mapping[Uuid, TopicShare] = {}
    deleting: Mapping[Uuid, str] = {}


NEW_SHARE_POSITION = SharePosition()
NO_STATE = StateTopics()


class ShareGroup:
    """One group. `set_*` and `remove_*` are the folds of its records."""

    __slots__ = (
        "epoch",
        "facts",
        "group_id",
        "metadata_hash",
        "positions",
        "state_topics",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    type = GroupType.SHARE
    protocol_type = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.facts: dict[str, ShareFacts] = {}
        self.positions: dict[str, SharePosition] = {}
        self.target: dict[str, Assignment] = {}
        self.state_topics = NO_STATE

    def copy(self) -> ShareGroup:
        twin = ShareGroup(self.group_id)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if type(value) is dict else value)
        return twin

    def hard_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    # Questions

    @property
    def members(self) -> Mapping[str, ShareFacts]:
        return self.facts

    @property
    def state(self) -> GroupState:
        return STABLE if self.facts else EMPTY

    def position(self, member_id: str) -> SharePosition:
        return self.positions.get(member_id, NEW_SHARE_POSITION)

    def subscribed_topics(self) -> list[str]:
        """Every topic that somebody in the group reads, in order."""
        topics: dict[str, None] = {}
        for names in {facts.topics: None for facts in self.facts.values()}:
            topics.update(dict.fromkeys(names))
        return sorted(topics)

    def initializing_keys(self) -> list[SharePartitionKey]:
        return [
            SharePartitionKey(self.group_id, topic_id, partition)
            for topic_id, share in self.state_topics.initializing.items()
            for partition in share.partitions
        ]

    # The fold of the log

    def set_member(self, member_id: str, facts: ShareFacts) -> None:
        self.facts[member_id] = facts

    def remove_member(self, member_id: str) -> None:
        self.facts.pop(member_id, None)

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash

    def set_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.target_epoch = epoch
        self.target_timestamp_ms = timestamp_ms

    def set_target(self, member_id: str, target: Assignment) -> None:
        self.target[member_id] = target

    def remove_target(self, member_id: str) -> None:
        self.target.pop(member_id, None)

    def set_position(self, member_id: str, position: SharePosition) -> None:
        self.positions[member_id] = position

    def remove_position(self, member_id: str) -> None:
        self.positions.pop(member_id, None)

    def set_state_topics(self, topics: StateTopics) -> None:
        self.state_topics = topics


def with_partitions(topics: Mapping[Uuid, TopicShare], topic_id: Uuid, name: str, partitions: Collection[int]) -> dict[Uuid, TopicShare]:
    """`topics` and these partitions."""
    known = topics.get(topic_id)
    merged = {*partitions, *(known.partitions if known is not None else ())}
    return {**topics, topic_id: TopicShare(name, tuple(sorted(merged)))}


def without_partitions(topics: Mapping[Uuid, TopicShare], topic_id: Uuid, partitions: Collection[int]) -> dict[Uuid, TopicShare]:
    """`topics` less these partitions."""
    left = dict(topics)
    known = left.pop(topic_id, None)
    if known is not None:
        gone = frozenset(partitions)
        rest = tuple(partition for partition in known.partitions if partition not in gone)
        if rest:
            left[topic_id] = TopicShare(known.name, rest)
    return left
