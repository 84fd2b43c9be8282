"""Runs long work in pieces, one piece in each iteration of the event loop.

Long work is an iterator that does a little at each step. If nothing is queued, the first piece runs at once, so small work is done before
`add` returns; the rest runs in later iterations, between which the loop serves other work. Work is queued in the order of `add`, and
`call_when_idle` queues a call behind it. With `is_fair` an unfinished iterator moves to the end of the queue after each piece, so a queued
call may run before the iterator is done.

Until `begin` is called, a piece has no time limit, because no client waits for a loop that does not run yet. An iterator that raises is
dropped, the queue continues, and the loop, or the caller of `add`, gets the exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import TypeVar

from ottla.base.ports import Clock, Timers

PIECE_MS = 15
"""Time slice of long work in one iteration of the event loop, in milliseconds. In each iteration, a queue delays clients' answers by at
most this time and one step."""

ITEMS_PER_STEP = 200
"""Items that long work handles in one step, unless one item is expensive. 200 partitions of a Fetch take about a millisecond."""

Result = TypeVar("Result")
Thing = TypeVar("Thing")


class Turns:
    """A queue of iterators on one loop."""

    def __init__(self, clock: Clock, timers: Timers, piece_ms: int | None = None, *, is_fair: bool = False) -> None:
        self.piece_ms = piece_ms
        """The time slice in milliseconds; None for `PIECE_MS`."""
        self._clock = clock
        self._timers = timers
        self._is_fair = is_fair
        self._work: deque[Iterator[object]] = deque()
        self._is_bounded = False
        self._is_running = False
        self._is_scheduled = False

    @property
    def unfinished(self) -> Sized:
        """Returns the queue of unfinished work; a live view."""
        return self._work

    @property
    def is_bounded(self) -> bool:
        """Whether pieces are limited to the time slice (after `begin`)."""
        return self._is_bounded

    @property
    def is_idle(self) -> bool:
        return not self._work

    def begin(self) -> None:
        """Limits pieces to the time slice from now on, because the loop runs or is about to."""
        self._is_bounded = True

    def call_next(self, function: Callable[[], object]) -> None:
        """Calls `function` in another iteration of the loop; before `begin` immediately."""
        if self._is_bounded:
            self._timers.call_soon(function)
        else:
            function()

    def add(self, steps: Iterator[object]) -> None:
        self._work.append(steps)
        if not self._is_scheduled:
            self._run()

    def add_later(self, steps: Iterator[object]) -> None:
        """Adds work that does not start at once: the caller has already done a piece of it, or it may wait."""
        self._work.append(steps)
        if not self._is_scheduled and not self._is_running:
            self._is_scheduled = True
            self._timers.call_soon(self._run)

    def call_in_turn(self, function: Callable[[], object]) -> None:
        """Calls `function` after the unfinished work, in a later iteration of the loop; in the same one if a step calls this and the time
        slice is not over."""
        self.add_later(once(function))

    def call_when_idle(self, function: Callable[[], object]) -> None:
        """Calls `function` after the work that is queued now; immediately if there is none."""
        if self._work:
            self._work.append(once(function))
        else:
            function()

    def drop(self) -> None:
        self._work.clear()

    def _run(self) -> None:
        if self._is_running:
            return  # a step has added work, which is executed after the queued work
        self._is_running, self._is_scheduled = True, False
        try:
            self._run_piece()
        finally:
            self._is_running = False
            if self._work:
                self._is_scheduled = True
                self._timers.call_soon(self._run)

    def _run_piece(self) -> None:
        end_ms = self._clock.monotonic_ms() + (PIECE_MS if self.piece_ms is None else self.piece_ms)
        while self._work:
            try:
                for _ in self._work[0]:
                    if self._is_bounded and self._clock.monotonic_ms() >= end_ms:
                        if self._is_fair:
                            self._work.rotate(-1)
                        return
            except BaseException:
                self._work.popleft()
                raise
            self._work.popleft()


def run_steps(steps: Generator[object, None, Result]) -> Result:
    """Runs all steps at once. Returns the result of the generator."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def pieces_of(things: Iterable[Thing], size: int = ITEMS_PER_STEP) -> Iterator[list[Thing]]:
    """Splits the things into lists of at most `size`. The things are collected when the first list is requested; later changes have no
    effect.
    """
    found = list(things)
    for at in range(0, len(found), size):
        yield found[at : at + size]


def once(function: Callable[[], object]) -> Iterator[object]:
    """Yields once, after calling `function`."""
    yield function()
