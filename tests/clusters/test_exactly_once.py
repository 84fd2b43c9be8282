"""Consume, transform, produce on three brokers: each of them is killed with -9 in turn, and the output is exactly right (I23, I28).

A copier that makes no progress is killed and started again, as a supervisor would do. The reason is an error of librdkafka 2.16: it drops a
broker that the metadata no longer names, but its transactional producer still sends requests to this broker if it was the group's
coordinator ("Handle is terminating in state INIT", without end). The new copier must make progress immediately, which shows that the
brokers are not the cause.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.testing.cluster import Cluster
from tests.clients.broker_process import eventually
from tests.clients.copied import SECONDS, Feed, Worker, committed, doubled, is_in_sync, make_topics, numbers_in

GROUP = "copiers"
STANDSTILL_SECONDS = 20


@pytest.mark.timeout(600)
def test_a_transactional_copy_survives_the_kill_of_each_broker(need_zookeeper: None, tmp_path: Path) -> None:
    """The copy continues while a broker is down, even if this broker led the coordinator's partition of the group or of the transactions.
    """
    with Cluster(3, directory=tmp_path) as cluster:
        address = cluster.direct_server
        make_topics(address, "source", "target", replicas=3)
        feed, worker = Feed(address, "source"), Worker(address, "source", "target", GROUP, log=tmp_path / "worker.log")
        worker.start()
        try:
            for broker in cluster.brokers:
                advances(address, worker)
                broker.kill()
                advances(address, worker)
                broker.start()
                eventually(lambda: is_in_sync(address), SECONDS, 0.2)
            count = feed.stop()
            while committed(address, GROUP) < count:
                advances(address, worker, end=count)
        finally:
            worker.kill()
        assert numbers_in(address, "target") == doubled(count)


def advances(address: str, worker: Worker, end: int = 1 << 62) -> None:
    """Waits until the group's offsets have advanced or have reached the end."""
    eventually(lambda: committed(address, GROUP) >= 0, SECONDS, 0.05)
    known = committed(address, GROUP)
    patience = time.monotonic() + STANDSTILL_SECONDS

    def has_advanced() -> bool:
        nonlocal patience
        if time.monotonic() > patience:
            worker.crash()
            patience = time.monotonic() + STANDSTILL_SECONDS
        return committed(address, GROUP) > known or known >= end

    eventually(has_advanced, SECONDS, 0.05)
