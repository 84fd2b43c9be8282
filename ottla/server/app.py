"""One broker: what it is made of, in which order it starts and stops.

Start: lock and claim the log directories, open the metadata store, bind the listeners, register with the controller, which tells this
broker its replicas (logs are recovered, coordinators begin to load), accept connections. Stop: accept nothing new, finish what is in
flight, close the coordinators, flush and close every log, write checkpoints and the clean-shutdown marker.

Everything runs on one event loop; `Threads` does what blocks. A broken invariant stops the broker at once, without the clean marker, so
that the next start recovers.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ottla._version import __version__
from ottla.adapters.clock import SystemClock
from ottla.adapters.descriptors import raise_limit, share_out
from ottla.adapters.disk import OsDisk
from ottla.adapters.local_store import FILE_NAME, LocalStore
from ottla.adapters.lock import DirectoryRefused
from ottla.adapters.randomness import SystemRandom
from ottla.adapters.threads import Threads
from ottla.adapters.timers import LoopTimers
from ottla.base.config import BROKER_SETTINGS, BrokerConfig, ConfigError, Endpoint, Notice
from ottla.base.errors import DamagedLogError, ErrorCode, StorageError
from ottla.base.turns import Turns
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.controller import znodes
from ottla.controller.api import NewTopic, TopicResult
from ottla.controller.internal_topics import InternalTopics
from ottla.controller.state import ClusterState
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.partition import Partition
from ottla.requests.context import Broker
from ottla.security.authorizer import AllowClients
from ottla.server.arrivals import Arrivals
from ottla.server.closing import close_directory, close_logs
from ottla.server.controller_loop import ControllerLoop, Registration
from ottla.server.coordinator_views import (
    MetadataLeaders,
    group_settings,
    own_group_settings,
    share_state_settings,
    share_terms,
    transaction_settings,
)
from ottla.server.dispatch import Dispatcher
from ottla.server.flusher import Flusher
from ottla.server.hosts import CoordinatorHosts, GroupHosts, ShareStateHosts, TransactionHosts
from ottla.server.housekeeping import Housekeeping
from ottla.server.listener import AddressError, Listeners
from ottla.server.log_directories import LogDirectoryState
from ottla.server.logging_setup import sources_line
from ottla.server.partitions import PartitionTable
from ottla.server.peers import NoPeers
from ottla.server.replicas import Replicas
from ottla.server.service import feed_watchdog, notify_ready, on_signals
from ottla.server.waiters import Waiters
from ottla.sharing.registry import SharePartitions
from ottla.sharing.routing import SharePersister, ShareStateCoordinators
from ottla.sharing.sessions import ShareSessions
from ottla.storage.log import Log
from ottla.transactions.markers import LocalMarkers, MarkerDelivery
from ottla.transactions.producer_ids import ProducerIds
from ottla.transactions.routing import TransactionCoordinators

if TYPE_CHECKING:
    from ottla.server.http import HttpPort

log = logging.getLogger("ottla")

STOP_POLL_SECONDS = 0.005


class StartRefused(Exception):
    """Why the broker does not start, in one line."""


class BrokerServer:
    """One broker on one event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, read_again: Callable[[], BrokerConfig] | None = None
    ) -> None:
        self.loop = loop
        self.read_again = read_again
        self.config = config
        self.clock = SystemClock()
        self.random = SystemRandom()
        self.disk = OsDisk()
        self.descriptors = share_out(raise_limit(), config.ottla_open_files_max)
        self.timers = LoopTimers(loop)
        self.threads = Threads(loop)
        self.waiters = Waiters(self.timers)
        self.flusher = Flusher(self.threads.run, self._storage_failed)
        self.directories = [LogDirectoryState(self.disk, os.path.abspath(path)) for path in config.data_directories]
        self.stopped: asyncio.Future[int] = loop.create_future()
        self.is_ready = False
        self.endpoints: list[Endpoint] = []
        self.http: HttpPort | None = None
        self._held = ExitStack()  # what a refused start and a stop alike let go of
        for directory in self.directories:
            self._held.callback(directory.release)

    # Starting

    def start(self) -> None:
        """Brings the broker up to its first request. Raises `StartRefused` with one line."""
        try:
            self._open_directories()
            self._assemble()
            self._bind()
            self._register()
        except (StorageError, AddressError) as error:
            self.release()
            raise StartRefused(str(error)) from error
        self.housekeeping.start()
        self.listeners.start()
        self.is_ready = True

    def _open_directories(self) -> None:
        """Locks every directory and finds out whose cluster this is; a directory that cannot be read is offline, unless all are."""
        for directory in self.directories:
            try:
                directory.lock()
            except DirectoryRefused:
                raise
            except StorageError as error:
                self._keep_offline(directory, error)
        home = self._online()[0]
        self.store_turns = Turns(self.clock, self.timers)
        self.store = LocalStore(f"{home.path}/{FILE_NAME}", self.store_turns)
        self._held.callback(self.store.close)
        self.cluster_id = self._find_cluster_id()
        for directory in self.directories:
            directory.belong_to(self.config.this_broker_id, self.cluster_id, self.random)
        for directory in self._online():
            try:
                directory.claim(self.config.this_broker_id, self.cluster_id, self.random)
            except DirectoryRefused:
                raise
            except StorageError as error:
                self._keep_offline(directory, error)

    def _keep_offline(self, directory: LogDirectoryState, error: StorageError) -> None:
        if len(self._online()) <= 1:
            raise error
        log.error("log directory %s is offline: %s", directory.path, error)
        directory.go_offline(str(error))

    def _online(self) -> list[LogDirectoryState]:
        return [directory for directory in self.directories if directory.is_online]

    def _find_cluster_id(self) -> str:
        """From the directories, else from the metadata store, else from the configuration, else a new one."""
        stored: list[str] = []
        self.store.get(znodes.CLUSTER_ID, lambda _result, node: stored.append(znodes.read_cluster_id(node.data)) if node else None)
        for directory in self._online():
            found = directory.cluster_id()
            if found is not None and not stored and directory.partition_names():
                message = f"{self.store.path} is new, but {directory.path} holds logs of cluster {found}"
                raise StorageError(f"{message}; restore the file from a copy, or start in an empty directory")
            if found is not None:
                return found
        if stored:
            return stored[0]
        given = self.config.ottla_cluster_id or os.environ.get("CLUSTER_ID")
        return given or uuid_to_text(fresh_uuid(self.random.token_bytes(16)))

    def _assemble(self) -> None:
        """Makes the parts and ties them together."""
        config, clock, timers = self.config, self.clock, self.timers
        self.metadata = ClusterState()
        self.partitions = PartitionTable(self.disk, clock, self.directories, self._make_partition, files_max=self.descriptors.files)
        self.share_states = ShareStateCoordinators(lambda: self._partition_count(SHARE_GROUP_STATE_TOPIC))
        self.share_persister = SharePersister(self.share_states, self._ensure_internal_topic, timers)
        self.share_partitions = SharePartitions(
            persister=self.share_persister, clock=clock, timers=timers, terms_of=share_terms(config, self.metadata)
        )
        own_settings = own_group_settings(config, self.metadata)
        self.groups = GroupHosts(clock, timers, self.random, self.metadata, group_settings(config), own_settings, self.share_persister)
        markers = LocalMarkers(self.partitions.get, self.groups.apply_marker, clock)
        self.transactions = TransactionCoordinators(
            partition_count=lambda: self._partition_count(TRANSACTION_STATE_TOPIC),
            group_partition=self.groups.partition_for,
            settings=transaction_settings(config),
            producer_ids=ProducerIds(self.store, config.this_broker_id),
            markers=MarkerDelivery(config.this_broker_id, markers, MetadataLeaders(self.metadata), NoPeers(), timers),
            local_markers=markers,
            timers=timers,
        )
        self.transaction_hosts = TransactionHosts(clock, timers, self.transactions)
        self.share_state_hosts = ShareStateHosts(
            clock, timers, self.metadata, self.share_states, share_state_settings(config), self.flusher.request
        )
        load_bytes = {
            GROUP_METADATA_TOPIC: lambda: config.offsets_load_buffer_size,
            TRANSACTION_STATE_TOPIC: lambda: config.transaction_state_log_load_buffer_size,
            SHARE_GROUP_STATE_TOPIC: lambda: config.share_coordinator_load_buffer_size,
        }
        self.hosts = CoordinatorHosts(self.groups, self.transaction_hosts, self.share_state_hosts, load_bytes)
        self.replicas = Replicas(
            config=config, clock=clock, timers=timers, partitions=self.partitions, metadata=self.metadata, hosts=self.hosts,
            groups=self.groups, share_states=self.share_state_hosts,
            share_partitions=self.share_partitions, remove_later=self._remove_later,
        )  # fmt: skip
        self.controller = ControllerLoop(
            store=self.store, config=config, clock=clock, random=self.random, listener=self.replicas, metadata=self.metadata,
            later=self.replicas.turns.call_next,
        )  # fmt: skip
        self.internal_topics = InternalTopics(self.controller, self.metadata, config)
        self.broker = self._broker()
        self.dispatcher = Dispatcher(self.broker, self.waiters)
        self.listeners = Listeners(
            self.loop, timers, config, self.dispatcher, self.storage_failed, self.stop_at_once,
            connections_max=self.descriptors.connections,
        )  # fmt: skip
        self.housekeeping = Housekeeping(
            config=config, clock=clock, timers=timers, disk=self.disk, threads=self.threads, partitions=self.partitions,
            replicas=self.replicas, listeners=self.listeners, flusher=self.flusher,
        )  # fmt: skip
        config.on_change(lambda _names: self._reconfigure())

    def _broker(self) -> Broker:
        config = self.config
        return Broker(
            broker_id=config.this_broker_id,
            config=config,
            clock=self.clock,
            timers=self.timers,
            random=self.random,
            metadata=self.metadata,
            controller=self.controller,
            partitions=self.partitions,
            groups=self.groups,
            transactions=self.transactions,
            share_states=self.share_states,
            share_persister=self.share_persister,
            share_partitions=self.share_partitions,
            share_sessions=ShareSessions(self.share_partitions, config.group_share_max_share_sessions),
            internal_topics=self.internal_topics,
            waiters=self.waiters,
            fetch_sessions=FetchSessions(self.random, config.max_incremental_fetch_session_cache_slots),
            authorizer=AllowClients(),
        )

    def _bind(self) -> None:
        self.endpoints = [self.listeners.bind(endpoint) for endpoint in self.config.endpoints]

    def _register(self) -> None:
        advertised = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in self.config.advertised_endpoints}
        for endpoint in self.endpoints:
            advertised.setdefault(endpoint.name, (reachable_host(endpoint.host), endpoint.port))
        self.listeners.on_arrival = Arrivals(advertised).note
        registration = Registration(
            broker_id=self.config.this_broker_id,
            endpoints=advertised,
            protocols={endpoint.name: endpoint.protocol for endpoint in self.endpoints},
            rack=self.config.broker_rack,
        )
        self.controller.start(registration, lambda: None, expected_cluster_id=self.cluster_id)

    def _make_partition(self, opened: Log, high_watermark: int) -> Partition:
        partition = Partition(
            opened,
            broker_id=self.config.this_broker_id,
            high_watermark=high_watermark,
            is_flush_on_ack=self.config.ottla_flush_on_ack or opened.config.flush_messages == 1,
            request_flush=self.flusher.request,
            is_verification_required=self.config.transaction_partition_verification_enable,
        )
        partition.on_storage_error = self._storage_failed
        return partition

    def create_topics(self, topics: Sequence[tuple[str, int]]) -> None:
        """Creates the topics that are missing (`--seed-topic`)."""
        wanted = [NewTopic(name=name, num_partitions=count) for name, count in topics if self.metadata.topic(name) is None]

        def created(results: list[TopicResult]) -> None:
            for result in results:
                if result.error:
                    log.error("topic %s was not created: %s", result.name, result.message or result.error.name)

        if wanted:
            self.controller.create_topics(wanted, False, created)

    async def open_http(self) -> None:
        """Metrics and health, where an address is set for them. Raises `StartRefused` with nothing left open."""
        listen = self.config.ottla_metrics_listen
        if not listen:
            return
        from ottla.server.monitoring import make_port

        try:
            self.http = make_port(self, listen)
            await self.http.start()
        except AddressError as error:
            self.http = None
            await self.stop()
            raise StartRefused(str(error)) from error

    # While it runs

    def begin_turns(self) -> None:
        """From here on clients wait for the loop: long work is cut into pieces."""
        self.loop.set_exception_handler(self._on_loop_failure)
        self.store_turns.begin()
        self.replicas.turns.begin()

    def _on_loop_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a timer or a thread's result raised: the same as if a request had."""
        error = context.get("exception")
        if isinstance(error, AssertionError):
            self.stop_at_once(error)
        elif isinstance(error, StorageError):
            self.storage_failed(error)
        else:
            loop.default_exception_handler(context)

    def _remove_later(self, path: str, delay_ms: int) -> None:
        self.housekeeping.remove_tree_later(path, delay_ms)

    def _reconfigure(self) -> None:
        """Dynamic settings have changed."""
        self.replicas.configure_all()
        self.groups.configure(group_settings(self.config))
        self.transactions.configure(transaction_settings(self.config))
        self.share_state_hosts.configure(share_state_settings(self.config))

    def _ensure_internal_topic(self, topic: str, done: Callable[[ErrorCode], None]) -> None:
        self.internal_topics.ensure(topic, done)

    def _partition_count(self, topic: str) -> int:
        known = self.metadata.topic(topic)
        return len(known.partitions) if known is not None else 0

    def _storage_failed(self, partition: Partition, error: StorageError) -> None:
        """A log failed: its whole directory goes offline, its coordinators close. What is only damaged goes offline by itself."""
        if isinstance(error, DamagedLogError):
            log.error("%s goes offline: %s", partition.topic_partition, error)
            self.hosts.resign(*partition.topic_partition)
            return
        directory = self.partitions.directory_of(partition)
        for stopped in self.partitions.take_offline(directory, str(error)):
            self.hosts.resign(*stopped.topic_partition)

    def storage_failed(self, error: StorageError) -> None:
        """A read failed outside of any partition's hands: the directory whose path the error names goes offline."""
        for partition in self.partitions.all():
            if partition.log.directory + "/" in str(error):
                self._storage_failed(partition, error)
                return
        log.error("%s", error)

    def reload(self) -> None:
        """SIGHUP: reads the configuration again and takes over what may change while the broker runs."""
        if self.read_again is None:
            return
        try:
            newer = self.read_again()
        except ConfigError as error:
            log.error("the configuration stays as it is: %s", error)
            return
        changed = self.config.take_over(newer)
        later = [name for name in BROKER_SETTINGS if name != "log.dirs" and newer.value(name) != self.config.value(name)]
        if later:
            log.warning("%s: changed in the configuration, in force from the next start on", ", ".join(later))
        log.info("configuration read again; %s", f"changed: {', '.join(sorted(changed))}" if changed else "nothing has changed")

    # Stopping

    def begin_stop(self) -> None:
        task = self.loop.create_task(self.stop())
        task.add_done_callback(lambda done: self.stopped.set_result(done.result()))

    async def stop(self) -> int:
        """The clean stop; returns the exit code."""
        log.info("stopping")
        self.is_ready = False
        self.housekeeping.stop()
        self.listeners.stop_accepting()
        self.listeners.pause_all()
        deadline = time.monotonic() + self.config.ottla_shutdown_timeout_ms / 1000
        await self._wait_until(lambda: self.flusher.is_idle and self.replicas.turns.is_idle, deadline)
        self.waiters.expire_all()
        self.share_partitions.close_all()
        self.share_persister.close()
        self.hosts.close()
        await self._wait_until(self.listeners.are_idle, deadline)
        self.listeners.close_all()
        is_clean = await close_logs(self.partitions)
        self.threads.close()
        for directory in self._online():
            is_clean = close_directory(directory, self.partitions) and is_clean
        if self.http is not None:
            await self.http.stop()
        self.release()
        log.info("stopped%s", "" if is_clean else ", not clean: the next start recovers")
        return 0

    def stop_at_once(self, error: BaseException) -> None:
        """A broken invariant: nothing more is written, the next start recovers."""
        log.critical("a broken invariant stops the broker: %s", error, exc_info=error)
        logging.shutdown()
        os._exit(70)

    def release(self) -> None:
        """Closes the metadata store, then gives the directories free."""
        self._held.close()

    async def _wait_until(self, is_done: Callable[[], bool], deadline: float) -> None:
        while not is_done() and time.monotonic() < deadline:
            await asyncio.sleep(STOP_POLL_SECONDS)


