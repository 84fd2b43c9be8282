"""A snapshot: its pace, because looks that are expensive are taken less often, and the last record of each topic."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core import admin
from ottla.console.snapshot import COST_SHARE_MAX, IDLE_INTERVAL_S, INTERVAL_S, pause_s
from ottla.testing.broker import Broker
from tests.console.world import Visitor, console_of, write


def test_looks_take_a_bounded_share_of_a_core() -> None:
    assert pause_s(0.001, is_idle=False) == INTERVAL_S and pause_s(0.001, is_idle=True) == IDLE_INTERVAL_S
    for cost_s in (0.1, 0.5, 3.0):
        assert cost_s / pause_s(cost_s, is_idle=False) <= COST_SHARE_MAX
    assert pause_s(0.5, is_idle=True) == pause_s(0.5, is_idle=False) > IDLE_INTERVAL_S


def test_the_list_of_topics_has_the_time_of_the_last_record() -> None:
    old_ms = 1_700_000_000_000
    with Broker(topics=["old:2", "new:1", "empty:1"]) as broker, Cluster(broker.bootstrap_server) as cluster:
        with Producer(cluster) as producer:
            for partition, at_ms in ((0, old_ms), (1, old_ms - 5)):
                producer.produce("old", b"v", partition=partition, timestamp=at_ms)
            producer.flush()
        with console_of(broker.bootstrap_server) as visitor:
            assert last_records(visitor) == {"old": None, "new": None, "empty": None}, "the first page does not wait for them"
            began = datetime.now(UTC)
            write(cluster, "new", b"v")
            renew(visitor)
            renew(visitor)
            found = last_records(visitor)
            assert found["old"] == "2023-11-14T22:13:20.000Z" and found["empty"] is None
            assert abs((datetime.fromisoformat(str(found["new"])) - began).total_seconds()) < 60
            assert admin.delete_topics(cluster, ["old"]) == {"old": None}
            renew(visitor)
            assert last_records(visitor).keys() == {"new", "empty"}


def test_lists_of_topics_groups_and_brokers_cost_the_cluster_nothing(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = visitor.console.desk
    assert desk is not None
    asked = []

    def counted(conversation: object) -> object:
        asked.append(path)
        return run(conversation)  # type: ignore[arg-type]

    run = desk.cluster.run
    monkeypatch.setattr(desk.cluster, "run", counted)
    for path in ("/", "/metrics", "/brokers", "/brokers/0", "/topics", "/groups", "/share-groups", "/search?q=o", "/topics?sort=-records"):
        visitor.get(path)
    assert asked == []
    path = "/transactions"
    visitor.get(path)
    assert set(asked) == {path}, "requests are counted"


def last_records(visitor: Visitor) -> dict[str, str | None]:
    return {one["topic"]: one["last"] for one in visitor.json("/topics.json")["topics"]}


def renew(visitor: Visitor) -> None:
    assert visitor.console.desk is not None
    visitor.console.desk.snapshot.renew()
