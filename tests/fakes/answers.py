"""Gets the responses of handlers that tests call without a dispatcher."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.base.loop.turns import run_steps
from ottla.handlers.context import Pending


def answer_of(response: Any) -> Any:
    """Returns the response of a handler: the value that it returned, or the value with which its `Pending` is completed. Runs tasks to
    their end.
    """
    while isinstance(response, Generator) or (isinstance(response, Pending) and response.is_done and response.error is None):
        response = run_steps(response) if isinstance(response, Generator) else response.response
    if not isinstance(response, Pending):
        return response
    outer = Pending(keeps_request=response.keeps_request, is_change=response.is_change)
    outer.abandon = response.abandon
    response.then(lambda later: _complete(outer, answer_of(later)), outer.fail)
    return outer


def _complete(outer: Pending, response: Any) -> None:
    if isinstance(response, Pending):
        response.then(lambda later: _complete(outer, later), outer.fail)
    else:
        outer.complete(response)
