"""A cluster of broker processes: the ports that it takes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.testing import cluster
from ottla.testing.cluster import BrokerDidNotStart, Cluster

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
