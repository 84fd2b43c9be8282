"""Conversations: sequences of requests and answers, written as generators that do no I/O.

A conversation yields an effect and is resumed with the effect's result or error. The effects are: open a connection (`Open` -> `Link`),
send one request (`Ask`), several (`AskAll`) or a rolling window of many (`AskRolling`), and wait (`Sleep`). A conversation ends by
returning its result. `yield from` calls one conversation from another. A shell performs the effects: `client.blocking` waits, `client.aio`
awaits. Therefore leader look-up, retries and administration are written only once, for both clients.

No other conversation of the same cluster runs between two yields. A check is therefore valid until the next yield, and has to be repeated
after it.

The procedures of the broker's event loop (`base/loop/procedure.py`) are different: they yield functions that take a callback, and their
runner can cancel them. The blocking client has no event loop for callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.addresses import Address
from ottla.client.core.backoff import Deadline
from ottla.client.errors import RequestTimeoutError
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.core.ports import Link

T = TypeVar("T")


class Open(NamedTuple):
    """Opens an authenticated connection. The result is a `Link`; the error is a ClientError, such as `ConnectError` or
    `AuthenticationError`.

    With `is_own` the connection is new, else the shell may share one. `timeout_s` limits connecting, TLS and login together, but not
    fetching a bearer token.
    """

    address: Address
    is_own: bool = False
    timeout_s: float | None = None


class Ask(NamedTuple):
    """Sends a request; the result is its answer. The default version is `version_of` of the link."""

    link: Link
    body: Request
    version: int | None = None
    timeout_s: float | None = None


class AskAll(NamedTuple):
    """Sends several requests before it waits for any answer. Requests on one link are sent and answered in order.

    The result is a list of answers, with a `ClientError` in place of each missing answer.
    """

    asks: tuple[Ask, ...]


class AskRolling(NamedTuple):
    """Sends many requests with a limited number in flight: `asks` decides from the answers which request may be sent next.

    `asks` yields requests, or None if the oldest answer must be passed to `note` first; a request must then be in flight. `note` gets all
    answers in the order of the requests, with a `ClientError` in place of each missing answer. The result of the effect is None.
    """

    asks: Iterator[Ask | None]
    note: Callable[[Any], None]


class Sleep(NamedTuple):
    """Waits for `seconds`."""

    seconds: float


Effect = Open | Ask | AskAll | AskRolling | Sleep
Conversation = Generator[Effect, Any, T]


def within(conversation: Conversation[T], deadline: Deadline) -> Conversation[T]:
    """Runs a conversation and shortens its connections, requests and pauses to the deadline. After the deadline the next effect fails with
    `RequestTimeoutError`.
    """
    step, argument = conversation.send, None
    try:
        while True:
            effect = step(argument)
            try:
                argument, step = (yield _shortened(effect, deadline)), conversation.send
            except OttlaError as error:
                argument, step = error, conversation.throw
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        conversation.close()


def _shortened(effect: Effect, deadline: Deadline) -> Effect:
    left_s = deadline.left_s()
    if left_s <= 0:
        raise RequestTimeoutError("no answer in time: the time for this call is over")
    if isinstance(effect, Sleep):
        return Sleep(min(effect.seconds, left_s))
    if isinstance(effect, AskAll):
        return AskAll(tuple(ask._replace(timeout_s=_shorter(ask.timeout_s, left_s)) for ask in effect.asks))
    if isinstance(effect, AskRolling):
        return AskRolling(_each_shortened(effect.asks, deadline), effect.note)
    return effect._replace(timeout_s=_shorter(effect.timeout_s, left_s))


def _each_shortened(asks: Iterator[Ask | None], deadline: Deadline) -> Iterator[Ask | None]:
    """Shortens each request when it is sent, because answers may renew the deadline."""
    for ask in asks:
        yield None if ask is None else ask._replace(timeout_s=max(0.0, _shorter(ask.timeout_s, deadline.left_s())))


def _shorter(timeout_s: float | None, left_s: float) -> float:
    return left_s if timeout_s is None else min(left_s, timeout_s)


def perform_all(conversation: Conversation[T], perform: Callable[[Effect], Any]) -> T:
    """Runs a conversation to its end in the blocking client. `perform` returns the result of an effect, or raises its error."""
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
