"""Which broker leads a partition, for a client that asked another one (KIP-951)."""

from __future__ import annotations

from collections.abc import Container

from ottla.base.errors import ErrorCode
from ottla.handlers.broker_endpoints import BrokerEndpoint, live_brokers
from ottla.handlers.context import Broker, RequestContext

MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""An answer with one of these errors names the leader."""


def present_leader(broker: Broker, topic: str, index: int) -> tuple[int, int]:
    """The leader and its epoch: as the replica here knows them, else as the metadata does; -1 where there is no leader."""
    partition = broker.partitions.get(topic, index)
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    known = broker.metadata.partition(topic, index)
    return (-1, -1) if known is None else (known.leader, known.leader_epoch)


def addresses_of(broker: Broker, request: RequestContext, leaders: Container[int]) -> list[BrokerEndpoint]:
    """Where the client reaches these brokers."""
    return [endpoint for endpoint in live_brokers(broker, request) if endpoint[0] in leaders]
