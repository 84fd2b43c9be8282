"""AlterPartitionReassignments on a single broker: the errors are Kafka's."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.handlers.admin_world import AdminWorld, DenyAll


def asked(replicas: list[int] | None, *, topic: str = "a", may_change_factor: bool = True) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])], allow_replication_factor_change=may_change_factor
    )


def code(answer: AlterPartitionReassignmentsResponse) -> int:
    return answer.responses[0].partitions[0].error_code


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([0], 0),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 0], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_replicas(version: int, replicas: list[int] | None, expected: int) -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert code(world.ask(asked(replicas), version)) == expected


def test_other_refusals() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert code(world.ask(asked([0], topic="no"))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for impossible in ([0, 1], [], [0, 0]):
        refused = code(world.ask(asked(impossible, may_change_factor=False)))
        assert refused == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Kafka checks the replicas before their number"
    assert AdminWorld(authorizer=DenyAll()).ask(asked([0])).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
