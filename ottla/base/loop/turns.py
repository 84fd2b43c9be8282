"""Runs long work in pieces, one piece in each iteration of the event loop.

Long work is an iterator that does a little at each step. If nothing is queued, the first piece runs at once, so small work is done before
`add` returns; the rest runs in later iterations, between which the loop serves other work. Work is queued in the order of `add`, and
`call_when_idle` calls back when the whole queue is done. With `is_fair` an unfinished iterator moves to the end of the queue after each
piece, behind such a call.

Before `begin` pieces are not bounded, because no client waits for a loop that does not run yet. An iterator that raises is dropped, the
queue continues, and the loop, or the caller of `add`, gets the exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import TypeVar

from ottla.base.ports import Clock, Timers

PIECE_MS = 15
"""The time of one piece. A client's answer waits at most this long for one piece."""

ITEMS_PER_STEP = 200
"""Items that long work handles in one step, unless one item is expensive. 200 partitions of a Fetch take about a millisecond."""

Result = TypeVar("Result")
Thing = TypeVar("Thing")


class Turns:
    """A queue of iterators on one loop."""

    def __init__(self, clock: Clock, timers: Timers, piece_ms: int | None = None, *, is_fair: bool = False) -> None:
        self.piece_ms = piece_ms
        """The time of a piece, where it is not `PIECE_MS`."""
        self._clock = clock
        self._timers = timers
        self._is_fair = is_fair
        self._work: deque[Iterator[object]] = deque()
        self._is_bounded = False
        self._is_running = False
        self._is_scheduled = False

    @property
    def unfinished(self) -> Sized:
        """The queue of unfinished work; a live view."""
        return self._work

    @property
    def is_bounded(self) -> bool:
        """Whether the loop runs, or is about to."""
        return self._is_bounded

    @property
    def is_idle(self) -> bool:
        return not self._work

    def begin(self) -> None:
        """The loop runs, or is about to: from here on pieces are bounded."""
        self._is_bounded = True

    def call_next(self, function: Callable[[], object]) -> None:
        """Calls `function` in a separate turn; at once before `begin`."""
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
        """Calls `function` behind what is unfinished; not before this returns."""
        self.add_later(once(function))

    def call_when_idle(self, function: Callable[[], object]) -> None:
        """Calls `function` when all that has been asked for before is done; at once if that is so already."""
        if self._work:
            self._work.append(once(function))
        else:
            function()

    def drop(self) -> None:
        """Gives up everything that is not done yet."""
        self._work.clear()

    def _run(self) -> None:
        if self._is_running:
            return  # A step has asked for more; it has its turn behind what is there.
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
    """Splits the things into lists of at most `size`. They are collected when the first list is asked for: later changes do not matter."""
    found = list(things)
    for at in range(0, len(found), size):
        yield found[at : at + size]


def once(function: Callable[[], object]) -> Iterator[object]:
    """The steps of a single call."""
    yield function()
