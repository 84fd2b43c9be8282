"""A session with a real ZooKeeper without an event loop: its answers are delivered when the test waits for them."""

from __future__ import annotations

from typing import Any

from ottla.adapters.clock import SystemClock
from ottla.adapters.zookeeper import ZooKeeperOptions, ZooKeeperStore
from tests.fakes.timers import ManualTimers

WAIT_MS = 60_000
"""For a machine under load; an idle one answers in a millisecond."""


def options(connect: str, **changes: Any) -> ZooKeeperOptions:
    """`connect` is `host:port,.../chroot`."""
    servers, slash, chroot = connect.partition("/")
    pairs = [server.rpartition(":") for server in servers.split(",")]
    return ZooKeeperOptions(servers=tuple((host, int(port)) for host, _, port in pairs), chroot=slash + chroot, **changes)


def open_store(connect: str, **changes: Any) -> ZooKeeperStore:
    store = ZooKeeperStore(options(connect, **changes), clock=SystemClock(), timers=ManualTimers(), call_on_loop=lambda function: None)
    store.connect(WAIT_MS)
    return store
