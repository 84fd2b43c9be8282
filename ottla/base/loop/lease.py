"""The lease of this broker's session with the metadata store: how long the session certainly exists.

The lease lasts for the session's timeout from the sending of the last answered request, because the store cannot have ended the session
before. It is measured on the monotonic clock and checked before each action, not only when a timer fires. So the first request that is
executed after a pause of the whole process finds that the lease is over.
"""

from __future__ import annotations

from math import inf

from ottla.base.loop.procedure import FOREVER, Procedure, pause
from ottla.base.ports import Clock, MetadataStore, Timers


class Lease:
    """The lease of one store's session. The lease of the embedded store never ends."""

    def __init__(self, store: MetadataStore, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers

    @property
    def may_lapse(self) -> bool:
        return self._store.lease_ends_ms() < inf

    def is_held(self) -> bool:
        return self._clock.monotonic_ms() < self._store.lease_ends_ms()

    def lapse(self) -> Procedure[None]:
        """Waits until the lease is over; forever if it never ends."""
        while (left_ms := self._store.lease_ends_ms() - self._clock.monotonic_ms()) > 0:
            if left_ms == inf:
                yield FOREVER
            yield from pause(self._timers, left_ms)
