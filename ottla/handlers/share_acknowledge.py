"""ShareAcknowledge: a member of a share group says what became of the records it has.

Behaviour: each partition's statements take effect together or not at all, and are answered when they are durable. A final session epoch
(-1) ends the session: what the member has said nothing of is available to others. What ShareFetch carries of the same kind is handled here
as well (`acknowledge`). UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 2 renewed locks (KIP-1222) and their duration in the answer.

Not done: nothing that Kafka 4.3 does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.handlers.metadata import live_brokers
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.levels import require_share_groups
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.sharing import acknowledgement
from ottla.sharing.acknowledgement import Acknowledgement
from ottla.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, is_member_id
from ottla.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

RENEWAL_SINCE = 2

LEADERSHIP_ERRORS = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))

Stated = tuple[Place, list[Acknowledgement]]
"""A partition and what is said of its records."""
Codes = dict[Place, ErrorCode]


class Batch(Protocol):
    """An acknowledgement batch of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def handle(broker: Broker, request: RequestContext, body: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse | Pending:
    try:
        group_id, member_id = identity(broker, request, body.group_id, body.member_id)
        if body.share_session_epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    session, code = broker.share_sessions.step(group_id, member_id, body.share_session_epoch)
    if session is None:
        return ShareAcknowledgeResponse(error_code=code)
    stated = [
        ((topic.topic_id, partition.partition_index), statements(partition.acknowledgement_batches))
        for topic in body.topics
        for partition in topic.partitions
    ]
    pending = Pending()

    def done(codes: Codes) -> None:
        pending.complete(_response(broker, request, body, codes))

    is_renewing = request.version >= RENEWAL_SINCE and body.is_renew_ack
    collect = acknowledge(broker, request, group_id, member_id, stated, is_renewing)
    if body.share_session_epoch == FINAL_EPOCH:
        broker.share_sessions.end(session)
    collect(done)
    return pending


def identity(broker: Broker, request: RequestContext, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """The group and member that a request speaks for. Raises `ApiError`."""
    require_share_groups(broker.config.ottla_advertise_level)
    if group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    require(broker, request, AclOperation.READ, ResourceType.GROUP, group_id)
    if member_id is None or not is_member_id(member_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def statements(batches: Sequence[Batch]) -> list[Acknowledgement]:
    return [Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches]


def acknowledge(
    broker: Broker, request: RequestContext, group_id: str, member_id: str, stated: Sequence[Stated], is_renewing: bool
) -> Callable[[Callable[[Codes], None]], None]:
    """Puts through what is said of each partition; what it answers takes somebody who is told when every answer is there."""
    codes: Codes = {}
    listeners: list[Callable[[Codes], None]] = []
    left = len(stated)

    def settle(place: Place, code: ErrorCode) -> None:
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

    for place, said in stated:
        _acknowledge_one(broker, request, SharePartitionKey(group_id, *place), member_id, said, is_renewing, settle)
    return listen


def _acknowledge_one(
    broker: Broker, request: RequestContext, key: SharePartitionKey, member_id: str, said: list[Acknowledgement],
    is_renewing: bool, settle: Callable[[Place, ErrorCode], None],
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
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nobody of {key.group_id} has records of {name}-{key.partition}")
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


def leader_of(broker: Broker, place: Place) -> tuple[int, int]:
    """Who leads a partition now, and its epoch, for a member that has come to the wrong broker."""
    topic = broker.metadata.topic_by_id(place[0])
    if topic is None or place[1] >= len(topic.partitions):
        return -1, -1
    known = topic.partitions[place[1]]
    return known.leader, known.leader_epoch


def _response(broker: Broker, request: RequestContext, body: ShareAcknowledgeRequest, codes: Codes) -> ShareAcknowledgeResponse:
    leaders: dict[int, None] = {}
    topics = []
    for topic in body.topics:
        results = []
        for partition in topic.partitions:
            place = (topic.topic_id, partition.partition_index)
            result = PartitionData(partition_index=place[1], error_code=codes[place])
            if codes[place] in LEADERSHIP_ERRORS:
                leader_id, leader_epoch = leader_of(broker, place)
                result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders[leader_id] = None
            results.append(result)
        topics.append(ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=results))
    response = ShareAcknowledgeResponse(responses=topics)
    response.acquisition_lock_timeout_ms = broker.share_partitions.terms_of(body.group_id or "").lock_duration_ms
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=known.node_id, host=known.host, port=known.port, rack=known.rack)
            for known in live_brokers(broker, request)
            if known.node_id in leaders
        ]
    return response
