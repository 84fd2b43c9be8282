"""The parts of `ottla partitions drain` and `rebalance` that one broker can show; `tests/clusters/test_drain.py` has four."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.cli.cluster.partition_moves import NAMED_MAX, _obstacles
from ottla.client.blocking.cluster import Cluster
from ottla.testing import Broker


def test_a_stalled_move_names_the_replicas_that_it_waits_for(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Cluster(broker.bootstrap_server) as cluster:
        assert list(_obstacles(cluster, {partition: [0, 7]}, [partition])) == [f"{topic}-0 (broker 7 not in sync)"]
        assert list(_obstacles(cluster, {partition: [8, 7]}, [partition])) == [f"{topic}-0 (brokers 8, 7 not in sync)"]
        assert list(_obstacles(cluster, {partition: [0]}, [partition])) == [f"{topic}-0 (the controller)"]
        many = list(_obstacles(cluster, {partition: [7]}, [partition] * (NAMED_MAX + 3)))
        assert (len(many), many[-1]) == (NAMED_MAX + 1, "3 more")
