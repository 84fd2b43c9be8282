"""`make bench-cluster`: compares three brokers with three of Apache Kafka 3.9.1 on the same ZooKeeper, alternately, in one run.

usage: python -m tools.bench.cluster [--rounds 3] [--scale 1.0] [--without-kafka] [--only-failover] [--without-failover]

It measures throughput, CPU of all three brokers, round trips and transactions with three replicas and min.insync.replicas=2. Then it
measures the time without an acknowledgement after kill -9 of the leader, of a follower and of the controller, and after a clean stop of the
leader. Needs a ZooKeeper, and for Kafka a JDK 17 and Maven; Kafka's jars are fetched once into build/kafka-3.9.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing.cluster import Cluster
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tools.bench.brokers import Broker, cpu_seconds_of, free_port, kafka_jars, resident_mib_of, wait_for_port
from tools.bench.report import header, machine, number, run_rounds

KAFKA_VERSION = "3.9.1"
JARS = Path("build/kafka-3.9")
BROKERS = 3
SESSION_MS = 6000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS), "min.insync.replicas": "2", "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0", "auto.leader.rebalance.enable": "false",
}  # fmt: skip
LOADS = ("produce 1 KB, idempotent, acks=all", "consume 1 KB", "round trip 100 B, acks=all", "transaction of 10 records")
STEADY_SECONDS, PAUSE_SECONDS = 3.0, 0.005
SILENCE_SECONDS_MAX = 60.0


class MeasuredCluster(Broker, ABC):
    """A cluster of three brokers. Its CPU and its memory are the sums of the processes."""

    def __init__(self, name: str, address: str, directory: str, pids: dict[int, int]) -> None:
        self.name = name
        self.address = address
        self.directory = directory
        self.pids = pids
        self.replicas = BROKERS
        self.client = {}

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of, self.pids.values()))

    def resident_mib(self) -> float:
        return sum(map(resident_mib_of, self.pids.values()))

    @abstractmethod
    def start_again(self, broker_id: int) -> None:
        """Starts a broker whose process has ended, and waits until it serves."""


class OttlaCluster(MeasuredCluster):
    def __init__(self, zookeeper: str) -> None:
        directory = tempfile.mkdtemp(prefix="ottla-bench-cluster-")
        settings = {**SETTINGS, "ottla.log.level": "warning"}
        self._cluster = Cluster(BROKERS, defaults={}, settings=settings, zookeeper=f"{zookeeper}/ottla", directory=directory).start()
        super().__init__("ottla", self._cluster.direct_server, directory, {})
        self._note_pids()

    def start_again(self, broker_id: int) -> None:
        broker = self._cluster.broker(broker_id)
        broker.process.stop()  # the process has ended: this only closes its log
        broker.start()
        self._note_pids()

    def stop(self) -> None:
        self._cluster.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _note_pids(self) -> None:
        self.pids = {broker.broker_id: broker.process.pid for broker in self._cluster.brokers}


class KafkaCluster(MeasuredCluster):
    def __init__(self, zookeeper: str) -> None:
        directory = tempfile.mkdtemp(prefix="kafka-bench-cluster-")
        self._class_path = kafka_jars(JARS.absolute(), KAFKA_VERSION)
        self._zookeeper = f"{zookeeper}/kafka"
        self._ports = {broker_id: free_port() for broker_id in range(1, BROKERS + 1)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        address = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        super().__init__("kafka", address, directory, {})
        for broker_id in self._ports:
            self._launch(broker_id)
        for port in self._ports.values():
            wait_for_port(port)

    def start_again(self, broker_id: int) -> None:
        self._processes[broker_id].wait()
        self._launch(broker_id)
        wait_for_port(self._ports[broker_id])

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(self, broker_id: int) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self._ports[broker_id]}"
        own = {"broker.id": str(broker_id), "listeners": listeners, "zookeeper.connect": self._zookeeper,
               "log.dirs": f"{self.directory}/data-{broker_id}"}  # fmt: skip
        path = Path(self.directory, f"{broker_id}.properties")
        path.write_text("".join(f"{name}={value}\n" for name, value in {**SETTINGS, **own}.items()))
        options = ["-Xms512m", "-Xmx1G", "-XX:+UseG1GC", "-server", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        with open(f"{path}.log", "ab") as log:
            command = ["java", *options, "-cp", self._class_path, "kafka.Kafka", str(path)]
            self._processes[broker_id] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.pids[broker_id] = self._processes[broker_id].pid


# Failover


class Writer:
    """Writes a small record with acks=all to a topic of one partition every few milliseconds, and notes the time of each
    acknowledgement.
    """

    def __init__(self, cluster: MeasuredCluster, **options: object) -> None:
        """`options` are further options of the producer. The options for finding new leaders quickly are always set."""
        self.topic = f"failover-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        self.admin.create_topics([NewTopic(self.topic, 1, BROKERS)])[self.topic].result(60)
        self._acknowledged: list[float] = []
        self._failed = 0
        self._producer = Producer({
            "bootstrap.servers": cluster.address, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0,
            "retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "topic.metadata.refresh.fast.interval.ms": 50,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, **options,
        })  # fmt: skip

    def leader(self) -> int:
        found = self.admin.list_topics(self.topic, timeout=30).topics[self.topic].partitions[0].leader
        return int(found)

    def controller(self) -> int:
        return int(self.admin.list_topics(self.topic, timeout=30).controller_id)

    def silence(self, fault: Callable[[], object]) -> float:
        """Causes a fault, and returns the longest time in seconds between two acknowledgements around it. Raises an error if a record was
        not written.
        """
        self._write_until(lambda: False, STEADY_SECONDS)
        fault()
        began = time.monotonic()
        self._write_until(lambda: bool(self._acknowledged) and self._acknowledged[-1] > began + STEADY_SECONDS, SILENCE_SECONDS_MAX)
        self._producer.flush(60)
        moments = [moment for moment in self._acknowledged if moment > began - STEADY_SECONDS]
        if self._failed:
            raise RuntimeError(f"{self._failed} records failed for good")
        return max(after - before for before, after in zip(moments, moments[1:], strict=False))

    def _write_until(self, is_over: Callable[[], bool], seconds_max: float) -> None:
        began = time.monotonic()
        while not is_over() and time.monotonic() - began < seconds_max:
            self._producer.produce(self.topic, b"x" * 100, on_delivery=self._delivered)
            self._producer.poll(0)
            time.sleep(PAUSE_SECONDS)

    def _delivered(self, error: Any, _message: object) -> None:
        if error is None:
            self._acknowledged.append(time.monotonic())
        else:
            self._failed += 1


def failover(cluster: MeasuredCluster, what: str) -> float:
    """Returns the seconds without an acknowledgement after the fault `what`. Waits until the broker has started again and is in sync."""
    writer = Writer(cluster)
    time.sleep(2)
    leader, controller = writer.leader(), writer.controller()
    victim = {
        "leader": leader, "controller": controller, "clean stop of leader": leader,
        "follower": next(broker_id for broker_id in cluster.pids if broker_id not in (leader, controller)),
    }[what]  # fmt: skip
    number = signal.SIGTERM if what.startswith("clean") else signal.SIGKILL
    seconds = writer.silence(lambda: os.kill(cluster.pids[victim], number))
    cluster.start_again(victim)
    deadline = time.monotonic() + SILENCE_SECONDS_MAX
    while len(writer.admin.list_topics(writer.topic, timeout=30).topics[writer.topic].partitions[0].isrs) < BROKERS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"broker {victim} is not in sync after {SILENCE_SECONDS_MAX:g} s")
        time.sleep(0.2)
    return seconds


def failovers(clusters: Sequence[MeasuredCluster], rounds: int) -> None:
    for what in ("leader", "follower", "controller", "clean stop of leader"):
        found: dict[str, list[float]] = {cluster.name: [] for cluster in clusters}
        for _ in range(rounds):
            for cluster in clusters:
                try:
                    found[cluster.name].append(failover(cluster, what) * 1000)
                except Exception as error:
                    print(f"bench: {what} failed on {cluster.name}: {error}", file=sys.stderr)
        medians = [statistics.median(values) if values else float("nan") for values in found.values()]
        ratio = f" | {medians[0] / medians[1]:.2f}" if len(medians) == 2 else ""
        title = what if what.startswith("clean") else f"kill -9 of {what}"
        print(f"| {title} | ms without an acknowledgement | {' | '.join(map(number, medians))}{ratio} |", flush=True)


@contextmanager
def running_clusters(*, has_kafka: bool) -> Iterator[list[MeasuredCluster]]:
    """Starts an Ottla cluster and, with `has_kafka`, one of Kafka, on one ZooKeeper. Stops them at the end."""
    clusters: list[MeasuredCluster] = []
    with tempfile.TemporaryDirectory(prefix="zookeeper-bench-") as home, ZooKeeperProcess(Path(home)) as zookeeper:
        try:
            clusters.append(OttlaCluster(zookeeper.connect))
            if has_kafka:
                clusters.append(KafkaCluster(zookeeper.connect))
            yield clusters
        finally:
            for cluster in clusters:
                cluster.stop()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--only-failover", action="store_true")
    parser.add_argument("--without-failover", action="store_true")
    args = parser.parse_args(argv)
    print(f"{machine()}; three brokers, three replicas, min.insync.replicas=2, ZooKeeper session {SESSION_MS} ms; {args.rounds} rounds\n")
    with running_clusters(has_kafka=not args.without_kafka) as clusters:
        print(header([cluster.name for cluster in clusters]), flush=True)
        if not args.only_failover:
            run_rounds(clusters, LOADS, args.rounds, args.scale, {})
        if not args.without_failover:
            failovers(clusters, args.rounds)
        memory = ", ".join(f"{cluster.name} {cluster.resident_mib():.0f} MiB" for cluster in clusters)
        print(f"\nmemory of three brokers after the loads: {memory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
