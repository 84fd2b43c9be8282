"""Late work for a request: an exception fails the request, and not the code that happened to run the work.

Without a guard the exception would end in the event loop, or in another connection whose read has moved a partition, and the request would
never be answered. `fail` closes the request's connection (`Connection.fail`), or fails its `Pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Fail = Callable[[Exception], None]


def guarded(steps: Iterator[object], fail: Fail) -> Iterator[object]:
    """The same steps; `fail` gets the exception that ends them."""
    try:
        yield from steps
    except Exception as error:
        fail(error)


def call_guarded(function: Callable[[], object], fail: Fail) -> None:
    """Calls the function; `fail` gets the exception that it raises."""
    try:
        function()
    except Exception as error:
        fail(error)
