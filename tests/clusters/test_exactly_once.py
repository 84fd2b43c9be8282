"""Consume, transform, produce on three brokers: each of them is killed with -9 in turn, and the output is exactly right (I23, I28)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing.cluster import Cluster
from tests.clients.broker_process import eventually
from tests.clients.copied import SECONDS, Feed, Worker, consumed, doubled, make_topics, numbers_in
from tests.clients.copying import PATIENT

GROUP = "copiers"


@pytest.mark.timeout(600)
def test_a_transactional_copy_survives_the_kill_of_each_broker(need_zookeeper: None, tmp_path: Path) -> None:
    """The copy goes on while the broker is away, also where it led the group's or the transactions' partition."""
    with Cluster(3, directory=tmp_path) as cluster:
        address = cluster.direct_server
        make_topics(address, "source", "target", replicas=3)
        with AdminClient({"bootstrap.servers": address, **PATIENT}) as admin:
            feed, worker = Feed(address, "source"), Worker(address, "source", "target", GROUP, log=tmp_path / "worker.log")
            worker.start()
            try:
                for broker in cluster.brokers:
                    advances(admin)
                    broker.kill()
                    advances(admin)
                    broker.start()
                    eventually(lambda: is_in_sync(admin), SECONDS, 0.2)
                count = feed.stop()
                eventually(lambda: consumed(admin, GROUP) >= count, SECONDS, 0.2)
            finally:
                worker.kill()
        assert numbers_in(address, "target") == doubled(count)


def advances(admin: AdminClient) -> None:
    """Waits until the group has come further than it was."""
    began = time.monotonic()
    known = -1
    while known < 0:
        known = consumed(admin, GROUP)
        assert time.monotonic() < began + SECONDS, "the group's offsets cannot be read"
    eventually(lambda: consumed(admin, GROUP) > known, SECONDS, 0.05)


def is_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=10).topics.values()
    return all(len(one.isrs) == len(one.replicas) for topic in topics for one in topic.partitions.values())
