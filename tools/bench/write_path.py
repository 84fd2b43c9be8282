"""Counts the work of one replicated write on the leader and on a follower, and of one-record requests, by step: calls, calls of builtins,
and instructions of Python. Other work of the machine does not change these numbers.

usage: python -m tools.bench.write_path [--requests 300] [--functions 0]

Three brokers run as processes. A client sends one request at a time: Produce with acks=all to a topic with three replicas, then Produce and
Fetch of one record to a topic with one replica. `--functions N` also prints the N functions with the most instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tools.bench.brokers import Broker, launch
from tools.bench.cluster import SETTINGS
from tools.bench.path_counter import Work
from tools.bench.report import machine
from tools.bench.requests import TOPIC, PlainClient, fetch_frame, produce_frame

REPLICATED = "replicated"
WARM_UP = 50
POLL_SECONDS = 0.01
RESULT_SECONDS_MAX = 60.0
Counts = dict[str, Work]
"""The work of one request, by function."""
STEPS = {
    "<": "decode and encode messages",
    "ottla/wire/": "decode and encode messages",
    "ottla/adapters/disk.py": "check and append the batch",
    "ottla/storage/": "check and append the batch",
    "ottla/replication/leader.py": "check and append the batch",
    "ottla/handlers/records/produce.py": "Produce, and its acknowledgement",
    "ottla/handlers/records/": "Fetch and replication",
    "ottla/replication/": "Fetch and replication",
    "ottla/adapters/network.py": "sockets, frames and connections",
    "ottla/client/": "sockets, frames and connections",
    "ottla/server/execution/": "dispatch, wait and wake",
    "ottla/base/loop/": "dispatch, wait and wake",
    "ottla/server/": "sockets, frames and connections",
}
"""The steps of a write, by the beginning of a function's name."""
OTHER = "clocks, settings, rights, metadata"


class WatchedBroker:
    """A broker whose process watches it (`path_counter.py`, `path_times.py`)."""

    def __init__(self, process: Broker, result_file: Path) -> None:
        self.process = process
        self._result_file = result_file

    def connect(self) -> PlainClient:
        host, _, port = self.process.address.rpartition(":")
        return PlainClient(host, int(port))

    def begin(self) -> None:
        self._result_file.unlink(missing_ok=True)
        os.kill(self.process.process.pid, signal.SIGUSR1)

    def end(self) -> Any:
        """Returns the measurements since `begin`."""
        os.kill(self.process.process.pid, signal.SIGUSR2)
        deadline = time.monotonic() + RESULT_SECONDS_MAX
        while not self._result_file.exists():
            if time.monotonic() > deadline:
                raise RuntimeError(f"broker {self.process.name} writes no result")
            time.sleep(POLL_SECONDS)
        return json.loads(self._result_file.read_text())


@contextmanager
def running_brokers(program: str) -> Iterator[dict[int, WatchedBroker]]:
    """Starts three brokers by a program that watches them, by broker id, and stops them at the end."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-write-path-")))
        zookeeper = stack.enter_context(ZooKeeperProcess(home / "zookeeper"))
        brokers: dict[int, WatchedBroker] = {}
        for broker_id in (1, 2, 3):
            folder, file = home / f"broker-{broker_id}", home / f"broker-{broker_id}.json"
            own = {"broker.id": str(broker_id), "zookeeper.connect": zookeeper.connect, "ottla.log.level": "warning"}
            settings = [word for name, value in {**SETTINGS, **own}.items() for word in ("--set", f"{name}={value}")]
            command = [sys.executable, "-m", program, str(file)]
            process = launch(str(broker_id), [*command, "start", "--data-dir", str(folder), "--port", "0", *settings], str(folder))
            stack.callback(process.stop)
            brokers[broker_id] = WatchedBroker(process, file)
        yield brokers


def count(brokers: Sequence[WatchedBroker], ask: Callable[[], object], requests: int) -> list[Counts]:
    """Returns the work of one request on each of these brokers."""
    for _ in range(WARM_UP):
        ask()
    for broker in brokers:
        broker.begin()
    for _ in range(requests):
        ask()
    return [
        {name: Work(*(count / requests for count in work)) for name, work in broker.end().items()} for broker in brokers
    ]


def created(brokers: Mapping[int, WatchedBroker], topic: str, replicas: int) -> int:
    """Creates a topic with one partition. Returns the broker id of its leader."""
    admin = AdminClient({"bootstrap.servers": ",".join(broker.process.address for broker in brokers.values()), "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(60)
    deadline = time.monotonic() + RESULT_SECONDS_MAX
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if found and found[0].leader >= 0:
            return int(found[0].leader)
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"topic {topic} has no leader")


def measure(requests: int) -> dict[str, Counts]:
    """Returns the work of one request, by what was measured."""
    with running_brokers("tools.bench.path_counter") as brokers:
        leader_id = created(brokers, REPLICATED, 3)
        follower_id = min(brokers.keys() - {leader_id})
        client = brokers[leader_id].connect()
        leader, follower = count(
            [brokers[leader_id], brokers[follower_id]], lambda: client.ask(produce_frame(REPLICATED, acks=-1)), requests
        )
        found = {"replicated write, leader": leader, "replicated write, follower": follower}
        alone = brokers[created(brokers, TOPIC, 1)]
        client = alone.connect()
        found["Produce of one record"] = count([alone], lambda: client.ask(produce_frame()), requests)[0]
        found["Fetch of one record"] = count([alone], lambda: client.ask(fetch_frame()), requests)[0]
        return found


def total(counts: Counts) -> Work:
    return Work(*(sum(column) for column in zip(*counts.values(), strict=True)))


def by_step(counts: Counts) -> Counts:
    """Returns the work by step, from the most instructions on."""
    found: dict[str, Counts] = {}
    for name, work in counts.items():
        step = next((step for start, step in STEPS.items() if name.startswith(start)), OTHER)
        found.setdefault(step, {})[name] = work
    return dict(sorted(((step, total(part)) for step, part in found.items()), key=lambda one: -one[1].instructions))


def print_table(title: str, counts: Mapping[str, Work], digits: int = 0) -> None:
    print(f"\n| {title} | calls | calls of builtins | instructions |\n| --- | --- | --- | --- |")
    for name, work in counts.items():
        print(f"| {name} | {' | '.join(f'{value:,.{digits}f}' for value in work)} |")


def report(argv: Sequence[str] | None, description: str | None, measure: Callable[[int], dict[str, Counts]]) -> int:
    """Runs the program of a benchmark: `measure` returns the work of one request of each kind, for a number of requests."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--functions", type=int, default=0)
    args = parser.parse_args(argv)
    found = measure(args.requests)
    print(f"{machine()}; {args.requests} requests of each")
    print_table("one request", {name: total(counts) for name, counts in found.items()})
    for name, counts in found.items():
        print_table(f"{name}: step", by_step(counts))
        if args.functions:
            print_table(f"{name}: function", dict(sorted(counts.items(), key=lambda one: -one[1].instructions)[: args.functions]), 1)
    return 0


if __name__ == "__main__":
    sys.exit(report(None, __doc__, measure))
