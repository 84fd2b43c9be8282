"""Leader hints: the current leader in answers to clients that sent to another broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Container

from ottla.base.errors import ErrorCode
from ottla.handlers.broker_endpoints import BrokerEndpoint, live_brokers
from ottla.handlers.context import Broker, RequestContext

MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Fetch answers with one of these errors contain a leader hint."""


def present_leader(broker: Broker, topic: str, index: int) -> tuple[int, int]:
    """Returns the leader and its epoch, from the replica on this broker or else from the metadata; (-1, -1) if unknown."""
    partition = broker.partitions.get(topic, index)
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    known = broker.metadata.partition(topic, index)
    return (-1, -1) if known is None else (known.leader, known.leader_epoch)


def addresses_of(broker: Broker, request: RequestContext, leaders: Container[int]) -> list[BrokerEndpoint]:
    """Returns the endpoints of these brokers on the client's listener."""
    return [endpoint for endpoint in live_brokers(broker, request) if endpoint[0] in leaders]