def reachable_host(host: str) -> str:
    """What clients are told when nothing is advertised: an address they can connect to."""
    if host and host not in ("0.0.0.0", "::"):
        return host
    import socket

    return socket.gethostname()


def run(
    config: BrokerConfig, notices: Sequence[Notice], *, seed_topics: Sequence[tuple[str, int]], started: float,
    read_again: Callable[[], BrokerConfig] | None = None, on_ready: Callable[[str], object] | None = None,
) -> int:  # fmt: skip
    """Runs one broker until it is told to stop; returns the exit code. `on_ready` is given its address. Raises `StartRefused`."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    directories = ", ".join(map(os.path.abspath, config.data_directories))
    log.info("ottla %s, broker.id=%d, data in %s", __version__, config.this_broker_id, directories)
    log.info("%s", sources_line(config))
    for notice in notices:
        log.log(logging.WARNING if notice.is_warning else logging.INFO, notice.text)
    server = BrokerServer(loop, config, read_again)
    signal.signal(signal.SIGTERM, _stop_before_ready)
    try:
        server.start()
        server.create_topics(seed_topics)
        return loop.run_until_complete(serve(server, started, on_ready))
    finally:
        loop.close()


def _stop_before_ready(number: int, frame: object) -> None:
    """Recovery may take long, and the kernel ends the first process of a container only by signals that have a handler."""
    raise StartRefused("stopped by SIGTERM before it was ready")


async def serve(server: BrokerServer, started: float, on_ready: Callable[[str], object] | None = None) -> int:
    """From READY to the stop. All of it on the running loop: uvloop loses a signal that comes while the loop stands still."""
    await server.open_http()
    on_signals(server.loop, server.begin_stop, server.reload)
    gc.freeze()  # what start-up has made stays: no collection walks over it again, which would stall the loop for 10 ms and more
    address = f"{reachable_host(server.endpoints[0].host)}:{server.endpoints[0].port}"
    if on_ready is not None:
        on_ready(address)
    server.begin_turns()
    announce(server, address, started)
    notify_ready(f"listening on {server.endpoints[0]}")
    feed_watchdog(server.loop)
    return await server.stopped


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is a wheel of it, else asyncio's selector loop (readers and writers of sockets are needed)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()


def announce(server: BrokerServer, address: str, started: float) -> None:
    """The one line on stdout."""
    milliseconds = (time.perf_counter() - started) * 1000
    log.info("READY in %.0f ms, listening on %s", milliseconds, ", ".join(map(str, server.endpoints)))
    sys.stdout.write(f"READY {address} broker.id={server.config.this_broker_id} in {milliseconds:.0f} ms\n")
    sys.stdout.flush()
