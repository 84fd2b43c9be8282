"""Defaults that depend on the deployment. They replace the defaults in the tables of settings."""

from __future__ import annotations

from typing import Any

SINGLE_BROKER_DEFAULTS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.replication.factor": 1,
}
"""Defaults without `zookeeper.connect`: a single broker can have one replica, and no other broker will join it."""

CLUSTER_DEFAULTS: dict[str, Any] = {"listeners": ("PLAINTEXT://:9092",)}
"""Defaults with `zookeeper.connect`: a broker of a cluster listens on all addresses, because other brokers connect to it."""
