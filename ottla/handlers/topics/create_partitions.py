"""CreatePartitions: give topics more partitions.

Behaviour: adds partitions to topics. The request may name the replicas; otherwise the controller chooses them. The number of partitions
cannot be lowered. A topic that is named twice gets INVALID_REQUEST.

Version notes: 2 is flexible. From 3 on, a topic that exceeds the client's quota of partition changes gets THROTTLING_QUOTA_EXCEEDED
(KIP-599).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.controller.api import NewPartitions, TopicResult
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed
from ottla.handlers.topics.mutation_quota import EXCEEDED, EXCEEDED_TEXT, MutationQuota
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult

STRICT_QUOTA_SINCE = 3


def handle(broker: Broker, request: RequestContext, body: CreatePartitionsRequest) -> Pending:
    answers: dict[str, CreatePartitionsTopicResult] = {}
    wanted: dict[str, NewPartitions] = {}
    for topic in body.topics:
        name = topic.name
        if name in answers or name in wanted:
            wanted.pop(name, None)
            message = "Duplicate topic in request."
            answers[name] = CreatePartitionsTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        elif not is_allowed(broker, request, AclOperation.ALTER, ResourceType.TOPIC, name):
            answers[name] = CreatePartitionsTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            assignments = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
            wanted[name] = NewPartitions(name=name, count=topic.count, assignments=assignments)
    quota = MutationQuota(broker, request, strict_since=STRICT_QUOTA_SINCE, is_validation=body.validate_only)
    for name in [name for name, topic in wanted.items() if not quota.admits(name, _added(broker, topic))]:
        del wanted[name]
        answers[name] = CreatePartitionsTopicResult(name=name, error_code=EXCEEDED, error_message=EXCEEDED_TEXT)
    pending = Pending()

    def created(results: list[TopicResult]) -> None:
        for result in results:
            answers[result.name] = CreatePartitionsTopicResult(name=result.name, error_code=result.error, error_message=result.message)
        pending.complete(CreatePartitionsResponse(throttle_time_ms=quota.settle(results), results=list(answers.values())))

    broker.controller.create_partitions(list(wanted.values()), body.validate_only, created, timeout_ms=body.timeout_ms)
    return pending


def _added(broker: Broker, wanted: NewPartitions) -> int:
    topic = broker.metadata.topic(wanted.name)
    return wanted.count - len(topic.partitions) if topic is not None else 0
