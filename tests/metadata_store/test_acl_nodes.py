"""The nodes of access rules, byte for byte as Kafka's `AclEntry` and `ZkAclChangeStore` write them."""

from __future__ import annotations

import pytest

from ottla.base.acls import AclOperation, Pattern, PatternType, Permission, ResourceType, Rule, java_name
from ottla.metadata_store.acl_nodes import BASE_PATHS, change, pattern_at, read_change, read_rules, rules_bytes, rules_path
from ottla.metadata_store.znodes import NodeError

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
RULES = [
    Rule("User:alice", "*", AclOperation.READ, Permission.ALLOW),
    Rule("User:bob", "10.0.0.1", AclOperation.IDEMPOTENT_WRITE, Permission.DENY),
]
BYTES = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:bob","permissionType":"Deny","operation":"IdempotentWrite","host":"10.0.0.1"}]}'
)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (Pattern(ResourceType.TOPIC, "orders"), "/kafka-acl/Topic/orders"),
        (Pattern(ResourceType.TOPIC, "*"), "/kafka-acl/Topic/*"),
        (Pattern(ResourceType.GROUP, "my group"), "/kafka-acl/Group/my group"),
        (Pattern(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (Pattern(ResourceType.TRANSACTIONAL_ID, "pay", PREFIXED), "/kafka-acl-extended/prefixed/TransactionalId/pay"),
        (Pattern(ResourceType.DELEGATION_TOKEN, "t"), "/kafka-acl/DelegationToken/t"),
        (Pattern(ResourceType.USER, "User:a"), "/kafka-acl/User/User:a"),
        (Pattern(ResourceType.GROUP, "a/b%\n"), "/kafka-acl/Group/a%2Fb%25%0A"),
        (Pattern(ResourceType.GROUP, ".."), "/kafka-acl/Group/%2E%2E"),
        (Pattern(ResourceType.GROUP, "\u00fc\u20ac"), "/kafka-acl/Group/\u00fc\u20ac"),
    ],
)
def test_a_pattern_has_one_path(pattern: Pattern, path: str) -> None:
    assert rules_path(pattern) == path and pattern_at(path) == pattern


def test_folders_hold_no_rules_and_come_before_what_is_in_them() -> None:
    assert all(pattern_at(path) is None for path in BASE_PATHS)
    for path in BASE_PATHS:
        parent = path.rpartition("/")[0]
        assert not parent or BASE_PATHS.index(parent) < BASE_PATHS.index(path)


def test_rules_are_kafkas_json_in_one_order() -> None:
    assert rules_bytes(reversed(RULES)) == BYTES and read_rules(BYTES) == RULES
    assert read_rules(b"") == [] and read_rules(b'{"acls":[],"version":1,"more":2}') == []


def test_changes_are_kafkas_nodes() -> None:
    literal, prefixed = Pattern(ResourceType.TRANSACTIONAL_ID, "a:b"), Pattern(ResourceType.TOPIC, "ord", PREFIXED)
    assert (change(literal).path, change(literal).data) == ("/kafka-acl-changes/acl_changes_", b"TRANSACTIONAL_ID:a:b")
    expected = b'{"version":1,"resourceType":"TOPIC","name":"ord","patternType":"PREFIXED"}'
    assert (change(prefixed).path, change(prefixed).data) == ("/kafka-acl-extended-changes/acl_changes_", expected)
    for pattern in (literal, prefixed):
        made = change(pattern)
        assert made.is_sequential and read_change(f"{made.path}0000000007", made.data) == pattern
    assert read_change("/kafka-acl-changes/acl_changes_0", b"Topic:x") == Pattern(ResourceType.TOPIC, "x")


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"[]", b"{}", b'{"acls":{}}', b'{"acls":[7]}', b'{"acls":[{"principal":"User:a"}]}', BYTES.replace(b"Read", b"Raed"),
        BYTES.replace(b"Allow", b""), BYTES.replace(b'"*"', b"7"), b"\xff",
    ],
)  # fmt: skip
def test_a_node_of_which_a_part_cannot_be_read_is_refused_whole(data: bytes) -> None:
    with pytest.raises(NodeError):
        read_rules(data)


@pytest.mark.parametrize("path", ["/kafka-acl/Topik/a", "/kafka-acl/Topic/a/b", "/kafka-acl-extended/prefixed/Topic/%zz"])
def test_paths_that_are_no_pattern_are_refused(path: str) -> None:
    with pytest.raises(NodeError):
        pattern_at(path)


@pytest.mark.parametrize("data", [b"", b"Topic", b"Topik:x", b"\xff\xfe:"])
def test_changes_that_name_nothing_are_refused(data: bytes) -> None:
    with pytest.raises(NodeError):
        read_change("/kafka-acl-changes/acl_changes_0", data)
    with pytest.raises(NodeError):
        read_change("/kafka-acl-extended-changes/acl_changes_0", data)


def test_every_name_is_spelled_as_kafkas_tools_spell_it() -> None:
    assert [java_name(kind) for kind in ResourceType] == ["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
    assert java_name(AclOperation.DESCRIBE_CONFIGS) == "DescribeConfigs" and java_name(AclOperation.TWO_PHASE_COMMIT) == "TwoPhaseCommit"
