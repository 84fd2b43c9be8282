"""Decides which connection executes requests next, and for how long.

One event loop serves all connections. In an iteration of the loop each connection that has received bytes executes its requests as one
batch. Four rules keep a client with cheap requests from waiting for clients with costly ones:

1. *Time slice.* A batch has a time slice. When the slice is over, the connection joins a queue. Costly requests that have run in
   the same iteration shorten the slice, and so do unfinished long requests (`long_requests.py`).
2. *Measured cost.* Each API version and each connection has a moving average of the time that its requests take. The average is 0 while
   all of them are cheap.
3. *Crowded iterations.* When costly requests have taken `HEAVY_NS` of one iteration, the iteration is crowded. A request that is likely to
   be costly then waits in the queue: both its API version and its connection have been costly, or it is large.
4. *Priority queue.* Waiting connections resume one at a time. A costly connection lets a bounded number of cheaper ones pass.

`docs/scheduling.md` has the constants and the attacks that each rule answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from heapq import heappop, heappush
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Timers
from ottla.server.memory.receive_buffer import SHARED_BYTES

if TYPE_CHECKING:
    from ottla.server.execution.route import Route
    from ottla.server.execution.waiters import Waiters

read_kind = Struct(">i").unpack_from

SLICE_NS = 10_000_000
"""The time slice of a batch. Costly requests of an iteration share it."""
SLICE_NS_MIN = 200_000
"""The shortest time slice, however much time costly requests have taken in this iteration. Unfinished long requests divide it further."""
COSTLY_NS = 150_000
"""A request that takes longer is costly: it raises the averages, and its time is added to the iteration's. The limit is low because several
hundred connections may each send one request at the same moment."""
HEAVY_NS = 4_000_000
"""An iteration whose costly requests have taken longer is crowded. Averages do not rise above it."""
LONG_BATCH_NS = SLICE_NS - COSTLY_NS
"""If less than this of a whole slice is left at the end of a batch, the batch has run for more than `COSTLY_NS`."""
CHEAP_NS = 50_000
"""An average below this is 0."""
ROUTE_RISE_BITS = 5
"""A costly request raises the average of its API version by 1/2^5 of the difference, so one request alone does not make an API costly."""
CONNECTION_RISE_BITS = 1
"""A costly request raises the average of its connection by half of the difference."""
PASSES_PER_COSTLY = 100
"""For each `COSTLY_NS` of its average, a waiting connection lets this many cheaper ones pass."""
LARGE_BYTES = 4096
"""A larger request is likely to be costly. Exception: a Produce that is larger than the shared buffer has a buffer of its own, which it
should free soon."""
PRODUCE = 0


class ScheduledClient(Protocol):
    """A connection (`connection.py`)."""

    cost_ns: int
    """The moving average of its requests."""

    @property
    def contexts(self) -> Sized:
        """Empty before its first request."""

    def resume(self) -> None:
        """Executes what was held back."""


class Scheduler:
    """Shares the iterations of the event loop among connections."""

    def __init__(self, clock: Clock, timers: Timers, turns: Turns, waiters: Waiters) -> None:
        """`turns`: the queue of unfinished long requests. `waiters`: the requests whose wakes are held back during a batch."""
        self._timers = timers
        self._turns = turns
        self._waiters = waiters
        self._unfinished = turns.unfinished
        self.now_ns = clock.nanoseconds
        self.last_ns = 0
        """When the last request of the batch ended, or when the batch began."""
        self.slice_end_ns = 0
        """When the time slice of the connection ends."""
        self.is_crowded = False
        """Whether costly requests have taken much time in this iteration."""
        self._costly_ns = 0  # the time that costly requests and batches have taken in this iteration
        self._short_slice_ns = SLICE_NS  # the last result of `_short_slice`
        self._has_costly = False  # whether the batch has executed a costly request
        self._queue: list[tuple[int, int, ScheduledClient]] = []  # a heap of (priority, arrival, connection)
        self._arrivals = 0

    # A batch

    def begin_batch(self) -> None:
        """Begins the time slice of a connection that executes a batch of requests."""
        self._waiters.is_batching = True
        now_ns = self.last_ns = self.now_ns()
        self.slice_end_ns = now_ns + (self._short_slice() if self._unfinished or self._costly_ns else SLICE_NS)

    def end_slice(self) -> None:
        """Ends the time slice of the connection after this request."""
        self.slice_end_ns = 0

    def note_work(self) -> None:
        """Counts the batch as costly, because it does other work than requests."""
        self._has_costly = True

    def end_batch(self) -> None:
        """Counts a costly batch for this iteration, and runs the wakes that were held back. Called after the answers were sent."""
        if self._has_costly:
            self._has_costly = False
            self._add_costly(self.now_ns() - self.last_ns)  # the time for sending the answers
        elif self.last_ns > self.slice_end_ns - LONG_BATCH_NS:
            self._add_batch()
        waiters = self._waiters
        if waiters.acknowledged or waiters.readers:
            waiters.run()
        else:
            waiters.is_batching = False

    def _short_slice(self) -> int:
        self._short_slice_ns = max(SLICE_NS - self._costly_ns, SLICE_NS_MIN) // (1 + len(self._unfinished))
        return self._short_slice_ns

    def _add_batch(self) -> None:
        """Counts a batch of many cheap requests that has taken as long as a costly one."""
        slice_ns = self._short_slice_ns if self._unfinished or self._costly_ns else SLICE_NS
        elapsed_ns = self.last_ns - self.slice_end_ns + slice_ns
        if elapsed_ns > COSTLY_NS and self.slice_end_ns:
            self._add_costly(elapsed_ns)

    # Costs

    def measure(self, connection: ScheduledClient, route: Route, elapsed_ns: int) -> None:
        """Adds the time of a request to the averages, and to this iteration if the request was costly."""
        route.cost_ns = moving_cost(route.cost_ns, elapsed_ns, ROUTE_RISE_BITS)
        connection.cost_ns = moving_cost(connection.cost_ns, elapsed_ns, CONNECTION_RISE_BITS)
        if elapsed_ns > COSTLY_NS:
            self._has_costly = True
            self._add_costly(elapsed_ns)

    def is_likely_costly(self, connection: ScheduledClient, route: Route | None, kind: int, size: int) -> bool:
        """Whether the next request of a connection is likely to be costly. `kind` is the key and version as one number; `route` is None
        before the first request of this kind. Before the first request of a connection, sets the connection's average to the average of the
        request's kind, or to `HEAVY_NS` if the request is large. A Produce is judged by its size only, and sets the average to 0."""
        is_produce = kind >> 16 == PRODUCE
        is_large = size > LARGE_BYTES and not (is_produce and size > SHARED_BYTES)
        if connection.contexts and connection.cost_ns <= COSTLY_NS:
            return is_large
        kind_ns = 0 if route is None or is_produce else route.cost_ns
        if not connection.contexts:
            connection.cost_ns = HEAVY_NS if is_large and not is_produce else kind_ns
        return is_large or kind_ns > COSTLY_NS

    def _add_costly(self, elapsed_ns: int) -> None:
        if not self._costly_ns:
            self._timers.call_soon(self._begin_iteration)
        self._costly_ns += elapsed_ns
        self.is_crowded = self._costly_ns > HEAVY_NS

    def _begin_iteration(self) -> None:
        self.is_crowded = False
        self._costly_ns = 0

    # The queue

    def resume_later(self, connection: ScheduledClient) -> None:
        """Has `connection.resume` called in a later iteration."""
        self._arrivals += 1
        priority = self._arrivals + PASSES_PER_COSTLY * (connection.cost_ns // COSTLY_NS)
        heappush(self._queue, (priority, self._arrivals, connection))
        self._turns.add_later(self._resume_next())

    def _resume_next(self) -> Iterator[None]:
        _, _, connection = heappop(self._queue)
        self.is_crowded = False  # otherwise the connection would join the queue again
        connection.resume()
        yield


def moving_cost(average_ns: int, elapsed_ns: int, rise_bits: int) -> int:
    """Returns the moving average after one more request. A cheaper request lowers the average by half of the difference. A costlier one
    raises it by 1/2^`rise_bits` of the difference, because a single measurement may contain work of other processes. A request is taken as
    `HEAVY_NS` at most, and an average of at most `CHEAP_NS` is 0."""
    if elapsed_ns > average_ns and elapsed_ns > CHEAP_NS:
        return average_ns + ((min(elapsed_ns, HEAVY_NS) - average_ns) >> rise_bits)
    average_ns = (average_ns + elapsed_ns) >> 1
    return average_ns if average_ns > CHEAP_NS else 0
