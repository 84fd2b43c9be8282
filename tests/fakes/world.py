"""`World`: the fakes that surround a part of the broker in a test: time, threads, other brokers, a disk, a metadata store.

A test file derives its own class from `World` and makes the part that it tests. Each fake is made when it is first used, and all of them
share one clock, which only the test moves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from ottla.base.loop.store_retries import StoreRetries
from ottla.server.execution.waiters import Waiters
from tests.fakes.clock import ManualClock
from tests.fakes.disk import MemDisk
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.peers import HeldPeers
from tests.fakes.threads import ManualThreads
from tests.fakes.timers import ManualTimers


class World:
    """The fakes of a test, and methods that let time pass."""

    @cached_property
    def clock(self) -> ManualClock:
        return ManualClock()

    @cached_property
    def timers(self) -> ManualTimers:
        return ManualTimers(self.clock)

    @cached_property
    def threads(self) -> ManualThreads:
        return ManualThreads()

    @cached_property
    def waiters(self) -> Waiters:
        return Waiters(self.clock, self.timers)

    @cached_property
    def peers(self) -> HeldPeers:
        return HeldPeers()

    @cached_property
    def disk(self) -> MemDisk:
        return MemDisk("/data")

    @cached_property
    def model(self) -> ZooKeeperModel:
        """The server of the metadata store."""
        return ZooKeeperModel()

    @cached_property
    def store(self) -> MemoryStore:
        """A session whose requests are answered immediately."""
        return self.model.session()

    @cached_property
    def retries(self) -> StoreRetries:
        return StoreRetries(self.store, self.timers)

    @cached_property
    def events(self) -> list[Any]:
        """The calls of functions that `recorder` has made."""
        return []

    def recorder(self, name: str) -> Callable[..., None]:
        """Returns a function that adds its name, or its name and its arguments, to the events."""
        return lambda *arguments: self.events.append((name, *arguments) if arguments else name)

    def settle(self) -> None:
        """Does all work that is due now, in the threads and on the loop."""
        while self.threads.waiting or self.timers.run_due():
            self.threads.run_all()

    def until(self, condition: Callable[[], object], ms: int = 60_000) -> None:
        """Lets time pass until the condition holds."""
        end_ms = self.clock.monotonic_ms() + ms
        while not condition():
            assert self.clock.monotonic_ms() < end_ms, f"the condition does not hold within {ms} ms"
            self.timers.advance(1)
