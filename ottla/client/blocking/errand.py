"""Calls that run in threads of their own, so that their caller does not wait for a silent broker, name server or TLS peer.

Threads are the one way not to wait: sockets can be read without waiting, but names are resolved, and bearer tokens fetched, by calls that
wait.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.blocking.connection import Source, first_ready
from ottla.client.errors import KafkaError, TransportError

T = TypeVar("T")


def ignore(_: object) -> None:
    """Does nothing with a result."""


def fail(error: Exception) -> None:
    """Raises the error of an errand to the caller of `take_in`."""
    raise error


class Errand(Generic[T]):
    """Starts the call at once. `fileno` becomes readable when the call has ended. `dispose` gets a result that is no longer wanted."""

    def __init__(self, call: Callable[[], T], dispose: Callable[[T], object] = ignore) -> None:
        self._call = call
        self._dispose = dispose
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._has_ended = self._is_abandoned = False
        self._lock = threading.Lock()
        self._waiting, self._ending = socket.socketpair()
        threading.Thread(target=self._run, name="ottla-errand", daemon=True).start()

    def _run(self) -> None:
        try:
            if not self._is_abandoned:
                self._results.append(self._call())
        except OttlaError as error:
            self._error = error
        except BaseException as error:
            self._error = error
            raise
        finally:
            with self._lock:
                self._has_ended = True
                self._ending.close()
                if self._is_abandoned:
                    self._drop()

    def has_input(self) -> bool:
        """Whether the call has ended."""
        return self._has_ended

    has_unsent = False

    def fileno(self) -> int:
        return self._waiting.fileno()

    def result(self) -> T:
        """Returns the result of the ended call, or raises its error. May be called once."""
        self._waiting.close()
        if self._error is not None:
            raise self._error
        return self._results.pop()

    def abandon(self) -> None:
        """Disposes of the result, now or when the call ends."""
        with self._lock:
            self._is_abandoned = True
            if self._has_ended:
                self._drop()

    def _drop(self) -> None:
        self._waiting.close()
        for result in self._results:
            self._dispose(result)


class Errands:
    """The errands of one object, one at a time for each key. Their results are taken in by the thread that uses the object."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, tuple[Errand[Any], Callable[[Any], object], Callable[[Any], object]]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._under_way

    def begin(
        self,
        key: Hashable,
        call: Callable[[], T],
        take: Callable[[T], object] = ignore,
        failed: Callable[[KafkaError | TransportError], object] = fail,
        *,
        dispose: Callable[[T], object] = ignore,
    ) -> None:
        """Begins an errand unless one of this key is under way. `take_in` gives its result to `take`, or its error to `failed`."""
        if key not in self._under_way:
            self._under_way[key] = Errand(call, dispose), take, failed

    def sources(self) -> Mapping[Hashable, Source]:
        """The errands under way, for `first_ready`."""
        return {key: errand for key, (errand, _, _) in self._under_way.items()} if self._under_way else {}

    def take_in(self) -> None:
        """Takes in the errands that have ended."""
        if not self._under_way:
            return
        for key in [key for key, (errand, _, _) in self._under_way.items() if errand.has_input()]:
            errand, take, failed = self._under_way.pop(key)
            try:
                result = errand.result()
            except (KafkaError, TransportError) as error:
                failed(error)
            else:
                take(result)

    def finish(self, key: Hashable) -> None:
        """Waits for the end of an errand and takes it in."""
        while key in self._under_way:
            first_ready({key: self._under_way[key][0]}, 1.0)
            self.take_in()

    def abandon(self, key: Hashable) -> None:
        """Drops an errand. Its result is disposed of as soon as it is there."""
        if key in self._under_way:
            self._under_way.pop(key)[0].abandon()

    def abandon_all(self) -> None:
        for key in list(self._under_way):
            self.abandon(key)
