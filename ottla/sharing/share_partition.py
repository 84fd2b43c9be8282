"""One partition as one share group reads it, on the broker that leads the partition.

A share partition loads its stored state (`Persister.read`), delivers records under locks that expire, and makes acknowledgements durable
before it answers them. Waiting members are woken when records become available again, when more records may be in flight, when the share
partition was loaded or closed, or when a check of its stored state has succeeded.

One timer serves all locks: it is set for the first expiry, and then for the next one. Locks of thousands of partitions may expire together;
they are released over several iterations of the event loop.

Records that the group gives up may be copied to a dead-letter topic before they are archived (`dead_letters.py`). While a copy is in
progress the share partition stays open, although the last session has ended.

The share partition closes itself if the persister answers that another leader has taken over (a higher leader or state epoch), or that the
group or the topic was deleted. The next request for the share partition reads the stored state again. A leader without writes would not
notice an alteration or a deletion. Therefore the stored state is checked when a member begins to read a partition (`check`).

`handlers/share_groups/log_reads.py` reads the log; `registry.py` has the set of share partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.notifier import Notifier
from ottla.base.ports import Clock, TimerHandle, Timers
from ottla.base.share_state import UNINITIALIZED_START_OFFSET, Persister, SharePartitionKey, ShareState, StateWritten
from ottla.sharing import acknowledgement, acquisition, dead_letters, lock_expiry
from ottla.sharing.acknowledgement import Acknowledgement, Rules
from ottla.sharing.acquisition import Acquired, LogBatch, Terms
from ottla.sharing.dead_letters import CopyDeadLetters, DeadLetters, no_dead_letter_topics
from ottla.sharing.in_flight import ACQUIRED, ARCHIVING, TERMINAL, InFlight, OffsetRun, state_batches
from ottla.sharing.partition_memory import PARTITION_BYTES, RUN_BYTES, PartitionMemory

CLOSING = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,  # the state is deleted, because the group was deleted
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of the persister after which the share partition closes itself."""
CHECK_RETRY_MS = 1_000
_CODES_FOR_MEMBERS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.POLICY_VIOLATION: ErrorCode.POLICY_VIOLATION,  # there is no memory for the acknowledged state
}


InTurn = Callable[[Callable[[], object]], None]


def at_once(function: Callable[[], object]) -> None:
    """Calls the function immediately: the default of `in_turn`."""
    function()


def member_error(code: ErrorCode) -> ErrorCode:
    """Returns the error for members that corresponds to the persister's error."""
    return _CODES_FOR_MEMBERS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR) if code else ErrorCode.NONE


class GroupTerms(NamedTuple):
    lock_duration_ms: int
    delivery_count_max: int
    in_flight_max: int
    offset_reset: str
    is_read_committed: bool
    may_renew: bool
    has_dead_letters: bool = False

    @property
    def rules(self) -> Rules:
        return Rules(self.delivery_count_max, self.may_renew, self.has_dead_letters)


