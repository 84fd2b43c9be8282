"""A cluster under load loses a process, a connection or its ZooKeeper: no acknowledged record is lost or duplicated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import ROOT, eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), zookeeper)
    with running(made):
        yield made


def test_three_brokers_register_and_elect(cluster: Cluster, topic: str) -> None:
    assert cluster.registered() == [1, 2, 3] and cluster.controller() in (1, 2, 3)
    assert {part.leader for part in cluster.metadata(topic).values()} == {1, 2, 3}, "leadership is spread"


def test_the_leader_is_killed(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        victim = cluster.leader_of(topic)
        cluster.brokers[victim].kill()
        load.flows()
        assert cluster.leader_of(topic) != victim
        cluster.brokers[victim].start()
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""


def test_the_controller_is_killed(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        victim = cluster.controller()
        cluster.brokers[victim].kill()
        load.flows()
        eventually(lambda: cluster.controller() != victim, WAIT_SECONDS)
        cluster.brokers[victim].start()
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""


def test_a_follower_is_killed(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        victim = next(number for number in cluster.brokers if number not in (cluster.leader_of(topic), cluster.controller()))
        cluster.brokers[victim].kill()
        load.flows()
        cluster.brokers[victim].start()
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""


def test_a_partition_without_a_leader_names_who_may_lead_and_who_led_last(cluster: Cluster, topic: str) -> None:
    """The follower of two replicas is killed, then the leader. The third broker describes the eligible replica and the last leader
    (KIP-966).
    """
    follower, leader, asked = (cluster.controller() % 3 + 1, (cluster.controller() + 1) % 3 + 1, cluster.controller())
    name = f"{topic}-of-two"
    admin = cluster.admin()  # kept in a variable, because a client without references is closed
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[leader, follower]])])[name].result(WAIT_SECONDS)
    cluster.brokers[follower].kill()
    eventually(lambda: f"Isr: {leader}\tElr: {follower}\tLastKnownElr: \n" in described(cluster, name, asked), WAIT_SECONDS)
    cluster.brokers[leader].kill()
    without_leader = f"Leader: none\tReplicas: {leader},{follower}\tIsr: {leader}\tElr: {follower}\tLastKnownElr: {leader}\n"
    eventually(lambda: without_leader in described(cluster, name, asked), WAIT_SECONDS)
    cluster.brokers[leader].start()
    cluster.brokers[follower].start()
    cluster.wait_until_healthy(name)
    cluster.wait_until_healthy(topic)
    eventually(lambda: all("\tElr: \tLastKnownElr: \n" in described(cluster, name, number) for number in cluster.brokers), WAIT_SECONDS)
    assert cluster.leader_of(name) == leader


def described(cluster: Cluster, topic: str, broker: int) -> str:
    """Returns the output of `kafka-topics --describe`."""
    command = [sys.executable, "-m", "ottla.cli.main", "kafka-topics", "--describe", "--topic", topic]
    command += ["--bootstrap-server", cluster.brokers[broker].address]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT).stdout


def test_a_broker_pauses_until_its_session_has_ended(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        victim = cluster.leader_of(topic)
        os.kill(cluster.brokers[victim].pid, signal.SIGSTOP)
        try:
            eventually(lambda: victim not in cluster.registered(), WAIT_SECONDS)
            load.flows()
        finally:
            os.kill(cluster.brokers[victim].pid, signal.SIGCONT)
        eventually(lambda: cluster.registered() == [1, 2, 3], WAIT_SECONDS)
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""


def test_zookeeper_is_restarted(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        cluster.zookeeper.kill()
        load.flows()  # the other leaders continue without this broker
        cluster.zookeeper.start()
        eventually(lambda: cluster.registered() == [1, 2, 3], WAIT_SECONDS)
        cluster.wait_until_healthy(topic)
        load.flows()
        cluster.create_topic(f"{topic}-after")
    assert load.verdict() == ""


def test_a_rolling_restart(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        for broker in cluster.brokers.values():
            broker.restart()
            cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""


def test_all_brokers_are_killed_at_once(cluster: Cluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        cluster.kill()
        cluster.start()
        load.flows()
        cluster.wait_until_healthy(topic)
    assert load.verdict() == ""
