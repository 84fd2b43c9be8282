"""Runs blocking calls in threads, so that the caller does not wait for a silent broker, name server or TLS peer.

Non-blocking sockets would not be enough: name resolution and fetching bearer tokens always block.
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
    """Ignores a result."""


def fail(error: Exception) -> None:
    """The default for `failed`: `take_in` then raises the error of the background call."""
    raise error


class BackgroundCall(Generic[T]):
    """One call in a thread, after `start`. `fileno` becomes readable when the call has ended. If the call is abandoned, `dispose` gets the
    result.
    """

    def __init__(self, call: Callable[[], T], dispose: Callable[[T], object] = ignore) -> None:
        self._call = call
        self._dispose = dispose
        self._results: list[T] = []
        self.error: BaseException | None = None
        self._has_started = self._is_claimed = self._has_ended = self._is_abandoned = False
        self._lock = threading.Lock()
        self._waiting, self._ending = socket.socketpair()

    def start(self) -> None:
        """Starts the thread, unless it has been started. May be called again after an exception of a signal handler: the call runs once."""
        if not self._has_started:
            threading.Thread(target=self._run, name="ottla-client-call", daemon=True).start()
            self._has_started = True

    def _claim(self) -> bool:
        """Returns True only once, and only if the call has not begun and was not abandoned: the thread that gets True runs it."""
        with self._lock:
            was_claimed, self._is_claimed = self._is_claimed, True
        return not was_claimed

    def _run(self) -> None:
        if not self._claim():
            return
        try:
            self._results.append(self._call())
        except OttlaError as error:
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            with self._lock:
                self._has_ended = True
                self._ending.close()
                if self._is_abandoned:
                    self._drop()

    def has_input(self) -> bool:
        return self._has_ended

    has_unsent = False

    def fileno(self) -> int:
        return self._waiting.fileno()

    def result(self) -> T:
        """Returns the result of the ended call, or raises its error."""
        if self.error is not None:
            raise self.error
        return self._results[0]

    def close(self) -> None:
        """Closes `fileno`. Called after the result was processed."""
        self._waiting.close()

    def abandon(self) -> None:
        """Gives up the call. Its result is passed to `dispose`, now or when the call ends. A call that has not started does not run."""
        is_unused = self._claim()
        with self._lock:
            self._is_abandoned = True
            if self._has_ended or is_unused:
                self._ending.close()
                self._drop()

    def _drop(self) -> None:
        self._waiting.close()
        for result in self._results:
            self._dispose(result)


class BackgroundCalls:
    """The background calls of one object, at most one for each key. The thread that uses the object processes their results (`take_in`)."""

    def __init__(self) -> None:
        self._running: dict[Hashable, tuple[BackgroundCall[Any], Callable[[Any], object], Callable[[Any], object]]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._running

    def begin(
        self,
        key: Hashable,
        call: Callable[[], T],
        take: Callable[[T], object] = ignore,
        failed: Callable[[KafkaError | TransportError], object] = fail,
        *,
        dispose: Callable[[T], object] = ignore,
    ) -> None:
        """Begins a background call unless one with this key is running. `take_in` passes its result to `take`, a KafkaError or
        TransportError to `failed`, and raises any other exception."""
        if key not in self._running:
            self._running[key] = BackgroundCall(call, dispose), take, failed
            self._running[key][0].start()

    def sources(self) -> Mapping[Hashable, Source]:
        return {key: call for key, (call, _, _) in self._running.items()} if self._running else {}

    def take_in(self) -> None:
        """Processes the results of the background calls that have ended. Starts calls whose `begin` a signal handler has interrupted."""
        for key, (call, take, failed) in list(self._running.items()) if self._running else ():
            call.start()
            if not call.has_input() or key not in self._running:  # an earlier result may have abandoned this call
                continue
            try:
                if isinstance(call.error, KafkaError | TransportError):
                    failed(call.error)
                else:
                    take(call.result())
            except BaseException as error:
                if isinstance(error, OttlaError) or error is call.error:
                    self._end(key)
                raise  # an interruption by a signal handler: the next call processes the result again
            self._end(key)

    def _end(self, key: Hashable) -> None:
        if key in self._running:
            self._running.pop(key)[0].close()

    def finish(self, key: Hashable) -> None:
        """Waits for the end of a background call. Processes the results of all background calls that end meanwhile."""
        while key in self._running:
            first_ready({key: self._running[key][0]}, 1.0)
            self.take_in()

    def abandon(self, key: Hashable) -> None:
        """Gives up a background call. Its thread continues, and its result is passed to `dispose`."""
        if key in self._running:
            self._running.pop(key)[0].abandon()

    def abandon_all(self) -> None:
        for key in list(self._running):
            self.abandon(key)
