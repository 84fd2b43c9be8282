"""A broker process for the tests of one module, and fresh names, so that tests do not see each other's topics and groups.

A client that is left open keeps talking: its sockets and threads would fail tests that come later. So each test is charged with what it
leaves behind (`leaves_nothing_open`).
"""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess

with warnings.catch_warnings():
    # kafka-python reads its schemas, as it is imported, by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin  # noqa: F401

SETTINGS = (
    "group.consumer.heartbeat.interval.ms=200",
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "auto.create.topics.enable=true",
    "message.max.bytes=12000000",
    "ottla.log.format=text",
)

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module; its end is part of the test."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may kill; not started yet."""
    process = BrokerProcess(tmp_path, SETTINGS)
    yield process
    if process.is_running:
        process.stop()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """`fresh("topic")` is a name that no other test has."""
    return lambda prefix: f"{prefix}-{next(_numbers)}"


LEFT_SECONDS = 30


def open_sockets() -> frozenset[str]:
    """The sockets of this process, as the kernel names them (`socket:[12345]`); empty where there is no /proc."""
    found = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # closed meanwhile
    return frozenset(name for name in found if name.startswith("socket:"))


def left_open(sockets: frozenset[str], threads: frozenset[threading.Thread]) -> list[str]:
    """What is open now and was not then."""
    running = [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads]
    return sorted(open_sockets() - sockets) + sorted(running)


@pytest.fixture(autouse=True)
def leaves_nothing_open() -> Iterator[None]:
    """Fails the test that leaves a client's socket or thread open, and not one that comes after it."""
    sockets, threads = open_sockets(), frozenset(threading.enumerate())
    yield
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := left_open(sockets, threads)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert left == [], "the test has left clients open"
