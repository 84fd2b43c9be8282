"""Defaults that depend on the deployment: a broker by itself, or one of a cluster. They replace those in the tables of settings."""

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
"""When no `zookeeper.connect` is set: one broker can hold one replica, and no other will join."""

CLUSTER_DEFAULTS: dict[str, Any] = {"listeners": ("PLAINTEXT://:9092",)}
