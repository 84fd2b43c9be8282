"""Fixtures with clusters and single brokers as processes; they are ended even if a test fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clusters.cluster import Cluster
from tests.fakes import kafka_python  # noqa: F401


@contextlib.contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Starts the cluster. At the end no broker may have logged an unexpected error, and all must stop by themselves."""
    try:
        cluster.start()
        yield cluster
        for broker in cluster.brokers.values():
            broker.check_log()
        cluster.stop()
    finally:
        cluster.kill()
        cluster.close_proxies()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with three partitions, each on all brokers."""
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()
    name = request.node.name.replace("[", "-").replace("]", "")
    cluster.create_topic(name)
    cluster.wait_until_healthy(name)
    return name


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """`make_broker(directory name, settings)`: a broker that is not started yet."""
    made: list[BrokerProcess] = []

    def make(name: str, **settings: object) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / name, [f"{key.replace('_', '.')}={value}" for key, value in settings.items()])
        made.append(broker)
        return broker

    yield make
    for broker in made:
        if broker.process is not None:
            broker.kill()
