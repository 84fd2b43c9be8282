"""Whether this broker's session with the metadata store certainly lives still, and a call when that is no longer so.

The lease of a session runs from the sending of the last request that was answered, for the session's timeout: the store cannot have ended
the session before. It is counted on the monotonic clock and asked about where something is done, not only when a timer fires: after a
pause of the whole process the first request that is executed finds the lease over.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ottla.base.ports import Clock, MetadataStore, Timers


class Lease:
    """The lease of one store's session; the embedded store's never ends."""

    def __init__(self, store: MetadataStore, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers

    @property
    def may_lapse(self) -> bool:
        return self._store.lease_ends_ms() < inf

    def is_held(self) -> bool:
        return self._clock.monotonic_ms() < self._store.lease_ends_ms()

    def call_when_lapsed(self, function: Callable[[], object], is_wanted: Callable[[], bool]) -> None:
        """Calls `function` once when the lease is found to be over, unless `is_wanted` says then that it is of no use any more."""
        left_ms = self._store.lease_ends_ms() - self._clock.monotonic_ms()
        if left_ms == inf or not is_wanted():
            return
        if left_ms <= 0:
            function()
        else:
            self._timers.call_later(left_ms, lambda: self.call_when_lapsed(function, is_wanted))
