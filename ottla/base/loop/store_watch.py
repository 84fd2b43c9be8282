"""Reads nodes of the metadata store, and reads them again whenever one of them has changed.

A change cancels a reading in progress and starts another, so the last complete reading is newer than all changes. After a lost watch or a
failed read, the reading is repeated when the store can be asked (`store_retries.py`). The watching ends when the session has expired.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_reads import StoreFailure
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import StoreResult, Watch, WatchEvent


class StoreWatch:
    """Runs `read(watch)` at the start and after each change, until `stop`. `read` sets `watch` on every node whose changes matter."""

    def __init__(self, retries: StoreRetries, read: Callable[[Watch], Procedure[None]]) -> None:
        self._retries = retries
        self._read = read
        self._reading = Runner()

    def start(self) -> None:
        """Starts reading, and cancels a running reading."""
        self._reading.start(self._read_until_done())

    def stop(self) -> None:
        self._reading.cancel()

    def _on_change(self, event: WatchEvent) -> None:
        self._reading.start(self._read_until_done(is_connection_lost=event is WatchEvent.LOST))

    def _read_until_done(self, *, is_connection_lost: bool = False) -> Procedure[None]:
        if is_connection_lost:
            yield self._retries.again
        while True:
            try:
                yield from self._read(self._reading.bound(self._on_change))
                return
            except StoreFailure as failure:
                if failure.result is StoreResult.SESSION_EXPIRED:
                    return
                yield self._retries.again
