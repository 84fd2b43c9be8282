"""`kafka-acls`: the lines of Kafka's AclCommand; tests/clients compares them with that program itself."""

from __future__ import annotations

import io

import pytest

from ottla.testing.broker import Broker
from tests.cli.access.conftest import acl, guarded
from tests.cli.conftest import Ottla

__all__ = ["acl", "guarded"]

PATTERN = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
READ = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
SECURITY_DISABLED = "org.apache.kafka.common.errors.SecurityDisabledException: No Authorizer is configured on the broker"
ADD = ("kafka-acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")


def test_rules_are_added_listed_and_removed(acl: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    assert acl(*ADD).out == f"Adding ACLs for resource `{PATTERN}`: \n \t{READ}\n\n"
    assert acl(*ADD).out == f"Acl (pattern={PATTERN}, entry={READ}) already exists.\n"
    shown = f"Current ACLs for resource `{PATTERN}`:\n\t{READ}\n\n"
    assert acl("kafka-acls", "--list").out == shown == acl("kafka-acls", "--list", "--topic", "orders").out
    by_principal = acl("kafka-acls", "--list", "--principal", "User:bob", "--principal", "User:alice").out
    assert by_principal == f"ACLs for principal `User:bob`\nACLs for principal `User:alice`\n{shown}"
    remove = ("kafka-acls", "--remove", *ADD[2:])
    question = f"Are you sure you want to remove ACLs: \n \t{READ}\n from resource filter `{PATTERN}`? (y/n)\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nY\n"))
    assert acl(*remove).out == question and acl("kafka-acls", "--list").out == shown
    assert acl(*remove).out == question and acl("kafka-acls", "--list").out == ""
    acl(*ADD)
    all_of = ("kafka-acls", "--remove", "--topic", "orders")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert acl(*all_of).out == f"Are you sure you want to delete all ACLs for resource filter `{PATTERN}`? (y/n)\n"
    assert acl(*all_of, "--force").out == "" and acl("kafka-acls", "--list").out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one action: --list, --add or --remove"),
        (("--list", "--add"), "exactly one action"),
        (("--add", "--topic", "t", "--allow-principal", "User:a", "--principal", "User:b"), "only available if --list is set"),
        (("--list", "--producer"), 'Option "[list]" can\'t be used with option "[producer]"'),
        (("--list", "--allow-host", "a"), 'can\'t be used with option "[allow-host]"'),
        (("--add", "--topic", "t", "--allow-principal", "alice"), "principalType:principalName but got alice"),
    ],
)
def test_wrong_usage_is_one_line(offline: Ottla, words: tuple[str, ...], message: str) -> None:
    refused = offline("kafka-acls", *words)
    assert refused.code == 2 and message in refused.err and refused.err.count("\n") == 1 and not refused.out


def test_a_controllers_address_is_a_brokers(offline: Ottla, guarded: Broker, acl: Ottla) -> None:
    acl(*ADD)
    listed = offline("kafka-acls", "--list", "--bootstrap-controller", guarded.bootstrap_server)
    assert (listed.code, listed.out) == (0, f"Current ACLs for resource `{PATTERN}`:\n\t{READ}\n\n")


def test_a_refusal_of_the_broker_is_kafkas_line(ottla: Ottla) -> None:
    refused = ottla("kafka-acls", "--list")
    assert (refused.code, refused.out) == (1, f"Error while executing ACL command: {SECURITY_DISABLED}\n")
