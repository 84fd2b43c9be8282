"""ListPartitionReassignments: only partitions whose replicas are being moved."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import BrokerMetadata, BrokerPut, PartitionPut
from ottla.base.errors import ErrorCode
from ottla.controller.api import NewTopic
from ottla.controller.reassignment import begun
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.fixture
def world() -> AdminWorld:
    """Partition 1 of topic `a` moves from broker 0 to broker 1."""
    made = AdminWorld()
    made.cluster.create(NewTopic(name="a", num_partitions=2))
    state = made.cluster.metadata
    made.cluster.show(BrokerPut(BrokerMetadata(broker_id=1, endpoints={}, epoch=2)))
    partition = state.partition("a", 1)
    assert partition is not None
    made.cluster.show(PartitionPut("a", begun(partition, [1], state.standing(), 1)))
    return made


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (None, [("a", 1, [1, 0], [1], [0])]),
        ([("a", [0, 1, 9])], [("a", 1, [1, 0], [1], [0])]),
        ([("a", [0])], []),
        ([("no", [0])], []),
    ],
)
def test_moves(world: AdminWorld, topics: list[tuple[str, list[int]]] | None, expected: list[tuple[object, ...]]) -> None:
    asked = None if topics is None else [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
    answer = world.ask(ListPartitionReassignmentsRequest(topics=asked))
    assert [
        (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    ] == expected


def test_rights() -> None:
    answer = AdminWorld(authorizer=DenyAll()).ask(ListPartitionReassignmentsRequest(topics=None))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
