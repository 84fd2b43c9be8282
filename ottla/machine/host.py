"""Runs the state machine of a coordinator on a partition: appends and applies its records, and holds and releases its effects.

A host connects one machine (`contract.py`) with one partition that this broker leads. `run` processes a command: decide, append, apply,
hold, release. Effects wait in one queue, in the order of their decisions, until the high watermark reaches the end of the log at the time
of the decision. Effects without records wait as well, so that no answer depends on records that may still be lost. A refused append changes
nothing, and the effects of `refused(code)` are released instead. A refusal that answers no client, or because of the size, is written to
the broker's log. Independent parts of a decision are logged in one batch, or in several if that batch is too large.

The host is Loading (commands are refused with COORDINATOR_LOAD_IN_PROGRESS), then Active, then Closed (NOT_COORDINATOR). Loading applies
the log in pieces, one in each iteration of the event loop, and ends with `resume`. Closing answers every caller whose answer is held or who
waits in the machine.

Invariants: every record is applied before the next decision; every answer is given exactly once; timers end with the host. `now_ms`
advances with the monotonic clock (`SlewedClock`).

`loading.py` decodes the log's batches. The server creates a host for each partition of a coordinator's topic that the broker leads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from ottla.base.errors import ApiError, ErrorCode, StorageError, WireError
from ottla.base.ports import Clock, TimerHandle, Timers
from ottla.machine.contract import Call, Cancel, Decision, Effect, LogRecord, Machine, MachineLog, Respond, Schedule, Transactional

log = logging.getLogger("ottla.coordinator")

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

SLEW_DIVISOR = 16  # after the wall clock was set, corrects at most 1/16 of the elapsed time: intervals are wrong by less than 7 %


HELD_MAX = 10_000
"""Number of decisions of one shard that may wait for replicas. While replicas do not respond, each retry of a client adds a decision.
Decisions of disconnected clients stay in the queue.
"""


class HostState(Enum):
    LOADING = "Loading"
    ACTIVE = "Active"
    CLOSED = "Closed"


REFUSALS = {
    HostState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    HostState.ACTIVE: ErrorCode.NONE,
    HostState.CLOSED: ErrorCode.NOT_COORDINATOR,
}

# The coordinator's error code for each refusal of the partition.
COORDINATOR_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@runtime_checkable
class HasWaiters(Protocol):
    """A machine in whose soft state callers wait, such as members that wait for a rebalance."""

    def abandon(self, code: ErrorCode) -> Sequence[Effect]:
        """Returns answers to all waiting callers; called once, when the machine is dropped."""


@runtime_checkable
class HasFollowUp(Protocol):
    """A machine that may have records to log after a client's transaction has ended in its partition."""

    def follow_up(self, now_ms: int) -> Decision: ...


class LogReader(Protocol):
    """The log of the partition, decoded piece by piece (`loading.py` is one)."""

    def read_piece(self, offset: int) -> LogPiece | None:
        """Returns a piece of limited size from `offset` on; None at the end of the log. Raises `ApiError`, `StorageError` or `WireError` if
        the log cannot be read."""


class LogPiece(Protocol):
    """A piece of the log: `apply_to` applies it, `end` is the offset after it."""

    end: int

    def apply_to(self, machine: Machine) -> None: ...


