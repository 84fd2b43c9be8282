"""A cluster for tests: several brokers and a ZooKeeper, each in its own process.

    with Cluster(3) as cluster:
        cluster.get_bootstrap_server()
        cluster.leader_of("orders").kill()

A `Cluster` has the interface of a single broker (`handle.py`). A network fault (`fail_next`, ...) that is set on the cluster applies to any
of its brokers; a network fault of a `ClusterBroker` applies to that broker. Process faults exist only for a `ClusterBroker`: `kill` (as
kill -9), `stop`, `start`, `pause` and `resume`. A restarted broker keeps its port and its data. ZooKeeper is the Debian package `zookeeper`
or the installation in ZOOKEEPER_HOME. Where neither is installed, the brokers use the server of this package, which needs no Java.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.testing.broker import DEFAULTS, checked_settings
from ottla.testing.clock import Clock
from ottla.testing.handle import BrokerHandle
from ottla.testing.process import START_SECONDS_MAX, BrokerDidNotStart, BrokerPortTaken, BrokerProcess
from ottla.testing.reaper import remove_directory, temporary_directory
from ottla.testing.zookeeper_process import START_ATTEMPTS, ServerProcess, ZooKeeperMissing, free_port, zookeeper_in

if TYPE_CHECKING:
    from ottla.testing.faults import FaultProxy

FIRST_BROKER_ID = 1
REPLICAS_MAX = 3
INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


def cluster_defaults(broker_count: int) -> dict[str, str]:
    return {**DEFAULTS, **replica_defaults(broker_count)}


def replica_defaults(broker_count: int) -> dict[str, str]:
    """Returns settings for replication: a replica on each broker, at most three replicas, and all replicas but one must be in sync. Groups
    form immediately."""
    replicas = min(broker_count, REPLICAS_MAX)
    in_sync = str(max(1, replicas - 1))
    found = {"group.initial.rebalance.delay.ms": "0", "default.replication.factor": str(replicas), "min.insync.replicas": in_sync}
    for topic in INTERNAL_TOPICS:
        found[f"{topic}.replication.factor"] = str(replicas)
    return {**found, "transaction.state.log.min.isr": in_sync, "share.coordinator.state.topic.min.isr": in_sync}


class ClusterBroker:
    def __init__(self, broker_id: int, process: BrokerProcess, faults: Callable[[], FaultProxy]) -> None:
        self.broker_id = broker_id
        self.process = process
        self._faults = faults

    @property
    def address(self) -> str:
        """Returns host:port, also while the broker is down."""
        return f"127.0.0.1:{self.process.port}"

    @property
    def is_running(self) -> bool:
        return self.process.is_running

    @property
    def log(self) -> str:
        return self.process.log_file.read_text(errors="replace")

    def start(self, timeout: float = START_SECONDS_MAX) -> None:
        assert not self.is_running, f"broker {self.broker_id} is already running"
        self.process.start(timeout)

    def stop(self) -> None:
        """Stops the broker cleanly, after its partitions have other leaders."""
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        """Suspends the whole process until `resume`."""
        self.process.suspend()

    def resume(self) -> None:
        self.process.resume()

    def fail_next(self, api: str, error: ErrorCode | str | int | None, times: int = 1) -> None:
        """Like `BrokerHandle.fail_next`, for requests to this broker."""
        self._faults().fail_next(api, error, times, self._place)

    def lose_answer(self, api: str, times: int = 1) -> None:
        """Like `BrokerHandle.lose_answer`, for requests to this broker."""
        self._faults().lose_answer(api, times, self._place)

    def drop_connections(self) -> int:
        """Like `BrokerHandle.drop_connections`, for connections to this broker."""
        return self._faults().drop_connections(self._place)

    @property
    def _place(self) -> tuple[str, int]:
        return "127.0.0.1", self.process.port


class Cluster(BrokerHandle):
    """Several brokers and a ZooKeeper, as processes of this machine, from `start` or the beginning of a `with` block to `stop` or its end.

    `settings` are broker settings (`server.properties`), the same for all brokers; `topics` (`"orders:3"`) are created at the start.
    """

    what = "a cluster of several brokers"

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        defaults: Mapping[str, str] | None = None,
        topics: Sequence[str] = (),
        racks: Sequence[str] = (),
        directory: str | Path | None = None,
        ports: Sequence[int] = (),
        zookeeper: str | None = None,
        start_timeout: float = START_SECONDS_MAX,
    ) -> None:
        """`racks` and `ports` are for the brokers in order. `directory` keeps the data of all processes. `defaults` replaces the settings
        for tests (`cluster_defaults`). `zookeeper` is the address of a running ZooKeeper."""
        checked = checked_settings(settings)
        super().__init__()
        assert brokers > 0, "a cluster has at least one broker"
        self.brokers: list[ClusterBroker] = []
        self.clock = Clock(lambda: [broker.process.time for broker in self.brokers if broker.is_running])
        self._count = brokers
        self._settings = dict(cluster_defaults(brokers) if defaults is None else defaults)
        self._settings.update(checked)
        self._topics = list(topics)
        self._racks = list(racks)
        self._ports = list(ports)
        self._given = None if directory is None else Path(directory).resolve()
        self._start_timeout = start_timeout
        self._running_zookeeper = zookeeper
        self.zookeeper: ServerProcess | None = None

    # Starting and stopping

    def start(self) -> Cluster:
        """Starts ZooKeeper, unless its address is given, then all brokers at once, and creates the topics. Raises `ZooKeeperMissing`,
        `ZooKeeperDidNotStart` or `BrokerDidNotStart`."""
        assert not self.brokers, "the cluster is already running"
        temporary = None if self._given is not None else temporary_directory("ottla-cluster-")
        home = self._given or temporary
        assert home is not None
        try:
            self.zookeeper = zookeeper_in(home / "zookeeper") if self._running_zookeeper is None else None
        except ZooKeeperMissing:
            if temporary is not None:
                remove_directory(temporary)
            raise
        self.brokers = [self._broker(home, number) for number in range(self._count)]
        processes = [broker.process for broker in self.brokers]
        # A test run that ends without `stop` stops all processes too.
        self._finalizer = weakref.finalize(self, _clean_up, processes, self.zookeeper, temporary)
        try:
            if self.zookeeper is not None:
                self.zookeeper.start()
            for broker in self.brokers:
                broker.process.launch()
            for number, broker in enumerate(self.brokers):
                self._wait_until_ready(broker.process, may_move=not self._port_of(number))
            self.direct_server = ",".join(broker.address for broker in self.brokers)
            self._create_topics()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_ready(self, process: BrokerProcess, *, may_move: bool) -> None:
        """Waits until the broker is ready. If another process took its port, chooses another one if `may_move`."""
        for attempts_left in reversed(range(START_ATTEMPTS)):
            try:
                process.wait_until_ready(self._start_timeout)
                return
            except BrokerPortTaken:
                if not may_move or not attempts_left:
                    raise
            process.port = free_port()
            process.launch()

    def _create_topics(self) -> None:
        """Creates the topics after all brokers have started, because the first broker alone cannot place three replicas."""
        for entry in ",".join(self._topics).split(","):
            name, _, count = entry.strip().partition(":")
            if name:
                self.create_topic(name, partitions=int(count or -1))

    def _broker(self, home: Path, number: int) -> ClusterBroker:
        broker_id = FIRST_BROKER_ID + number
        settings = {**self._settings, "broker.id": str(broker_id), "zookeeper.connect": self.zookeeper_connect}
        if number < len(self._racks):
            settings["broker.rack"] = self._racks[number]
        process = BrokerProcess(home / f"broker-{broker_id}", home / f"broker-{broker_id}.log", settings)
        process.port = self._port_of(number) or free_port()
        return ClusterBroker(broker_id, process, self._faults)

    def _port_of(self, number: int) -> int:
        """Returns the requested port of a broker, 0 for any free port."""
        return self._ports[number] if number < len(self._ports) else 0

    def stop(self) -> None:
        """Stops everything and removes a temporary directory. If ZooKeeper has ended, no broker can hand over its leaderships. Each broker
        then gets a second signal, which ends the broker immediately.
        """
        self.close()
        if self.zookeeper is not None and not self.zookeeper.is_running:
            for broker in self.brokers:
                broker.process.begin_stop()
        for broker in self.brokers:
            broker.stop()
        if self.brokers:
            self._finalizer()
        self.brokers = []
        self.zookeeper = None
        self.direct_server = ""

    def __enter__(self) -> Cluster:
        return self if self.brokers else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def zookeeper_connect(self) -> str:
        if self._running_zookeeper is not None:
            return self._running_zookeeper
        assert self.zookeeper is not None, "the cluster is not running"
        return self.zookeeper.connect

    @property
    def log_files(self) -> dict[str, Path]:
        return {f"broker {broker.broker_id}": broker.process.log_file for broker in self.brokers}

    def end_faults(self) -> None:
        super().end_faults()
        for broker in self.brokers:
            broker.resume()
        if self.clock.is_frozen:
            self.clock.run()

    # Brokers by their roles

    def broker(self, broker_id: int) -> ClusterBroker:
        """Returns the broker with this id. Raises `KeyError` if there is none."""
        for found in self.brokers:
            if found.broker_id == broker_id:
                return found
        raise KeyError(f"the cluster has no broker {broker_id}")

    def leader_of(self, topic: str, partition: int = 0) -> ClusterBroker:
        """Returns the current leader of the partition. Raises `KeyError` while there is none."""
        cluster = self._client()
        cluster.refresh([topic])
        leaders = {found.partition_index: found.leader_id for found in cluster.topic(topic).partitions}
        return self.broker(leaders[partition])

    def controller(self) -> ClusterBroker:
        """Returns the current controller. Raises `KeyError` while there is none."""
        cluster = self._client()
        cluster.refresh([])
        return self.broker(cluster.metadata.controller_id)


def _clean_up(processes: Sequence[BrokerProcess], zookeeper: ServerProcess | None, temporary: Path | None) -> None:
    for process in processes:
        process.kill()
    if zookeeper is not None:
        zookeeper.stop()
    if temporary is not None:
        remove_directory(temporary)


__all__ = ["BrokerDidNotStart", "Cluster", "ClusterBroker", "cluster_defaults", "replica_defaults"]
