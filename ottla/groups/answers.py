"""The answers of a group coordinator to commands. A handler makes the response from an answer.

A command with one outcome is answered with an `ErrorCode`. A commit is answered with one `ErrorCode` for each offset, in the command's
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.base.uuids import ZERO_UUID, Uuid
from ottla.groups.commands import TopicPartitions
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.streams.description import Description
from ottla.groups.streams.topology import Configured, InternalTopic

if TYPE_CHECKING:
    from ottla.groups.streams.group import StreamsFacts, TaskKey

OK = ErrorCode.NONE

# Classic groups


class JoinedMember(NamedTuple):
    """A member as the leader gets it, to assign partitions."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@immutable(kw_only=True)
class Joined:
    """A member's id and role in the current generation, or the error."""

    member_id: str
    error: ErrorCode = OK
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@immutable(kw_only=True)
class Synced:
    error: ErrorCode = OK
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberLeft(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


@immutable(kw_only=True)
class Left:
    error: ErrorCode = OK
    members: Sequence[MemberLeft] = ()


# Modern groups


@immutable
class Beat:
    """The answer to a heartbeat of a consumer or share group. `assignment` is None if it is not sent, because the member has it already."""

    error: ErrorCode = OK
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[Uuid, Sequence[int]] | None = None


def refuse_beat(code: ErrorCode, message: str | None = None) -> Beat:
    return Beat(error=code, message=message or None)


class EndpointTasks(NamedTuple):
    """The partitions that a member of a streams group serves at its endpoint."""

    endpoint: tuple[str, int]
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


@immutable(kw_only=True)
class StreamsBeat:
    """The answer to a heartbeat of a streams group. `tasks` and `endpoints` are None if the member has them already."""

    error: ErrorCode = OK
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    tasks: Mapping[TaskKey, Sequence[int]] | None = None
    statuses: Sequence[tuple[int, str]] = ()
    missing: Sequence[InternalTopic] = ()
    """Internal topics that the broker is to create."""
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointTasks] | None = None
    must_describe: bool = False
    """Whether the member shall send the description of its topology."""
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1


class DescriptionResult(NamedTuple):
    """The answer to a description of a topology."""

    code: ErrorCode
    message: str = ""


def refuse_streams_beat(code: ErrorCode, message: str | None = None) -> StreamsBeat:
    return StreamsBeat(error=code, message=message or None)


class AssignedTopic(NamedTuple):
    """Partitions of a topic that still exists."""

    topic_id: Uuid
    name: str
    partitions: Sequence[int]


@immutable(kw_only=True)
class DescribedEpochMember:
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    rack_id: str | None
    topics: Sequence[str]
    assigned: Sequence[AssignedTopic]
    instance_id: str | None = None
    regex: str | None = None
    target: Sequence[AssignedTopic] = ()
    is_classic: bool = False


@immutable(kw_only=True)
class DescribedStreamsMember:
    member_id: str
    epoch: int
    facts: StreamsFacts
    assigned: Mapping[TaskKey, Sequence[int]]
    target: Mapping[TaskKey, Sequence[int]]
    offsets: Mapping[tuple[str, int], int]
    end_offsets: Mapping[tuple[str, int], int]


@immutable(kw_only=True)
class DescribedEpochGroup:
    group_id: str
    error: ErrorCode = OK
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[Any] = ()
    """`DescribedEpochMember`, or in a streams group `DescribedStreamsMember`."""
    configured: Configured | None = None
    """The topology of a streams group, with the partition counts of its internal topics."""
    description: Description | None = None
    """The description of this topology, if a member has sent it."""


# Offsets


FetchedOffset = CommittedOffset | ErrorCode | None
"""The result for a partition: its offset, None if there is none, or an error code."""


@immutable
class FetchedOffsets:
    """The answer to FetchOffsets: the requested topics, or all topics of the group, with the offsets in the order of the partitions."""

    error: ErrorCode = OK
    topics: Sequence[TopicPartitions] = ()
    offsets: Sequence[Sequence[FetchedOffset]] = ()


@immutable(kw_only=True)
class DeletedOffsets:
    """The answer to DeleteOffsets: one code for each of the command's topics."""

    error: ErrorCode = OK
    topics: Sequence[ErrorCode] = ()


# Operators


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


@immutable(kw_only=True)
class GroupList:
    error: ErrorCode = OK
    groups: Sequence[ListedGroup] = ()


class DescribedClassicMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@immutable(kw_only=True)
class DescribedClassicGroup:
    group_id: str
    error: ErrorCode = OK
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[DescribedClassicMember] = ()


@dataclass(slots=True, kw_only=True)
class ShareOffsetOutcome:
    """The outcome of an alteration for one partition, or of a deletion for one topic. A share coordinator's error is set later."""

    topic: str
    topic_id: Uuid = ZERO_UUID
    partition: int = -1
    error: ErrorCode = OK
    message: str | None = None


@immutable(kw_only=True)
class ShareOffsetOutcomes:
    error: ErrorCode = OK
    message: str | None = None
    outcomes: Sequence[ShareOffsetOutcome] = field(default_factory=tuple)


def refuse_share_offsets(code: ErrorCode, message: str | None = None) -> ShareOffsetOutcomes:
    return ShareOffsetOutcomes(error=code, message=message or None)
