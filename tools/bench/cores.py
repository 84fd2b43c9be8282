"""Measures a service of several brokers (`ottla start --cores`) beside one broker.

usage: python -m tools.bench.cores [--cores 2] [--clients 2] [--rounds 3] [--seconds 5]

Each client is a separate process. It writes one-record requests, `DEPTH` in flight, to a topic on the broker with the client's number, or
on the only broker. The table has the requests per second of all clients together, and the CPU time of a request on the brokers. Clients and
brokers share the cores of the machine, so a machine with as many cores as brokers shows less than the brokers could do.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tools.bench.brokers import cpu_seconds_of, start_ottla
from tools.bench.report import machine, number
from tools.bench.requests import CREATE_TOPICS, DEPTH, PlainClient, frame, produce_frame


class Rate(NamedTuple):
    """Requests per second of all clients, and the brokers' CPU time of a request in microseconds."""

    per_second: float
    cpu_us: float


def measure(cores: int, clients: int, seconds: float) -> Rate:
    service = start_ottla("--cores", str(cores))
    try:
        addresses = service.address.split(",")
        places = [addresses[client % cores] for client in range(clients)]
        host, _, port = addresses[0].rpartition(":")
        admin = PlainClient(host, int(port))
        for client in range(clients):
            admin.ask(frame(CREATE_TOPICS, CreateTopicsRequest(topics=[topic_on(client, client % cores + 1, cores)], timeout_ms=10_000)))
        admin.close()
        pids = children_of(service.process.pid) if cores > 1 else [service.process.pid]
        before = sum(map(cpu_seconds_of, pids))
        command = [sys.executable, "-m", "tools.bench.cores", "--seconds", str(seconds), "--client"]
        commands = [[*command, place, topic_name(client)] for client, place in enumerate(places)]
        running = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in commands]
        counts = [int(one.communicate(timeout=seconds + 60)[0]) for one in running]
        return Rate(sum(counts) / seconds, (sum(map(cpu_seconds_of, pids)) - before) * 1e6 / sum(counts))
    finally:
        service.stop()


def topic_name(client: int) -> str:
    return f"load-{client}"


def topic_on(client: int, broker_id: int, cores: int) -> CreatableTopic:
    """Returns a topic with one partition. If there are several brokers, the partition is on the broker with this id."""
    if cores == 1:
        return CreatableTopic(name=topic_name(client), num_partitions=1, replication_factor=1)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id])
    return CreatableTopic(name=topic_name(client), num_partitions=-1, replication_factor=-1, assignments=[assignment])


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def write_for(address: str, topic: str, seconds: float) -> int:
    """Writes for `seconds`; returns the number of requests."""
    host, _, port = address.rpartition(":")
    client, count = PlainClient(host, int(port)), 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        client.ask(produce_frame(topic) * DEPTH, DEPTH)
        count += DEPTH
    client.close()
    return count


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--client", nargs=2, metavar=("ADDRESS", "TOPIC"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.client:
        address, topic = args.client
        print(write_for(address, topic, args.seconds))
        return 0
    print(f"{machine()}; {args.clients} clients, one record of 100 B in a request, {DEPTH} in flight; {args.rounds} rounds\n")
    found: dict[int, list[Rate]] = {1: [], args.cores: []}
    for _ in range(args.rounds):
        for cores, rates in found.items():
            rates.append(measure(cores, args.clients, args.seconds))
    print("| brokers | requests/s, all clients | CPU us a request |\n| --- | --- | --- |")
    for cores, rates in found.items():
        medians = [statistics.median(values) for values in zip(*rates, strict=True)]
        print(f"| {cores} | {number(medians[0])} | {number(medians[1])} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
