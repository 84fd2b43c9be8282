"""The pages of settings: each value with its source, and a change that is tried before it is done."""

from __future__ import annotations

from typing import Any

from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from tests.console.world import Visitor


def row_of(visitor: Visitor, path: str, setting: str) -> dict[str, Any]:
    (row,) = [row for row in visitor.json(f"/api/v1{path}")["settings"] if row["name"] == setting]
    assert isinstance(row, dict)
    return row


def test_a_setting_of_a_topic_is_tried_then_changed_and_put_back(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "settled", partitions=1)
    at = "/config?kind=topics&name=settled"
    change = "/config/change?kind=topics&name=settled&setting=max.message.bytes"
    before = row_of(visitor, at, "max.message.bytes")
    assert before["source"] == "default" and before["default"] is None
    page = visitor.get(f"{change}&value=1000")
    assert "Nothing was changed yet. The broker would accept this: max.message.bytes is set to 1000." in page
    assert row_of(visitor, at, "max.message.bytes") == before
    assert "max.message.bytes of topic settled is set to 1000." in visitor.act(f"{change}&value=1000", "/do/config/change")
    after = row_of(visitor, at, "max.message.bytes")
    assert (after["value"], after["source"], after["default"]) == ("1000", "topic", f"{before['value']} (default)")
    assert after == row_of(visitor, "/topics/settled/settings", "max.message.bytes")
    assert [one["value"] for one in visitor.json(f"/api/v1{change}")["values"]] == ["1000", before["value"]]
    assert "max.message.bytes of topic settled was removed." in visitor.act(f"{change}&reset=yes", "/do/config/change")
    assert row_of(visitor, at, "max.message.bytes") == before


def test_a_change_that_the_broker_would_refuse_is_not_offered(visitor: Visitor) -> None:
    for query, code in (
        ("kind=topics&name=orders&setting=retention.ms&value=soon", "INVALID_CONFIG"),
        ("kind=brokers&name=0&setting=broker.id&value=7", "INVALID"),
    ):
        page = visitor.get(f"/config/change?{query}")
        assert "Nothing was changed. The broker would refuse this" in page and code in page and "/do/config/change" not in page


def test_a_broker_and_the_defaults_of_all_brokers(visitor: Visitor, cluster: Cluster) -> None:
    change = "/config/change?kind=brokers&name=0&setting=log.cleaner.threads&value=2"
    assert "log.cleaner.threads of broker 0 is set to 2." in visitor.act(change, "/do/config/change")
    row = row_of(visitor, "/config?kind=brokers&name=0", "log.cleaner.threads")
    assert (row["source"], row["value"]) == ("dynamic, this broker", "2") and row["changeable"] is True
    assert row == row_of(visitor, "/brokers/0/settings", "log.cleaner.threads")
    default = "/config/change?kind=brokers&name=&setting=log.cleaner.threads&value=3"
    assert "of broker defaults is set to 3" in visitor.act(default, "/do/config/change")
    sources = [one["source"] for one in visitor.json("/api/v1/config/change?kind=brokers&name=0&setting=log.cleaner.threads")["values"]]
    assert sources[:2] == ["dynamic, this broker", "dynamic, all brokers"]
    for name in ("", "0"):
        admin.alter_configs(cluster, admin.BROKER_RESOURCE, name, deletions=["log.cleaner.threads"])


def test_a_setting_of_a_group_shows_the_value_without_it(visitor: Visitor) -> None:
    at, setting = "/config?kind=groups&name=settled", "consumer.heartbeat.interval.ms"
    change = f"/config/change?kind=groups&name=settled&setting={setting}"
    before = row_of(visitor, at, setting)
    assert before["default"] is None
    visitor.act(f"{change}&value=6000", "/do/config/change")
    after = row_of(visitor, at, setting)
    assert (after["value"], after["source"], after["default"]) == ("6000", "group", f"{before['value']} (default)")
    visitor.act(f"{change}&reset=yes", "/do/config/change")
    assert row_of(visitor, at, setting) == before


def test_what_has_no_settings_is_a_sentence(visitor: Visitor) -> None:
    assert "Settings belong to brokers, topics, groups" in visitor.get("/config?kind=kings&name=a", 404)
    assert "There is no broker &#39;9&#39;" in visitor.get("/config?kind=brokers&name=9", 404)
    assert "Name a topic or a group" in visitor.get("/config?kind=topics", 404)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in visitor.get("/config?kind=topics&name=nothing", 404)
    assert "has no setting &#39;speed&#39;" in visitor.get("/config/change?kind=topics&name=orders&setting=speed", 404)
