"""Measures one replicated write: a record of 100 bytes with acks=all and three replicas, one request at a time from a plain socket.

usage: python -m tools.bench.replicated_write [--rounds 5] [--writes 4000] [--kafka]

In each round, in turn: three brokers of Ottla, a bare chain of processes with the same hops (`bare_chain.py`), and with `--kafka` three
brokers of Apache Kafka 3.9.1. It prints the time of a write, and the CPU time of a write on the leader and on each follower.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from tools.bench.bare_chain import PRODUCE_BYTES
from tools.bench.brokers import Broker, cpu_seconds_of, launch
from tools.bench.cluster import MeasuredCluster, running_clusters
from tools.bench.loads import new_topic
from tools.bench.report import machine, number
from tools.bench.requests import PlainClient, produce_frame

WARM_UP = 1000
TOPIC_AT = 4 + 1 + 1 + 1
"""Position of the topic's name in an answer to Produce 9. Behind the name are one byte, the partition, and the error code."""


class Write(NamedTuple):
    """The medians of a round in microseconds: the time of a write, and the CPU time on the leader and on a follower."""

    p50_us: float
    p99_us: float
    leader_cpu_us: float
    follower_cpu_us: float


class Writer(ABC):
    """The interface of a target for writes, with the processes that take part in a write."""

    name: str
    leader_pid: int
    follower_pids: Sequence[int]

    @abstractmethod
    def connect(self) -> Callable[[], None]:
        """Opens a connection to the leader. Returns a function that writes one record and waits for its acknowledgement."""

    def measure(self, writes: int) -> Write:
        write = self.connect()
        for _ in range(WARM_UP):
            write()
        times, before = [], self._cpu_us()
        for _ in range(writes):
            began = time.perf_counter()
            write()
            times.append(time.perf_counter() - began)
        leader_us, *follower_us = (now - earlier for now, earlier in zip(self._cpu_us(), before, strict=True))
        times.sort()
        p50_us, p99_us = times[writes // 2] * 1e6, times[int(writes * 0.99)] * 1e6
        return Write(p50_us, p99_us, leader_us / writes, statistics.mean(follower_us) / writes)

    def _cpu_us(self) -> list[float]:
        return [cpu_seconds_of(pid) * 1e6 for pid in (self.leader_pid, *self.follower_pids)]


class ClusterWriter(Writer):
    """A topic with one partition and three replicas."""

    def __init__(self, cluster: MeasuredCluster) -> None:
        self.name = cluster.name
        self._topic = new_topic(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        metadata = admin.list_topics(self._topic, timeout=30)
        leader_id = metadata.topics[self._topic].partitions[0].leader
        node = metadata.brokers[leader_id]
        self._address = str(node.host), int(node.port)
        self.leader_pid = cluster.pids[leader_id]
        self.follower_pids = [pid for broker_id, pid in cluster.pids.items() if broker_id != leader_id]

    def connect(self) -> Callable[[], None]:
        client, topic = PlainClient(*self._address), self._topic
        error_at = TOPIC_AT + len(topic) + 1 + 4

        def write() -> None:
            code = client.ask(produce_frame(topic, acks=-1))[error_at : error_at + 2]
            if code != b"\0\0":
                raise RuntimeError(f"the write was refused with error {int.from_bytes(code, 'big')}")

        return write


class ChainWriter(Writer):
    """The bare chain."""

    name = "bare chain"

    def __init__(self, processes: Sequence[Broker]) -> None:
        host, _, port = processes[0].address.rpartition(":")
        self._address = host, int(port)
        self.leader_pid, *self.follower_pids = (one.process.pid for one in processes)

    def connect(self) -> Callable[[], None]:
        connection, message = socket.create_connection(self._address, 10), bytes(PRODUCE_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def write() -> None:
            connection.sendall(message)
            connection.recv(4096)

        return write


@contextmanager
def running_chain() -> Iterator[ChainWriter]:
    """Starts the leader and the two followers of a bare chain, and stops them at the end."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-chain-"))

        def started(role: str, *address: str) -> Broker:
            command = [sys.executable, "-m", "tools.bench.bare_chain", role, os.path.join(folder, f"{role}-{len(processes)}"), *address]
            process = launch(role, command, tempfile.mkdtemp(prefix="ottla-bench-chain-"))
            stack.callback(process.stop)
            return process

        processes: list[Broker] = []
        processes.append(started("leader"))
        processes += [started("follower", processes[0].address) for _ in range(2)]
        yield ChainWriter(processes)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writes", type=int, default=4000)
    parser.add_argument("--kafka", action="store_true")
    args = parser.parse_args(argv)
    print(f"{machine()}; three replicas, acks=all, 100 B, one write at a time; {args.rounds} rounds of {args.writes} writes\n")
    found: dict[str, list[Write]] = {}
    with running_clusters(has_kafka=args.kafka) as clusters, running_chain() as chain:
        writers: list[Writer] = [*map(ClusterWriter, clusters), chain]
        for _ in range(args.rounds):
            for writer in writers:
                found.setdefault(writer.name, []).append(writer.measure(args.writes))
    print("| one replicated write | p50, us | p99, us | CPU of the leader, us | CPU of a follower, us |\n| --- | --- | --- | --- | --- |")
    for name, rounds in found.items():
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"| {name} | {' | '.join(map(number, medians))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
