"""Charges a test with the clients that it leaves open.

A client that is left open keeps talking: its sockets and threads would fail tests that come later. A file of tests with clients of other
people imports the fixture; that of tests/clients holds for all tests there.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator

import pytest

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