class StoredStateCheck:
    """A request to the share coordinator that checks whether the stored state is still this leader's."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class SharePartition:
    """See the module. `find_start` returns where to begin without a stored state, or raises `ApiError`."""

    def __init__(
        self, key: SharePartitionKey, leader_epoch: int, *, persister: Persister, clock: Clock, timers: Timers,
        terms: Callable[[], GroupTerms], find_start: Callable[[str], int], on_closed: Callable[[SharePartition], None],
        memory: PartitionMemory | None = None, in_turn: InTurn = at_once, copy_dead_letters: CopyDeadLetters = no_dead_letter_topics,
    ) -> None:  # fmt: skip
        """`in_turn` calls a function in an iteration of the event loop that has time for it."""
        self.key = key
        self.leader_epoch = leader_epoch
        self.state_epoch = 0
        self.flight = InFlight(0)
        self.is_loaded = False
        self.is_closed = False
        self.error = ErrorCode.NONE  # why the state could not be loaded
        self.terms = terms
        self._persister = persister
        self._clock = clock
        self._timers = timers
        self._find_start = find_start
        self._on_closed = on_closed
        self._memory = memory or PartitionMemory()
        self._in_turn = in_turn
        self._copy_dead_letters = copy_dead_letters
        self._copying: DeadLetters | None = None
        self.closes_when_copied = False
        self._held_bytes = 0
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._completing = 0  # records that pending writes will complete
        self._stored_start = UNINITIALIZED_START_OFFSET  # as last read or written
        self._stored_count: int | None = None  # completed records after the start, as last written
        self._is_uncertain = False  # a write has failed, but may be stored nevertheless
        self._checks: list[StoredStateCheck] = []
        self._written_end = 0  # start of the last write, plus its completed records after the start
        self.notifier = Notifier()
        self._hold(PARTITION_BYTES)

    # Life

    def load(self) -> None:
        """Reads the stored state. Watchers are notified when it was read, or could not be read."""
        self._persister.read(self.key, self.leader_epoch, self._found)

    def _found(self, code: ErrorCode, state: ShareState | None) -> None:
        if self.is_closed:
            return
        if code or state is None:
            self.error = member_error(code or ErrorCode.UNKNOWN_SERVER_ERROR)
            self.close()
            return
        start = state.start_offset
        if start == UNINITIALIZED_START_OFFSET:
            try:
                start = self._find_start(self.terms().offset_reset)
            except ApiError as error:
                self.error = error.code
                self.close()
                return
        self.state_epoch = state.state_epoch
        self._stored_start = state.start_offset
        self.flight = InFlight(start, state.batches)
        self._written_end = self.flight.start + self.flight.complete_count
        self.is_loaded = True
        self._count_runs()
        self._resume_copying()
        self.notifier.notify()

    def close_when_copied(self) -> None:
        """Closes the share partition as soon as no dead letters are to be copied (`closes_when_copied`). A new session that begins before
        prevents this."""
        self.closes_when_copied = True
        self._maybe_end()

    def _maybe_end(self) -> None:
        if self.closes_when_copied and not (self.is_loaded and dead_letters.are_pending(self.flight)):
            self.close()

    def close(self) -> None:
        """Ends delivery and acknowledgement; pending writes are still answered."""
        if self.is_closed:
            return
        self.is_closed = True
        self.is_loaded = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for check in self._checks:
            check.is_over = True
        self._hold(0)
        self._on_closed(self)
        self.notifier.notify()

    def _hold(self, size: int) -> None:
        self._memory.hold(size - self._held_bytes)
        self._held_bytes = size

    def _count_runs(self) -> None:
        if not self.is_closed:
            self._hold(PARTITION_BYTES + RUN_BYTES * len(self.flight.runs))

    # Alteration or deletion of the stored state

    def check(self) -> StoredStateCheck:
        """Asks whether the stored state is still this leader's, and closes if not. Watchers are notified of the answer. Members that do not
        wait for the answer continue to read meanwhile. If the state is no longer this leader's, the share coordinator refuses their
        acknowledgements.
        """
        check = StoredStateCheck()
        self._checks.append(check)
        self._ask(check)
        return check

    def _ask(self, check: StoredStateCheck) -> None:
        if not check.is_over:
            self._persister.summary(self.key, self.leader_epoch, lambda code, state: self._checked(check, code, state))

    def _checked(self, check: StoredStateCheck, code: ErrorCode, state: ShareState | None) -> None:
        if self.is_closed:
            return
        if code in CLOSING or (state is not None and self._is_other(state)):
            self.close()
        elif code:
            self._timers.call_later(CHECK_RETRY_MS, lambda: self._ask(check))
        else:
            check.is_over = True
            self._checks.remove(check)
            self.notifier.notify()

    def _is_other(self, state: ShareState) -> bool:
        """Whether a stored state differs from the state that this leader has read and written. The stored state includes all writes before
        the check. Equal state epochs are no proof: a group that was deleted and created again may have the same state epoch. But its leader
        epoch differs, because no leader has read its state yet.
        """
        if not self.is_loaded:
            return False
        if (self.state_epoch, self.leader_epoch) != (state.state_epoch, state.leader_epoch):
            return True
        if self._is_uncertain:
            return not self._stored_start <= state.start_offset <= self.flight.start
        return self._stored_start != state.start_offset or self._stored_count not in (None, state.delivery_complete_count)

    def _write(self, state: ShareState, done: StateWritten) -> None:
        def written(code: ErrorCode) -> None:
            if code:
                self._is_uncertain = True
            else:
                self._stored_start = max(self._stored_start, state.start_offset)
                self._stored_count = state.delivery_complete_count
            done(code)

        self._persister.write(self.key, state, written)

    # Reading

    def fetch_offset(self, log_start_offset: int) -> int | None:
        """Returns the first offset that a member may acquire; None if no record can be acquired now. Applies a new log start first."""
        flight = self.flight
        if not self.is_loaded:
            return None
        if flight.start < log_start_offset:
            flight.forget_below(log_start_offset)
        return flight.next_offset() if acquisition.may_acquire(flight, self._in_flight_max()) else None

    def _in_flight_max(self) -> int:
        return self._memory.in_flight_max(self.terms().in_flight_max)

    def forget_from(self, offset: int) -> None:
        """Handles the loss of the log's end in a crash: the log ends at `offset` now, and new records get the offsets of lost records. The
        stored state of the lost records must not apply to new records, so the state is initialized again and the remaining states are
        written again.
        """
        flight = self.flight
        flight.forget_from(offset)
        self._copying = None  # Its records may be lost; the dead letters that are left are copied again.
        self._written_end = flight.start + flight.complete_count
        self._stored_start, self._is_uncertain = min(self._stored_start, flight.start), True
        self._persister.initialize(self.key, self.state_epoch, flight.start, self._on_background_write)
        left = [run for run in flight.runs if run.state is not ACQUIRED and run.delivery_count]
        if left:
            batches = state_batches(left, flight.start)
            state = ShareState(self.state_epoch, self.leader_epoch, flight.start, flight.complete_count, batches)
            self._write(state, self._on_background_write)
        self._in_turn(self._copy_next)

    def acquire(
        self, member: str, offset: int, batches: Iterable[LogBatch], records_max: int, batch_size: int, is_record_limit: bool
    ) -> list[Acquired]:
        """Acquires records for a member. `batches` were read from `offset` on, the result of `fetch_offset`."""
        group = self.terms()
        deadline_ms = self._clock.monotonic_ms() + group.lock_duration_ms
        terms = Terms(records_max, batch_size, is_record_limit, self._in_flight_max(), group.delivery_count_max, deadline_ms)
        acquired = acquisition.acquire(self.flight, member, offset, batches, terms)
        self._count_runs()
        if acquired:
            self._arm(deadline_ms)
        else:
            self._maybe_write_start()
        return acquired

    # Acknowledging

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], done: StateWritten) -> None:
        """Calls `done` when the acknowledgements are durable, or with an error."""
        if not self.is_loaded:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        group = self.terms()
        deadline_ms = self._clock.monotonic_ms() + group.lock_duration_ms
        try:
            changing, _ = acknowledgement.plan(self.flight, member, acknowledgements, group.rules, deadline_ms)
        except ApiError as error:
            done(error.code)
            return
        self._change(changing, done)

    def release(self, members: frozenset[str], done: StateWritten) -> None:
        """Releases the records that these members have acquired, because their sessions have ended."""
        if not self.is_loaded:
            done(ErrorCode.NONE)
            return
        self._change(acknowledgement.plan_release(self.flight, members, self.terms().rules), done)

    def _change(self, changing: list[OffsetRun], done: StateWritten) -> None:
        if not changing:
            done(ErrorCode.NONE)
            return
        self._count_runs()
        # This write has the start from before the changes; the start moves when the write is durable. If this write had a later start and
        # was stored although its answer is an error, the next write would lower the stored start, without the batches below it.
        flight = self.flight
        completing = sum(len(run) for run in changing if run.target in TERMINAL)
        self._completing += completing
        complete = flight.complete_count + self._completing
        state = ShareState(self.state_epoch, self.leader_epoch, flight.start, complete, state_batches(changing, flight.start))
        self._written_end = flight.start + complete

        def written(code: ErrorCode) -> None:
            self._completing -= completing
            self._settle(changing, code)
            done(member_error(code))

        self._write(state, written)

    def _settle(self, changing: list[OffsetRun], code: ErrorCode) -> None:
        flight = self.flight
        was_full = self.is_loaded and flight.count >= self._in_flight_max()
        has_more = flight.settle(changing, not code)
        self._count_runs()
        if code in CLOSING:
            self.close()
        elif code:
            self._arm_next()
            self._maybe_end()
        else:
            self._maybe_write_start()
            if flight.archiving_count or self.closes_when_copied:
                self._in_turn(self._copy_next)
            if has_more or was_full:
                self.notifier.notify()

    def _maybe_write_start(self) -> None:
        """Writes the start offset if nothing is in flight and the start has advanced without an acknowledgement (over control batches,
        aborted or compacted records). Otherwise the group would seem to lag until the next acknowledgement.
        """
        flight = self.flight
        if flight.count or flight.start <= self._written_end:
            return
        self._written_end = flight.start
        state = ShareState(self.state_epoch, self.leader_epoch, flight.start, 0)
        self._write(state, self._on_background_write)

    # Locks that expire

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        in_turn, expire = self._in_turn, self._expire
        self._timer = self._timers.call_later(max(deadline_ms - self._clock.monotonic_ms(), 0), lambda: in_turn(expire))

    def _arm_next(self) -> None:
        deadline_ms = lock_expiry.next_deadline_ms(self.flight)
        if deadline_ms is not None and self.is_loaded:
            self._arm(deadline_ms)

    def _expire(self) -> None:
        self._timer = None
        if not self.is_loaded:
            return
        flight = self.flight
        group, now_ms = self.terms(), self._clock.monotonic_ms()
        late, dead = lock_expiry.expire(flight, now_ms, group.rules)
        for run in dead:
            run.deadline_ms = now_ms + group.lock_duration_ms  # If the write fails, the lock lasts once more.
        if late:
            flight.advance()
            self._count_runs()
            complete = flight.complete_count + self._completing
            state = ShareState(self.state_epoch, self.leader_epoch, flight.start, complete, state_batches(late, flight.start))
            self._write(state, self._on_background_write)
        if dead:
            self._change(dead, self._on_background_write)
        self._arm_next()
        if late:
            self.notifier.notify()

    # Dead letters

    def _resume_copying(self) -> None:
        """Copies the dead letters that an earlier leader has left. The reason is not stored; records below the limit of deliveries were
        rejected."""
        if self.flight.archiving_count:
            for run in self.flight.runs:
                run.was_rejected = run.state is ARCHIVING and run.delivery_count < self.terms().delivery_count_max
            self._in_turn(self._copy_next)

    def _copy_next(self) -> None:
        """Copies the first run of dead letters, unless a copy is in progress. Closes if there is none and the last session has ended."""
        if not self.is_loaded or self._copying is not None:
            return
        run = dead_letters.first_run(self.flight)
        if run is None:
            self._maybe_end()
        elif run.target is None:
            letters = DeadLetters(self.key, self.leader_epoch, run.first, run.last, run.delivery_count, run.was_rejected)
            self._copying = letters
            if run.is_copied:
                self._copied(letters, True)
            else:
                self._copy_dead_letters(letters, lambda may_archive: self._copied(letters, may_archive))

    def _copied(self, letters: DeadLetters, may_archive: bool) -> None:
        if self._copying is not letters:
            return
        self._copying = None
        if not self.is_loaded:
            return
        if may_archive:
            self._change(dead_letters.plan_archiving(self.flight, letters), self._on_archived)
        else:
            self.close()

    def _on_archived(self, code: ErrorCode) -> None:
        """Tries a failed write again later. The records are not copied again."""
        if code:
            self._timers.call_later(CHECK_RETRY_MS, self._copy_next)
        else:
            self._in_turn(self._copy_next)

    def _on_background_write(self, code: ErrorCode) -> None:
        """Processes the result of a write without a caller. After a failure the change remains in memory."""
        if code in CLOSING:
            self.close()
