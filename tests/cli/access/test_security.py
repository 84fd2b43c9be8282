"""`ottla security check`: what these settings can and cannot do, by what the broker says and by the rules that say so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def checked(run: Ottla, *words: object) -> dict[str, dict[str, Any]]:
    result = run("security", "check", *words, "-o", "json")
    return {row["what"]: row for row in result.json()["access"]}


def test_a_broker_without_an_authorizer_says_so(ottla: Ottla, topic: str) -> None:
    found = checked(ottla, "--topic", topic)
    assert found["connect"] == {"what": "connect", "may": "yes", "may_not": "", "why": "as User:ANONYMOUS"}
    assert found["TLS"]["why"] == "none: what is sent can be read on the way"
    assert found["access rules"]["why"] == "the broker has no authorizer: every client that connects may do everything"
    assert found[f"Topic {topic}"]["may_not"] == "" and "Write" in found[f"Topic {topic}"]["may"]
    others = checked(ottla, "--topic", topic, "--principal", "User:alice")
    assert others[f"Topic {topic}"] == found[f"Topic {topic}"] and others["Cluster"] == found["Cluster"]

def test_a_super_user_may_do_everything_and_another_what_rules_say(acl: Ottla, guarded: Broker) -> None:
    name = guarded.create_topic("checked")
    acl("acl", "add", "--topic", name, "--allow-principal", "User:alice", "--operation", "Read", "--allow-host", "10.0.0.1")
    acl("acl", "add", "--topic", "che", "--resource-pattern-type", "prefixed", "--deny-principal", "User:*", "--operation", "Delete")
    mine = checked(acl, "--topic", name)[f"Topic {name}"]
    assert mine["may_not"] == "" and mine["why"] == "Deny Delete to User:* (prefixed che)"
    alice = checked(acl, "--topic", name, "--group", "g", "--principal", "User:alice", "--client-host", "10.0.0.1")
    assert alice[f"Topic {name}"]["may"] == "Read, Describe" and "Delete" in alice[f"Topic {name}"]["may_not"]
    assert "Allow Read to User:alice from 10.0.0.1 (literal checked)" in alice[f"Topic {name}"]["why"]
    assert alice["Group g"] == {
        "what": "Group g", "may": "", "may_not": "Read, Delete, Describe, DescribeConfigs, AlterConfigs",
        "why": "no rule names it for User:alice",
    }  # fmt: skip
    elsewhere = checked(acl, "--topic", name, "--principal", "User:alice", "--client-host", "10.0.0.2")
    assert elsewhere[f"Topic {name}"]["may"] == "" and alice["Cluster"]["may"] == ""


def test_a_rule_for_a_network_counts_for_its_addresses(acl: Ottla, guarded: Broker) -> None:
    name = guarded.create_topic("from-a-network")
    acl("acl", "add", "--topic", name, "--allow-principal", "User:alice", "--operation", "Read", "--allow-host", "10.0.0.0/8")
    for host, may in (("10.200.0.1", "Read, Describe"), ("11.0.0.1", "")):
        found = checked(acl, "--topic", name, "--principal", "User:alice", "--client-host", host)
        assert found[f"Topic {name}"]["may"] == may


def test_the_table_fits_a_narrow_window(acl: Ottla, guarded: Broker) -> None:
    name = guarded.create_topic("narrow")
    acl("acl", "add", "--topic", name, "--allow-principal", "User:alice", "--operation", "Read", "--allow-host", "10.0.0.1")
    shown = acl("security", "check", "--topic", name, "--group", "billing", "--principal", "User:alice").out
    assert max(map(len, shown.splitlines())) <= 92
    assert " ".join(shown.split()).count("Read") == 3


def test_how_long_the_broker_s_certificate_holds(offline: Ottla, tmp_path: Path) -> None:
    with Broker(users={"alice": "secret"}, tls=True) as broker:
        file = broker.write_java_config(tmp_path / "alice.properties", user="alice")
        found = checked(offline, "--command-config", file)["TLS"]["why"]
        trusting = checked(offline, "--command-config", file, "-X", "enable.ssl.certificate.verification=false")["TLS"]["why"]
    assert re.fullmatch(r"TLSv1\.3, TLS_\w+; the broker's certificate ends on \d{4}-\d\d-\d\d, in \d+ days", found)
    assert trusting.endswith("; the broker's certificate is not checked")


def test_an_address_without_a_broker_is_said_to_be_one(offline: Ottla) -> None:
    result = offline("security", "check", "-b", "127.0.0.1:1", "-o", "json")
    assert result.code == 1
    (row,) = result.json()["access"]
    assert row["what"] == "connect" and row["may"] == "no" and row["why"]
