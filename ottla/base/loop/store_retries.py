"""Retries requests to the metadata store: after a pause while the store is connected, otherwise when it is connected again.

When the session expires, waiting requests are dropped. They belonged to that session, and their owners start again with the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.ports import MetadataStore, SessionEvent, StoreResult, Timers

RETRY_MS = 100
"""Pause before another attempt while the store is connected, in milliseconds."""
RETRY_MS_MAX = 30_000
"""Longest pause between attempts, in milliseconds, after failures that an operator has to correct, such as a second broker with the same
id."""

TRANSIENT = frozenset({StoreResult.CONNECTION_LOST, StoreResult.UNKNOWN, StoreResult.DISK_FAILED})
"""Results after which the same request may succeed later in the same session."""


class StoreRetries:
    """The retries that wait for one store."""

    def __init__(self, store: MetadataStore, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._waiting: list[Callable[[], object]] = []
        self._session = 0
        store.listen(self._on_event)

    def again(self, function: Callable[[], object], pause_ms: int = RETRY_MS) -> None:
        if self._store.is_connected():
            session = self._session
            self._timers.call_later(pause_ms, lambda: function() if session == self._session else None)
        else:
            self._waiting.append(function)

    def _on_event(self, event: SessionEvent) -> None:
        waiting, self._waiting = self._waiting, []
        if event is SessionEvent.CONNECTED:
            for function in waiting:
                function()
        elif event is SessionEvent.EXPIRED:
            self._session += 1
        else:
            self._waiting = waiting
