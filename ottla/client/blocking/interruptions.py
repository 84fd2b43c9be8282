"""Repairs the state of a client's object after an exception of a signal handler, such as Ctrl-C or a test's time limit. Python runs signal
handlers after any call, so such an exception may interrupt a change of the state in the middle. The next change then begins with a repair.
An interrupted wait for answers needs no repair: it is outside of the change, or between `begin_wait` and `end_wait`.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

from ottla.base.errors import OttlaError


class Change:
    """Encloses each change of one object's state (`with`). `repair`, a method of the object, is called before a change if an earlier one
    was interrupted. It is referenced weakly: an unused object is freed, and its sockets are closed, without the garbage collector.

    Exceptions of the client (`OttlaError`) are raised where the state is consistent. Any other exception counts as an interruption.
    """

    def __init__(self, repair: Callable[[], object]) -> None:
        self._repair = WeakMethod(repair)
        self._is_interrupted = False

    def __enter__(self) -> None:
        if self._is_interrupted:
            repair = self._repair()
            assert repair is not None, "the object exists during its own change"
            repair()
        self._is_interrupted = True

    def begin_wait(self) -> None:
        self._is_interrupted = False

    def end_wait(self) -> None:
        self._is_interrupted = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, OttlaError):
            self._is_interrupted = False
