"""Fails a test that leaves clients open. An open client still sends requests, and its sockets and threads would make later tests fail.
Files of tests with third-party clients import the fixture; in tests/clients it applies to all tests.
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
    """Returns the sockets of this process by their kernel names (`socket:[12345]`); empty without /proc."""
    found = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # closed meanwhile
    return frozenset(name for name in found if name.startswith("socket:"))


def left_open(sockets: frozenset[str], threads: frozenset[threading.Thread]) -> list[str]:
    """Returns the sockets and threads that exist now and did not exist before."""
    running = [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads]
    return sorted(open_sockets() - sockets) + sorted(running)


@pytest.fixture(autouse=True)
def leaves_nothing_open() -> Iterator[None]:
    """Fails a test that leaves a client's socket or thread open, so that no later test fails because of it."""
    sockets, threads = open_sockets(), frozenset(threading.enumerate())
    yield
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := left_open(sockets, threads)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert left == [], "the test has left clients open"
