"""A cluster under load whose network breaks: a broker is cut off from ZooKeeper, from the other brokers and the clients, or from all of
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clusters.cluster import PARTITIONS, WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("partitions"), zookeeper, has_proxies=True)
    with running(made):
        yield made


def replaced(cluster: Cluster, topic: str, victim: int) -> bool:
    """Whether every partition is led by another broker than this one."""
    found = cluster.metadata(topic)
    return len(found) == PARTITIONS and all(part.leader > 0 and part.leader != victim for part in found.values())


def check_others_go_on(cluster: Cluster, topic: str, load: Load, victim: int) -> None:
    """Checks that the partitions of other leaders accept records while this broker is cut off, and all partitions after it is connected
    again.
    """
    others = [index for index, part in cluster.metadata(topic).items() if part.leader != victim]
    before = {index: len(load.delivered[index]) for index in others}
    eventually(lambda: all(len(load.delivered[index]) > before[index] + 100 for index in others), WAIT_SECONDS)
    cluster.to_broker[victim].cut()
    cluster.to_broker[victim].release()
    cluster.wait_until_healthy(topic)
    load.flows()


def test_a_leader_that_loses_zookeeper_alone_is_replaced(cluster: Cluster, topic: str) -> None:
    """A leader without ZooKeeper is replaced. Its clients and followers still reach it, so it leads until others take over with newer
    epochs.
    """
    with Load(cluster, topic) as load:
        victim = cluster.leader_of(topic)
        cluster.to_zookeeper[victim].hold()
        eventually(lambda: victim not in cluster.registered(), WAIT_SECONDS)
        load.flows()
        cluster.to_zookeeper[victim].cut()
        cluster.to_zookeeper[victim].release()
        eventually(lambda: cluster.registered() == [1, 2, 3], WAIT_SECONDS)
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""


def test_a_leader_that_others_cannot_reach_acknowledges_nothing_alone(cluster: Cluster, topic: str) -> None:
    """Clients and followers cannot reach the leader, but it reaches ZooKeeper: it stays registered, and its followers fall behind. It must
    not acknowledge records alone.
    """
    with Load(cluster, topic) as load:
        victim = cluster.leader_of(topic)
        cluster.to_broker[victim].hold()
        check_others_go_on(cluster, topic, load, victim)
    assert load.verdict() == ""


@pytest.mark.night
def test_a_leader_whose_answers_get_lost_acknowledges_nothing_alone(cluster: Cluster, topic: str) -> None:
    """Only one direction is cut: requests of clients and followers reach the leader, its answers are lost. It must not acknowledge records
    alone.
    """
    with Load(cluster, topic) as load:
        victim = cluster.leader_of(topic)
        cluster.to_broker[victim].hold(requests=False)
        check_others_go_on(cluster, topic, load, victim)
    assert load.verdict() == ""


@pytest.mark.night
def test_a_leader_whose_requests_get_lost_acknowledges_nothing_alone(cluster: Cluster, topic: str) -> None:
    """The other direction is cut: requests of clients and followers are lost, but the leader's answers and its own requests arrive. It must
    not acknowledge records alone.
    """
    with Load(cluster, topic) as load:
        victim = cluster.leader_of(topic)
        cluster.to_broker[victim].hold(answers=False)
        check_others_go_on(cluster, topic, load, victim)
    assert load.verdict() == ""


def test_a_broker_that_is_cut_off_from_everything_is_replaced(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        victim = cluster.controller()
        for proxy in (cluster.to_zookeeper[victim], cluster.to_broker[victim]):
            proxy.hold()
        eventually(lambda: victim not in cluster.registered(), WAIT_SECONDS)
        eventually(lambda: cluster.controller() != victim, WAIT_SECONDS)
        eventually(lambda: replaced(cluster, topic, victim), WAIT_SECONDS)
        load.flows()
        for proxy in (cluster.to_zookeeper[victim], cluster.to_broker[victim]):
            proxy.cut()
            proxy.release()
        eventually(lambda: cluster.registered() == [1, 2, 3], WAIT_SECONDS)
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""
