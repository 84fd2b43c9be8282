"""Objects that clients create and drop are freed by reference counts. No cycle of references may wait for the garbage collector, because a
large broker seldom runs it over all objects."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

from ottla.replication.partition import Partition
from ottla.wire.framing import load
from ottla.wire.messages import create_topics, fetch
from tests.clients.conftest import SETTINGS
from tests.clients.wire_client import WireClient
from tests.server.conftest import MakeServer
from tests.server.threads import run_until, with_client
from tools.bench.churn import QUICK, Round

PARTITIONS = 1_000


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def cyclic_garbage() -> Counter[str]:
    """Returns the names of the broker's classes and functions whose objects only the garbage collector could free, with their counts."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(name_of(thing) for thing in gc.garbage)
    gc.garbage.clear()
    return Counter({name: count for name, count in found.items() if name.startswith("ottla.")})


def name_of(thing: Any) -> str:
    described = thing if isinstance(thing, FunctionType) else type(thing)
    return f"{described.__module__}.{described.__qualname__}"


def churned_partitions() -> int:
    return sum(type(thing) is Partition and thing.topic_partition.topic.startswith("churn-") for thing in gc.get_objects())


def test_what_clients_create_and_drop_leaves_no_cycles(
    loop: asyncio.AbstractEventLoop, make_server: MakeServer, no_collections: None
) -> None:
    server = make_server(*SETTINGS, *QUICK)
    server.begin_turns()

    def churn(finder: WireClient) -> None:
        for kind in (0, 1):
            finder.ask(load(10)[0](key_type=kind, coordinator_keys=["churn"]), 4)
        for count in range(4):
            Round(server.node.endpoints[0].port, count).run()
            if not count:
                cyclic_garbage()  # of imports: a slotted data class is made twice

    with_client(loop, server, churn)
    run_until(loop, lambda: not churned_partitions())
    assert cyclic_garbage() == Counter()


def test_waiting_requests_of_a_closed_connection_leave_no_cycles(
    loop: asyncio.AbstractEventLoop, make_server: MakeServer, no_collections: None
) -> None:
    """Fetches of many partitions on several connections: one request waits for records, others wait for their turn."""
    server = make_server(*SETTINGS, *QUICK)
    server.begin_turns()
    topic = create_topics.CreatableTopic(name="wide", num_partitions=PARTITIONS, replication_factor=1)
    with_client(loop, server, lambda client: client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7))
    wanted = [fetch.FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in range(PARTITIONS)]
    waiting = fetch.FetchRequest(
        max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=1 << 20, topics=[fetch.FetchTopic(topic="wide", partitions=wanted)]
    )
    cyclic_garbage()

    def ask(_: WireClient) -> list[WireClient]:
        clients = [WireClient(server.node.endpoints[0].port) for _ in range(3)]
        for client in clients:
            client.send(client.frame(waiting, 12) * 3)
        return clients

    def waiting_requests() -> int:
        return sum(len(connection.answers.slots) for connection in server.node.listeners.connections)

    clients = with_client(loop, server, ask)
    try:
        run_until(loop, lambda: waiting_requests() >= len(clients))
    finally:
        for client in clients:
            client.__exit__()
    run_until(loop, lambda: not server.node.listeners.connections)
    assert cyclic_garbage() == Counter()


def test_a_cycle_would_be_noticed(no_collections: None) -> None:
    request = load(10)[0](key_type=0, coordinator_keys=[])
    request.coordinator_keys.append(request)
    name = name_of(request)
    del request
    assert cyclic_garbage() == Counter({name: 1})
