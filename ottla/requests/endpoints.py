"""The brokers of the cluster as a client reaches them."""

from __future__ import annotations

from ottla.requests.context import Broker, RequestContext

BrokerEndpoint = tuple[int, str, int, str | None]
"""Node id, host and port on a listener, and rack."""


def live_brokers(broker: Broker, request: RequestContext) -> list[BrokerEndpoint]:
    """The brokers that have the listener to which this client is connected."""
    listener = request.connection.listener
    return [
        (known.broker_id, *address, known.rack)
        for known in broker.metadata.brokers.values()
        if (address := known.endpoints.get(listener)) is not None
    ]
