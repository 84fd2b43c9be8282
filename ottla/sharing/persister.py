"""Sends calls to the share coordinator of a share partition, and retries them while the coordinator is unavailable.

`SharePersister` is the `Persister` of share partitions and group coordinators. It creates `__share_group_state` if it is missing and asks
the coordinator, here (`state_coordinators.py`) or on another broker. While a coordinator loads or moves it retries, with a growing pause
and a limited number of times.

Each call is answered exactly once. Calls about one share partition reach the coordinator in order: while a call waits for its next attempt
or another broker's answer, later calls are queued behind it. A delayed write therefore never overwrites a later one, and a read sees all
earlier writes. Closing answers all waiting calls with NOT_COORDINATOR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.base.ports import TimerHandle, Timers
from ottla.base.share_state import SharePartitionKey, ShareState, StateFound, StateWritten
from ottla.base.types import SHARE_GROUP_STATE_TOPIC
from ottla.sharing.commands import DeleteState, DoneResult, InitializeState, ReadState, ReadSummary, StateCommand, StateResult, WriteState
from ottla.sharing.state_coordinators import ShareStateCoordinators

RETRY_MS_MIN, RETRY_MS_MAX = 10, 1_000
ATTEMPTS_MAX = 15  # within about eight seconds, if each attempt is answered at once

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)

Ensure = Callable[[str, Callable[[ErrorCode], None]], None]
"""Creates an internal topic if it is missing, and then calls back."""


NO_LEADER = -1


class PeerShareCoordinators(Protocol):
    """The share coordinators of other brokers."""

    def ask(self, broker_id: int, command: StateCommand, done: DoneResult) -> None:
        """Calls `done` once, with an error code if the broker could not be asked."""


class OtherShareCoordinators:
    """The share coordinators on other brokers. `leader_of` returns the leader of a partition of `__share_group_state`."""

    def __init__(self, broker_id: int, leader_of: Callable[[int], int | None], peers: PeerShareCoordinators) -> None:
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._peers = peers

    def ask(self, shard: int, command: StateCommand, done: DoneResult) -> None:
        """Calls `done` once, with NOT_COORDINATOR if no other broker leads the shard."""
        leader = self._leader_of(shard)
        if leader is None or leader in (NO_LEADER, self._broker_id):
            done(StateResult(ErrorCode.NOT_COORDINATOR))
        else:
            self._peers.ask(leader, command, done)


class SharePersister:
    """Implements `base.share_state.Persister`."""

    def __init__(
        self,
        coordinators: ShareStateCoordinators,
        ensure: Ensure,
        timers: Timers,
        elsewhere: OtherShareCoordinators,
    ) -> None:
        self._coordinators = coordinators
        self._ensure = ensure
        self._timers = timers
        self._elsewhere = elsewhere
        self._queues: dict[SharePartitionKey, _Queue] = {}
        self._is_closed = False

    # The interface `Persister`

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: StateWritten) -> None:
        self._call(InitializeState(key, state_epoch, start_offset), lambda result: done(result.code))

    def read(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        self._call(ReadState(key, leader_epoch), lambda result: found(result.code, result.state))

    def summary(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        self._call(ReadSummary(key, leader_epoch), lambda result: found(result.code, result.state))

    def write(self, key: SharePartitionKey, state: ShareState, done: StateWritten) -> None:
        self._call(WriteState(key, state), lambda result: done(result.code))

    def delete(self, key: SharePartitionKey, done: StateWritten) -> None:
        def deleted(result: StateResult) -> None:
            # A share coordinator itself deletes the states of deleted topics.
            done(ErrorCode.NONE if result.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else result.code)

        self._call(DeleteState(key), deleted)

    def close(self) -> None:
        """Answers all waiting calls and refuses new ones; the broker stops."""
        self._is_closed = True
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            queue.give_up(StateResult(ErrorCode.NOT_COORDINATOR))

    # Inside

    def _call(self, command: StateCommand, done: DoneResult) -> None:
        if self._is_closed:
            done(StateResult(ErrorCode.NOT_COORDINATOR))
            return
        attempt = _Attempt(self, command, done)
        key, coordinators = command.key, self._coordinators
        queue = self._queues.get(key)
        if queue is None:
            host = coordinators.find(key)
            if host is not None or not coordinators.is_created:
                attempt.tries = 1
                if host is not None:
                    coordinators.run_on(host, command, attempt.answered)
                else:
                    self.ask(attempt)
                return
            queue = self._queues[key] = _Queue(self, key, self._timers)
        queue.waiting.append(attempt)
        queue.drain()

    def ask(self, attempt: _Attempt) -> bool:
        """Sends the call; returns whether another broker answers it. A local coordinator takes the call into its order before this returns.
        """
        coordinators, command = self._coordinators, attempt.command
        if not coordinators.is_created:
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._ensure(SHARE_GROUP_STATE_TOPIC, lambda code: attempt.answered(StateResult(code or loading)))
            return False
        host = coordinators.find(command.key)
        if host is None:
            self._elsewhere.ask(coordinators.partition_for(command.key), command, attempt.answered)
            return True
        coordinators.run_on(host, command, attempt.answered)
        return False

    def answered(self, attempt: _Attempt, result: StateResult) -> None:
        if not self._queues and result.code not in RETRIABLE:
            attempt.finish(result)
            return
        key = attempt.command.key
        queue = self._queues.get(key)
        is_next = queue is not None and queue.asked is attempt
        if result.code in RETRIABLE and not self._is_closed and attempt.tries < ATTEMPTS_MAX:
            if queue is None:
                queue = self._queues[key] = _Queue(self, key, self._timers)
            queue.put(attempt, is_next)
            return
        if is_next:
            assert queue is not None
            queue.asked = None
        attempt.finish(result)
        if queue is not None and result.code in RETRIABLE:
            queue.give_up(result)
        elif is_next:
            assert queue is not None
            queue.drain()

    def emptied(self, key: SharePartitionKey, queue: _Queue) -> None:
        if self._queues.get(key) is queue:
            del self._queues[key]


class _Attempt:
    __slots__ = ("_done", "command", "persister", "tries")

    def __init__(self, persister: SharePersister, command: StateCommand, done: DoneResult) -> None:
        self.persister = persister
        self.command = command
        self._done: DoneResult | None = done
        self.tries = 0

    def answered(self, result: StateResult) -> None:
        """Processes the coordinator's answer, unless the call was given up."""
        if self._done is not None:
            self.persister.answered(self, result)

    def finish(self, result: StateResult) -> None:
        done, self._done = self._done, None
        assert done is not None, "a call was answered twice"
        done(result)


