"""DeleteTopics: remove topics and their records.

Behaviour: the topics are no longer visible when the deletion is committed. The answer is sent when the brokers have stopped the replicas
and the names can be used again. It waits at most `timeout_ms` for brokers other than the controller's. A topic that is named twice, or by
both name and id, gets INVALID_REQUEST.

Version notes: if `delete.topic.enable` is off, the answer is INVALID_REQUEST before 3, and TOPIC_DELETION_DISABLED from 3 on. 5 has error
messages; a topic that exceeds the client's quota of partition changes gets THROTTLING_QUOTA_EXCEEDED (KIP-599). 6 has topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.controller.api import TopicResult
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed
from ottla.handlers.topics.mutation_quota import EXCEEDED, EXCEEDED_TEXT, MutationQuota
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

STRICT_QUOTA_SINCE = 5


def handle(broker: Broker, request: RequestContext, body: DeleteTopicsRequest) -> Pending:
    states = body.topics if request.version >= 6 else [DeleteTopicState(name=name) for name in body.topic_names]
    refused: list[DeletableTopicResult] = []
    wanted: dict[str, DeletableTopicResult] = {}
    for state in states:
        answer = _resolve(broker, request, state)
        name = answer.name
        if answer.error_code or name is None:
            refused.append(answer)
        elif name in wanted:
            answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
            wanted[name] = answer
        else:
            wanted[name] = answer
    quota = MutationQuota(broker, request, strict_since=STRICT_QUOTA_SINCE)
    for name, answer in wanted.items():
        if not answer.error_code and not quota.admits(name, _partition_count(broker, name)):
            answer.error_code, answer.error_message = EXCEEDED, EXCEEDED_TEXT
    to_delete = [name for name, answer in wanted.items() if not answer.error_code]
    pending = Pending()

    def deleted(results: list[TopicResult]) -> None:
        for result in results:
            answer, code = wanted[result.name], result.error
            if code is ErrorCode.TOPIC_DELETION_DISABLED and request.version < 3:
                code = ErrorCode.INVALID_REQUEST
            answer.error_code, answer.error_message = code, result.message
            if code is ErrorCode.NONE:
                answer.topic_id = result.topic_id
        pending.complete(DeleteTopicsResponse(throttle_time_ms=quota.settle(results), responses=[*wanted.values(), *refused]))

    broker.controller.delete_topics(to_delete, deleted, timeout_ms=body.timeout_ms)
    return pending


def _partition_count(broker: Broker, name: str) -> int:
    topic = broker.metadata.topic(name)
    return len(topic.partitions) if topic is not None else 0


def _resolve(broker: Broker, request: RequestContext, state: DeleteTopicState) -> DeletableTopicResult:
    """Returns a result with the topic's name, or with the error."""
    name, topic_id = state.name, state.topic_id
    if (name is None) == (topic_id == ZERO_UUID):
        message = "Neither topic name nor id were specified." if name is None else "You may not specify both topic name and topic id."
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    if name is None:
        topic = broker.metadata.topic_by_id(topic_id)
        if topic is not None and not _may(broker, request, AclOperation.DESCRIBE, topic.name):
            # The name is not shown. An id is not a secret, as in Kafka.
            return DeletableTopicResult(name=None, topic_id=topic_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is None:
            message = "This server does not host this topic ID."
            return DeletableTopicResult(name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID, error_message=message)
        name = topic.name
    if not _may(broker, request, AclOperation.DELETE, name):
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return DeletableTopicResult(name=name, topic_id=topic_id)


def _may(broker: Broker, request: RequestContext, operation: AclOperation, topic: str) -> bool:
    return is_allowed(broker, request, operation, ResourceType.TOPIC, topic)
