"""CreatePartitions: a topic gets more partitions, never fewer."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from tests.handlers.admin_world import AdminWorld, DenyAll


def asked(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    given = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments] or None
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds(version: int) -> None:
    world = AdminWorld()
    world.cluster.create("a", "b")
    request = CreatePartitionsRequest(topics=[asked("a", 3), asked("b", 2, [0]), asked("no", 2)])
    answers = world.ask(request, version).results
    assert [(result.name, result.error_code) for result in answers] == [
        ("a", 0),
        ("b", 0),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert world.cluster.metadata.partition_count == 5


def test_refusals() -> None:
    world = AdminWorld()
    world.cluster.create("a", "b")
    twice = CreatePartitionsRequest(topics=[asked("a", 3), asked("a", 4), asked("b", 1)])
    assert {result.name: result.error_code for result in world.ask(twice).results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.INVALID_PARTITIONS,
    }
    denied = AdminWorld(authorizer=DenyAll(), cluster=world.cluster).ask(CreatePartitionsRequest(topics=[asked("a", 3)]))
    assert denied.results[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.cluster.metadata.partition_count == 2


def test_validate_only() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert world.ask(CreatePartitionsRequest(topics=[asked("a", 3)], validate_only=True)).results[0].error_code == 0
    assert world.cluster.metadata.partition_count == 1
