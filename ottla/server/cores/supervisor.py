"""The service: it serves the metadata store to its brokers, keeps them running, and stops them together.

Without `zookeeper.connect` the brokers' ZooKeeper is the server of this package, in this process. Its file is in the first data directory.
The service holds the locks of the data directories with its own process id and all addresses, so `ottla stop` and `ottla status` find it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from ottla._version import __version__
from ottla.adapters.durable_tree import DurableTree
from ottla.adapters.local_store import FILE_NAME as SINGLE_STORE_FILE
from ottla.adapters.lock import DirectoryLock
from ottla.base.config import BrokerConfig, ConfigError
from ottla.base.errors import StorageError
from ottla.base.immutable import immutable
from ottla.base.ports import AddressError
from ottla.server.app import SERVICE_STORE_FILE, StartRefused, new_event_loop
from ottla.server.cores.members import FOLDER, LOOPBACK, members_of
from ottla.server.cores.metrics import MergedMetrics
from ottla.server.cores.process import BrokerProcess, DidNotStart
from ottla.server.monitoring.health import Health
from ottla.server.monitoring.http import HttpPort
from ottla.server.monitoring.port import access_of
from ottla.server.service import feed_watchdog, notify_ready, on_signals
from ottla.zookeeper_server.server import ZooKeeperServer

log = logging.getLogger("ottla.cores")

DIGEST_VARIABLE = "KAFKA_OTTLA_ZOOKEEPER_DIGEST"
CREDENTIALS_VARIABLE = "KAFKA_OTTLA_METRICS_CREDENTIALS"


@immutable
class ServicePlan:
    """The service to start. `command` and `environment` start one broker with the configuration of the whole."""

    config: BrokerConfig
    command: Sequence[str]
    environment: Mapping[str, str]


def run(plan: ServicePlan, *, started: float, on_ready: Callable[[str], object]) -> int:
    """Runs the service until a signal stops it. Returns the exit code. Calls `on_ready` with the addresses of all brokers. Raises
    `StartRefused`."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    log.info("ottla %s, %d brokers, data in %s", __version__, plan.config.ottla_cores, ", ".join(_directories(plan.config)))
    try:
        return loop.run_until_complete(Service(plan).serve(started, on_ready))
    finally:
        loop.close()


class Service:
    """The brokers of one machine."""

    def __init__(self, plan: ServicePlan) -> None:
        self._plan = plan
        self._config = plan.config
        self._credentials = plan.config.ottla_metrics_credentials or f"service:{secrets.token_hex(16)}"
        """User and password of the brokers' metrics."""
        self._brokers: list[BrokerProcess] = []
        self._all_ready = asyncio.Event()
        self._held = ExitStack()
        """A stop closes the brokers' store, then releases the locks."""

    async def serve(self, started: float, on_ready: Callable[[str], object]) -> int:
        try:
            await self._prepare()
            return await self._run(started, on_ready)
        except (StorageError, AddressError, ConfigError, OSError) as error:
            raise StartRefused(str(error)) from error
        finally:
            self._held.close()

    async def _prepare(self) -> None:
        """Locks the directories, opens the store, and plans the brokers. Nothing is started yet."""
        for directory in _directories(self._config):
            os.makedirs(directory, exist_ok=True)
            self._held.callback(DirectoryLock(directory).release)
            check_directory(directory)
        environment = dict(self._plan.environment)
        zookeeper = self._config.zookeeper_connect or ""
        if self._config.is_single_broker:
            digest = environment.setdefault(DIGEST_VARIABLE, self._config.ottla_zookeeper_digest or f"brokers:{secrets.token_hex(16)}")
            zookeeper = await self._open_store(digest)
        environment[CREDENTIALS_VARIABLE] = self._credentials
        members = members_of(self._config, zookeeper)
        check_count(_directories(self._config), [member.broker_id for member in members])
        self._brokers = [BrokerProcess(member, self._plan.command, environment) for member in members]

    async def _open_store(self, digest: str) -> str:
        """Serves the store of the first directory. Returns the address."""
        server = ZooKeeperServer(DurableTree(f"{_directories(self._config)[0]}/{SERVICE_STORE_FILE}"), digest)
        self._held.callback(server.stop)
        return f"{LOOPBACK}:{await server.start(LOOPBACK, 0)}"

    async def _run(self, started: float, on_ready: Callable[[str], object]) -> int:
        loop = asyncio.get_running_loop()
        on_signals(loop, self._begin_stop, self._reload)
        http = await self._open_http()
        running = [loop.create_task(broker.keep(self._note_ready)) for broker in self._brokers]
        announcing = loop.create_task(self._announce(started, on_ready))
        exit_code = 0
        try:
            await asyncio.gather(*running)
        except DidNotStart as error:
            log.error("%s", error)
            exit_code = error.exit_code if error.exit_code > 0 else 1
            self._begin_stop()
        await asyncio.gather(*running, return_exceptions=True)
        announcing.cancel()
        if http is not None:
            await http.stop()
        log.info("stopped")
        return exit_code

    async def _open_http(self) -> HttpPort | None:
        listen = self._config.ottla_metrics_listen
        if not listen:
            return None
        metrics = MergedMetrics(self._brokers, self._credentials)
        http = HttpPort(metrics, Health({"brokers": self._why_not_ready}), listen=listen, access=access_of(self._config))
        await http.start()
        return http

    def _why_not_ready(self) -> str:
        missing = [str(broker.member.broker_id) for broker in self._brokers if not broker.is_ready]
        return f"not ready: broker {', '.join(missing)}" if missing else ""

    def _note_ready(self) -> None:
        if all(broker.address for broker in self._brokers):
            self._all_ready.set()

    async def _announce(self, started: float, on_ready: Callable[[str], object]) -> None:
        """Waits until all brokers serve, then writes the only line on stdout."""
        await self._all_ready.wait()
        addresses = ",".join(broker.address for broker in self._brokers)
        ids = ",".join(str(broker.member.broker_id) for broker in self._brokers)
        milliseconds = (time.perf_counter() - started) * 1000
        on_ready(addresses)
        sys.stdout.write(f"READY {addresses} broker.id={ids} in {milliseconds:.0f} ms\n")
        sys.stdout.flush()
        notify_ready(f"listening on {addresses}")
        feed_watchdog(asyncio.get_running_loop())

    def _begin_stop(self) -> None:
        for broker in self._brokers:
            broker.begin_stop()

    def _reload(self) -> None:
        for broker in self._brokers:
            broker.reload()


def _directories(config: BrokerConfig) -> list[str]:
    return [os.path.abspath(path) for path in config.data_directories]


def check_directory(directory: str) -> None:
    """Raises `StorageError` if the directory holds the data of a single broker."""
    if os.path.exists(f"{directory}/{SINGLE_STORE_FILE}") or os.path.exists(f"{directory}/meta.properties"):
        raise StorageError(f"{directory} holds the data of one broker: start it without --cores, or choose another --data-dir", directory)


def check_count(directories: Sequence[str], broker_ids: Sequence[int]) -> None:
    """Raises `StorageError` if a directory has a folder of a broker that would not be started."""
    for directory in directories:
        found = {int(match[1]) for name in os.listdir(directory) if (match := re.fullmatch(rf"{re.escape(FOLDER)}(\d+)", name))}
        if missing := sorted(found.difference(broker_ids)):
            numbers = ", ".join(map(str, missing))
            raise StorageError(
                f"{directory} holds data of broker {numbers}, which would not run: start with broker.id and --cores as before, drain it"
                " (ottla partitions drain), then remove its folder", directory,
            )  # fmt: skip