class SlewedClock:
    """Wall time without jumps: it advances with the monotonic clock, and slowly approaches the system's wall clock after that was set.

    Deadlines and the timestamps in record values use this clock. When an operator sets the system clock an hour forward, a time-out is at
    most 7 % shorter. Timestamps remain comparable with the timestamps of the next coordinator.
    """

    __slots__ = ("_clock", "_last_ms", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = clock.monotonic_ms()
        self._offset_ms = clock.wall_ms() - self._last_ms

    def now_ms(self) -> int:
        monotonic_ms = self._clock.monotonic_ms()
        elapsed_ms = monotonic_ms - self._last_ms
        if elapsed_ms >= SLEW_DIVISOR:
            step_ms = elapsed_ms // SLEW_DIVISOR
            drift_ms = self._clock.wall_ms() - monotonic_ms - self._offset_ms
            self._offset_ms += max(-step_ms, min(step_ms, drift_ms))
            self._last_ms = monotonic_ms
        return monotonic_ms + self._offset_ms


class _HeldDecision:
    """A decision with effects that wait until the high watermark reaches `end`."""

    __slots__ = ("decision", "end")

    def __init__(self, end: int, decision: Decision) -> None:
        self.end = end
        self.decision = decision


class MachineHost:
    """Runs one machine on one partition. All methods run on the event loop and do not block."""

    def __init__(self, machine: Any, log: MachineLog, clock: Clock, timers: Timers) -> None:
        self.machine = machine
        self.state = HostState.LOADING
        self.applied_end = 0
        self._log = log
        self._clock = clock
        self._time = SlewedClock(clock)
        self._timers = timers
        self._held: deque[_HeldDecision] = deque()
        self._scheduled: dict[str, TimerHandle] = {}
        self._follow_up = machine.follow_up if isinstance(machine, HasFollowUp) else None
        self._is_deciding = False
        self._is_releasing = False

    @property
    def error(self) -> ErrorCode:
        """The error for commands; NONE if the host is active."""
        return REFUSALS[self.state]

    @property
    def is_idle(self) -> bool:
        """Whether no decision is held, so that all answers decided so far are sent."""
        return not self._held

    @property
    def is_full(self) -> bool:
        """Whether `HELD_MAX` decisions wait for replicas, so that clients have to try again later."""
        return len(self._held) >= HELD_MAX

    # Commands

    def run(self, decide: Callable[[int], Decision]) -> None:
        """Runs a command; raises `ApiError` if the host is not active."""
        if self.state is not HostState.ACTIVE:
            raise ApiError(REFUSALS[self.state])
        assert not self._is_deciding, "a decision asked for another decision"
        self._is_deciding = True
        try:
            decision = decide(self._time.now_ms())
            if decision.records:
                if not self._append(decision):
                    return
            elif decision.parts:
                decision = self._append_parts(decision)
        finally:
            self._is_deciding = False
        if self._held or self._is_releasing or self._log.committed_end() < self.applied_end:
            self._held.append(_HeldDecision(self.applied_end, decision))
            self._release_committed()
        else:
            self._release(decision.effects)

    def _append(self, decision: Decision) -> bool:
        """Appends and applies the records. If the log refuses them, releases the effects of the refusal and returns False."""
        try:
            self._log_records(decision.records, decision.transactional)
        except ApiError as refusal:
            effects = decision.refused(COORDINATOR_ERRORS.get(refusal.code, refusal.code))
            _report(refusal, len(decision.records), effects)
            self._is_deciding = False
            self._release(effects)
            return False
        return True

    def _append_parts(self, decision: Decision) -> Decision:
        """Appends and applies the parts that the log accepts. Returns a decision with their effects and the refusals of the other parts."""
        logged: list[Decision] = []
        effects: list[Effect] = []
        code = ErrorCode.NONE
        runs = [decision.parts]
        while runs:
            run = runs.pop()
            records = [record for part in run for record in part.records]
            try:
                if records:
                    self._log_records(records, None)
            except ApiError as refusal:
                if refusal.code in TOO_LARGE and len(run) > 1:
                    middle = len(run) // 2
                    runs += (run[middle:], run[:middle])
                    continue
                code = COORDINATOR_ERRORS.get(refusal.code, refusal.code)
                refused = [effect for part in run for effect in part.refused(code)]
                _report(refusal, len(records), refused)
                effects += refused
                continue
            logged += run
            effects += [effect for part in run for effect in part.effects]
        effects += decision.refused(code) if code else decision.effects

        def refuse(code: ErrorCode) -> list[Effect]:
            return [*(effect for part in logged for effect in part.refused(code)), *decision.refused(code)]

        return Decision(effects=effects, refused=refuse)

    def _log_records(self, records: Sequence[LogRecord], transactional: Transactional | None) -> None:
        end = self._log.append_records(records, transactional, self._clock.wall_ms())
        offset = end - len(records)
        assert offset >= self.applied_end, f"the log gave offset {offset} again, {self.applied_end} is applied"
        apply = self.machine.apply
        for record in records:
            apply(offset, record, transactional)
            offset += 1
        self.applied_end = end

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Applies a marker that was appended to this partition at `offset`. Does nothing while loading, because the log then
        provides the marker."""
        if self.state is not HostState.ACTIVE:
            return
        assert offset >= self.applied_end, f"a marker at {offset}, {self.applied_end} is applied"
        self.machine.apply_marker(offset, producer_id, producer_epoch, is_commit)
        self.applied_end = offset + 1
        if self._follow_up is not None:
            self.run(self._follow_up)

    # Effects

    def _release_committed(self) -> None:
        """Releases the effects that the high watermark has passed, in order, and registers for its next advance."""
        if self._is_releasing or self._is_deciding:
            return
        held = self._held
        while held and held[0].end <= self._log.committed_end():
            self._release(held.popleft().decision.effects)
        if held:
            self._log.call_when_committed(held[0].end, self._release_committed)

    def _release(self, effects: Sequence[Effect]) -> None:
        is_outermost = not self._is_releasing
        self._is_releasing = True
        try:
            for effect in effects:
                if type(effect) is Respond:
                    effect.reply(effect.response)
                elif self.state is HostState.CLOSED:
                    continue
                elif type(effect) is Schedule:
                    self._schedule(effect)
                elif type(effect) is Cancel:
                    self._cancel(effect.key)
                else:
                    assert type(effect) is Call
                    effect.function()
        finally:
            if is_outermost:
                self._is_releasing = False
        if is_outermost and self._held:
            self._release_committed()

    def _schedule(self, effect: Schedule) -> None:
        self._cancel(effect.key)
        self._scheduled[effect.key] = self._timers.call_later(effect.delay_ms, lambda: self._fire(effect))

    def _cancel(self, key: str) -> None:
        handle = self._scheduled.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _fire(self, effect: Schedule) -> None:
        self._scheduled.pop(effect.key, None)
        if self.state is HostState.ACTIVE:
            self.run(effect.decide)

    # Loading and closing

    def load(self, reader: LogReader, start: int) -> None:
        """Applies the log from `start` to its end in pieces, resumes the machine and becomes active.

        A log that cannot be read closes the host.
        """
        assert self.state is HostState.LOADING
        self.applied_end = start
        self._timers.call_soon(lambda: self._load_piece(reader))

    def _load_piece(self, reader: LogReader) -> None:
        if self.state is not HostState.LOADING:
            return
        try:
            piece = reader.read_piece(self.applied_end)
        except (ApiError, StorageError, WireError):
            # The partition was stopped, or its log cannot be read: another broker must coordinate.
            self.close()
            return
        if piece is not None:
            assert piece.end > self.applied_end, "a piece of the log that does not advance"
            piece.apply_to(self.machine)
            self.applied_end = piece.end
            self._timers.call_soon(lambda: self._load_piece(reader))
            return
        self.activate()

    def activate(self) -> None:
        """Makes the host active after loading, and resumes the machine. Commands are accepted from then on."""
        assert self.state is HostState.LOADING
        self.state = HostState.ACTIVE
        self.run(self.machine.resume)

    def close(self) -> None:
        """Drops the machine when leadership is lost. All waiting callers are answered with NOT_COORDINATOR."""
        if self.state is HostState.CLOSED:
            return
        self.state = HostState.CLOSED
        for handle in self._scheduled.values():
            handle.cancel()
        self._scheduled.clear()
        while self._held:
            self._release(self._held.popleft().decision.refused(ErrorCode.NOT_COORDINATOR))
        if isinstance(self.machine, HasWaiters):
            self._release(self.machine.abandon(ErrorCode.NOT_COORDINATOR))


def _report(refusal: ApiError, count: int, effects: Sequence[Effect]) -> None:
    """Logs a refusal that answers no client, and any refusal because of size."""
    if refusal.code in TOO_LARGE or not any(type(effect) is Respond for effect in effects):
        log.warning("a batch of %d coordinator records was refused: %s", count, refusal)
