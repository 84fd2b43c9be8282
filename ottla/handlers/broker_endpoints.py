"""Lists the brokers of the cluster with their addresses on a client's listener."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.handlers.context import Broker, RequestContext

BrokerEndpoint = tuple[int, str, int, str | None]
"""Node id, host and port on a listener, and rack."""


def live_brokers(broker: Broker, request: RequestContext) -> list[BrokerEndpoint]:
    """Returns the live brokers that have the listener of this client."""
    return _reached(broker.metadata.brokers.values(), request)


def shown_brokers(broker: Broker, request: RequestContext) -> list[BrokerEndpoint]:
    """Returns the live brokers, and brokers that ended a few seconds ago, if they have the listener of this client."""
    gone = broker.metadata.recently_gone()
    return _reached((*broker.metadata.brokers.values(), *gone) if gone else broker.metadata.brokers.values(), request)


def _reached(known_brokers: Iterable[BrokerMetadata], request: RequestContext) -> list[BrokerEndpoint]:
    listener = request.connection.listener
    brokers = []
    for known in known_brokers:
        address = known.endpoints.get(listener)
        if address is not None:
            brokers.append((known.broker_id, address[0], address[1], known.rack))
    return brokers
