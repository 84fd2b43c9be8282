"""The brokers of the cluster as a client reaches them."""

from __future__ import annotations

from ottla.requests.context import Broker, RequestContext

BrokerEndpoint = tuple[int, str, int, str | None]
"""Node id, host and port on a listener, and rack."""


def live_brokers(broker: Broker, request: RequestContext) -> list[BrokerEndpoint]:
    """The brokers that have the listener to which this client is connected."""
    listener = request.connection.listener
    brokers = []
    for known in broker.metadata.brokers.values():
        address = known.endpoints.get(listener)
        if address is not None:
            brokers.append((known.broker_id, address[0], address[1], known.rack))
    return brokers
