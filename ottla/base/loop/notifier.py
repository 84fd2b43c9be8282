"""Calls functions after a change: watchers at every change, waiters once, when the log reaches the end that they wait for.

Waiters are in two heaps, one for committed ends and one for durable ends, each ordered by end. So a change calls only the waiters whose end
is reached. Its cost does not depend on how many others wait: a thousand waiting produces cost a thousand calls in total. Watchers are
called without arguments and examine the state themselves.

A called function may change the watchers and waiters, and may notify again; that change is reported after the current one. A function waits
for one end at a time: a second wait for a later end replaces the first, and a second wait for an earlier end is ignored.

Callers in `replication/` and `sharing/share_partition.py` decide when to notify. `server/execution/waiters.py` spreads the waking of
requests over several iterations of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

_STALE_MAX = 64
"""Stale entries are removed from the heaps when there are more stale entries than this number, and more than valid entries."""

_END, _FUNCTION = 0, 2


class Notifier:
    """The watchers and waiters of one object; see the module."""

    __slots__ = ("_committed", "_count", "_durable", "_ended", "_ends", "_has_moved", "_is_notifying", "waiters", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[Callable[[], None], None] = {}
        self.waiters: dict[Callable[[], None], list[Any]] = {}
        """By function: end, running number, function (None: stale). The heaps share these entries."""
        self._committed: list[list[Any]] = []
        self._durable: list[list[Any]] = []
        self._count = 0
        self._ends = (0, 0)
        self._ended: dict[Callable[[], None], None] = {}
        self._is_notifying = False
        self._has_moved = False

    def add_watcher(self, function: Callable[[], None]) -> None:
        self.watchers[function] = None

    def remove_watcher(self, function: Callable[[], None]) -> None:
        self.watchers.pop(function, None)

    def call_when_committed(self, end: int, function: Callable[[], None]) -> None:
        """Calls `function` once, at the first notification that everything below `end` is committed, or after `end_waits`."""
        self._wait(self._committed, end, function)

    def call_when_durable(self, end: int, function: Callable[[], None]) -> None:
        """Calls `function` once, at the first notification that everything below `end` is durable, or after `end_waits`."""
        self._wait(self._durable, end, function)

    def forget(self, function: Callable[[], None]) -> None:
        self._ended.pop(function, None)
        entry = self.waiters.pop(function, None)
        if entry is not None:
            entry[_FUNCTION] = None
            self._sweep()

    def end_waits(self) -> None:
        """Makes the next notification call all current waiters, because their ends will not be reached."""
        self._ended.update(dict.fromkeys(entry[_FUNCTION] for entry in sorted(self.waiters.values())))
        self.waiters.clear()
        self._committed.clear()
        self._durable.clear()

    def notify(self, committed_end: int = 0, durable_end: int = 0) -> None:
        """Calls the watchers, and the waiters for ends up to these ends."""
        self._ends = (committed_end, durable_end)
        self._has_moved = True
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._has_moved:
                self._has_moved = False
                for function in tuple(self.watchers):
                    function()
                while self._ended:
                    function = next(iter(self._ended))
                    del self._ended[function]
                    function()
                if self.waiters:
                    self._call_waiters()
        finally:
            self._is_notifying = False

    def _call_waiters(self) -> None:
        for kind, heap in enumerate((self._committed, self._durable)):
            while heap and heap[0][_END] <= self._ends[kind]:
                function = heappop(heap)[_FUNCTION]
                if function is not None:
                    del self.waiters[function]
                    function()

    def _wait(self, heap: list[list[Any]], end: int, function: Callable[[], None]) -> None:
        known = self.waiters.get(function)
        if known is not None:
            if known[_END] >= end:
                return
            known[_FUNCTION] = None
        self._count += 1
        entry = self.waiters[function] = [end, self._count, function]
        heappush(heap, entry)

    def _sweep(self) -> None:
        """Drops stale entries when there are many. Otherwise a stale entry for an end that is never reached would stay in its heap."""
        entries = len(self._committed) + len(self._durable)
        if entries - len(self.waiters) > max(_STALE_MAX, len(self.waiters)):
            for heap in (self._committed, self._durable):
                heap[:] = [entry for entry in heap if entry[_FUNCTION] is not None]
                heapify(heap)
