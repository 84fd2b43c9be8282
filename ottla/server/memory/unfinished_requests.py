"""Requests that are not executed yet, most of them incomplete, and their order of eviction when memory is short.

While requests wait for memory, the slowest are dropped. The pace of a request is the number of its bytes that were received since the tick
before the last one (a tick is `ottla.tick.interval.ms`). The pace is compared first, because a peer may send much at first and then a byte
each second. If two requests have the same pace, their averages since they began decide. A request is not dropped for slowness while it is
younger than two ticks, while it waits for the broker, or if it will be complete soon at its pace.

A peer that always opens new connections has only requests that are too young to be judged by their pace. So when requests fill the memory,
the address whose requests use the most memory loses requests first. Its requests are dropped in this order:

1. requests that are too young to be judged or will not be complete soon, on connections that have not sent a whole request yet. They are
   ordered by the product of two numbers: their memory, and the receptions of all connections since they last received bytes;
2. other requests, by memory;
3. requests that wait for the broker, in the same two groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

RIPE_TICKS = 2
"""Minimum age, in ticks, at which a request is judged by its rate."""
SOON_TICKS = 10
"""A request that will be complete within this many ticks, at its latest rate, is not dropped for slowness. A small request is treated as if
64 KiB of it were missing (`Inbox.missing_bytes`)."""


class Reader(Protocol):
    """The channel that a request is received from."""

    @property
    def peer_host(self) -> str: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class Unfinished(Hashable, Protocol):
    """An unfinished request: a large frame, or the inbox of a connection. An inbox has the start of a small frame, or whole requests that
    are not executed yet."""

    begun_tick: int
    moved: int
    """The value of `UnfinishedRequests.moves` when this request last received bytes."""

    waits_for_broker: bool
    """Whether the request waits for the broker, which does not read from its connection."""

    @property
    def received_bytes(self) -> int:
        """Returns the number of received bytes."""

    @property
    def lent_bytes(self) -> int:
        """Returns the size of its memory, in bytes."""

    @property
    def is_served(self) -> bool:
        """Whether its connection has sent whole requests before."""

    @property
    def missing_bytes(self) -> int:
        """Upper bound of the bytes that are still missing."""

    @property
    def channel(self) -> Reader: ...


class UnfinishedRequests:
    """The unfinished requests of all connections of a loop."""

    def __init__(self) -> None:
        self.tick = 0
        self.moves = 0
        """Number of receptions so far. Each piece of a large frame counts, and each time that an inbox keeps bytes."""
        self.frames: dict[Unfinished, None] = {}
        """Large frames."""
        self.inboxes: Callable[[], Iterable[Unfinished]] = tuple
        """The inboxes of all connections; each may keep bytes besides a large frame."""
        self._noted: dict[Unfinished, int] = {}
        self._noted_before: dict[Unfinished, int] = {}
        """The received bytes of each request at the last tick and at the tick before; only while memory is short."""
        self._slowest: list[tuple[tuple[int, float], int, Unfinished]] | None = None

    def next_tick(self, *, is_short: bool) -> None:
        """Called every tick. `is_short`: memory may soon be too small, so rates are measured."""
        self.tick += 1
        self._slowest = None
        self._noted_before, self._noted = self._noted, {}
        if is_short:
            self._noted.update((one, one.received_bytes) for one in self._all())

    def note_begun(self, one: Unfinished) -> None:
        """Notes that a large frame has begun, or that an inbox keeps bytes. An inbox also calls it for further pieces of the same frame;
        the connection then restores `begun_tick`."""
        one.begun_tick = self.tick
        one.moved = self.moves = self.moves + 1

    def next_slowest(self) -> Unfinished | None:
        """Returns the slowest request that is old enough to be judged and will not be complete soon. Returns each request at most once in a
        tick."""
        if self._slowest is None:
            judged = ((self._pace(one), number, one) for number, one in enumerate(self._all()) if self._is_judged(one))
            self._slowest = sorted((item for item in judged if not self._is_on_its_way(item[2])), reverse=True)
        while self._slowest:
            _, _, one = self._slowest.pop()
            if one.received_bytes and self._is_judged(one):  # It is still the same unfinished request.
                return one
        return None

    def dispensable(self, besides: Unfinished | None) -> list[Unfinished]:
        """Returns the requests in the order of eviction, without `besides`. Sorting a thousand requests takes a millisecond."""
        found = [one for one in self._all() if one is not besides]
        of_hosts: Counter[str] = Counter()
        for one in found:
            of_hosts[one.channel.peer_host] += one.lent_bytes

        def order(one: Unfinished) -> tuple[int, bool, bool, int]:
            is_known = one.is_served or (self._is_ripe(one) and self._is_on_its_way(one))
            moves = 1 if is_known else self.moves + 1 - one.moved
            return -of_hosts[one.channel.peer_host], one.waits_for_broker, is_known, -one.lent_bytes * moves

        return sorted(found, key=order)

    def _all(self) -> Iterable[Unfinished]:
        yield from self.frames
        yield from (one for one in self.inboxes() if one.received_bytes)

    def _is_ripe(self, one: Unfinished) -> bool:
        return self.tick - one.begun_tick >= RIPE_TICKS

    def _is_judged(self, one: Unfinished) -> bool:
        """Whether the peer, and not the broker, is responsible for the request's pace, and the request is old enough to be judged."""
        return self._is_ripe(one) and not one.waits_for_broker

    def _came_lately(self, one: Unfinished) -> int:
        return one.received_bytes - self._noted_before.get(one, 0)

    def _pace(self, one: Unfinished) -> tuple[int, float]:
        """Returns the bytes received since the tick before the last one, and the average per tick since the request began."""
        return self._came_lately(one), one.received_bytes / (self.tick - one.begun_tick)

    def _is_on_its_way(self, one: Unfinished) -> bool:
        return one.missing_bytes * RIPE_TICKS <= self._came_lately(one) * SOON_TICKS and not one.waits_for_broker
