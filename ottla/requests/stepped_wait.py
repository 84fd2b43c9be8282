"""Waits for partitions to move, and looks at them in steps.

A look at thousands of partitions takes many iterations of the event loop, and a partition that the look has passed may move meanwhile. So
the partitions are watched before the first look begins. If one of them moves during a look, or the time ends, another look follows: no move
is missed. The first look runs in the task of the request, later looks in `Waiters.do_in_turns`. An exception in a later look ends the wait
and closes the connection, as an exception of a handler does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from ottla.base.loop.guarded import Fail, guarded
from ottla.requests.context import Waiters, Watch, Watched

Look = Callable[[bool], Generator[None, None, bool]]
"""Looks at all partitions; returns whether the wait is over, as it is after the look that is called with True: it is the last."""


class SteppedWait:
    """The wait of one request. `on_end` is called once when it is over, unless the first look has ended it or it was cancelled; `fail` gets
    the exception of a later look, or of `on_end`."""

    __slots__ = ("_fail", "_has_moved", "_is_late", "_is_looking", "_look", "_on_end", "_waiters", "_watch")

    def __init__(self, waiters: Waiters, look: Look, on_end: Callable[[], None], fail: Fail) -> None:
        self._waiters = waiters
        self._look: Look | None = look
        self._on_end: Callable[[], None] | None = on_end
        self._fail: Fail | None = fail
        self._watch: Watch | None = None
        self._is_looking = self._has_moved = self._is_late = False

    @property
    def is_over(self) -> bool:
        return self._look is None

    def begin(self, watched: Sequence[Watched], timeout_ms: int) -> Generator[None, None, bool]:
        """Watches the partitions and looks at them for the first time; returns whether the wait is over already."""
        assert self._look is not None
        self._watch = self._waiters.watch(watched, timeout_ms, self._moved, self._time_is_over)
        self._is_looking = is_over = True
        try:
            is_over = yield from self._look(False)
        finally:
            if is_over:
                self.cancel()
        if not is_over:
            self._rest_or_look_again()
        return is_over

    def cancel(self) -> None:
        """Ends the wait, and with it all references to the request."""
        if self._watch is not None:
            self._watch.cancel()
        self._look = self._on_end = self._fail = self._watch = None

    def _moved(self) -> None:
        self._has_moved = True
        if not self._is_looking:
            self._rest_or_look_again()

    def _time_is_over(self) -> None:
        self._is_late = True
        self._moved()

    def _rest_or_look_again(self) -> None:
        self._is_looking = self._has_moved
        if self._has_moved and self._fail is not None:
            self._waiters.do_in_turns(guarded(self._look_again(), self._failing(self._fail)))

    def _failing(self, fail: Fail) -> Fail:
        """Returns a function that ends the wait and calls `fail`. It keeps `fail`, which the wait forgets before it calls `on_end`."""

        def end_and_fail(error: Exception) -> None:
            self.cancel()
            fail(error)

        return end_and_fail

    def _look_again(self) -> Generator[None, None, None]:
        while self._look is not None and self._has_moved:
            self._has_moved = False
            is_over = yield from self._look(self._is_late)
            if is_over and self._on_end is not None:
                on_end = self._on_end
                self.cancel()
                on_end()
        self._is_looking = False
