"""The pages of users and quotas: what they set is what the broker has."""

from __future__ import annotations

from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import quota_admin
from ottla.client.core.quota_admin import CLIENT_ID, DEFAULT, EXACT, USER
from tests.console.world import SCRIPT, Visitor


def test_a_user_gets_a_password_and_loses_it(visitor: Visitor, cluster: Cluster) -> None:
    given = {"user": "alice", "password": "wonder", "again": "wonder", "iterations": "5000"}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert f"User alice can log in by {mechanism}." in visitor.act("/users", "/do/users/set", **given, mechanism=mechanism)
    rows = visitor.json("/users.json")["users"]
    assert [(row["mechanism"], row["iterations"]) for row in rows if row["user"] == "alice"] == [
        ("SCRAM-SHA-256", 5000), ("SCRAM-SHA-512", 5000),
    ]  # fmt: skip
    assert "wonder" not in visitor.get("/user?name=alice")
    form = visitor.form("/user?name=alice", "/do/users/remove")
    assert "Type &#39;alice&#39;" in visitor.post("/do/users/remove", {**form, "typed": ""}, 400)
    removed = visitor.act("/user?name=alice", "/do/users/remove", mechanism="SCRAM-SHA-256", typed="alice")
    assert "Removed SCRAM-SHA-256 of user alice." in removed
    assert "has no credentials of SCRAM-SHA-256" in visitor.act(
        "/user?name=alice", "/do/users/remove", 404, mechanism="SCRAM-SHA-256", typed="alice"
    )
    visitor.act("/user?name=alice", "/do/users/remove", mechanism="", typed="alice")
    assert "alice" not in scram_admin.describe_scram(cluster)
    assert "No user &#39;alice&#39; has SCRAM" in visitor.get("/user?name=alice", 404)


def test_a_password_that_cannot_be_set_is_refused(visitor: Visitor, cluster: Cluster) -> None:
    given = {"user": "bob", "password": "one", "again": "one", "mechanism": "SCRAM-SHA-256", "iterations": "4096"}
    for change, sentence in (
        ({"again": "two"}, "differs from its repetition"),
        ({"password": "", "again": ""}, "The password is empty"),
        ({"mechanism": "PLAIN"}, "The mechanism is one of"),
        ({"iterations": "12"}, "The iterations are 4096 to 16384, not 12"),
        ({"user": " "}, "user is empty"),
    ):
        assert sentence in visitor.act("/users", "/do/users/set", 400, **{**given, **change})
    assert "bob" not in scram_admin.describe_scram(cluster)


def test_a_quota_is_set_shown_readable_and_removed(visitor: Visitor, cluster: Cluster) -> None:
    action = "/do/quotas/set"
    assert "producer_byte_rate is 9.5 MiB/s." in visitor.act(
        "/quotas", action, user="alice", client="app", key="producer_byte_rate", value="10M"
    )
    visitor.act("/quotas", action, client="<default>", key="request_percentage", value="50")
    visitor.act("/quotas", action, user=SCRIPT, key="consumer_byte_rate", value="500k")
    visitor.act("/quotas", action, ip="10.0.0.1", key="connection_creation_rate", value="7")
    found = {(row["user"], row["client"], row["ip"], row["quota"]): row["readable"] for row in visitor.json("/quotas.json")["quotas"]}
    assert found == {
        ("alice", "app", None, "producer_byte_rate"): "9.5 MiB/s", (None, "<default>", None, "request_percentage"): "50.0 %",
        (SCRIPT, None, None, "consumer_byte_rate"): "488.3 KiB/s", (None, None, "10.0.0.1", "connection_creation_rate"): "7.0 a second",
    }  # fmt: skip
    assert SCRIPT not in visitor.get("/quotas")
    assert quota_admin.describe_quotas(cluster, [(CLIENT_ID, DEFAULT, None)]) == {((CLIENT_ID, None),): {"request_percentage": 50.0}}
    which = '[[["client-id", "app"], ["user", "alice"]], "producer_byte_rate"]'
    assert "producer_byte_rate was removed" in visitor.act("/quotas", "/do/quotas/remove", which=which)
    assert "There is no such quota any more" in visitor.act("/quotas", "/do/quotas/remove", 404, which=which)
    assert quota_admin.describe_quotas(cluster, [(USER, EXACT, "alice"), (CLIENT_ID, EXACT, "app")]) == {}


def test_a_quota_that_cannot_be_set_is_refused(visitor: Visitor) -> None:
    for fields, sentence in (
        ({"key": "producer_byte_rate", "value": "1"}, "Name a user, a client id or an address"),
        ({"user": "a", "key": "producer_byte_rate", "value": "much"}, "is a number above 0, not &#39;much&#39;"),
        ({"user": "a", "key": "producer_byte_rate", "value": "-1"}, "is a number above 0"),
        ({"user": "a", "key": "speed", "value": "1"}, "INVALID_REQUEST"),
        ({"user": "a", "ip": "10.0.0.1", "key": "producer_byte_rate", "value": "1"}, "INVALID_REQUEST"),
    ):
        assert sentence in visitor.act("/quotas", "/do/quotas/set", 400, **fields)
