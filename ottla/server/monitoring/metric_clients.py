"""Metrics that clients have pushed (KIP-714), and counters of their pushes.

The series have names that clients choose, so they are not in the table of families; all begin with `kafka_client_`. Each has the labels
`client_id` and `client_instance_id`. If clients disagree about the kind of a metric, it is exported as untyped. The event loop may serve
clients after each client and after `PIECE` series.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isnan

from ottla.base.metric_text import CLIENT_INFO, escape, labels_text
from ottla.server.monitoring.metric_families import CLIENT_METRICS
from ottla.server.monitoring.metric_page import Page
from ottla.telemetry.clients import ReportingClient, ReportingClients

PIECE = 200


class PushedMetrics:
    """Writes the last report of each client."""

    def __init__(self, clients: ReportingClients) -> None:
        self._clients = clients

    def collect(self, page: Page) -> Iterator[None]:
        clients = self._clients
        series = 0
        for client in clients.reporting():
            for count in self._write(page, client):
                series += count
                yield
        page.put(f"{CLIENT_METRICS}instance_count", len(clients))
        page.put(f"{CLIENT_METRICS}unknown_subscription_request_total", clients.unknown_subscriptions)
        page.put(f"{CLIENT_METRICS}throttle_total", clients.early_requests)
        page.put("ottla_client_metrics_pushes_total", clients.pushes)
        page.put("ottla_client_metrics_series", series)
        page.put("ottla_client_metrics_dropped_total", clients.dropped_points)
        yield

    def _write(self, page: Page, client: ReportingClient) -> Iterator[int]:
        """Yields the number of written series."""
        known, report = client.client, client.report
        assert report is not None, "only clients with a report are written"
        own = f'{{client_id="{escape(known.client_id or "")}",client_instance_id="{known.client_instance_id}"'
        page.put(
            CLIENT_INFO, 1,
            labels_text(
                client_id=known.client_id or "", client_instance_id=known.client_instance_id,
                client_software_name=known.client_software_name, client_software_version=known.client_software_version,
                client_source_address=known.client_source_address,
            ),
        )  # fmt: skip
        written = 0
        for name, family in report.families.items():
            lines = page.pushed(name, family.kind)
            for labels, value in family.series.items():
                lines.append(f"{name}{own}{labels}}} {number_text(value)}\n")
                written += 1
                if written == PIECE:
                    yield written
                    written = 0
        yield written


def number_text(value: float) -> str:
    if isinstance(value, int) or isfinite(value):
        return str(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
