"""Sends the controller's messages to other brokers. Implements `BrokerMessenger` over `Peers`.

Each broker has a queue with one message in flight, so messages arrive in order. After a lost connection the message is sent again, until
the broker has executed or refused it. A message is dropped when it is obsolete: this broker is no longer the controller of the message's
epoch, or the receiver's registration has ended. UpdateConfigs is not sent, because every broker reads settings in the metadata store.

The waiting messages are joined (`queue.py`) to one message of each kind, with the newest state of each partition. So the queue of a slow
broker takes no more memory than the cluster's state and the topics that were deleted meanwhile. The broker catches up with a few messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.control_messages import ControlMessage, UpdateConfigs
from ottla.base.errors import ErrorCode, error_code
from ottla.base.loop.procedure import Answer, Procedure, Runner, pause
from ottla.base.ports import CONTROL_LANE, Peers, Timers
from ottla.cluster.control.queue import ControlQueue, Done, Letter

log = logging.getLogger("ottla.cluster")

RETRY_FIRST_MS = 10
RETRY_MAX_MS = 1_000
REVIEW_MS = 500
"""Interval of checking whether a message in flight is obsolete, in milliseconds."""

IsWanted = Callable[[int, ControlMessage], bool]


class PeerMessenger:
    """Sends messages to all other brokers. `is_wanted(broker id, message)` returns False for an obsolete message."""

    def __init__(self, peers: Peers, timers: Timers, is_wanted: IsWanted) -> None:
        self._peers = peers
        self._timers = timers
        self._is_wanted = is_wanted
        self._outboxes: dict[int, Outbox] = {}

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Done) -> None:
        if isinstance(message, UpdateConfigs):
            done(ErrorCode.NONE)
            return
        outbox = self._outboxes.get(broker.broker_id)
        if outbox is None:
            outbox = self._outboxes[broker.broker_id] = Outbox(self._peers, self._timers, self._is_wanted, broker.broker_id)
        outbox.add(Letter(message, done))


class Outbox:
    """The messages to one broker: the one in flight, and the waiting ones. They are numbered in the order of sending."""

    def __init__(self, peers: Peers, timers: Timers, is_wanted: IsWanted, broker_id: int) -> None:
        self._peers = peers
        self._timers = timers
        self._is_wanted = is_wanted
        self._broker_id = broker_id
        self._waiting = ControlQueue()
        self._sequence = 0
        self._sending = Runner()

    def add(self, letter: Letter) -> None:
        self._waiting.give_up(self._matters)
        self._waiting.add(letter)
        if not self._sending.is_running:
            self._sending.start(self._send_all())

    def _matters(self, message: ControlMessage) -> bool:
        return self._is_wanted(self._broker_id, message)

    def _send_all(self) -> Procedure[None]:
        while (letter := self._waiting.take()) is not None:
            letter.done((yield from self._deliver(letter.message)))

    def _deliver(self, message: ControlMessage) -> Procedure[ErrorCode]:
        """Sends a message until it is answered. Returns the broker's answer, or NETWORK_EXCEPTION if the message has become obsolete."""
        retry_ms = RETRY_FIRST_MS
        if self._matters(message):
            self._sequence += 1
        while self._matters(message):
            answer = yield from self._send(message)
            if answer is not None:
                return answer
            yield from pause(self._timers, retry_ms)
            retry_ms = min(2 * retry_ms, RETRY_MAX_MS)
        return ErrorCode.NETWORK_EXCEPTION

    def _send(self, message: ControlMessage) -> Procedure[ErrorCode | None]:
        """Sends a message once, part by part. Returns None if it has to be sent again: the broker did not answer, or does not recognise
        this broker yet (CLUSTER_AUTHORIZATION_FAILED)."""
        from ottla.cluster.control.wire import control_requests

        for part in control_requests(message, self._sequence):
            answered: Answer[tuple[Any, int]] = Answer()
            self._peers.send(self._broker_id, part, answered, lane=CONTROL_LANE)
            while not (yield from answered.wait(self._timers, REVIEW_MS)):
                if not self._matters(message):
                    return ErrorCode.NETWORK_EXCEPTION
            response, code = answered.value
            answer = error_code(code or response.error_code)
            if code or answer is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                return None
            if answer is not ErrorCode.NONE:
                log.warning("broker %d refuses a message of this controller: %s", self._broker_id, answer.name)
                return answer
        return ErrorCode.NONE
