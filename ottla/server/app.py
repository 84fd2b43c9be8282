"""Runs a broker on asyncio. It gives `node.py` the system's clock, disks, network and threads, locks the log directories, handles signals,
opens the HTTP port and prints the READY line.

A broken invariant ends the process immediately, without the marker of a clean shutdown, so the next start checks the logs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ottla._version import __version__
from ottla.adapters.boot import boot_id
from ottla.adapters.clock import SystemClock
from ottla.adapters.commit_pace import CommitPace
from ottla.adapters.dependencies import DependencyCheck
from ottla.adapters.descriptors import raise_limit, share_out
from ottla.adapters.disk import OsDisk
from ottla.adapters.local_store import FILE_NAME, LocalStore
from ottla.adapters.lock import DirectoryLock
from ottla.adapters.network import SocketNetwork
from ottla.adapters.process_memory import give_back_free_memory
from ottla.adapters.randomness import SystemRandom
from ottla.adapters.threads import LoopThreads
from ottla.adapters.timers import LoopTimers
from ottla.base.broker_ports import TIME_VARIABLE, Ages, Ports
from ottla.base.config import BROKER_SETTINGS, BrokerConfig, ConfigError, ConfigSource, Notice
from ottla.base.errors import StorageError, StoreUnreachable
from ottla.base.loop.turns import Turns
from ottla.base.ports import AddressError, MetadataStore
from ottla.base.settings.listeners import host_and_port
from ottla.server.arrivals import Arrivals
from ottla.server.directories.claims import known_cluster, lock_directories, online
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.garbage import LOOK_SECONDS, Garbage
from ottla.server.logging_setup import log_notices, sources_line
from ottla.server.node import Node
from ottla.server.service import feed_watchdog, notify_ready, on_signals
from ottla.server.token_start import check_token_keys, check_token_login, make_token_source, read_document

if TYPE_CHECKING:
    from ottla.adapters.console_process import ConsoleProcess
    from ottla.adapters.tls_listeners import TlsListeners
    from ottla.server.monitoring.http import HttpPort

log = logging.getLogger("ottla")

BROKEN_INVARIANT_EXIT_CODE = 70

SERVICE_STORE_FILE = "ottla-cores.sqlite"
"""The metadata store of several brokers that are one service (`server/cores`). Its directory has a folder for each broker."""


class StartRefused(Exception):
    """The broker cannot start; the text is the reason in one line."""


class StoreNotReached(StartRefused):
    """There is no session with ZooKeeper: it did not answer in time, refused the login, or cannot be used as configured."""


def _given_bytes(config: BrokerConfig, name: str) -> int:
    """Returns the configured size. Returns -1 if it is not set, because the system's default performs better than Kafka's."""
    size: int = config.value(name)
    return -1 if config.source(name) is ConfigSource.DEFAULT else size


class BrokerServer:
    """One broker on one event loop; `node` exists once `start` has returned."""

    node: Node

    def __init__(self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, read_again: Callable[[], BrokerConfig] | None = None) -> None:
        self.loop = loop
        self.read_again = read_again
        self.config = config
        self.clock = SystemClock()
        self.disk = OsDisk()
        self.timers = LoopTimers(loop)
        self.threads = LoopThreads(loop)
        self.ages = Ages(self.clock, self.timers)
        if TIME_VARIABLE in os.environ:
            self._make_time_movable()
        self.network = SocketNetwork(
            loop,
            receive_buffer_bytes=_given_bytes(config, "socket.receive.buffer.bytes"),
            send_buffer_bytes=_given_bytes(config, "socket.send.buffer.bytes"),
        )
        self.tls: TlsListeners | None = None
        if any(endpoint.is_tls for endpoint in config.endpoints):
            from ottla.adapters.tls_listeners import TlsListeners  # imported on use: most brokers have no TLS

            self.tls = TlsListeners(loop, config)
            self.network.secure_of = self.tls.secure_of
            self.network.connect_by_tls = self.tls.connect
        paths, is_flushed = map(os.path.abspath, config.data_directories), bool(config.ottla_flush_on_ack)
        self.directories = [LogDirectoryState(self.disk, path, DirectoryLock, boot_id(), is_flush_on_ack=is_flushed) for path in paths]
        self.ready: asyncio.Future[None] = loop.create_future()
        self.stopped: asyncio.Future[int] = loop.create_future()
        self.store: MetadataStore
        self.store_name = ""
        self.cluster_id = ""
        self.store_turns: Turns | None = None
        self.http: HttpPort | None = None
        self.console: ConsoleProcess | None = None
        self._is_stopping = False
        self._held = ExitStack()  # released by a refused start and by a stop
        for directory in self.directories:
            self._held.callback(directory.release)

    def _make_time_movable(self) -> None:
        from ottla.adapters.movable_time import CountedThreads, MovableTime  # imported on use: only for tests

        threads = self.threads = CountedThreads(self.loop)
        self.ages = MovableTime.from_environment(self.loop, threads).ages

    # Starting

    def start(self) -> None:
        """Starts the broker. A single broker can serve requests when this returns; in a cluster, when `ready` is done. Raises
        `StartRefused`."""
        try:
            check_token_keys(self.config)
            check_token_login(self.config)
            refuse_directory_of_several([directory.path for directory in self.directories])
            lock_directories(self.directories)
            self._open_store()
            self.node = self._make_node()
            if self.tls is not None:
                from ottla.handlers.configs.tls_changes import TlsChanges

                self.node.dispatcher.tls_changes = TlsChanges(self.config, self.threads, self.tls)
                self.node.listeners.certificate_ends = self.tls.ends
            self.node.start(self._become_ready, self._refuse)
        except (StorageError, AddressError) as error:
            self.release()
            raise StartRefused(str(error)) from error
        if self.config.is_single_broker and not self.ready.done():
            self._refuse("the controller cannot begin: the metadata store cannot be written")
        if self.ready.done() and (refusal := self.ready.exception()) is not None:
            self.release()
            raise refusal
        self.node.listeners.on_arrival = Arrivals(self.node.advertised).note

    def _become_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def _refuse(self, reason: str) -> None:
        if not self.ready.done():
            for directory in self.directories:
                directory.disown()
            self.ready.set_exception(StartRefused(reason))

    def _open_store(self) -> None:
        if not self.config.is_single_broker:
            self._open_zookeeper()
            return
        home = online(self.directories)[0]
        self.store_turns = Turns(self.clock, self.timers)
        self.store = LocalStore(f"{home.path}/{FILE_NAME}", self.store_turns, CommitPace(self.threads, self.clock))
        self.store_name = f"{home.path}/{FILE_NAME}"
        self._held.callback(self.store.close)

    def _open_zookeeper(self) -> None:
        """Waits for a session and the cluster's id. Raises `StoreNotReached` or `StorageError`."""
        from ottla.adapters.zookeeper_start import find_cluster_id, open_store

        try:
            store = open_store(self.config, self.clock, self.timers, self.loop.call_soon_threadsafe)
            self._held.callback(store.close)
            self.cluster_id = find_cluster_id(store, self.config, known_cluster(online(self.directories)), SystemRandom())
        except StoreUnreachable as error:
            self.release()
            raise StoreNotReached(str(error)) from None
        self.store = store
        self.store_name = f"ZooKeeper at {self.config.zookeeper_connect}"

    def _make_node(self) -> Node:
        descriptors = share_out(raise_limit(), self.config.ottla_open_files_max)
        ports = Ports(
            clock=self.clock,
            timers=self.timers,
            ages=self.ages,
            random=SystemRandom(),
            disk=self.disk,
            threads=self.threads,
            network=self.network,
            store=self.store,
            read_document=read_document,
            make_token_source=make_token_source,
        )
        return Node(
            ports,
            self.config,
            self.directories,
            on_broken_invariant=self.stop_at_once,
            store_name=self.store_name,
            cluster_id=self.cluster_id,
            files_max=descriptors.files,
            connections_max=descriptors.connections,
        )

    async def open_http(self) -> None:
        """Opens the HTTP port if `ottla.metrics.listen` is set. Stops the broker and raises `StartRefused` if that fails."""
        listen = self.config.ottla_metrics_listen
        if not listen:
            return
        from ottla.server.monitoring.port import make_port

        try:
            self.http = make_port(self.node, listen)
            await self.http.start()
        except AddressError as error:
            self.http = None
            await self.stop()
            raise StartRefused(str(error)) from error

    async def open_console(self, listen: str) -> None:
        """Starts a console on `listen`, and the HTTP port that the console reads, unless the broker has an HTTP port already. After a
        failure the broker runs without a console."""
        from ottla.server.console import open_http_for_console, start_console  # imported on use, after READY

        if self.http is None:
            self.http = await open_http_for_console(self.node)
        if not self._is_stopping:
            self.console = start_console(self.node, listen, self.http)

    # While it runs

    def begin_turns(self) -> None:
        """From now on spreads long work over iterations of the event loop, and handles exceptions of the loop's callbacks."""
        self.loop.set_exception_handler(self._on_loop_failure)
        if self.store_turns is not None:
            self.store_turns.begin()
        self.node.begin_turns()

    def _on_loop_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles an exception of a callback: a broken invariant stops the broker, and a storage failure takes the log directory offline.
        """
        error = context.get("exception")
        if isinstance(error, AssertionError):
            self.stop_at_once(error)
        elif isinstance(error, StorageError):
            self.node.storage_failed(error)
        else:
            loop.default_exception_handler(context)

    def reload(self) -> None:
        """Handles SIGHUP: reads the configuration and certificates again, and applies settings that may change while the broker runs. With
        an invalid configuration only the HTTP port is reloaded."""
        if self.http is not None:
            self.http.reload()
        if self.read_again is None:
            return
        try:
            newer = self.read_again()
        except ConfigError as error:
            log.error("the configuration stays as it is: %s", error)
            return
        changed = self.config.take_over(newer)
        if self.tls is not None:
            self.tls.renew()
        later = [name for name in BROKER_SETTINGS if name != "log.dirs" and newer.value(name) != self.config.value(name)]
        if later:
            log.warning("%s: changed in the configuration, restart the broker to apply the change", ", ".join(later))
        log.info("configuration read again; %s", f"changed: {', '.join(sorted(changed))}" if changed else "nothing has changed")

    # Stopping

    def begin_stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self.loop.create_task(self.stop()).add_done_callback(self._on_stopped)

    def _on_stopped(self, task: asyncio.Task[int]) -> None:
        """Completes `stopped`, which ends `serve`."""
        error = task.exception()
        if error is not None:
            self.stopped.set_exception(error)
        else:
            self.stopped.set_result(task.result())

    async def stop(self) -> int:
        """Stops the broker cleanly. Returns the exit code 0, also if a log could not be closed cleanly."""
        log.info("stopping")
        if self.console is not None:
            self.console.begin_stop()
        closed: asyncio.Future[bool] = self.loop.create_future()
        self.node.stop(closed.set_result)
        is_clean = await closed
        self.network.close()
        if self.tls is not None:
            self.tls.close()
        if self.http is not None:
            await self.http.stop()
        if self.console is not None:
            await asyncio.to_thread(self.console.stop)
        self.release()
        log.info("stopped%s", "" if is_clean else ", not clean: the next start recovers")
        return 0

    def stop_at_once(self, error: BaseException) -> None:
        """Ends the process immediately after a broken invariant. Only the reason is logged, and the next start recovers."""
        log.critical("a broken invariant stops the broker: %s", error, exc_info=error)
        logging.shutdown()
        os._exit(BROKEN_INVARIANT_EXIT_CODE)

    def release(self) -> None:
        """Closes the metadata store, then releases the locks of the directories."""
        self._held.close()


def run(
    config: BrokerConfig, notices: Sequence[Notice], *, seed_topics: Sequence[tuple[str, int]], started: float,
    read_again: Callable[[], BrokerConfig] | None = None, on_ready: Callable[[str], object] | None = None, console: str = "",
    is_with_parent: bool = False,
) -> int:  # fmt: skip
    """Runs one broker until a signal stops it, and with `is_with_parent` at most until standard input ends. Returns the exit code. Calls
    `on_ready` with its address. `console` is the address for a console, or empty. Raises `StartRefused`."""
    dependencies = DependencyCheck()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    directories = ", ".join(map(os.path.abspath, config.data_directories))
    log.info("ottla %s, broker.id=%d, data in %s", __version__, config.this_broker_id, directories)
    log.info("%s", sources_line(config))
    log_notices(notices)
    if is_with_parent:
        threading.Thread(target=end_with_input, name="parent", daemon=True).start()
    server = BrokerServer(loop, config, read_again)
    early = EarlyStop(loop)
    signal.signal(signal.SIGTERM, early.on_signal)
    try:
        server.start()
        if failure := dependencies.failure():
            server.release()
            raise StartRefused(failure)
        return loop.run_until_complete(serve(server, early, started, seed_topics, on_ready, console))
    finally:
        close_loop(loop)


def end_with_input() -> None:
    """Waits until standard input ends, because the process that held the other end of the pipe has ended. Then ends this process, as `kill
    -9` would: that process may have been its ZooKeeper, and without ZooKeeper a broker cannot hand over its leaderships."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    log.error("the process that started this broker has ended, and so does the broker")
    os._exit(1)


