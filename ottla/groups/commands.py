"""The commands of a group coordinator, independent of versions of requests.

A handler makes a command from a request of any version, and the response from the answer (`answers.py`). Null in a request is None here. If
a version lacks a field, the handler sets the field's default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.immutable import immutable
from ottla.base.uuids import ZERO_UUID, Uuid
from ottla.groups.streams.topology import Topology
from ottla.machine.memory import NO_OWNER

if TYPE_CHECKING:
    from ottla.groups.streams.group import TaskKey

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a classic member as (name, metadata), the preferred one first."""

OwnedPartitions = Mapping[Uuid, Collection[int]]
"""The partitions that a member reports as its own."""


class Caller(NamedTuple):
    """The properties of the requesting client that group membership uses. `connection` is unique for each connection."""

    client_id: str
    client_host: str
    connection: str = ""
    software: str = ""  # the client's software name in ApiVersions
    may_describe: Callable[[str], bool] | None = None
    """Returns whether the caller may see a topic; used for subscriptions by regular expression. None: the caller may see all topics."""
    owner: str = NO_OWNER
    """The principal that is charged for the memory of a new group."""


# Classic groups


@immutable(kw_only=True)
class Join:
    """JoinGroup. `needs_member_id`: a dynamic member without an id gets one and must join again with it (KIP-394)."""

    group_id: str
    caller: Caller
    member_id: str = ""
    instance_id: str | None = None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    may_skip_assignment: bool = True  # a returning static leader supports `skip_assignment` (KIP-814)


@immutable(kw_only=True)
class Sync:
    """SyncGroup. The protocol's type and name are None if the request does not name them."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # by member id; only the leader sends them


@immutable
class Heartbeat:
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class MemberName(NamedTuple):
    """Names a member to remove: by its member id, or by its instance id alone."""

    member_id: str
    instance_id: str | None = None


@immutable(kw_only=True)
class Leave:
    group_id: str
    members: Sequence[MemberName]


# Modern groups


@immutable
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. None, and a rebalance timeout of -1, mean unchanged."""

    group_id: str
    caller: Caller
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: OwnedPartitions | None = None
    makes_member_id: bool = True  # the client chooses its member id; before version 1 the coordinator does


@immutable
class ShareHeartbeat:
    """ShareGroupHeartbeat. None means unchanged."""

    group_id: str
    caller: Caller
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: Sequence[str] | None = None


@immutable
class StreamsHeartbeat:
    """StreamsGroupHeartbeat. None, and a rebalance timeout of -1, mean unchanged."""

    group_id: str
    caller: Caller
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Mapping[TaskKey, Collection[int]] | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    endpoint_epoch: int = 0
    tags: tuple[tuple[str, str], ...] | None = None
    task_offsets: Mapping[tuple[str, int], int] | None = None
    task_end_offsets: Mapping[tuple[str, int], int] | None = None
    shutdown_application: bool = False
    is_of_4_4: bool = False
    """Whether the client knows what came with Kafka 4.4: MISSING_CLIENT_TAGS, and the request for a description of its topology."""


# Offsets


class OffsetToCommit(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@immutable
class CommitOffsets:
    """OffsetCommit. `generation` is the member epoch in a modern group, and -1 for a client outside the group."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: Sequence[OffsetToCommit]
    retention_ms: int = -1
    knows_epochs: bool = True  # from version 9 the client knows member epochs and GROUP_ID_NOT_FOUND
    owner: str = NO_OWNER


@immutable
class CommitOffsetsInTransaction:
    """TxnOffsetCommit."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: Sequence[OffsetToCommit]
    producer_id: int
    producer_epoch: int
    owner: str = NO_OWNER


class TopicPartitions(NamedTuple):
    topic: str
    partitions: Sequence[int]
    topic_id: Uuid = ZERO_UUID


@immutable
class FetchOffsets:
    """OffsetFetch of one group; `topics` is None to fetch all offsets of the group."""

    group_id: str
    topics: Sequence[TopicPartitions] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


@immutable(kw_only=True)
class DeleteOffsets:
    group_id: str
    topics: Sequence[TopicPartitions]


# Operators


@immutable(kw_only=True)
class ListGroups:
    """ListGroups; an empty filter matches all groups. The names of states and types are in lower case."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class StartOffset(NamedTuple):
    """The new start offset of a share group in one partition."""

    topic: str
    partition: int
    offset: int


@immutable(kw_only=True)
class AlterShareOffsets:
    group_id: str
    starts: Sequence[StartOffset]


@immutable(kw_only=True)
class DeleteShareOffsets:
    group_id: str
    topics: Sequence[str]
