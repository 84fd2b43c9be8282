"""Waits until watched partitions change, for example by new records, and looks at them again after each change. Waiting ShareFetch requests
and waiting Fetch requests of consumers use it.

A look is a function that returns the result. A look at many partitions takes several iterations of the event loop, so it is a task. Later
looks by a task run in `WaitingRequests.do_in_turns`. A partition may change after the task has looked at it. So the partitions are watched
before the first look of a task begins. If one of them changes during a look, or if the time ends, the task looks again. An exception in a
later look ends the wait and fails the request, as an exception of its handler does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from types import GeneratorType
from typing import Any

from ottla.base.loop.guarded import Fail, call_guarded, guarded
from ottla.handlers.context import PartitionNotifier, WaitingRequest, WaitingRequests

Look = Callable[[bool], Any]
"""Looks at all partitions. Returns the result, or None to go on waiting. It may also return a task, which returns the result or None. It is
called with True when the time is over; then there must be a result."""


class PartitionWait:
    """The wait of one request. `done` gets the result of a later look; `fail` gets an exception of that look or of `done`. Neither is
    called after `cancel`."""

    __slots__ = ("_done", "_fail", "_has_moved", "_is_late", "_is_looking", "_look", "_waiters", "_watch")

    def __init__(self, waiters: WaitingRequests, look: Look, done: Callable[[Any], object], fail: Fail) -> None:
        self._waiters = waiters
        self._look: Look | None = look
        self._done: Callable[[Any], object] | None = done
        self._fail: Fail | None = fail
        self._watch: WaitingRequest | None = None
        self._is_looking = self._has_moved = self._is_late = False

    @property
    def is_over(self) -> bool:
        return self._look is None

    def begin(self, watched: Sequence[PartitionNotifier], timeout_ms: int) -> None:
        """Begins to watch the partitions. The caller must look at all of them after this call, or before it in the same iteration of the
        event loop. Otherwise a change could be missed."""
        self._watch = self._waiters.watch(watched, timeout_ms, self._moved, self._time_is_over)

    def begin_in_steps(self, watched: Sequence[PartitionNotifier], timeout_ms: int) -> Generator[None, None, Any]:
        """Watches the partitions and looks at them for the first time, in steps. Returns the result; None if the request waits."""
        assert self._look is not None
        self.begin(watched, timeout_ms)
        self._is_looking, result, has_failed = True, None, True
        try:
            result = yield from self._look(False)
            has_failed = False
        finally:
            if has_failed or result is not None:
                self.cancel()
        self._rest()
        return result

    def cancel(self) -> None:
        """Ends the wait, and drops all references to the request."""
        if self._watch is not None:
            self._watch.cancel()
        self._look = self._done = self._fail = self._watch = None

    def _moved(self) -> None:
        self._has_moved = True
        if not self._is_looking:
            call_guarded(self._look_again, self._failed)

    def _time_is_over(self) -> None:
        self._is_late = True
        self._moved()

    def _look_again(self) -> None:
        if self._look is None:
            return
        self._has_moved = False
        result = self._look(self._is_late)
        if type(result) is GeneratorType:
            self._is_looking = True
            self._waiters.do_in_turns(guarded(self._look_in_steps(result), self._failed))
        elif result is not None:
            self._end(result)

    def _look_in_steps(self, look: Generator[None, None, Any]) -> Generator[None, None, None]:
        result = yield from look
        if result is not None and self._look is not None:
            self._end(result)
        self._rest()

    def _rest(self) -> None:
        """Called after a look by a task. Looks again if a partition changed or the time ended during it."""
        self._is_looking = False
        if self._has_moved:
            self._look_again()

    def _end(self, result: Any) -> None:
        assert self._done is not None
        done, fail = self._done, self._fail
        self.cancel()
        self._fail = fail  # of `done`
        done(result)
        self._fail = None

    def _failed(self, error: Exception) -> None:
        fail = self._fail
        self.cancel()
        if fail is None:
            raise error
        fail(error)
