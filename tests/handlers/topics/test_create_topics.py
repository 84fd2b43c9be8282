"""CreateTopics: the answers of every version, and refusals of single topics."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.security.acl import AclOperation
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.handlers.admin_world import AdminWorld, DenyAll


def topic(name: str, partitions: int = 1, factor: int = 1, **options: list[object]) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(version: int) -> None:
    world = AdminWorld()
    (result,) = world.ask(CreateTopicsRequest(topics=[topic("a", 2)]), version).topics
    assert (result.name, result.error_code) == ("a", 0)
    made = world.cluster.metadata.topic("a")
    assert made is not None
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert configs["retention.ms"] == ("604800000", 5)
        assert "internal.segment.bytes" not in configs
    if version >= 7:
        assert result.topic_id == made.topic_id


def test_own_settings_are_answered_with_their_source() -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="5")]
    (result,) = AdminWorld().ask(CreateTopicsRequest(topics=[topic("a", -1, -1, configs=configs)])).topics  # type: ignore[arg-type]
    assert {config.name: (config.value, config.config_source) for config in result.configs}["retention.ms"] == ("5", 1)


def test_of_a_setting_that_is_given_twice_the_last_counts() -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("5", "6")]
    (result,) = AdminWorld().ask(CreateTopicsRequest(topics=[topic("a", configs=configs)])).topics  # type: ignore[arg-type]
    assert {config.name: config.value for config in result.configs}["retention.ms"] == "6"


def test_validate_only_makes_no_topic_but_answers_an_id() -> None:
    world = AdminWorld()
    (result,) = world.ask(CreateTopicsRequest(topics=[topic("a")], validate_only=True)).topics
    assert (result.error_code, any(result.topic_id)) == (0, True)
    assert world.cluster.metadata.topic("a") is None


def test_answers_keep_the_order_of_the_request() -> None:
    world = AdminWorld()
    answers = world.ask(CreateTopicsRequest(topics=[topic("b"), topic("bad/name"), topic("a"), topic("d"), topic("d")])).topics
    assert [(result.name, result.error_code) for result in answers] == [
        ("b", 0),
        ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", 0),
        ("d", ErrorCode.INVALID_REQUEST),
    ]
    assert world.cluster.metadata.topic("d") is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (
            topic("a", -1, -1, assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[0])] * 2),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (topic("a", configs=[CreatableTopicConfig(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (topic("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refused(asked: CreatableTopic, code: ErrorCode) -> None:
    (result,) = AdminWorld().ask(CreateTopicsRequest(topics=[asked])).topics
    assert (result.error_code, bool(result.error_message)) == (code, True)


def test_the_right_to_create() -> None:
    world = AdminWorld(authorizer=DenyAll((AclOperation.CREATE, "a")))
    answers = world.ask(CreateTopicsRequest(topics=[topic("a"), topic("b")])).topics
    assert [result.error_code for result in answers] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
