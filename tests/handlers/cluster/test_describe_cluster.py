"""DescribeCluster: the answer names the brokers; a question about controllers is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.base.acls import CLUSTER_NAME, Pattern, Permission, ResourceType, Rule
from ottla.base.errors import ErrorCode
from ottla.security.acl import AclOperation
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.audit import AuditLog
from ottla.wire.messages.describe_cluster import UNKNOWN, DescribeClusterRequest
from tests.fakes.clock import ManualClock
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.mark.parametrize("version", range(3))
def test_every_version(version: int) -> None:
    world = AdminWorld()
    answer = world.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, world.cluster.metadata.cluster_id, 0)
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [(0, "127.0.0.1", 9092)]
    assert answer.cluster_authorized_operations.bit_count() == 7, "all there are, without access control"


@pytest.mark.parametrize("authorizer", [None, DenyAll()])
def test_what_only_our_clients_with_the_right_to_describe_the_cluster_get(authorizer: DenyAll | None) -> None:
    world = AdminWorld(authorizer=authorizer)
    world.broker.isr_changes = SimpleNamespace(expansions=5, shrinks=7)

    def found() -> tuple[int, int, int]:
        answer = world.ask(DescribeClusterRequest())
        return answer.ottla_controller_epoch, answer.ottla_isr_expansions, answer.ottla_isr_shrinks

    assert found() == (UNKNOWN, UNKNOWN, UNKNOWN)
    world.connection.has_extensions = True
    expected = (world.cluster.loop.state.controller_epoch, 5, 7) if authorizer is None else (UNKNOWN, UNKNOWN, UNKNOWN)
    assert found() == expected


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)])
def test_other_endpoints(endpoint_type: int, code: ErrorCode) -> None:
    assert AdminWorld().ask(DescribeClusterRequest(endpoint_type=endpoint_type)).error_code == code


def test_only_the_bits_need_the_right_to_describe_the_cluster() -> None:
    answer = AdminWorld(authorizer=DenyAll()).ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert answer.error_code == ErrorCode.NONE and answer.brokers and answer.cluster_authorized_operations == 0
    seen = AdminWorld(authorizer=DenyAll((AclOperation.DESCRIBE, "kafka-cluster")))
    bits = seen.ask(DescribeClusterRequest(include_cluster_authorized_operations=True)).cluster_authorized_operations
    assert bits == 1 << AclOperation.DESCRIBE


def test_a_cluster_that_is_open_shows_all_operations_until_there_is_a_rule() -> None:
    """So does Kafka with allow.everyone.if.no.acl.found, and confluent-kafka-go's tests compare the whole set."""
    authorizer = AclAuthorizer(AuditLog(ManualClock()), allows_without_rules=True)
    authorizer.replace({})
    world = AdminWorld(authorizer=authorizer)
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert world.ask(asked).cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
    authorizer.put(Pattern(ResourceType.CLUSTER, CLUSTER_NAME), [Rule("User:*", "*", AclOperation.ALTER, Permission.ALLOW)])
    assert world.ask(asked).cluster_authorized_operations == 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
