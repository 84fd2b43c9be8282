"""A cluster of broker processes: the ports that it takes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.client.addresses import parse_addresses
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.errors import ClientError
from ottla.testing import cluster
from ottla.testing.cluster import BrokerDidNotStart, Cluster, replica_defaults
from ottla.testing.zookeeper_process import EmbeddedZooKeeper, ZooKeeperMissing, zookeeper_in
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.clients.broker_process import eventually

HOST = "127.0.0.1"


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another process, this one, listens."""
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_broker_whose_port_was_taken_meanwhile_gets_another(
    taken_port: int, need_zookeeper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, given = cluster.free_port, iter([taken_port])
    monkeypatch.setattr(cluster, "free_port", lambda: next(given, 0) or find())
    with Cluster(1) as brokers:
        assert brokers.brokers[0].process.port != taken_port
        assert brokers.create_topic("orders") == "orders"


def test_a_port_that_was_asked_for_is_not_replaced(taken_port: int, need_zookeeper: None) -> None:
    with pytest.raises(BrokerDidNotStart, match=f"cannot listen on {HOST}:{taken_port}"), Cluster(1, ports=[taken_port]):
        pass


def test_a_machine_without_java_has_clusters_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_no_java(tmp_path, monkeypatch)
    with Cluster(3, directory=tmp_path, topics=["orders"]) as brokers:
        assert isinstance(brokers.zookeeper, EmbeddedZooKeeper)
        brokers.add_record("orders", b"1")
        leader = brokers.leader_of("orders")
        leader.kill()
        eventually(lambda: brokers.leader_of("orders") is not leader)
        leader.start()
    with Cluster(3, directory=tmp_path) as again:
        assert [record.value for record in again.records("orders")] == [b"1"]


def has_no_java(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty))
    for name in ("JAVA_HOME", "ZOOKEEPER_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_a_directory_gets_the_server_that_wrote_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedZooKeeper(tmp_path / "ours"):
        pass
    assert isinstance(zookeeper_in(tmp_path / "ours"), EmbeddedZooKeeper)
    (tmp_path / "theirs" / "data").mkdir(parents=True)
    has_no_java(tmp_path, monkeypatch)
    with pytest.raises(ZooKeeperMissing):
        zookeeper_in(tmp_path / "theirs")
    assert isinstance(zookeeper_in(tmp_path / "new"), EmbeddedZooKeeper)
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(ZooKeeperMissing):
        zookeeper_in(tmp_path / "new")


def test_faults_of_one_broker_leave_the_others_alone(need_zookeeper: None) -> None:
    with Cluster(2) as brokers:
        first = BlockingConnection(parse_addresses(brokers.bootstrap_server)[0]).open()
        places = {node.node_id: f"{node.host}:{node.port}" for node in first.request(MetadataRequest()).brokers}
        first.close()
        connections = {number: BlockingConnection(parse_addresses(place)[0]).open() for number, place in places.items()}

        def codes() -> list[int]:
            return [connections[number].request(ListGroupsRequest()).error_code for number in (2, 1, 2)]

        brokers.broker(2).fail_next("ListGroups", "COORDINATOR_NOT_AVAILABLE")
        assert codes() == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE]
        brokers.fail_next("ListGroups", "COORDINATOR_NOT_AVAILABLE")
        assert codes() == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE]
        brokers.broker(1).lose_answer("ListGroups")
        assert connections[2].request(ListGroupsRequest()).error_code == ErrorCode.NONE
        with pytest.raises(ClientError):
            connections[1].request(ListGroupsRequest())
        assert brokers.broker(2).drop_connections() == 1
        with pytest.raises(ClientError):
            connections[2].request(ListGroupsRequest())
        for connection in connections.values():
            connection.close()


def test_a_cluster_without_its_zookeeper_stops_in_time(need_zookeeper: None) -> None:
    """Each broker would wait for a controller until its own time to stop is over, one after the other: 30 s."""
    with Cluster(3, defaults=replica_defaults(3)) as cluster:  # as `ottla dev --brokers 3` starts it
        assert cluster.zookeeper is not None
        cluster.zookeeper.kill()
        begun = time.monotonic()
        cluster.stop()
        assert time.monotonic() - begun < 15


def test_a_cluster_whose_topics_cannot_be_created_leaves_no_process(need_zookeeper: None) -> None:
    started = Cluster(1, topics=["no such/name"])
    with pytest.raises(ApiError, match="INVALID_TOPIC_EXCEPTION"):
        started.start()
    assert started.brokers == [] and started.zookeeper is None
