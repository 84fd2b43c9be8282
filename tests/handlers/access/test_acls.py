"""CreateAcls, DescribeAcls and DeleteAcls: what Kafka checks, what it answers, and that a changed rule is applied to the next request."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.acls import ANY, MATCH, AclOperation, PatternType, Permission, ResourceType
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import StoreRetries
from ottla.cluster.acl_rules import AclRules
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.audit import AuditLog
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from tests.fakes.memory_store import MemoryStore
from tests.fakes.timers import ManualTimers
from tests.handlers.admin_world import AdminWorld

ADMIN, ALICE = "User:admin", "User:alice"
READ, WRITE, ALTER, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.DESCRIBE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


class AclWorld(AdminWorld):
    """A broker with access rules. The client is a super user until the test calls `become`."""

    def __init__(self) -> None:
        timers = ManualTimers()
        self.authorizer = AclAuthorizer(AuditLog(timers.clock), super_users=[ADMIN])
        super().__init__(authorizer=self.authorizer)
        self.store = MemoryStore()
        self.broker.acl_rules = AclRules(self.store, StoreRetries(self.store, timers), timers, self.authorizer, is_alone=True)
        self.broker.acl_rules.start(lambda: None)
        self.become(ADMIN)

    def become(self, principal: str) -> None:
        self.connection.principal = principal

    def create(self, *creations: AclCreation) -> list[tuple[int, str | None]]:
        answer = self.ask(CreateAclsRequest(creations=list(creations)))
        return [(result.error_code, result.error_message) for result in answer.results]

    def described(self, **wanted: Any) -> list[tuple[Any, ...]]:
        answer = self.ask(DescribeAclsRequest(**filtering(**wanted)))
        assert answer.error_code == 0
        return [
            (resource.resource_name, resource.pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type)
            for resource in answer.resources
            for acl in resource.acls
        ]


def filtering(kind: int = ANY, name: str | None = None, pattern: int = ANY, who: str | None = None, operation: int = ANY) -> dict[str, Any]:
    return {
        "resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern, "principal_filter": who,
        "host_filter": None, "operation": operation, "permission_type": ANY,
    }  # fmt: skip


def creation(name: str = "orders", who: str = ALICE, operation: int = READ, **fields: Any) -> AclCreation:
    defaults: dict[str, Any] = {
        "resource_type": TOPIC, "resource_pattern_type": PatternType.LITERAL, "host": "*", "permission_type": Permission.ALLOW,
    }  # fmt: skip
    return AclCreation(resource_name=name, principal=who, operation=operation, **{**defaults, **fields})


@pytest.fixture
def world() -> AclWorld:
    return AclWorld()


def test_a_rule_is_created_shown_in_force_and_removed(world: AclWorld) -> None:
    assert world.create(creation(), creation(operation=WRITE), creation()) == [(0, None)] * 3
    assert world.create(creation()) == [(0, None)]
    shown = [("orders", 3, ALICE, "*", READ, 3), ("orders", 3, ALICE, "*", WRITE, 3)]
    assert world.described() == shown
    assert world.authorizer.is_allowed(connection_of(world, ALICE), READ, TOPIC, "orders")
    world.become(ADMIN)
    answer = world.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**filtering(operation=READ)), DeleteAclsFilter(**filtering(kind=2))]))
    by_filter = [[(acl.resource_name, acl.operation, acl.error_code) for acl in result.matching_acls] for result in answer.filter_results]
    assert by_filter == [[("orders", READ, 0)], [("orders", READ, 0), ("orders", WRITE, 0)]]
    assert world.described() == [] and not world.authorizer.is_allowed(connection_of(world, ALICE), READ, TOPIC, "orders")


def test_a_rule_for_a_network_keeps_its_spelling_and_is_in_force_for_its_addresses(world: AclWorld) -> None:
    assert world.create(creation(host="10.1.2.3/8")) == [(0, None)]
    assert [entry[3] for entry in world.described()] == ["10.1.2.3/8"]
    alice = connection_of(world, ALICE)
    for host, is_allowed in (("10.200.0.1", True), ("11.0.0.1", False), ("::ffff:10.0.0.1", True)):
        alice.host = host
        assert world.authorizer.is_allowed(alice, READ, TOPIC, "orders") == is_allowed


def connection_of(world: AclWorld, principal: str) -> Any:
    world.become(principal)
    return world.connection


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "Resource name should not be empty"),
        ({"resource_type": CLUSTER, "name": "other"}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"who": "alice"}, "Could not parse principal from `alice`"),
        ({"resource_type": ANY}, "Invalid resourceType 1"),
        ({"resource_type": 99}, "Invalid resourceType 99"),
        ({"resource_pattern_type": MATCH}, "Invalid patternType 2"),
        ({"operation": ANY}, "Invalid operation 1"),
        ({"operation": 0}, "Invalid operation 0"),
        ({"permission_type": ANY}, "Invalid permissionType 1"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation of the host: 10.0.0.0/33"),
    ],
)
def test_nonsense_is_refused_by_itself(world: AclWorld, fields: dict[str, Any], words: str) -> None:
    (code, message), other = world.create(creation(**fields), creation("other"))
    assert code == ErrorCode.INVALID_REQUEST and message is not None and message.startswith(words)
    assert other == (0, None) and [entry[0] for entry in world.described()] == ["other"]


def test_filters_mean_what_kafkas_mean(world: AclWorld) -> None:
    world.create(
        creation("orders"), creation("*"), creation("ord", resource_pattern_type=PatternType.PREFIXED), creation("other", who="User:bob"),
        creation("kafka-cluster", resource_type=CLUSTER, operation=ALTER),
    )  # fmt: skip
    assert [entry[0] for entry in world.described(kind=TOPIC, name="orders", pattern=MATCH)] == ["*", "ord", "orders"]
    assert [entry[0] for entry in world.described(name="ord", pattern=ANY)] == ["ord"]
    assert [entry[0] for entry in world.described(name="ord", pattern=PatternType.LITERAL)] == []
    assert [entry[0] for entry in world.described(pattern=PatternType.PREFIXED)] == ["ord"]
    assert [entry[0] for entry in world.described(who="User:bob")] == ["other"]
    assert [entry[0] for entry in world.described(operation=ALTER)] == ["kafka-cluster"]
    for number in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        answer = world.ask(DescribeAclsRequest(**{**filtering(), number: 88}))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        (result,) = world.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**{**filtering(), number: 88})])).filter_results
        assert result.error_code == ErrorCode.INVALID_REQUEST and not result.matching_acls
    assert len(world.described()) == 5


def test_rights_on_the_cluster_are_needed_and_one_does_not_stand_for_the_other(world: AclWorld) -> None:
    world.create(creation("orders"), creation("kafka-cluster", resource_type=CLUSTER, operation=DESCRIBE))
    before = dict(world.store.nodes())
    world.become(ALICE)
    assert len(world.described()) == 2
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.create(creation("mine")) == [(refused, "Cluster authorization failed.")]
    (result,) = world.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**filtering())])).filter_results
    assert result.error_code == refused and not result.matching_acls and world.store.nodes() == before
    world.become("User:bob")
    answer = world.ask(DescribeAclsRequest(**filtering()))
    assert answer.error_code == refused and not answer.resources
    world.become(ADMIN)
    world.create(creation("kafka-cluster", resource_type=CLUSTER, operation=ALTER, who="User:bob"))
    world.become("User:bob")
    assert world.create(creation("mine")) == [(0, None)] and len(world.described()) == 4, "ALTER implies DESCRIBE"


def test_what_cannot_be_stored_is_an_error_and_not_in_force(world: AclWorld) -> None:
    world.create(creation("orders"))
    world.store.put("/kafka-acl/Topic/damaged", b"{")
    assert world.create(creation("damaged"), creation("fine")) == [(ErrorCode.UNKNOWN_SERVER_ERROR, None), (0, None)]
    assert [entry[0] for entry in world.described()] == ["fine", "orders"]


def test_a_described_cluster_shows_the_bits_that_are_allowed(world: AclWorld) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    world.create(creation("kafka-cluster", resource_type=CLUSTER, operation=ALTER))
    assert world.ask(asked).cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
    world.become(ALICE)
    assert world.ask(asked).cluster_authorized_operations == 1 << ALTER | 1 << DESCRIBE
    world.become("User:bob")
    assert world.ask(asked).cluster_authorized_operations == 0
