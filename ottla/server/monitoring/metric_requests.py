"""Metrics of requests and connections: how many, how long each kind takes, how idle the broker is.

Quantiles cover about the last five minutes (`histogram.Recent`). Counts and sums cover the time since the start, as Prometheus expects.
`FetchConsumer` repeats `Fetch`, because boards use one or the other. In a cluster both include the fetches of followers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.base.metric_text import labels_text
from ottla.server.execution.dispatch import Dispatcher
from ottla.server.execution.route import Route
from ottla.server.listener import Listeners
from ottla.server.monitoring.histogram import Recent, add_up, new_buckets, quantile_ns
from ottla.server.monitoring.metric_families import REQUESTS
from ottla.server.monitoring.metric_page import Page

QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
NOTHING = ("requestqueuetimems", "responsequeuetimems", "responsesendtimems")
NETWORK_IDLE = "kafka_network_socketserver_networkprocessoravgidle_percent"
REQUEST_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"


class _Times(NamedTuple):
    """All routes of one API added up."""

    requests: int
    local: list[int]
    total: list[int]
    remote: list[int]
    local_ns: int
    remote_ns: int


class RequestMetrics:
    """Reads the counters of routes and listeners."""

    def __init__(self, dispatcher: Dispatcher, listeners: Listeners, listener_names: Sequence[str]) -> None:
        self._listener_names = listener_names
        self._dispatcher = dispatcher
        self._listeners = listeners
        self._recent = Recent()
        self._busy = (time.monotonic_ns(), time.thread_time_ns(), 0)
        self._idle = (1.0, 1.0)

    def collect(self, page: Page) -> Iterator[None]:
        routes = list(self._dispatcher.routes.values())
        by_name: dict[str, list[Route]] = {}
        for route in routes:
            by_name.setdefault(route.api_name, []).append(route)
        times = {name: _add_up(of_name) for name, of_name in by_name.items()}
        if "Fetch" in times:
            times["FetchConsumer"] = times["Fetch"]
        recent = self._recent.of(
            time.monotonic(),
            {f"{name} {kind}": getattr(row, kind) for name, row in times.items() for kind in ("local", "total", "remote")},
        )
        yield
        for name, row in times.items():
            page.put(f"{REQUESTS}requests_total", row.requests, labels_text(request=name))
            _summary(page, f"{REQUESTS}localtimems", name, recent[f"{name} local"], row.requests, row.local_ns)
            _summary(page, f"{REQUESTS}totaltimems", name, recent[f"{name} total"], row.requests, row.local_ns + row.remote_ns)
            _summary(page, f"{REQUESTS}remotetimems", name, recent[f"{name} remote"], row.requests, row.remote_ns)
            for suffix in NOTHING:
                _summary(page, f"{REQUESTS}{suffix}", name, (), row.requests, 0)
            yield
        page.put("kafka_network_requestchannel_requestqueuesize", 0)
        self._collect_idle(page, sum(route.nanoseconds for route in routes))
        self._collect_connections(page)

    def _collect_idle(self, page: Page, requests_ns: int) -> None:
        """Adds the idle shares since the last reading. This runs in the loop's thread, so the thread's CPU time is the loop's."""
        now_ns, thread_ns, before_ns = self._busy
        reading = (time.monotonic_ns(), time.thread_time_ns(), requests_ns)
        passed_ns = reading[0] - now_ns
        if passed_ns > 0:
            self._idle = (_idle(reading[1] - thread_ns, passed_ns), _idle(requests_ns - before_ns, passed_ns))
        self._busy = reading
        page.put(NETWORK_IDLE, self._idle[0])
        page.put(REQUEST_IDLE, self._idle[1])

    def _collect_connections(self, page: Page) -> None:
        counts = Counter(connection.info.listener for connection in self._listeners.connections)
        for name in self._listener_names:
            page.put("kafka_server_socket_server_metrics_connection_count", counts[name], labels_text(listener=name))
        for name, seconds in self._listeners.certificate_ends().items():
            page.put("ottla_tls_certificate_not_after_seconds", round(seconds), labels_text(listener=name))


def _idle(busy_ns: int, passed_ns: int) -> float:
    return round(min(max(1 - busy_ns / passed_ns, 0.0), 1.0), 6)


def _add_up(routes: Iterable[Route]) -> _Times:
    routes = list(routes)
    immediate = add_up(route.immediate for route in routes)
    deferred = add_up(route.deferred for route in routes)
    waited = add_up(route.waited for route in routes)
    at_once = new_buckets()
    at_once[0] = sum(immediate)
    return _Times(
        requests=sum(immediate) + sum(deferred),
        local=add_up((immediate, deferred)),
        total=add_up((immediate, waited)),
        remote=add_up((at_once, waited)),
        local_ns=sum(route.nanoseconds for route in routes),
        remote_ns=sum(route.parked_nanoseconds for route in routes),
    )


def _summary(page: Page, name: str, request: str, buckets: Sequence[int], count: int, sum_ns: int) -> None:
    lines = page.lines[name]
    for text, share in QUANTILES:
        value = round(quantile_ns(buckets, share) / 1e6, 4) if buckets else 0
        lines.append(f'{name}{{request="{request}",quantile="{text}"}} {value}\n')
    lines.append(f'{name}_sum{{request="{request}"}} {round(sum_ns / 1e6, 4)}\n')
    lines.append(f'{name}_count{{request="{request}"}} {count}\n')
