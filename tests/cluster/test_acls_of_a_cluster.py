"""Access rules on three production nodes: a change made at any node is in force on all, and a starting broker serves no client before it
has the rules."""

from __future__ import annotations

from typing import Any

from ottla.base.acls import ANY, AclOperation, PatternType, Permission, ResourceType
from ottla.base.errors import ErrorCode
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tests.cluster.nodes import Nodes

ANONYMOUS = "User:ANONYMOUS"


def creation(name: str, operation: int, kind: int = ResourceType.TOPIC) -> AclCreation:
    return AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=PatternType.LITERAL, principal=ANONYMOUS, host="*",
        operation=operation, permission_type=Permission.ALLOW,
    )  # fmt: skip


def cluster(*assignments: str) -> Nodes:
    return Nodes(3, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", *assignments)


def code_at(nodes: Nodes, broker_id: int) -> int:
    """Returns the error code of the topic in the answer of this broker to a client that is no super user."""
    answer: Any = nodes.ask(broker_id, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]))
    return int(answer.topics[0].error_code)


def test_a_change_at_any_broker_holds_on_all_and_the_brokers_themselves_need_none() -> None:
    nodes = cluster("super.users=User:root")
    nodes.create("t", [1, 2, 3])
    refused = nodes.ask(2, CreateAclsRequest(creations=[creation("t", AclOperation.READ)]))
    assert [result.error_code for result in refused.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert {code_at(nodes, broker_id) for broker_id in (1, 2, 3)} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    nodes.write("one")
    nodes.until(lambda: all(nodes.replica(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))


def test_rules_reach_every_broker_and_are_read_by_one_that_starts() -> None:
    nodes = cluster("allow.everyone.if.no.acl.found=true")
    nodes.create("t", [1, 2, 3])
    answer = nodes.ask(3, CreateAclsRequest(creations=[creation("t", AclOperation.READ), creation("other", AclOperation.READ)]))
    assert [result.error_code for result in answer.results] == [0, 0]
    nodes.until(lambda: all(code_at(nodes, broker_id) == 0 for broker_id in (1, 2, 3)))
    gone = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC, resource_name_filter="t", pattern_type_filter=ANY, principal_filter=None,
        host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    denying = creation("t", AclOperation.DESCRIBE)
    denying.permission_type = Permission.DENY
    assert nodes.ask(2, DeleteAclsRequest(filters=[gone])).filter_results[0].matching_acls
    assert code_at(nodes, 2) == 0, "no rule is about the topic"
    assert nodes.ask(1, CreateAclsRequest(creations=[denying])).results[0].error_code == 0
    assert code_at(nodes, 1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "in force where it was made, when the answer is there"
    nodes.until(lambda: all(code_at(nodes, broker_id) == ErrorCode.TOPIC_AUTHORIZATION_FAILED for broker_id in (2, 3)))
    nodes.kill(3)
    nodes.start(3)
    assert code_at(nodes, 3) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
