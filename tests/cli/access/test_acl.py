"""`ottla acl`: rules are added, shown and removed; nonsense is refused in one line before anything is sent."""

from __future__ import annotations

from tests.cli.conftest import Ottla


def rows(acl: Ottla, *words: str) -> list[tuple[str, ...]]:
    found = acl("acl", "list", *words, "-o", "json").json()["acls"]
    return [tuple(row.values()) for row in found]


def test_rules_are_added_shown_and_removed(acl: Ottla) -> None:
    operations = ("--operation", "read", "--operation", "describe-configs")
    added = acl("acl", "add", "--topic", "orders", "--allow-principal", "User:alice", *operations)
    assert (added.code, added.out) == (0, "Added 2 access rules.\n")
    acl("acl", "add", "--group", "team-", "--resource-pattern-type", "prefixed", "--deny-principal", "User:*", "--deny-host", "10.0.0.1")
    shown = acl("acl", "list").out.splitlines()
    assert shown[0].split() == ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
    assert [line.split() for line in shown[1:]] == [
        ["Topic", "orders", "Literal", "User:alice", "*", "Read", "Allow"],
        ["Topic", "orders", "Literal", "User:alice", "*", "DescribeConfigs", "Allow"],
        ["Group", "team-", "Prefixed", "User:*", "10.0.0.1", "All", "Deny"],
    ]
    assert [row[1] for row in rows(acl, "--group", "team-7", "--resource-pattern-type", "match")] == ["team-"]
    assert [row[5] for row in rows(acl, "--principal", "User:alice")] == ["Read", "DescribeConfigs"]
    assert acl("acl", "remove", "--topic", "orders").code == 2, "without a terminal --yes is needed"
    one = acl("acl", "remove", "--topic", "orders", "--allow-principal", "User:alice", "--operation", "Read", "--yes")
    assert (one.code, one.out) == (0, "Removed 1 access rule.\n") and len(rows(acl)) == 2
    assert acl("acl", "remove", "--topic", "orders", "--yes").out == "Removed 1 access rule.\n"
    assert acl("acl", "remove", "--topic", "orders", "--yes").out == "Removed 0 access rules.\n"


def test_producers_and_consumers_get_what_they_need(acl: Ottla) -> None:
    alice = ("--allow-principal", "User:alice", "--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2")
    assert acl("acl", "add", "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x", *alice).code == 0
    assert acl("acl", "add", "--consumer", "--topic", "t", "--group", "g", *alice).code == 0
    found = {(row[0], row[1], row[5]) for row in rows(acl)}
    assert found == {
        *(("Topic", "t", operation) for operation in ("Read", "Write", "Describe", "Create")),
        ("TransactionalId", "x", "Write"), ("TransactionalId", "x", "Describe"), ("Group", "g", "Read"),
        ("Cluster", "kafka-cluster", "IdempotentWrite"),
    }  # fmt: skip
    assert {row[4] for row in rows(acl)} == {"10.0.0.1", "10.0.0.2"}


def test_a_broker_without_rules_says_how_to_get_them(ottla: Ottla) -> None:
    result = ottla("acl", "list")
    assert result.code == 1 and result.err.count("\n") == 1 and "(SECURITY_DISABLED); start the broker with --acls" in result.err


def test_what_the_broker_refuses_is_one_line(acl: Ottla, ottla: Ottla) -> None:
    empty = acl("acl", "add", "--topic", "", "--allow-principal", "User:a")
    assert (empty.code, empty.err.count("\n")) == (1, 1) and "Resource name should not be empty" in empty.err
    without = ottla("acl", "list")
    assert (without.code, without.err.count("\n")) == (1, 1) and "No Authorizer is configured" in without.err
