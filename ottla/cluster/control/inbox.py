"""Receives the requests of controllers on other brokers: joins their parts, and passes whole messages in order to the receiver.

A controller sends a request again until it is answered. It uses a new connection if the old one broke, and requests on the old one may
still arrive. So each message has a sequence number that rises within a controller epoch. A message older than the last one is refused with
STALE_CONTROLLER_EPOCH. If the last one is repeated, it is executed and answered again, which changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, ErrorCode
from ottla.cluster.control.receiver import ControlReceiver

if TYPE_CHECKING:
    from ottla.cluster.control.wire import ControlRequest, MessageParts

log = logging.getLogger("ottla.cluster")

NO_SEQUENCE = -1
"""The sequence of a message without a number, from a controller that is not ours."""


class ControlInbox:
    """Implements `handlers.context.ControlRequests`."""

    def __init__(self, receiver: ControlReceiver) -> None:
        self._receiver = receiver
        self._newest = (-1, NO_SEQUENCE)
        self._begun: tuple[int, int] | None = None
        self._parts: MessageParts | None = None
        self._next_part = 0

    def take(self, request: ControlRequest, done: Callable[[ErrorCode], object]) -> None:
        """Takes one part of a message. Calls `done` with NONE when the part is stored or, for the last part, the message was executed;
        otherwise with the error."""
        number = (request.controller_epoch, request.sequence)
        is_numbered = request.sequence != NO_SEQUENCE
        if request.controller_epoch < self._receiver.controller_epoch or (is_numbered and number < self._newest):
            done(ErrorCode.STALE_CONTROLLER_EPOCH)
            return
        try:
            parts = self._add(request, number)
        except ApiError as error:
            self._parts = None
            log.error("%s", error.message)
            done(error.code)
            return
        if request.has_more_parts:
            done(ErrorCode.NONE)
            return
        self._parts = None
        if is_numbered:
            self._newest = number
        self._receiver.receive(parts.message(request), done)

    def _add(self, request: ControlRequest, number: tuple[int, int]) -> MessageParts:
        if request.part == 0:
            from ottla.cluster.control.wire import MessageParts  # imported on use: not needed by a single broker

            self._parts, self._begun, self._next_part = MessageParts(), number, 0
        parts = self._parts
        if parts is None or request.part != self._next_part or number != self._begun:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"part {request.part} of a message from the controller is not the next one")
        parts.add(request)
        self._next_part += 1
        return parts
