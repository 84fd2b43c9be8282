"""CreateTopics: make topics.

Behaviour: each topic has its own result. Large requests are written in several steps (`controller.local_controller.PARTITIONS_PER_WRITE`).
The answer is sent when the changes are committed and the brokers have opened the replicas. It waits at most `timeout_ms` for brokers other
than the controller's. A topic that is named twice gets INVALID_REQUEST. With `validate_only` nothing is created; the topic ids in the
answer are not used later, as in Kafka.

Version notes: from 4 on, -1 as the number of partitions or replicas selects the broker's default (KIP-464). 5 answers with the topic's
settings (KIP-525) if the principal may describe them. From 6 on, a topic that exceeds the client's quota of partition changes gets
THROTTLING_QUOTA_EXCEEDED (KIP-599). 7 answers with the topic id (KIP-516).

Not done: `create.topic.policy.class.name`, which would run foreign code.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ErrorCode
from ottla.base.loop.turns import ITEMS_PER_STEP, pieces_of
from ottla.controller.api import NewTopic, TopicResult
from ottla.handlers.configs.entries import shown, topic_entries
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import may_create, permits
from ottla.handlers.topics.mutation_quota import EXCEEDED, EXCEEDED_TEXT, MutationQuota
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STRICT_QUOTA_SINCE = 6

Entries = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]
"""A cache: the settings as the response lists them; the keys are the settings of the topic."""


def handle(broker: Broker, request: RequestContext, body: CreateTopicsRequest) -> Generator[None, None, Pending]:
    answers: dict[str, CreatableTopicResult] = {}
    wanted: dict[str, NewTopic] = {}
    for number, topic in enumerate(body.topics, 1):
        if topic.name in answers or topic.name in wanted:
            wanted.pop(topic.name, None)
            answers[topic.name] = _refused(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not may_create(broker, request, topic.name):
            answers[topic.name] = _refused(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        else:
            _take(topic, answers, wanted)
        if not number % ITEMS_PER_STEP:
            yield
    quota = MutationQuota(broker, request, strict_since=STRICT_QUOTA_SINCE, is_validation=body.validate_only)
    for piece in pieces_of(wanted.values()):
        for new in piece:
            if not quota.admits(new.name, _partition_count(broker, new)):
                del wanted[new.name]
                answers[new.name] = _refused(new.name, EXCEEDED, EXCEEDED_TEXT)
        yield
    pending = Pending()

    def answering(results: list[TopicResult]) -> Generator[None, None, CreateTopicsResponse]:
        entries: Entries = {}
        for number, result in enumerate(results, 1):
            answers[result.name] = _answer(broker, request, result, entries)
            if not number % ITEMS_PER_STEP:
                yield
        return CreateTopicsResponse(throttle_time_ms=quota.settle(results), topics=[answers[name] for name in order])

    order = dict.fromkeys(topic.name for topic in body.topics)
    broker.controller.create_topics(
        list(wanted.values()), body.validate_only, lambda results: pending.complete(answering(results)), timeout_ms=body.timeout_ms
    )
    return pending


def _take(topic: CreatableTopic, answers: dict[str, CreatableTopicResult], wanted: dict[str, NewTopic]) -> None:
    """Adds a topic to `wanted`, or refuses it if its assignment has a partition twice. If a setting is repeated, its last value applies."""
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    configs = {config.name: config.value for config in topic.configs}
    if len(assignments) != len(topic.assignments):
        answers[topic.name] = _refused(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once.")
    else:
        wanted[topic.name] = NewTopic(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=assignments or None,
            configs=configs,
        )


def _partition_count(broker: Broker, topic: NewTopic) -> int:
    """Returns the number of partitions to create; 0 for an existing topic."""
    if broker.metadata.topic(topic.name) is not None:
        return 0
    wanted = topic.num_partitions if topic.num_partitions > 0 else broker.config.num_partitions
    return len(topic.assignments) if topic.assignments is not None else wanted


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])


def _answer(broker: Broker, request: RequestContext, result: TopicResult, entries: Entries) -> CreatableTopicResult:
    if result.error is not ErrorCode.NONE:
        return _refused(result.name, result.error, result.message)
    if permits(broker, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
        answer = _described(broker, result, entries)
    else:
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = CreatableTopicResult(name=result.name, error_message=None, topic_config_error_code=hidden, configs=[])
    answer.topic_id = result.topic_id
    return answer


def _described(broker: Broker, result: TopicResult, entries: Entries) -> CreatableTopicResult:
    """Builds the result of a created topic. Topics with equal settings share their entries, which saves seconds for thousands of topics."""
    given = tuple(result.configs.items())
    configs = entries.get(given)
    if configs is None:
        configs = entries[given] = _entries(broker, result)
    return CreatableTopicResult(
        name=result.name,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=configs,
    )


def _entries(broker: Broker, result: TopicResult) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.setting.name,
            value=shown(entry.setting, entry.value),
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.setting.is_sensitive,
        )
        for entry in topic_entries(broker.config, result.configs)
    ]
