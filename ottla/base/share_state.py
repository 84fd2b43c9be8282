"""The stored state of a share partition (KIP-932), and the interface of the share coordinator that stores it.

A share partition is one partition as one share group reads it. Its leader keeps the state of each record in flight. The share coordinator
makes this state durable; each partition of `__share_group_state` has its own coordinator. `Persister` is the interface between them, so
that neither the leader nor the group coordinator depends on the broker of the share coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode
from ottla.base.uuids import Uuid, uuid_to_text

UNINITIALIZED_START_OFFSET = -1
"""The start offset is not decided yet. The leader then chooses it by the group's `share.auto.offset.reset`."""

UNKNOWN_DELIVERY_COMPLETE_COUNT = -1


class SharePartitionKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """Returns `group:topicId:partition`, the key for FindCoordinator and for choosing the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class DeliveryState(IntEnum):
    """The delivery states of records; the numbers are Kafka's RecordState in `__share_group_state`. ACQUIRED is never logged. Records that
    are ARCHIVING will become ARCHIVED when they were copied to the group's dead-letter topic (KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Offsets from `first_offset` to `last_offset` (inclusive) with the same delivery state and count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The stored state of a share partition, or a change of it. Offsets below `start_offset` are completed. A change does not affect
    offsets outside its batches.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # records from `start_offset` on that are acknowledged or archived; -1 unknown (KIP-1226)
    batches: tuple[StateBatch, ...] = ()


StateWritten = Callable[[ErrorCode], None]
StateFound = Callable[[ErrorCode, ShareState | None], None]


class Persister(Protocol):
    """The share coordinators. Each call answers exactly once, now or later, by its callback, and raises nothing. With an error code the
    found state is None."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: StateWritten) -> None:
        """Creates or replaces the state of a share partition. Answers FENCED_STATE_EPOCH for a state epoch below the stored one."""

    def read(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        """Reads a state for the partition's leader, and stores the leader's epoch. Answers FENCED_LEADER_EPOCH for an epoch below the
        stored one."""

    def summary(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        """Reads a state without its batches, for tools. Does not change the stored leader epoch."""

    def write(self, key: SharePartitionKey, state: ShareState, done: StateWritten) -> None:
        """Stores a change: `state.batches` has only the changed batches. Answers FENCED_LEADER_EPOCH for a leader epoch below the stored
        one, and FENCED_STATE_EPOCH for another state epoch, or if no leader has read the state since it was created again.
        """

    def delete(self, key: SharePartitionKey, done: StateWritten) -> None:
        """Deletes the state. Answers NONE also if there was no state."""
