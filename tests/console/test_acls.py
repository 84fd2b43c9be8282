"""The pages of ACLs: the matrix, the wizards, and why a client is refused, each against what the broker does."""

from __future__ import annotations

from ottla.analysis.access import Access
from ottla.base.acls import AclFilter, AclOperation, Binding, ResourceType
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin
from ottla.console.pages.acls import _verdict
from tests.console.world import Visitor


def rules_of(cluster: Cluster, principal: str) -> list[Binding]:
    return acl_admin.describe_acls(cluster, AclFilter(principal=principal))


def test_the_wizard_for_a_producer_shows_its_rules_and_then_adds_them(visitor: Visitor, cluster: Cluster) -> None:
    query = "/acls/wizard?role=producer&principal=User:maker&topic=made-&pattern=PREFIXED&transactional_id=tx&host=10.0.0.0/8"
    plan = visitor.json(f"/api/v1{query}")
    assert [row["operation"] for row in plan["rules"]] == ["Write", "Describe", "Create", "Write", "Describe"]
    assert {row["new"] for row in plan["rules"]} == {"new"}
    assert plan["the_same_command"] == (
        "ottla acl add --producer --allow-principal User:maker --topic made- --transactional-id tx --allow-host 10.0.0.0/8 "
        "--resource-pattern-type prefixed"
    )
    assert rules_of(cluster, "User:maker") == []
    assert "User:maker has 5 rules for this now." in visitor.act(query, "/do/acls/wizard")
    assert len(rules_of(cluster, "User:maker")) == 5
    assert "Add these rules" not in visitor.get(query)
    (row,) = [row for row in visitor.json("/acls.json")["matrix"] if row["principal"] == "User:maker" and row["resource"] == "Topic"]
    assert (row["name"], row["pattern"], row["host"]) == ("made-", "Prefixed", "10.0.0.0/8")
    assert row["write"] == row["describe"] == row["create"] == "Allow" and row["read"] is None


def test_the_wizard_for_a_consumer(visitor: Visitor, cluster: Cluster) -> None:
    query = "/acls/wizard?role=consumer&principal=User:taker&topic=orders&group=shop"
    assert "User:taker has 3 rules" in visitor.act(query, "/do/acls/wizard")
    rules = visitor.json("/api/v1/acls/rules?q=User:taker")["acls"]
    assert {(row["resource"], row["name"], row["operation"]) for row in rules if row["principal"] == "User:taker"} == {
        ("Topic", "orders", "Read"), ("Topic", "orders", "Describe"), ("Group", "shop", "Read"),
    }  # fmt: skip
    assert "group is empty" in visitor.get("/acls/wizard?role=consumer&principal=User:a&topic=orders", 400)
    assert "User:NAME" in visitor.get("/acls/wizard?role=producer&principal=alice&topic=orders", 400)
    assert "Choose the wizard" in visitor.get("/acls/wizard?role=king&principal=User:a&topic=orders", 400)


def test_a_rule_is_added_found_as_the_reason_and_removed(visitor: Visitor, cluster: Cluster) -> None:
    given = {"permission": "DENY", "principal": "User:rogue", "host": "*", "type": "TOPIC", "name": "orders", "pattern": "LITERAL"}
    assert "Added: Deny Write to User:rogue (literal orders)." in visitor.act("/acls", "/do/acls/add", **given, operation="WRITE")
    page = visitor.get("/acls/check?principal=User:rogue&topic=orders&operation=WRITE")
    assert "may not Write on Topic orders, because a rule denies it: Deny Write to User:rogue (literal orders)" in page
    assert "ottla acl remove --deny-principal &#39;User:rogue&#39; --operation Write --topic orders" in page
    rule = "/acls/rule?type=TOPIC&name=orders&pattern=LITERAL&principal=User:rogue&host=*&operation=WRITE&permission=DENY"
    assert "Type &#39;User:rogue&#39; to confirm" in visitor.act(rule, "/do/acls/remove", 400, typed="rogue")
    assert "Removed: Deny Write to User:rogue" in visitor.act(rule, "/do/acls/remove", typed="User:rogue")
    assert rules_of(cluster, "User:rogue") == []
    assert "There is no such rule" in visitor.get(rule, 404)
    page = visitor.get("/acls/check?principal=User:rogue&topic=orders&operation=WRITE")
    assert "because no rule allows it. To allow it: ottla acl add --allow-principal User:rogue --operation Write --topic orders" in page


def test_unusable_rules_are_refused(visitor: Visitor, cluster: Cluster) -> None:
    given = {"permission": "ALLOW", "principal": "User:odd", "type": "GROUP", "name": "g", "pattern": "LITERAL"}
    assert "On a resource Group the operations are Read" in visitor.act("/acls", "/do/acls/add", 400, **given, operation="WRITE")
    assert "is not known in a rule" in visitor.act("/acls", "/do/acls/add", 400, **given, operation="DANCE")
    assert "Name the resource" in visitor.act("/acls", "/do/acls/add", 400, **{**given, "name": ""}, operation="READ")
    assert rules_of(cluster, "User:odd") == []


def test_what_the_console_itself_may_do_is_asked_of_the_broker(visitor: Visitor) -> None:
    found = visitor.json("/api/v1/acls/check?topic=orders&transactional_id=tx&operation=WRITE")
    assert found["principal"] == "User:ANONYMOUS" and found["judged_by"] == "the broker"
    assert "Write" in found["access"][1]["may"] and found["access"][1]["may_not"] == ""
    assert any("User:ANONYMOUS may Write on Topic orders" in note for note in found["notes"])
    assert any("A super user may do everything" in note for note in found["notes"]), "the broker does not say it of transactional ids"


def test_the_command_for_an_unknown_principal_has_a_place_for_its_name() -> None:
    """A console that logs in by a certificate or a token does not know its own principal."""
    refused = Access(allowed=[], refused=[AclOperation.WRITE], why="")
    note = _verdict(refused, [], None, "", ResourceType.TOPIC, "orders", AclOperation.WRITE)
    assert note.text.endswith("ottla acl add --allow-principal User:NAME --operation Write --topic orders")
