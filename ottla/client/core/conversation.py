"""Conversations: several requests and their answers, as generators that do no I/O.

A conversation yields an effect and is resumed with its result, or with the error. Effects are a connection (`Open` -> `Link`), the answer
to a request (`Ask`), to several at once (`AskAll`) or to a rolling window of many (`AskRolling`), and some time (`Sleep`). It ends by
returning its result. `yield from` calls one conversation from another. A shell performs the effects: `client.blocking` waits,
`client.aio` awaits. So leader look-up, retries and every question of an administrator are written once.

Between two yields nothing else runs, so a check and the change that rests on it are never apart; after a yield, look again.

The procedures of the broker's event loop (`base/loop/procedure.py`) are another thing: they yield functions that call back, and their
runner cancels them. A shell that waits has no event loop that could call back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.addresses import Address
from ottla.client.errors import RequestTimeoutError
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.core.link import Link

T = TypeVar("T")


class Open(NamedTuple):
    """Asks for an open, authenticated connection; the result is a `Link`, the error a `TransportError` or an `AuthenticationError`.

    A new connection each time when `is_own`, else the shell may share one. `timeout_s` limits connecting, TLS and login together.
    """

    address: Address
    is_own: bool = False
    timeout_s: float | None = None


class Ask(NamedTuple):
    """Sends a request and asks for its answer, in the version that `link` speaks unless one is named."""

    link: Link
    body: Request
    version: int | None = None
    timeout_s: float | None = None


class AskAll(NamedTuple):
    """Sends several requests before it waits for any answer; requests on one link are sent, and answered, in order.

    The result is a list of answers, with a `ClientError` in place of a missing one.
    """

    asks: tuple[Ask, ...]


class AskRolling(NamedTuple):
    """Sends requests while answers to earlier ones are taken in, so that each is sent as soon as the window has space.

    `asks` gives one request at a time. If it gives None, an answer has to be taken in first; then a request must be in flight.
    `note` gets the answers in the order of `asks`, with a `ClientError` in place of a missing one, and all of them before the effect
    ends. Its result is None.
    """

    asks: Iterator[Ask | None]
    note: Callable[[Any], None]


class Sleep(NamedTuple):
    """Asks to be resumed after a while."""

    seconds: float


Effect = Open | Ask | AskAll | AskRolling | Sleep
Conversation = Generator[Effect, Any, T]


def within(conversation: Conversation[T], deadline: float, now: Callable[[], float]) -> Conversation[T]:
    """Runs a conversation whose connections, answers and pauses may take until the deadline, in seconds of `now`, and no longer.

    This is the one place where deadlines of conversations are checked. A rolling window of requests is not limited: it ends by progress.
    """
    step, argument = conversation.send, None
    try:
        while True:
            effect = step(argument)
            try:
                argument, step = (yield _shortened(effect, deadline - now())), conversation.send
            except OttlaError as error:
                argument, step = error, conversation.throw
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        conversation.close()


def _shortened(effect: Effect, left_s: float) -> Effect:
    if isinstance(effect, AskRolling):
        return effect
    if left_s <= 0:
        raise RequestTimeoutError("no answer in time: the time for this call is over")
    if isinstance(effect, Sleep):
        return Sleep(min(effect.seconds, left_s))
    if isinstance(effect, AskAll):
        return AskAll(tuple(ask._replace(timeout_s=_shorter(ask.timeout_s, left_s)) for ask in effect.asks))
    return effect._replace(timeout_s=_shorter(effect.timeout_s, left_s))


def _shorter(timeout_s: float | None, left_s: float) -> float:
    return left_s if timeout_s is None else min(left_s, timeout_s)


def perform_all(conversation: Conversation[T], perform: Callable[[Effect], Any]) -> T:
    """Runs a conversation to its end in a shell that waits; `perform` returns the result of an effect, or raises its error."""
    step, argument = conversation.send, None
    try:
        while True:
            effect = step(argument)
            try:
                argument, step = perform(effect), conversation.send
            except OttlaError as error:
                argument, step = error, conversation.throw
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        conversation.close()