def refuse_directory_of_several(paths: Sequence[str]) -> None:
    """Raises `StorageError` if a directory belongs to a service of several brokers."""
    for path in paths:
        if os.path.exists(f"{path}/{SERVICE_STORE_FILE}"):
            raise StorageError(f"{path} holds the data of several brokers: start them with --cores", path)


class EarlyStop:
    """Handles SIGTERM until `serve` installs the handlers of the loop. Recovery may take long, and the kernel does not end the first
    process of a container by a signal without a handler.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_asked = False

    def on_signal(self, number: int, frame: object) -> None:
        """Raises `StartRefused`, which ends the start. If the loop runs, only notes the signal, because the loop would log an exception as
        a failed callback."""
        self.is_asked = True
        if not self._loop.is_running():
            raise self.refusal()

    def refusal(self) -> StartRefused:
        return StartRefused("stopped by SIGTERM before it was ready")


async def serve(
    server: BrokerServer, early: EarlyStop, started: float, seed_topics: Sequence[tuple[str, int]],
    on_ready: Callable[[str], object] | None = None, console: str = "",
) -> int:  # fmt: skip
    """Runs the broker until it has stopped: waits until it is ready, announces READY, serves. Runs in one call of the loop, because uvloop
    loses signals while it is stopped."""
    await server.open_http()
    on_signals(server.loop, server.begin_stop, server.reload)
    if not server.ready.done() and not early.is_asked:
        await wait_until_ready(server, early)
    if early.is_asked:
        server.begin_stop()
        await server.stopped
        raise early.refusal()
    server.node.create_topics(seed_topics)
    garbage = Garbage(server.config.ottla_memory_max_bytes)
    garbage.begin()
    first = server.node.endpoints[0]
    address = host_and_port(server.node.reachable_host(first.host), first.port)
    if on_ready is not None:
        on_ready(address)
    server.begin_turns()
    announce(server, address, started)
    notify_ready(f"listening on {first}")
    feed_watchdog(server.loop)
    beside = [server.loop.create_task(look_at_garbage(garbage))]
    if console:
        beside.append(server.loop.create_task(server.open_console(console)))
    try:
        return await server.stopped
    finally:
        for task in beside:
            task.cancel()
        garbage.end()


async def look_at_garbage(garbage: Garbage) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        garbage.look()
        if garbage.should_give_back():
            await asyncio.to_thread(give_back_free_memory)
            garbage.note_given_back()


async def wait_until_ready(server: BrokerServer, early: EarlyStop) -> None:
    """Waits until a controller has sent this broker its replicas. Raises `StartRefused` if the registration is refused or a signal stops
    the broker."""
    server.begin_turns()
    either: set[asyncio.Future[Any]] = {server.ready, server.stopped}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if server.stopped.done():
        raise early.refusal()
    if server.ready.exception() is not None:
        await server.stop()
    server.ready.result()


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Ends the tasks that are still running, such as a connection that is being opened, and closes the loop."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns a loop of uvloop if it is installed, else asyncio's selector loop, because readers and writers of sockets are needed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()


def announce(server: BrokerServer, address: str, started: float) -> None:
    """Writes READY to the log and to stdout."""
    milliseconds = (time.perf_counter() - started) * 1000
    log.info("READY in %.0f ms, listening on %s", milliseconds, ", ".join(map(str, server.node.endpoints)))
    sys.stdout.write(f"READY {address} broker.id={server.config.this_broker_id} in {milliseconds:.0f} ms\n")
    sys.stdout.flush()
