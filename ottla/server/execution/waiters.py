"""Wakes the requests that wait for a change of partitions: long-polling fetches, and produces that wait for their acknowledgement.

A partition's notifier calls the watches whenever the partition's high watermark, last stable offset, log end or role changes. A watch that
is called is only marked. It is woken once, after the connection that caused the change has sent its own answers. So a producer's
acknowledgement does not wait for the readers that it wakes, and several appends of one batch of requests wake a reader once.

A round of wakes is bounded in time: if ten thousand readers wait for one partition, the later ones are woken in later iterations of the
event loop. Requests that wait for an acknowledgement are woken before readers, so that readers cannot hold them up. A request that waits
for thousands of partitions looks at them in steps, a few in each iteration (`handlers/records/partition_wait.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ottla.base.loop.deadlines import Deadlines
from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Timers
from ottla.handlers.context import PartitionNotifier
from ottla.replication.leader import Leader

ROUND_NS_MAX = 10_000_000
"""Time slice of a round for readers, and an equal time slice for acknowledgements, in nanoseconds."""
PIECE_MS = 5
"""Time slice for requests that wait for thousands of partitions, in one iteration of the event loop, in milliseconds."""
NEVER = 1 << 63
WAKES_PER_LOOK = 16
"""Number of wakes between two readings of the clock."""


def _nothing() -> None:
    """The `wake` of a watch that has ended."""


class Watch:
    """One waiting request: `wake` may be called many times until `cancel`."""

    __slots__ = ("_appended", "_deadline", "_due_ms", "_marked", "_on_timeout", "_waiters", "_watched", "is_cancelled", "is_marked", "wake")

    def __init__(
        self, waiters: Waiters, watched: Sequence[PartitionNotifier], timeout_ms: int, wake: Callable[[], None],
        on_timeout: Callable[[], None],
    ) -> None:  # fmt: skip
        self._waiters = waiters
        self._watched = watched
        # A request that watches no partition waits for an acknowledgement, or is a follower's.
        self._marked = waiters.readers if watched else waiters.acknowledged
        self._appended: list[Leader] = []
        self._on_timeout = on_timeout
        self._due_ms = 0  # set by `wait_for`: a deadline before it does not end the wait
        self.is_marked = False
        self.is_cancelled = False
        self.wake = wake
        for notifier in watched:
            notifier.add_watcher(self.mark)
        self._deadline = waiters.deadlines.begin(self, 0 if waiters.is_closing else timeout_ms)

    def add_acknowledgement(self, leader: Leader, last_offset: int, acks: int) -> None:
        """Also wakes the request when the leader acknowledges the append up to `last_offset`, or can no longer acknowledge it."""
        if self.is_cancelled:
            return
        self._appended.append(leader)
        leader.call_when_acknowledged(last_offset, acks, self.mark)

    def mark(self) -> None:
        """Wakes the request soon."""
        if not self.is_marked:
            self.is_marked = True
            self._marked.append(self)
            if not self._waiters.is_batching:
                self._waiters.schedule()

    def wait_for(self, timeout_ms: int, now_ms: int) -> None:
        """Replaces the timeout, even if it has passed: the request now waits until `timeout_ms` after the present time `now_ms`. A timer
        that is set for an earlier time is kept; when it fires, it is set again for the rest of the wait. So replacing the timeout at each
        request costs nothing."""
        waiters = self._waiters
        if waiters.is_closing:
            timeout_ms = 0
        self._due_ms = due_ms = now_ms + timeout_ms
        if self._deadline.due_ms.get(self, NEVER) > due_ms:
            self._deadline.end(self)
            self._deadline = waiters.deadlines.begin(self, timeout_ms)

    def expire(self) -> None:
        """Ends the wait, because the timeout has passed or the broker stops."""
        waiters = self._waiters
        left_ms = self._due_ms - waiters.clock.monotonic_ms()
        if self.is_cancelled:
            return
        if left_ms > 0 and not waiters.is_closing:
            self._deadline = waiters.deadlines.begin(self, left_ms)
        else:
            self._on_timeout()

    def cancel(self) -> None:
        self.is_cancelled = True
        self._deadline.end(self)
        mark = self.mark
        for notifier in self._watched:
            notifier.remove_watcher(mark)
        for leader in self._appended:
            leader.forget_acknowledgement(mark)
        # The request refers to this watch. Without this only the garbage collector could free the two.
        self._watched, self._appended, self._on_timeout, self.wake = (), [], _nothing, _nothing


class Waiters:
    """All watches of this broker."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.clock = clock
        self.timers = timers
        self._now_ns = clock.nanoseconds
        self.deadlines = Deadlines(clock, timers)
        self.readers: deque[Watch] = deque()
        """Marked requests that wait for changes of partitions."""
        self.acknowledged: deque[Watch] = deque()
        """Marked requests that wait for an acknowledgement, and marked fetches of followers. They are woken first."""
        self.is_batching = False
        """Whether all wakes are held back until `run`, because a connection is executing a batch of requests."""
        self._is_scheduled = False
        self.is_closing = False
        """Whether no request waits any more, because the broker stops."""
        self._is_waking = False
        self._finishing: dict[Callable[[], None], None] = {}
        self.turns = Turns(clock, timers, piece_ms=PIECE_MS, is_fair=True)
        self.turns.begin()

    def watch(
        self, watched: Sequence[PartitionNotifier], timeout_ms: int, wake: Callable[[], None], on_timeout: Callable[[], None]
    ) -> Watch:
        """Calls `wake` after changes of a watched partition (once for several changes), and `on_timeout` once after `timeout_ms`, until
        cancelled."""
        return Watch(self, watched, timeout_ms, wake, on_timeout)

    def do_in_turns(self, steps: Iterator[object]) -> None:
        """Executes long work of a waiting request in time slices, alternating with the work of other waiting requests."""
        self.turns.add_later(steps)

    def schedule(self) -> None:
        """Wakes the marked requests in the next iteration of the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.timers.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()

    def expire_all(self) -> None:
        """Ends every wait as its timeout does. Later requests do not wait either, because each answer lets the next pipelined request of
        a client begin."""
        self.is_closing = True
        for watch in self.deadlines.waits():
            watch.expire()

    def run(self) -> None:
        """Wakes the marked watches, or as many as a round has time for. If one fails, the others are woken in the next iteration."""
        self.is_batching = False
        if not self.readers and not self.acknowledged:
            return
        self._is_waking = True
        try:
            self._wake(self.acknowledged)
            if self.readers and not self._is_scheduled:  # If a round is scheduled, it wakes the readers.
                self._wake(self.readers)
        finally:
            self._is_waking = False
            if self.readers or self.acknowledged:
                self.schedule()
            if self._finishing:
                self._finish()

    def _wake(self, marked: deque[Watch]) -> None:
        """Wakes the watches that are marked now. Watches that are marked meanwhile are woken in the next round."""
        left = len(marked)
        end_ns = self._now_ns() + ROUND_NS_MAX if left > WAKES_PER_LOOK else 0
        while left:
            watch = marked.popleft()
            watch.is_marked = False
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
