"""The common part of ShareFetch and ShareAcknowledge: acknowledgements, and the group and member that send them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX, is_too_long
from ottla.base.share_state import SharePartitionKey
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.sharing import acknowledgement
from ottla.sharing.acknowledgement import Acknowledgement
from ottla.sharing.sessions import TopicIdPartition, is_member_id

RENEWAL_SINCE = 2
NAMED_MAX = 20_000
"""Maximum number of topics, partitions and batches together in a request."""

PARTITIONS_PER_STEP = 20
"""Fewer than `ITEMS_PER_STEP`, because each is a write of a share coordinator, which may be on this broker."""

LEADERSHIP_ERRORS = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))

Stated = tuple[TopicIdPartition, list[Acknowledgement]]
"""A partition and the acknowledgements of its records."""
Codes = dict[TopicIdPartition, ErrorCode]


class AcknowledgedBatch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class StatedPartition(Protocol):
    @property
    def acknowledgement_batches(self) -> Sequence[AcknowledgedBatch]: ...


class NamedTopic(Protocol):
    """A topic of either request, or a forgotten topic of a session, which has only partition numbers."""

    @property
    def partitions(self) -> Sequence[StatedPartition] | Sequence[int]: ...


def check_size(topics: Sequence[NamedTopic], forgotten: Sequence[NamedTopic] = ()) -> None:
    """Raises `ApiError` INVALID_REQUEST for a request with more than `NAMED_MAX` items."""
    left = NAMED_MAX - len(topics) - len(forgotten)
    for topic in (*topics, *forgotten) if left >= 0 else ():
        left -= len(topic.partitions)
        if left < 0:
            break
        for partition in topic.partitions:
            left -= 0 if isinstance(partition, int) else len(partition.acknowledgement_batches)
    if left < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {NAMED_MAX} topics, partitions and batches")


def identity(broker: Broker, request: RequestContext, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Returns the group and member of a request. Raises `ApiError` if share groups are not offered, the ids are invalid, the principal may
    not read the group, or another principal has the member's session."""
    require_share_groups(broker.config.ottla_advertise_level)
    if group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    require(broker, request, AclOperation.READ, ResourceType.GROUP, group_id)
    if is_too_long(group_id):  # No group has such an id, and sessions would store it.
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group's id has at most {ID_CHARACTERS_MAX} characters")
    if member_id is None or not is_member_id(member_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    if broker.share_sessions.belongs_to_other(group_id, member_id, request.connection.principal):
        raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"no session of {member_id}")
    return group_id, member_id


def statements(batches: Sequence[AcknowledgedBatch]) -> list[Acknowledgement]:
    return [Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches]


def acknowledge(
    broker: Broker, request: RequestContext, group_id: str, member_id: str, stated: Sequence[Stated], is_renewing: bool
) -> Generator[None, None, Callable[[Callable[[Codes], None]], None]]:
    """Applies the acknowledgements, of a few partitions in each step. Returns a function that calls a listener with the results of all
    partitions, as soon as there are all."""
    codes: Codes = {}
    listeners: list[Callable[[Codes], None]] = []
    left = len(stated)

    def settle(place: TopicIdPartition, code: ErrorCode) -> None:
        nonlocal left
        codes[place] = code
        left -= 1
        if not left:
            for listener in listeners:
                listener(codes)

    def listen(listener: Callable[[Codes], None]) -> None:
        if left:
            listeners.append(listener)
        else:
            listener(codes)

    for number, (place, said) in enumerate(stated, 1):
        _acknowledge_one(broker, request, SharePartitionKey(group_id, *place), member_id, said, is_renewing, settle)
        if not number % PARTITIONS_PER_STEP:
            yield
    return listen


def _acknowledge_one(
    broker: Broker, request: RequestContext, key: SharePartitionKey, member_id: str, said: list[Acknowledgement],
    is_renewing: bool, settle: Callable[[TopicIdPartition, ErrorCode], None],
) -> None:  # fmt: skip
    place = (key.topic_id, key.partition)
    try:
        acknowledgement.check(said, is_renewing)
        name = topic_name(broker, key.topic_id)
        require(broker, request, AclOperation.READ, ResourceType.TOPIC, name)
        partition = broker.partitions.get_by_id(*place)
        if partition is None:
            raise ApiError(broker.partitions.absence(name, key.partition), f"{name}-{key.partition} is not here")
        partition.require_leading()
        share = broker.share_partitions.find(key, partition.leader_epoch)
        if share is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no member of {key.group_id} has records of {name}-{key.partition}")
    except ApiError as error:
        settle(place, error.code)
        return
    share.acknowledge(member_id, said, lambda code: settle(place, code))


def topic_name(broker: Broker, topic_id: bytes) -> str:
    name = broker.partitions.topic_name(topic_id)
    if name is None:
        topic = broker.metadata.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
        name = topic.name
    return name


def leader_of(broker: Broker, place: TopicIdPartition) -> tuple[int, int]:
    """Returns the leader of a partition and its epoch, for a member that sent to another broker; (-1, -1) if they are unknown."""
    topic = broker.metadata.topic_by_id(place[0])
    if topic is None or place[1] >= len(topic.partitions):
        return -1, -1
    known = topic.partitions[place[1]]
    return known.leader, known.leader_epoch
