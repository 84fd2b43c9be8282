"""A call that runs in a thread of its own, so that its caller does not wait for a silent broker, name server or TLS peer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.base.errors import OttlaError

T = TypeVar("T")


class Errand(Generic[T]):
    """Starts the call at once. `fileno` becomes readable when the call has ended. `dispose` gets a result that is no longer wanted."""

    def __init__(self, call: Callable[[], T], dispose: Callable[[T], object] = lambda _: None) -> None:
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
