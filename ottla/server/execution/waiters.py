"""Wakes the requests that wait for a change of partitions: long-polling fetches, and produces that wait for their acknowledgement.

A partition's notifier calls the watches whenever its high watermark, last stable offset, log end or role moves. A watch that is called is
only marked. It is woken once, after the connection that caused the change has sent its own answers. So a producer's acknowledgement does
not wait for the readers that it wakes, and several appends of one batch of requests wake a reader once.

A round of wakes is bounded in time: if ten thousand readers wait for one partition, the later ones are woken in later iterations of the
event loop. Requests that wait for an acknowledgement are woken before readers, so that readers cannot hold them up. A request that waits
for thousands of partitions looks at them in steps, a few in each iteration (`handlers/records/partition_wait.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, TimerHandle, Timers
from ottla.handlers.context import PartitionNotifier
from ottla.replication.leader import Leader

ROUND_NS_MAX = 10_000_000
"""Time slice of a round for readers, and another one for acknowledgements, in nanoseconds."""
PIECE_MS = 5
"""Time slice for requests that wait for thousands of partitions, in one iteration of the event loop, in milliseconds."""
WAKES_PER_LOOK = 16
"""Number of wakes between two readings of the clock."""


def _nothing() -> None:
    """The `wake` of a watch that has ended."""


class Watch:
    """One waiting request: `wake` may be called many times until `cancel`."""

    __slots__ = ("_appended", "_is_marked", "_on_timeout", "_timer", "_waiters", "_watched", "is_cancelled", "wake")

    def __init__(self, waiters: Waiters, watched: Sequence[PartitionNotifier], wake: Callable[[], None]) -> None:
        self._waiters = waiters
        self._watched = watched
        self._appended: list[Leader] = []
        self._is_marked = False
        self._on_timeout: Callable[[], None] | None = None
        self._timer: TimerHandle | None = None
        self.is_cancelled = False
        self.wake = wake

    def start(self, timeout_ms: int, on_timeout: Callable[[], None]) -> None:
        mark = self.mark
        for notifier in self._watched:
            notifier.add_watcher(mark)
        self._on_timeout = on_timeout
        self._waiters.watches[self] = None
        self._timer = self._waiters.timers.call_later(timeout_ms, on_timeout)

    def add_acknowledgement(self, leader: Leader, last_offset: int, acks: int) -> None:
        """Also wakes the request when the leader acknowledges the append up to `last_offset`, or can no longer acknowledge it."""
        if self.is_cancelled:
            return
        self._appended.append(leader)
        leader.call_when_acknowledged(last_offset, acks, self.mark)

    @property
    def is_reader(self) -> bool:
        """Whether the request waits for changes of partitions, not for an acknowledgement."""
        return bool(self._watched)

    def mark(self) -> None:
        """Wakes the request soon."""
        if not self._is_marked:
            self._is_marked = True
            self._waiters.add_ready(self)

    def expire(self) -> None:
        """Ends the wait as a timeout does, because the broker stops."""
        if self._on_timeout is not None and not self.is_cancelled:
            self._on_timeout()

    def unmark(self) -> None:
        self._is_marked = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._waiters.watches.pop(self, None)
        mark = self.mark
        for notifier in self._watched:
            notifier.remove_watcher(mark)
        for leader in self._appended:
            leader.forget_acknowledgement(self.mark)
        if self._timer is not None:
            self._timer.cancel()
        # The request refers to this watch. Without this only the garbage collector could free the two.
        self._watched, self._appended, self._timer, self._on_timeout, self.wake = (), [], None, None, _nothing


class Waiters:
    """All watches of this broker."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.timers = timers
        self._now_ns = clock.nanoseconds
        self.watches: dict[Watch, None] = {}
        self._ready: deque[Watch] = deque()
        self._acknowledged: deque[Watch] = deque()
        self.is_batching = False
        """Whether all wakes are held back until `run`, because a connection is executing a batch of requests."""
        self._is_scheduled = False
        self._is_closing = False
        self._is_waking = False
        self._finishing: dict[Callable[[], None], None] = {}
        self.turns = Turns(clock, timers, piece_ms=PIECE_MS, is_fair=True)
        self.turns.begin()

    def watch(
        self, watched: Sequence[PartitionNotifier], timeout_ms: int, wake: Callable[[], None], on_timeout: Callable[[], None]
    ) -> Watch:
        """Calls `wake` after changes of a watched partition (once for several changes), and `on_timeout` once after `timeout_ms`, until
        cancelled."""
        watch = Watch(self, watched, wake)
        watch.start(0 if self._is_closing else timeout_ms, on_timeout)
        return watch

    def do_in_turns(self, steps: Iterator[object]) -> None:
        """Executes long work of a waiting request in time slices, alternating with the work of other waiting requests."""
        self.turns.add_later(steps)

    def add_ready(self, watch: Watch) -> None:
        (self._ready if watch.is_reader else self._acknowledged).append(watch)
        if not self.is_batching:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.timers.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()

    def expire_all(self) -> None:
        """Ends every wait as its timeout does. Later requests do not wait either, because each answer lets the next pipelined request of
        a client begin."""
        self._is_closing = True
        for watch in list(self.watches):
            watch.expire()

    def run(self) -> None:
        """Wakes the marked watches, or as many as a round has time for. If one fails, the others are woken in the next iteration."""
        self.is_batching = False
        if not self._ready and not self._acknowledged:
            return
        self._is_waking = True
        try:
            self._wake(self._acknowledged)
            if not self._is_scheduled:  # If a round is scheduled, it wakes the readers.
                self._wake(self._ready)
        finally:
            self._is_waking = False
            if self._ready or self._acknowledged:
                self._schedule()
            if self._finishing:
                self._finish()

    def _wake(self, marked: deque[Watch]) -> None:
        """Wakes the watches that are marked now. Watches that are marked meanwhile are woken in the next round."""
        left = len(marked)
        end_ns = self._now_ns() + ROUND_NS_MAX if left > WAKES_PER_LOOK else 0
        while left:
            watch = marked.popleft()
            watch.unmark()
            if not watch.is_cancelled:
                watch.wake()
            left -= 1
            if left and not left % WAKES_PER_LOOK and self._now_ns() >= end_ns:
                return

    def _finish(self) -> None:
        """Calls the functions of `after_wakes`. If one fails, the others are called in the next iteration of the loop."""
        finishing, self._finishing = iter(self._finishing), {}
        try:
            for function in finishing:
                function()
        finally:
            for function in finishing:
                self.timers.call_soon(function)

    def after_wakes(self, function: Callable[[], None]) -> bool:
        """Calls `function` once, at the end of the current round of wakes. Returns False outside of a round."""
        if self._is_waking:
            self._finishing[function] = None
        return self._is_waking
