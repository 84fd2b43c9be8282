"""The pages of share groups and streams groups: start offsets, members, the wizard, and deletions."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core import admin, share_admin
from ottla.testing.broker import Broker
from tests.console.world import SCRIPT, Visitor, join_streams_group, write

PLACE = TopicPartition("shared", 0)


def test_a_group_with_a_member_is_shown_and_its_start_cannot_be_moved(visitor: Visitor, broker: Broker, cluster: Cluster) -> None:
    admin.create_topic(cluster, "shared", partitions=1)
    write(cluster, "shared", *(b"%d" % number for number in range(5)))
    share_admin.alter_share_offsets(cluster, "readers", {PLACE: 2})
    with Cluster(broker.bootstrap_server, client_id=SCRIPT) as own, ShareConsumer(own, "readers", max_wait_ms=50) as consumer:
        consumer.subscribe(["shared"])
        for _ in range(100):
            if consumer.poll(0.2):
                break
        consumer.commit()
        found = visitor.json("/api/v1/share-group?name=readers")
        assert found["state"] == "Stable" and found["members"][0]["client"] == SCRIPT
        assert found["members"][0]["assignment"] == "shared-0" and found["offsets"][0]["readers"] == 1
        assert SCRIPT not in visitor.get("/share-group?name=readers")
        assert "Stop its members first" in visitor.get("/share-group/reset?name=readers&scenario=to_earliest", 409)
    visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
    assert "readers" in [row["group"] for row in visitor.json("/share-groups.json")["share_groups"]]
    assert "/share-group?name=readers" in visitor.get("/groups?q=readers")


def test_the_wizard_moves_the_start_offsets(visitor: Visitor, cluster: Cluster) -> None:
    share_admin.alter_share_offsets(cluster, "movers", {TopicPartition("orders", 0): 1})
    query = "/share-group/reset?name=movers&scenario=shift_by&value=3"
    (step,) = visitor.json(f"/api/v1{query}")["steps"]
    assert (step["partition"], step["old"], step["new"]) == ("orders-0", 1, 4)
    assert "Nothing was changed yet" in visitor.get(query)
    assert share_admin.share_offsets(cluster, "movers")[TopicPartition("orders", 0)].start_offset == 1
    assert "The start offsets of movers were moved." in visitor.act(query, "/do/share-group/reset", typed="movers")
    assert share_admin.share_offsets(cluster, "movers")[TopicPartition("orders", 0)].start_offset == 4
    assert "Choose where to move to" in visitor.get("/share-group/reset?name=movers&scenario=to_group", 400)


def test_state_and_groups_are_deleted(visitor: Visitor, cluster: Cluster) -> None:
    share_admin.alter_share_offsets(cluster, "leavers", {TopicPartition("orders", 0): 1, TopicPartition("quiet", 0): 0})
    at, action = "/share-group?name=leavers", "/do/share-group/delete-offsets"
    assert "has no state in nowhere" in visitor.act(at, action, 404, topic="nowhere", typed="leavers")
    assert "The state of leavers in quiet was deleted." in visitor.act(at, action, topic="quiet", typed="leavers")
    assert list(share_admin.share_offsets(cluster, "leavers")) == [TopicPartition("orders", 0)]
    assert "Share group leavers was deleted." in visitor.act(at, "/do/share-group/delete", typed="leavers")
    assert "There is no share group &#39;leavers&#39;" in visitor.get(at, 404)
    for query in ("", "?name=shop"):
        assert "There is no share group" in visitor.get(f"/share-group{query}", 404)


def test_a_streams_group_has_its_topics_and_tasks(visitor: Visitor, cluster: Cluster) -> None:
    join_streams_group(cluster, "counters", "orders")
    found = visitor.json("/api/v1/streams-group?name=counters")
    assert found["source_topics"] == ["orders"] and found["members"][0]["process"] == SCRIPT
    assert SCRIPT not in visitor.get("/streams-group?name=counters")
    assert "There is no streams group &#39;unknown&#39;" in visitor.get("/streams-group?name=unknown", 404)
