"""Monitoring of a running broker: connects its parts to the metrics, the health checks and the HTTP port that serves both.

Imported only if `ottla.metrics.listen` is set, or for the charts of a console.
"""

from __future__ import annotations

from ottla.base.config import BrokerConfig
from ottla.base.counted import counted
from ottla.machine.host import HostState
from ottla.server.monitoring.health import Health
from ottla.server.monitoring.http import HttpPort
from ottla.server.monitoring.http_access import HttpAccess
from ottla.server.monitoring.metrics import Metrics
from ottla.server.node import Node


def make_port(node: Node, listen: str) -> HttpPort:
    """Returns the port, not open yet. Raises `AddressError`."""
    metrics = Metrics(node)
    return HttpPort(metrics, make_health(node, metrics), listen=listen, access=access_of(node.config))


def access_of(config: BrokerConfig) -> HttpAccess:
    """Returns the port's rules. Raises `AddressError` if a file in them cannot be used."""
    return HttpAccess(
        credentials=config.ottla_metrics_credentials or "",
        token_file=config.ottla_metrics_token_file or "",
        certificate_file=config.ottla_metrics_ssl_certificate or "",
        key_file=config.ottla_metrics_ssl_key or "",
        hosts=config.ottla_metrics_hosts,
        has_open_probes=config.ottla_metrics_probes_open,
    )


def make_health(node: Node, metrics: Metrics) -> Health:
    """Returns the checks that must pass before clients should connect."""

    def listeners() -> str:
        return "" if node.is_ready else "the broker does not accept requests"

    def session() -> str:
        return "the metadata session is lost" if not node.ports.store.is_connected() else ""

    def logs() -> str:
        if not any(directory.is_online for directory in node.directories):
            return "every log directory is offline"
        loading = sum(host.state is HostState.LOADING for host in metrics.hosts())
        return f"still loading: {counted(loading, 'coordinator')}" if loading else ""

    return Health({"listeners": listeners, "metadata": session, "logs": logs})
