"""How a running broker is watched: ties its parts to the metrics, the health checks and the HTTP port that answers for both.

Imported only where `ottla.metrics.listen` is set; a broker that nobody watches does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.machine.host import HostState
from ottla.server.health import Health
from ottla.server.http import HttpPort
from ottla.server.metrics import BrokerParts, Metrics

if TYPE_CHECKING:
    from ottla.server.app import BrokerServer


def make_port(server: BrokerServer, listen: str) -> HttpPort:
    """The port, not open yet. Raises `AddressError`."""
    metrics = Metrics(
        BrokerParts(broker=server.broker, dispatcher=server.dispatcher, listeners=server.listeners, flusher=server.flusher)
    )
    return HttpPort(metrics, make_health(server, metrics), listen=listen, credentials=server.config.ottla_metrics_credentials or "")


def make_health(server: BrokerServer, metrics: Metrics) -> Health:
    """What has to hold before clients should come."""

    def listeners() -> str:
        return "" if server.is_ready else "the broker does not accept requests"

    def session() -> str:
        return "the metadata session is lost" if server.store.is_closed else ""

    def logs() -> str:
        if not any(directory.is_online for directory in server.directories):
            return "every log directory is offline"
        loading = sum(host.state is HostState.LOADING for host in metrics.hosts())
        return f"{loading} coordinators are still loading" if loading else ""

    return Health({"listeners": listeners, "metadata": session, "logs": logs})
