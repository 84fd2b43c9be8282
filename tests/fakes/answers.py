"""The responses of handlers that are called without a dispatcher."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.base.loop.turns import run_steps
from ottla.handlers.context import Pending


def answer_of(response: Any) -> Any:
    """The response that a handler has given, or a `Pending` that is completed with it. Runs tasks to their end."""
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
