"""Runs deferred work of a request. An exception fails the request and does not reach the code that happened to run the work.

Otherwise the exception would reach the event loop, or another connection that has caused the work, and the request would never be answered.
`fail` closes the request's connection (`Connection.fail`), or fails its `Pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Fail = Callable[[Exception], None]


def guarded(steps: Iterator[object], fail: Fail) -> Iterator[object]:
    """Yields the same steps. An exception ends them and is passed to `fail`."""
    try:
        yield from steps
    except Exception as error:
        fail(error)


def call_guarded(function: Callable[..., object], fail: Fail, *arguments: Any) -> None:
    """Calls the function with the arguments. An exception is passed to `fail`."""
    try:
        function(*arguments)
    except Exception as error:
        fail(error)
