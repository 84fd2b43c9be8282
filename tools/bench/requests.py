"""Measures one-record requests of a plain socket: the broker's CPU time and the wall time for each request, with both processes on one core
and on two cores.

usage: python -m tools.bench.requests [--rounds 4] [--requests 6000]

A request costs twice as much if the scheduler of the system puts broker and client on two cores, because each wakes the other from sleep.
Each load therefore runs twice: with both processes on one core, and with each on its own core. The pipelined load sends `DEPTH` requests in
one write, as clients do that do not wait for each answer.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.wire.codec import encoder
from ottla.wire.framing import write_request
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tools.bench.brokers import cpu_seconds_of, start_ottla
from tools.bench.report import machine, number

DEPTH = 20
WARM_UP = 300
TOPIC = "requests"
CLIENT_ID = "bench"
CREATE_TOPICS, PRODUCE, FETCH = (19, 5), (0, 9), (1, 11)
"""API keys and versions."""
read_size = struct.Struct(">i").unpack


class Cost(NamedTuple):
    """The cost of one request in microseconds."""

    cpu_us: float
    wall_us: float


class PlainClient:
    """A blocking socket to one broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frames: bytes, answers: int = 1) -> bytes:
        """Sends requests, waits for their answers, and returns the last answer without its size."""
        self._socket.sendall(frames)
        answer = b""
        for _ in range(answers):
            (size,) = read_size(self._received(4))
            answer = self._received(size)
        return answer

    def close(self) -> None:
        self._socket.close()

    def _received(self, size: int) -> bytes:
        data = self._socket.recv(size)
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise RuntimeError("the broker closed the connection")
            data += more
        return data


def frame(api: tuple[int, int], body: Any) -> bytes:
    key, version = api
    return write_request(key, version, 7, CLIENT_ID, encoder(type(body), version)(body))


def produce_frame(topic: str = TOPIC, acks: int = 1) -> bytes:
    """Returns a Produce request with one record of 100 bytes and the present time."""
    batch = bytes(encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"x" * 100)]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return frame(PRODUCE, ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]))


def fetch_frame() -> bytes:
    """Returns a Fetch request for one small batch, without a session."""
    wanted = FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=100)])
    return frame(FETCH, FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[wanted]))


LOADS: dict[str, tuple[Callable[[], bytes], int]] = {
    "Produce, one at a time": (produce_frame, 1),
    f"Produce, {DEPTH} in flight": (produce_frame, DEPTH),
    "Fetch of one record, one at a time": (fetch_frame, 1),
}
"""The request of a load, and the number of requests in one write."""


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Runs this process and the processes that it starts on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(broker_core: int, client_core: int, requests: int) -> dict[str, Cost]:
    with pinned(broker_core):
        broker = start_ottla()
    try:
        host, _, port = broker.address.rpartition(":")
        with pinned(client_core):
            client = PlainClient(host, int(port))
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            client.ask(frame(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=10_000)))
            found = {name: cost_of(client, broker.process.pid, make, depth, requests) for name, (make, depth) in LOADS.items()}
            client.close()
        return found
    finally:
        broker.stop()


def cost_of(client: PlainClient, pid: int, make: Callable[[], bytes], depth: int, requests: int) -> Cost:
    for _ in range(WARM_UP):
        client.ask(make())
    frames, cpu_s, began = make() * depth, cpu_seconds_of(pid), time.perf_counter()
    for _ in range(requests // depth):
        client.ask(frames, depth)
    wall_us = (time.perf_counter() - began) * 1e6
    return Cost((cpu_seconds_of(pid) - cpu_s) * 1e6 / requests, wall_us / requests)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=6000)
    args = parser.parse_args(argv)
    cores = sorted(os.sched_getaffinity(0))
    ways = {"one core": (cores[0], cores[0]), "two cores": (cores[0], cores[-1])}
    found: dict[tuple[str, str], list[Cost]] = {}
    for _ in range(args.rounds):
        for way, (broker_core, client_core) in ways.items():
            for name, cost in measure(broker_core, client_core, args.requests).items():
                found.setdefault((name, way), []).append(cost)
    print(f"{machine()}; {args.rounds} rounds of {args.requests} requests\n")
    print("| request of one record of 100 B | broker and client on | CPU us | wall us |\n| --- | --- | --- | --- |")
    for name in LOADS:
        for way in ways:
            cpu_us, wall_us = (statistics.median(column) for column in zip(*found[name, way], strict=True))
            print(f"| {name} | {way} | {number(cpu_us)} | {number(wall_us)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
