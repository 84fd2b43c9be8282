"""Sends the controller's messages to other brokers: `BrokerMessenger` over `Peers`.

Each broker has a queue, with one message under way; so messages arrive in order. After a lost connection or a missing answer the message is
sent again, until the broker answers that it has carried the message out or refuses it. A message is given up when it cannot matter any
more: this broker is no longer the controller of its epoch, or the other broker is no longer registered under its epoch. Settings are not
sent: every broker reads them in the metadata store.

The messages behind the one under way are joined (`control_queue.py`): one message of each kind, with only the newest state of each
partition. So a broker that is slow, or paused, never costs more memory than the cluster has state, and it catches up with a few messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.control_messages import ControlMessage, UpdateConfigs
from ottla.base.errors import ErrorCode, error_code
from ottla.base.ports import CONTROL_LANE, Peers, TimerHandle, Timers
from ottla.cluster.control_queue import ControlQueue, Done, Letter

if TYPE_CHECKING:
    from ottla.cluster.control_wire import ControlRequest

log = logging.getLogger("ottla.cluster")

RETRY_FIRST_MS = 10
RETRY_MAX_MS = 1_000
REVIEW_MS = 500
"""So often a message under way is compared with what the controller knows."""

IsWanted = Callable[[int, ControlMessage], bool]


class PeerMessenger:
    """`BrokerMessenger` for all other brokers. `is_wanted(broker id, message)`: whether it still matters."""

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
    """The message under way to one broker, and the waiting ones. Messages are numbered in the order of sending."""

    def __init__(self, peers: Peers, timers: Timers, is_wanted: IsWanted, broker_id: int) -> None:
        self._peers = peers
        self._timers = timers
        self._is_wanted = is_wanted
        self._broker_id = broker_id
        self._waiting = ControlQueue()
        self._sequence = 0
        self._current: Letter | None = None
        self._parts: Iterator[ControlRequest] = iter(())
        self._attempt = 0
        self._retry_ms = RETRY_FIRST_MS
        self._review: TimerHandle | None = None

    def add(self, letter: Letter) -> None:
        self._waiting.give_up(lambda message: self._is_wanted(self._broker_id, message))
        self._waiting.add(letter)
        if self._current is None:
            self._next()

    def _next(self) -> None:
        """Begins the next message that still matters."""
        while self._current is None and (letter := self._waiting.take()) is not None:
            if self._is_wanted(self._broker_id, letter.message):
                self._begin(letter)
            else:
                letter.done(ErrorCode.NETWORK_EXCEPTION)

    def _begin(self, letter: Letter) -> None:
        self._current = letter
        self._sequence += 1
        self._retry_ms = RETRY_FIRST_MS
        if self._review is None:
            self._review = self._timers.call_later(REVIEW_MS, self._look)
        self._send_all()

    def _send_all(self) -> None:
        """Sends the message, from its first part."""
        from ottla.cluster.control_wire import control_requests

        assert self._current is not None, "there is a message to send"
        self._parts = control_requests(self._current.message, self._sequence)
        self._send(next(self._parts))

    def _send(self, part: ControlRequest) -> None:
        self._attempt += 1
        attempt = self._attempt

        def answered(response: Any, code: int) -> None:
            if attempt == self._attempt:
                self._on_answer(part, response, code)

        self._peers.send(self._broker_id, part, answered, lane=CONTROL_LANE)

    def _on_answer(self, part: ControlRequest, response: Any, code: int) -> None:
        answer = error_code(code or response.error_code)
        if code or answer is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # Not carried out, or not known to be; a broker that does not take this one for a broker may do so soon.
            self._attempt += 1
            attempt, delay_ms = self._attempt, self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)
            self._timers.call_later(delay_ms, lambda: self._again() if attempt == self._attempt else None)
        elif answer is ErrorCode.NONE and part.has_more_parts:
            self._send(next(self._parts))
        else:
            if answer:
                log.warning("broker %d refuses a message of this controller: %s", self._broker_id, answer.name)
            self._finish(answer)

    def _again(self) -> None:
        if self._is_current_wanted():
            self._send_all()
        else:
            self._finish(ErrorCode.NETWORK_EXCEPTION)

    def _look(self) -> None:
        """Gives up the message under way if it does not matter any more."""
        self._review = None
        if self._current is None:
            return
        if not self._is_current_wanted():
            self._finish(ErrorCode.NETWORK_EXCEPTION)
        if self._current is not None and self._review is None:
            self._review = self._timers.call_later(REVIEW_MS, self._look)

    def _is_current_wanted(self) -> bool:
        return self._current is not None and self._is_wanted(self._broker_id, self._current.message)

    def _finish(self, code: ErrorCode) -> None:
        letter, self._current = self._current, None
        assert letter is not None, "a message is under way"
        self._attempt += 1  # late answers to it are ignored
        letter.done(code)
        self._next()
