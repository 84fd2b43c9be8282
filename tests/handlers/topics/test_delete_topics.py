"""DeleteTopics: by name, by id, and the error code of a refusal in each version."""

from __future__ import annotations

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.security.acl import AclOperation
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.handlers.admin_world import AdminWorld, DenyAll


def by_name(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names))
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes(version: int) -> None:
    world = AdminWorld()
    world.cluster.create("a")
    answers = world.ask(by_name(version, "a", "no"), version).responses
    assert [(result.name, result.error_code) for result in answers] == [("a", 0), ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert world.cluster.metadata.topic("a") is None


def test_by_id() -> None:
    world = AdminWorld()
    (made,) = world.cluster.create("a")
    states = [DeleteTopicState(name=None, topic_id=made.topic_id), DeleteTopicState(name=None, topic_id=b"\1" * 16)]
    answers = world.ask(DeleteTopicsRequest(topics=states)).responses
    assert [(result.name, result.topic_id, result.error_code) for result in answers] == [
        ("a", made.topic_id, 0),
        (None, b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("state", [DeleteTopicState(name=None), DeleteTopicState(name="a", topic_id=b"\1" * 16)])
def test_name_and_id_exclude_each_other(state: DeleteTopicState) -> None:
    world = AdminWorld()
    world.cluster.create("a")
    (result,) = world.ask(DeleteTopicsRequest(topics=[state])).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert world.cluster.metadata.topic("a") is not None


def test_twice_the_same_is_not_deleted() -> None:
    world = AdminWorld()
    (made,) = world.cluster.create("a")
    states = [DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=made.topic_id)]
    (result,) = world.ask(DeleteTopicsRequest(topics=states)).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert world.cluster.metadata.topic("a") is not None


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_forbidden(version: int, code: ErrorCode) -> None:
    config, _ = load(assignments=["delete.topic.enable=false"])
    world = AdminWorld(config)
    world.cluster.create("a")
    assert world.ask(by_name(version, "a"), version).responses[0].error_code == code


def test_rights() -> None:
    world = AdminWorld(authorizer=DenyAll((AclOperation.DELETE, "a")))
    (_, hidden) = world.cluster.create("a", "b")
    states = [DeleteTopicState(name="a"), DeleteTopicState(name="b"), DeleteTopicState(name=None, topic_id=hidden.topic_id)]
    answers = world.ask(DeleteTopicsRequest(topics=states)).responses
    assert [(result.name, result.error_code) for result in answers] == [
        ("a", 0),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