class _Queue:
    """The waiting calls about one share partition, in order. `asked` is the call in flight."""

    __slots__ = ("_is_draining", "_key", "_persister", "_timer", "_timers", "asked", "waiting")

    def __init__(self, persister: SharePersister, key: SharePartitionKey, timers: Timers) -> None:
        self.waiting: deque[_Attempt] = deque()
        self.asked: _Attempt | None = None
        self._persister = persister
        self._key = key
        self._timers = timers
        self._timer: TimerHandle | None = None
        self._is_draining = False

    def put(self, attempt: _Attempt, is_next: bool) -> None:
        """Queues a refused call to be tried again. The call in flight (`is_next`) returns to the front."""
        if is_next:
            self.asked = None
            self.waiting.appendleft(attempt)
        else:
            self.waiting.append(attempt)
        if self._timer is None:
            pause_ms = min(RETRY_MS_MIN << (attempt.tries - 1), RETRY_MS_MAX)
            self._timer = self._timers.call_later(pause_ms, self._again)

    def _again(self) -> None:
        self._timer = None
        self.drain()

    def drain(self) -> None:
        """Sends the waiting calls, until one is refused or must wait for another broker's answer."""
        if self._is_draining:
            return
        self._is_draining = True
        while self.waiting and self._timer is None and self.asked is None:
            attempt = self.asked = self.waiting.popleft()
            attempt.tries += 1
            if not self._persister.ask(attempt) and self.asked is attempt:
                self.asked = None
        self._is_draining = False
        if not self.waiting and self.asked is None:
            self._persister.emptied(self._key, self)

    def give_up(self, result: StateResult) -> None:
        """Fails all calls. The reason: one call has used all of its attempts, or the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asked, self.asked = self.asked, None
        if asked is not None:
            asked.finish(result)
        while self.waiting:
            self.waiting.popleft().finish(result)
        self._persister.emptied(self._key, self)
