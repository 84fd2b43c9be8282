"""The pages of the cluster and of ZooKeeper: on a single broker, and on two brokers with a ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin
from ottla.testing.cluster import Cluster as ClusterOfBrokers
from tests.clients.broker_process import eventually
from tests.console.world import Visitor, console_of

PLACE = TopicPartition("pair", 0)


@pytest.fixture(scope="module")
def pair(need_zookeeper: None) -> Iterator[tuple[Cluster, Visitor]]:
    """A cluster of two brokers, with a topic on the first one, and a console."""
    with ClusterOfBrokers(2, settings={"auto.leader.rebalance.enable": "false"}) as brokers, Cluster(brokers.bootstrap_server) as cluster:
        first, second = (broker.broker_id for broker in brokers.brokers)
        admin.create_topic(cluster, "pair", assignments={0: [first, second], 1: [first, second]})
        with console_of(brokers.bootstrap_server) as visitor:
            yield cluster, visitor


def replicas(cluster: Cluster) -> list[int]:
    cluster.refresh(["pair"])
    return replica_admin.replicas_of(cluster, [PLACE])[PLACE]


def test_a_single_broker_has_nothing_to_move_and_no_zookeeper(visitor: Visitor) -> None:
    found = visitor.json("/cluster.json")
    assert found["moves"] == found["unpreferred"] == [] and found["controller"] == 0
    assert visitor.json("/api/v1/cluster/plan?way=rebalance")["plan"] == []
    assert "Every leader was the preferred one already" in visitor.act("/cluster", "/do/cluster/elect")
    assert "ZooKeeper is not shown: a single broker has none" in visitor.get("/zookeeper")


def test_a_plan_that_cannot_be_made_is_refused(visitor: Visitor) -> None:
    for query, sentence, status in (
        ("way=dance", "Choose what to do", 400),
        ("way=drain", "Name the broker to empty", 400),
        ("way=drain&broker=0", "too many for 0 other brokers", 409),
        ("way=leadership", "Name brokers such as 1,2,3", 400),
        ("way=leadership&broker=9", "Broker 9 does not run", 400),
        ("way=replicas&replicas=0", "Name the topic", 400),
        ("way=replicas&topic=orders&replicas=0,9", "Broker 9 does not run", 400),
        ("way=replicas&topic=orders&replicas=0,0", "names a broker twice", 400),
        ("way=replicas&topic=orders&replicas=0&partition=7", "has no partition 7", 404),
        ("way=rebalance&topic=nothing", "There is no topic", 404),
    ):
        assert sentence in visitor.get(f"/cluster/plan?{query}", status)
    assert "There is no topic" in visitor.act("/cluster", "/do/cluster/elect", 404, topic="nothing")
    assert "No such replica moves" in visitor.act("/cluster", "/do/cluster/cancel", 404, typed="cancel")


def test_replicas_are_moved_by_a_plan_and_leaders_are_elected(pair: tuple[Cluster, Visitor]) -> None:
    cluster, visitor = pair
    before = replicas(cluster)
    query = f"/cluster/plan?way=replicas&topic=pair&partition=0&replicas={before[1]},{before[0]}"
    (row,) = visitor.json(f"/api/v1{query}")["plan"]
    assert row == {"partition": "pair-0", "now": before, "then": before[::-1], "copied": "only the order"}
    assert replicas(cluster) == before
    form = visitor.form(query, "/do/cluster/reassign")
    assert "Type &#39;reassign&#39; to confirm" in visitor.post("/do/cluster/reassign", {**form, "typed": ""}, 400)
    assert "are being moved" in visitor.act(query, "/do/cluster/reassign", typed="reassign", throttle="1000000")
    eventually(lambda: replicas(cluster) == before[::-1])
    eventually(lambda: not replica_admin.moves_under_way(cluster))
    assert replica_admin.throttled_topics(cluster, ["pair"]) == ["pair"]
    assert "has a replication throttle now" in visitor.act("/cluster", "/do/cluster/unthrottle")
    assert replica_admin.throttled_topics(cluster, ["pair"]) == []
    visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
    assert [row["partition"] for row in visitor.json("/cluster.json")["unpreferred"]] == ["pair-0"]
    assert "1 leader elected." in visitor.act("/cluster", "/do/cluster/elect", topic="pair")
    found = visitor.json("/cluster.json")
    assert found["unpreferred"] == [] and ("pair-0", "election") in [(row["partition"], row["what"]) for row in found["changes"]]


def test_a_broker_hands_over_its_leaders(pair: tuple[Cluster, Visitor]) -> None:
    cluster, visitor = pair
    admin.create_topic(cluster, "led", assignments={0: replicas(cluster), 1: replicas(cluster)[::-1]})
    giver, taker = replicas(cluster)
    visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
    assert "Hand over its leaders" in visitor.get(f"/brokers/{giver}")
    query = f"/cluster/plan?way=leadership&broker={giver}&topic=led"
    assert visitor.json(f"/api/v1{query}")["plan"] == [
        {"partition": "led-0", "now": [giver, taker], "then": [taker, giver], "copied": "only the order"}
    ]
    assert "1 leader elected." in visitor.act(query, "/do/cluster/reassign", typed="reassign")
    cluster.refresh(["led"])
    leaders = {one.partition_index: one.leader_id for one in cluster.topic("led").partitions}
    assert leaders == {0: taker, 1: taker}
    assert visitor.json(f"/api/v1{query}")["plan"] == []


def test_the_nodes_of_zookeeper_are_shown_without_secrets(pair: tuple[Cluster, Visitor]) -> None:
    _, visitor = pair
    root = visitor.json("/zookeeper.json")
    assert {"brokers", "config", "controller"} <= {row["node"] for row in root["nodes"]}
    assert (root["controller"], root["controller_epoch"]) == (str(visitor.json("/cluster.json")["controller"]), "1")
    assert "controller_epoch" not in visitor.json("/zookeeper.json?path=/brokers")
    (controller,) = [row for row in root["nodes"] if row["node"] == "controller"]
    assert controller["kind"].startswith("ephemeral")
    state = visitor.json("/api/v1/zookeeper?path=/brokers/topics/pair/partitions/0/state")
    assert '"leader"' in state["value"] and state["nodes"] == []
    for path in ("/config/users", "/config/brokers"):
        assert visitor.json(f"/api/v1/zookeeper?path={path}")["value"].startswith("not shown")
    assert "ZooKeeper has no node /nowhere" in visitor.get("/zookeeper?path=/nowhere", 404)
    assert '<a href="/zookeeper?path=%2Fbrokers%2Ftopics">topics</a>' in visitor.get("/zookeeper?path=/brokers/topics/pair")


def test_pages_of_all_topics_know_those_that_others_have_deleted_and_created(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "gone", partitions=1)
    visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
    assert admin.delete_topics(cluster, ["gone"]) == {"gone": None}
    admin.create_topic(cluster, "fresh", partitions=1)
    paths = ("/cluster/plan?way=rebalance", "/transactions/hanging", "/cluster/plan?way=replicas&topic=fresh&partition=0&replicas=0")
    for path in paths:
        assert 'role="alert"' not in visitor.get(path)
    assert "Every leader was the preferred one already." in visitor.act("/cluster", "/do/cluster/elect", topic="fresh")
