"""Work for a request that is done later than its execution: a failure is that of the request, not of whatever has run the work.

An exception would else end in the loop, or in another connection whose read has moved a partition, and the request would be without an
answer for ever. What `fail` gets closes the request's connection (`Connection.fail`), if need be through its `Pending`.
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
