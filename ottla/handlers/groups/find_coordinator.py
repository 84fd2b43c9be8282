"""FindCoordinator: the broker that coordinates a group, a transactional id or a share partition.

Behaviour: returns the broker that leads the key's partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state`. The
first permitted request creates the topic. The answer is COORDINATOR_NOT_AVAILABLE while the partition has no leader on the client's
listener or the topic cannot be created.
The key of a share partition is `group:topicId:partition`; a key of another form gets INVALID_REQUEST. Only brokers may ask for share
partitions. With ACLs a client that asks for one is refused before its key is checked, as in Kafka.

Version notes: 1 has key types (KIP-98), 4 several keys in a request (KIP-699), 6 the key type of share partitions (KIP-932).
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX, is_too_long
from ottla.base.java_hash import java_partition
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.base.uuids import uuid_from_text
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker, require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEYS_SINCE = 4
SHARE_SINCE = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC, SHARE: SHARE_GROUP_STATE_TOPIC}
TOO_LONG = {GROUP: ErrorCode.INVALID_GROUP_ID, TRANSACTION: ErrorCode.INVALID_REQUEST}
RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def handle(broker: Broker, request: RequestContext, body: FindCoordinatorRequest) -> Any:
    keys = body.coordinator_keys if request.version >= KEYS_SINCE else [body.key]
    topic = TOPICS.get(body.key_type)
    if topic is None or (body.key_type == SHARE and request.version < SHARE_SINCE):
        return _response(request, [_refuse(key, ErrorCode.INVALID_REQUEST, f"key type {body.key_type} is not known") for key in keys])
    if body.key_type == SHARE and not is_broker(broker, request):
        return _response(request, [_refusal_of_client(broker, request, key) for key in keys])
    refused = _refusals(broker, request, body.key_type, keys)
    if set(keys) <= refused.keys():  # No topic is created for clients without permission.
        return _response(request, [refused[key] for key in keys])
    pending = Pending()

    def answer(code: ErrorCode) -> None:
        pending.complete(_response(request, [refused.get(key) or _find(broker, request, topic, key, code) for key in keys]))

    broker.internal_topics.ensure(topic, answer)
    return pending


def _refusal_of_client(broker: Broker, request: RequestContext, key: str) -> Coordinator:
    """Refuses a share partition's key from a client. Without ACLs an invalid key gets its own error."""
    malformed = _refusal(broker, request, SHARE, key) if broker.authorizer.allows_clients_everything(request.connection) else None
    return malformed or _refuse(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers may ask")


def _refusals(broker: Broker, request: RequestContext, key_type: int, keys: list[str]) -> dict[str, Coordinator]:
    """Returns the refusals of keys that are invalid or that the principal may not use."""
    if key_type != SHARE and broker.authorizer.allows_clients_everything(request.connection):
        return {key: _refuse_long(key_type, key) for key in keys if is_too_long(key)}
    return {key: refusal for key in keys if (refusal := _refusal(broker, request, key_type, key)) is not None}


def _refusal(broker: Broker, request: RequestContext, key_type: int, key: str) -> Coordinator | None:
    if is_too_long(key) and key_type != SHARE:
        return _refuse_long(key_type, key)
    try:
        if key_type == SHARE:
            check_share_partition(key)
        else:
            require(broker, request, AclOperation.DESCRIBE, RESOURCES[key_type], key)
    except ApiError as error:
        return _refuse(key, error.code, error.message)
    return None


def _refuse_long(key_type: int, key: str) -> Coordinator:
    """Refuses an id that no coordinator accepts."""
    return _refuse(key, TOO_LONG[key_type], f"an id has {ID_CHARACTERS_MAX} characters at most, this one has {len(key)}")


def _find(broker: Broker, request: RequestContext, topic: str, key: str, code: ErrorCode) -> Coordinator:
    try:
        metadata = broker.metadata.topic(topic)
        if code or metadata is None or not metadata.partitions:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is not there yet")
        leader = broker.metadata.brokers.get(metadata.partitions[java_partition(key, len(metadata.partitions))].leader)
        endpoint = None if leader is None else leader.endpoints.get(request.connection.listener)
        if leader is None or endpoint is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's partition has no leader on this listener")
    except ApiError as error:
        return _refuse(key, error.code, error.message)
    host, port = endpoint
    return Coordinator(key=key, node_id=leader.broker_id, host=host, port=port)


def check_share_partition(key: str) -> None:
    """Raises `ApiError` INVALID_REQUEST if the key is no share partition. A group may have colons in its name."""
    group_and_topic, _, partition = key.rpartition(":")
    group_id, _, topic_id = group_and_topic.rpartition(":")
    try:
        uuid_from_text(topic_id)
        int(partition)
    except ValueError:
        group_id = ""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key!r} is not group:topicId:partition")


def _refuse(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _response(request: RequestContext, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if request.version >= KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return FindCoordinatorResponse(
        error_code=only.error_code, error_message=only.error_message, node_id=only.node_id, host=only.host, port=only.port
    )
