"""One scrape: all metrics of the broker, as Prometheus text.

A scrape reads the state of the broker's objects, and a few plain counters that requests and records increase. `steps` makes it in small
pieces, so that clients are served in between.

`metric_families.py` has the table of metrics, `metric_page.py` makes the text, and one module for each part of the broker collects values.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla._version import __version__
from ottla.base.broker_ports import Ports
from ottla.base.errors import StorageError
from ottla.base.metric_text import labels_text
from ottla.base.ports import SessionEvent
from ottla.base.settings.listeners import host_and_port
from ottla.controller.local_controller import LocalController
from ottla.handlers.context import Broker
from ottla.machine.host import MachineHost
from ottla.server.execution.dispatch import Dispatcher
from ottla.server.flusher import Flusher
from ottla.server.housekeeping import Housekeeping
from ottla.server.listener import Listeners
from ottla.server.monitoring.histogram import Histogram, Recent, quantile_ns
from ottla.server.monitoring.metric_clients import PushedMetrics
from ottla.server.monitoring.metric_coordinators import GroupMetrics, ShareMetrics, TransactionMetrics
from ottla.server.monitoring.metric_families import SESSION, TRAFFIC
from ottla.server.monitoring.metric_page import Page
from ottla.server.monitoring.metric_process import LoopLag, ProcessMetrics
from ottla.server.monitoring.metric_requests import QUANTILES, RequestMetrics
from ottla.server.monitoring.metric_topics import TopicMetrics
from ottla.server.quotas.metrics import collect_quotas

if TYPE_CHECKING:
    from ottla.server.cluster_links import ClusterLinks

SESSION_COUNTERS = {
    "disconnects": (SessionEvent.SUSPENDED,),
    "expires": (SessionEvent.EXPIRED,),
    "syncconnects": (SessionEvent.CONNECTED, SessionEvent.NEW_SESSION),
}


class BrokerParts(Protocol):
    """The parts of `node.Node` that are read."""

    ports: Ports
    broker: Broker
    controller: LocalController
    dispatcher: Dispatcher
    listeners: Listeners
    flusher: Flusher
    links: ClusterLinks | None
    housekeeping: Housekeeping


class Metrics:
    """The collectors of one broker. `start` and `stop` control the probe of the event loop."""

    def __init__(self, parts: BrokerParts) -> None:
        broker = parts.broker
        self._broker = broker
        self._controller = parts.controller
        self._flusher = parts.flusher
        self._links = parts.links
        self._housekeeping = parts.housekeeping
        self._dialects: Sequence[str] = broker.config.ottla_metrics_aliases
        self._lag = LoopLag(broker.timers)
        self._lag_times = Recent()
        self._fsync_times = Recent()
        self._topics = TopicMetrics(broker.metadata, broker.partitions)
        self._groups = GroupMetrics(broker.groups.all_hosts, broker.partitions)
        self._transactions = TransactionMetrics(broker.transactions.all_hosts, broker.transactions.ended, broker.clock.wall_ms)
        self._shares = ShareMetrics(broker.share_states, broker.dead_letters)
        self._pushed = PushedMetrics(broker.reporting_clients)
        self._requests = RequestMetrics(parts.dispatcher, parts.listeners, [endpoint.name for endpoint in broker.config.endpoints])
        self._process = ProcessMetrics()
        self._session_events = dict.fromkeys(SessionEvent, 0)
        parts.ports.store.listen(self._on_session)

    def start(self) -> None:
        self._lag.start()

    def stop(self) -> None:
        self._lag.stop()

    def _on_session(self, event: SessionEvent) -> None:
        self._session_events[event] += 1

    def render(self) -> bytes:
        page = Page()
        for _ in self.steps(page):
            pass
        return page.encode(self._dialects)

    def steps(self, page: Page) -> Iterator[None]:
        """Makes the scrape in pieces. `finish(page)` makes the text."""
        yield from self._topics.collect(page)
        yield from self._groups.collect(page)
        yield from self._transactions.collect(page)
        yield from self._shares.collect(page)
        yield from self._pushed.collect(page)
        yield from self._requests.collect(page)
        yield from self._process.collect(page)
        self._collect_cluster(page)
        self._collect_replication(page)
        self._collect_stages(page)
        self._collect_damage(page)
        self._collect_histogram(page, "ottla_eventloop_lag_seconds", self._lag.histogram, self._lag_times)
        self._collect_histogram(page, "ottla_fsync_seconds", self._flusher.round_times, self._fsync_times)
        yield

    def finish(self, page: Page) -> bytes:
        return page.encode(self._dialects)

    async def make(self) -> bytes:
        """Makes the scrape in pieces, between which the loop serves others."""
        page = Page()
        for _ in self.steps(page):
            await asyncio.sleep(0)
        return self.finish(page)

    def hosts(self) -> Iterable[MachineHost]:
        return [*self._broker.groups.all_hosts(), *self._broker.transactions.all_hosts(), *self._broker.share_states.all_hosts()]

    def _collect_cluster(self, page: Page) -> None:
        broker, metadata = self._broker, self._broker.metadata
        page.put("ottla_info", 1, labels_text(version=__version__, cluster_id=metadata.cluster_id, broker_id=broker.broker_id))
        page.put("kafka_brokers", len(metadata.brokers))
        for broker_id, known in sorted(metadata.brokers.items()):
            host, port = next(iter(known.endpoints.values()), ("", 0))
            page.put("kafka_broker_info", 1, labels_text(id=broker_id, address=host_and_port(host, port)))
        page.put("kafka_controller_kafkacontroller_activecontrollercount", int(metadata.controller_id == broker.broker_id))
        page.put("kafka_controller_kafkacontroller_globaltopiccount", sum(1 for _ in metadata.topics()))
        page.put("kafka_controller_kafkacontroller_globalpartitioncount", metadata.partition_count)
        page.put("kafka_controller_controllerstats_uncleanleaderelections_total", self._controller.state.unclean_elections)
        self._collect_directories(page)
        collect_quotas(page, broker.quotas, broker.clock.monotonic_ms())
        for name, events in SESSION_COUNTERS.items():
            page.put(f"{SESSION}{name}_total", sum(self._session_events[event] for event in events))

    def _collect_directories(self, page: Page) -> None:
        """Adds the number of failed directories, and the space on each readable disk, also of offline directories."""
        directories = list(self._broker.partitions.log_directories())
        page.put("kafka_log_logmanager_offlinelogdirectorycount", sum(not directory.is_online for directory in directories))
        for directory in directories:
            try:
                size, free = directory.free_bytes()
            except StorageError:
                continue
            label = labels_text(log_dir=directory.path)
            page.put("ottla_log_directory_free_bytes", free, label)
            page.put("ottla_log_directory_size_bytes", size, label)

    def _collect_replication(self, page: Page) -> None:
        links = self._links
        lag, bytes_in = (links.fetchers.lag_max, links.fetchers.bytes_in) if links is not None else (0, 0)
        expansions, shrinks = (links.isr_changes.expansions, links.isr_changes.shrinks) if links is not None else (0, 0)
        page.put("kafka_server_replicafetchermanager_maxlag", lag, labels_text(clientid="Replica"))
        page.put("kafka_server_replicamanager_isrexpands_total", expansions)
        page.put("kafka_server_replicamanager_isrshrinks_total", shrinks)
        page.put(f"{TRAFFIC}replicationbytesin_total", bytes_in)
        page.put(f"{TRAFFIC}replicationbytesout_total", self._broker.follower_sessions.bytes_out)

    def _collect_stages(self, page: Page) -> None:
        stages = self._broker.stages
        page.put("ottla_stage_bytes", stages.charged_bytes)
        page.put("ottla_stage_staged_bytes_total", stages.staged_bytes)
        page.put("ottla_stage_refused_total", stages.refused)
        page.put("ottla_stage_expired_bytes_total", stages.expired_bytes)

    def _collect_damage(self, page: Page) -> None:
        repairs = self._housekeeping.repairs
        page.put("ottla_damage_found_total", repairs.found)
        page.put("ottla_damage_repaired_total", repairs.repaired)
        page.put("ottla_damage_unrepaired", repairs.unrepaired)
        page.put("ottla_scrub_batches_total", self._housekeeping.checks.batches)

    def _collect_histogram(self, page: Page, name: str, histogram: Histogram, recent: Recent) -> None:
        buckets = recent.of(time.monotonic(), {name: histogram.buckets})[name]
        for text, share in QUANTILES:
            page.put(name, round(quantile_ns(buckets, share) / 1e9, 7), f'{{quantile="{text}"}}')
        page.lines[name].append(f"{name}_sum {round(histogram.nanoseconds / 1e9, 7)}\n{name}_count {histogram.count}\n")
