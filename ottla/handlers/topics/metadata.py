"""Metadata: the brokers of the cluster and the leader of each partition.

Behaviour: the answer has the brokers with their addresses on the client's listener, the controller, and the leader, replicas and in-sync
replicas of the requested topics. Null selects all topics, an empty list none (in version 0 all). Topics are named by name or id. If one
topic has an id, topics without an id are ignored, as in Kafka. Versions without ids refuse a request with an id or without a name. A
missing topic is created if the request, the principal's permissions and `auto.create.topics.enable` allow that. The answer then waits for
the creation, which is charged to the client's quota of partition changes. A partition without a leader has LEADER_NOT_AVAILABLE. If the
leader has probably failed, the answer waits for a new leader (`cluster/suspects.py`). A failed broker remains in answers for some seconds.

Version notes: 0 omits replicas on brokers that are not live, with REPLICA_NOT_AVAILABLE. 1 has the controller id and the flag of internal
topics, and null selects all topics. In 4 the client can forbid the creation of topics (KIP-204). 7 has leader epochs (KIP-320). 8 to 10
have the authorized operations on the cluster (KIP-430). 10 and 12 have topic ids (KIP-516). 13 has a top-level error (KIP-1102).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable

from ottla.base.cluster_metadata import TopicMetadata
from ottla.base.errors import ErrorCode
from ottla.base.loop.turns import ITEMS_PER_STEP
from ottla.base.types import INTERNAL_TOPICS
from ottla.base.uuids import ZERO_UUID
from ottla.controller.api import NewTopic, TopicResult
from ottla.controller.internal_topics import new_internal_topic
from ottla.controller.topic_names import why_invalid
from ottla.handlers.authorized_operations import NOT_ASKED, authorized_operations, cluster_operations
from ottla.handlers.broker_endpoints import live_brokers, shown_brokers
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import describable_topics, is_allowed, may_create
from ottla.handlers.topics.mutation_quota import NEVER, MutationQuota
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

IDS_SINCE = 12
CACHED_TOPICS_MAX = 20_000
Answer = MetadataResponse | Pending | Generator[None, None, MetadataResponse]
_cache: dict[str, tuple[TopicMetadata, MetadataResponseTopic]] = {}
"""Answers without authorized operations, by topic. An answer is valid while the topic has the same (immutable) metadata object."""


def handle(broker: Broker, request: RequestContext, body: MetadataRequest) -> Answer:
    suspects = broker.suspects
    if suspects is None or not suspects.brokers or _is_settled(broker, body, suspects.brokers):
        return _answer(broker, request, body)
    pending = Pending(is_change=_may_create_some(broker, body))
    suspects.call_when_over(
        lambda brokers: _is_settled(broker, body, brokers), lambda: pending.complete(_answer(broker, request, body))
    )
    return pending


def _may_create_some(broker: Broker, body: MetadataRequest) -> bool:
    """Whether a requested topic is missing, and the request and the settings allow its creation."""
    if not body.allow_auto_topic_creation or not broker.config.auto_create_topics_enable:
        return False
    return any(wanted.name is not None and broker.metadata.topic(wanted.name) is None for wanted in body.topics or ())


def _is_settled(broker: Broker, body: MetadataRequest, suspected: Collection[int]) -> bool:
    """Whether no requested partition is led by a suspected broker."""
    metadata = broker.metadata
    found: Iterable[TopicMetadata | None] = metadata.topics()
    if body.topics:
        found = (metadata.topic(one.name) if one.name is not None else metadata.topic_by_id(one.topic_id) for one in body.topics)
    elif body.topics is not None:
        return True
    return not any(partition.leader in suspected for topic in found if topic is not None for partition in topic.partitions)


def _answer(broker: Broker, request: RequestContext, body: MetadataRequest) -> Answer:
    if asks_for_all(request, body):
        return _all_topics(broker, request, body)
    assert body.topics is not None
    ids = [wanted.topic_id for wanted in body.topics if wanted.topic_id != ZERO_UUID]
    if request.version < IDS_SINCE and (ids or any(wanted.name is None for wanted in body.topics)):
        refusals = [_refusal(ErrorCode.INVALID_REQUEST, wanted.name or "", wanted.topic_id) for wanted in body.topics]
        return _response(broker, request, body, refusals)
    if ids:
        return _response(broker, request, body, [_answer_by_id(broker, request, body, topic_id) for topic_id in dict.fromkeys(ids)])
    answers: dict[str | None, MetadataResponseTopic] = {}
    missing: list[str] = []
    for wanted in body.topics:
        _answer_by_name(broker, request, body, wanted.name, answers, missing)
    to_create = _creatable(broker, request, body, missing, answers)
    if not to_create:
        return _response(broker, request, body, answers.values())
    quota = MutationQuota(broker, request, strict_since=NEVER)
    for topic in to_create:
        quota.admits(topic.name, broker.config.num_partitions)
    pending = Pending(is_change=True)

    def created(results: list[TopicResult]) -> None:
        for result in results:
            answers[result.name] = _after_creation(broker, request, body, result)
        response = _response(broker, request, body, answers.values())
        response.throttle_time_ms = quota.settle(results)
        pending.complete(response)

    broker.controller_link.create_topics(to_create, False, created)
    return pending


def _response(broker: Broker, request: RequestContext, body: MetadataRequest, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    metadata = broker.metadata
    operations = cluster_operations(broker, request) if body.include_cluster_authorized_operations else NOT_ASKED
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in shown_brokers(broker, request)
        ],
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        topics=list(topics),
        cluster_authorized_operations=operations,
    )


def asks_for_all(request: RequestContext, body: MetadataRequest) -> bool:
    return body.topics is None or (request.version == 0 and not body.topics)


def _all_topics(broker: Broker, request: RequestContext, body: MetadataRequest) -> Generator[None, None, MetadataResponse]:
    may_describe = describable_topics(broker, request)
    found: list[MetadataResponseTopic] = []
    partition_count = 0
    for topic in list(broker.metadata.topics()):
        if may_describe is None or may_describe(topic.name):
            found.append(_described(broker, request, body, topic))
            partition_count += len(topic.partitions)
            if partition_count >= ITEMS_PER_STEP:
                partition_count = 0
                yield
    return _response(broker, request, body, found)


def _answer_by_name(
    broker: Broker,
    request: RequestContext,
    body: MetadataRequest,
    name: str | None,
    answers: dict[str | None, MetadataResponseTopic],
    missing: list[str],
) -> None:
    """Adds the answer for one topic by name. Adds a missing topic to `missing` as well; its creation may replace this answer."""
    if name in answers:
        return
    if name is None:
        answers[name] = _refusal(ErrorCode.INVALID_REQUEST, None)
        return
    if not is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        answers[name] = _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        return
    topic = broker.metadata.topic(name)
    if topic is not None:
        answers[name] = _described(broker, request, body, topic)
        return
    is_invalid = bool(why_invalid(name))
    refusal = answers[name] = _refusal(ErrorCode.INVALID_TOPIC_EXCEPTION if is_invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    if body.include_topic_authorized_operations:  # the operations that the client would be permitted on the topic
        refusal.topic_authorized_operations = authorized_operations(broker, request, ResourceType.TOPIC, name)
    if not is_invalid:
        missing.append(name)


def _answer_by_id(broker: Broker, request: RequestContext, body: MetadataRequest, topic_id: bytes) -> MetadataResponseTopic:
    topic = broker.metadata.topic_by_id(topic_id)
    if topic is None:
        return _refusal(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        # The name of a topic without the permission DESCRIBE is not shown.
        return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return _described(broker, request, body, topic)


def _refusal(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)


def _creatable(
    broker: Broker,
    request: RequestContext,
    body: MetadataRequest,
    missing: list[str],
    answers: dict[str | None, MetadataResponseTopic],
) -> list[NewTopic]:
    """Returns the missing topics that this request may create. Sets the answers of topics without permission."""
    if not missing or not body.allow_auto_topic_creation or not broker.config.auto_create_topics_enable:
        return []
    topics = []
    for name in missing:
        if not may_create(broker, request, name):
            answers[name] = _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        elif name in INTERNAL_TOPICS:
            topics.append(new_internal_topic(name, broker.config))
        else:
            topics.append(NewTopic(name=name))
    return topics


def _after_creation(broker: Broker, request: RequestContext, body: MetadataRequest, result: TopicResult) -> MetadataResponseTopic:
    topic = broker.metadata.topic(result.name)
    if topic is not None:
        return _described(broker, request, body, topic)
    code = result.error
    # Clients retry after LEADER_NOT_AVAILABLE.
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return _refusal(code, result.name)


def _described(broker: Broker, request: RequestContext, body: MetadataRequest, topic: TopicMetadata) -> MetadataResponseTopic:
    if request.version == 0:
        return _with_live_replicas(broker, request, _made(topic))
    if body.include_topic_authorized_operations:
        answer = _made(topic)
        answer.topic_authorized_operations = authorized_operations(broker, request, ResourceType.TOPIC, topic.name)
        return answer
    cached = _cache.get(topic.name)
    if cached is not None and cached[0] is topic:
        return cached[1]
    answer = _made(topic)
    if cached is None and len(_cache) >= CACHED_TOPICS_MAX:
        _cache.clear()
    _cache[topic.name] = (topic, answer)
    return answer


def _with_live_replicas(broker: Broker, request: RequestContext, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Removes replicas that are not live, because clients of version 0 look up every replica in the answer's brokers."""
    live = {node_id for node_id, *_ in live_brokers(broker, request)}
    for partition in topic.partitions:
        replicas = [replica for replica in partition.replica_nodes if replica in live]
        isr = [replica for replica in partition.isr_nodes if replica in live]
        if partition.error_code == ErrorCode.NONE and (len(replicas), len(isr)) != (len(partition.replica_nodes), len(partition.isr_nodes)):
            partition.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
        partition.replica_nodes, partition.isr_nodes = replicas, isr
    return topic


def _made(topic: TopicMetadata) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.offline_replicas),
        )
        for partition in topic.partitions
    ]
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=NOT_ASKED,
    )
