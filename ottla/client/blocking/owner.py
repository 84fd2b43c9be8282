"""Guards an object of the blocking client: only the process that made the object may use it, and one thread at a time.

A forked child shares its parent's sockets, so each process would read answers to the other's requests. Every call in the child therefore
raises `UsageError`. Threads may use an object one after another. A call during the call of another thread raises `UsageError`, or waits if
it takes the `lock` itself. A thread may call the object again within its own call, such as from `on_delivery`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from ottla.client.core.arguments import Arguments
from ottla.client.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


class CallOwner:
    """See the module. `with` encloses a call. `with owner.lock` after `refuse_child` encloses a call that waits for the calls of other
    threads; the lock is released also after an exception of a signal handler.

    `acquire(False)` and `release` do the same faster, but `acquire` returns False for a second thread, and the caller raises `used_twice`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_in_child = False
        """Whether this process is a forked child of the one that made the object."""
        self._process_id = os.getpid()
        self.lock = RLock()
        self.acquire: Callable[[bool], bool] = self.lock.acquire
        self.release = self.lock.release
        _OWNERS.add(self)

    def __enter__(self) -> None:
        if not self.acquire(False):
            raise self.used_twice()

    def __exit__(self, *_: object) -> None:
        self.release()

    def used_twice(self) -> UsageError:
        return UsageError(f"this {self.name} is in a call of another thread: use it from one thread at a time, or make one for each thread")

    def forked(self) -> None:
        """Makes every later call raise `UsageError`. Called in a forked child."""
        self.is_in_child = True
        self.acquire = self._refuse

    def refuse_child(self) -> None:
        if self.is_in_child:
            self._refuse()

    def _refuse(self, _is_blocking: bool = False) -> NoReturn:
        raise UsageError(
            f"this {self.name} belongs to process {self._process_id}, not to its forked child {os.getpid()}: connect again there"
        )


_OWNERS: WeakSet[CallOwner] = WeakSet()


def _forked() -> None:
    for owner in list(_OWNERS):
        owner.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Owned(Protocol):
    """An object with an owner."""

    owner: CallOwner


O = TypeVar("O", bound=Owned)  # noqa: E741


def owned(method: Callable[Concatenate[O, P], T]) -> Callable[Concatenate[O, P], T]:
    """Decorates a method: each call checks its arguments and holds `owner`."""
    arguments = Arguments(method)

    @wraps(method)
    def call(self: O, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        checked, options = arguments.check(args, kwargs)
        with self.owner:
            return method(self, *checked, **options)

    return call
