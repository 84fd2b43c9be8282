"""The brokers of the cluster as a client reaches them."""

from __future__ import annotations

from typing import NamedTuple

from ottla.requests.context import Broker, RequestContext


class BrokerEndpoint(NamedTuple):
    """One live broker's address on a listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def live_brokers(broker: Broker, request: RequestContext) -> list[BrokerEndpoint]:
    """The brokers that have the listener to which this client is connected."""
    brokers = []
    for known in broker.metadata.brokers.values():
        address = known.endpoints.get(request.connection.listener)
        if address is not None:
            brokers.append(BrokerEndpoint(known.broker_id, address[0], address[1], known.rack))
    return brokers
