"""Compares a share partition with a model that stores each offset separately: states, delivery counts, owners, and the state after a
reload."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.share_state import DeliveryState, SharePartitionKey, ShareState, StateBatch, StateWritten
from ottla.sharing.acknowledgement import Acknowledgement
from ottla.sharing.acquisition import LogBatch
from ottla.sharing.batches import merge
from ottla.sharing.share_partition import GroupTerms, SharePartition
from tests.fakes import ManualTimers
from tests.fakes.persister import MemoryPersister

KEY = SharePartitionKey("g", bytes(range(16)), 0)
LOCK_MS = 1000
MEMBERS = ("a", "b", "c")
TERMS = GroupTerms(
    lock_duration_ms=LOCK_MS, delivery_count_max=4, in_flight_max=60, offset_reset="earliest", is_read_committed=False, may_renew=True
)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = DeliveryState
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
OUTCOMES = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVED}


class Fate(NamedTuple):
    """The state of one offset."""

    state: DeliveryState
    count: int
    member: str = ""
    deadline_ms: int = 0


class MergingPersister(MemoryPersister):
    """Stores batches as the share coordinator does."""

    def write(self, key: SharePartitionKey, state: ShareState, done: StateWritten) -> None:
        def written(code: ErrorCode) -> None:
            if not code:
                self.states[key] = state._replace(batches=self.merged)
            done(code)

        super().write(key, state, written)

    @property
    def merged(self) -> tuple[StateBatch, ...]:
        state = self.states[KEY]
        return merge((), state.batches, state.start_offset)


def outcome(fate: Fate, kind: int) -> Fate:
    state = OUTCOMES[kind]
    if state is AVAILABLE and fate.count >= TERMS.delivery_count_max:
        state = ARCHIVED
    return Fate(state, fate.count)


class Change:
    """A write in progress, and the states that it will set."""

    def __init__(self, fates: dict[int, Fate]) -> None:
        self.fates = fates
        self.answer: ErrorCode | None = None


class ShareModel:
    """The share partition, the model, and the steps that both execute."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.persister = MergingPersister()
        self.log: list[LogBatch] = []
        self.log_end = 0
        self.log_start = 0
        self.start = 0
        self.fates: dict[int, Fate] = {}
        self.changes: list[Change] = []
        self.share: SharePartition
        self.persister.initialize(KEY, 0, 0, lambda code: None)
        self._load()

    def _load(self) -> None:
        self.share = SharePartition(
            KEY, 0, persister=self.persister, clock=self.timers.clock, timers=self.timers, terms=lambda: TERMS,
            find_start=lambda reset: 0, on_closed=lambda share: None,
        )  # fmt: skip
        self.share.load()
        assert self.share.is_loaded

    # The log

    def append(self, size: int, hole: int, is_deliverable: bool) -> None:
        base = self.log_end + hole
        self.log.append((base, base + size - 1, is_deliverable))
        self.log_end = base + size

    def move_log_start(self, part: int) -> None:
        self.log_start = min(self.log_start + part, self.log_end)
        self.share.fetch_offset(self.log_start)
        self._forget_below(self.log_start)

    # Members

    def acquire(self, member: str, records_max: int, batch_size: int, is_record_limit: bool, readable: int) -> None:
        offset = self.share.fetch_offset(self.log_start)
        free = [at for at, fate in sorted(self.fates.items()) if fate.state is AVAILABLE]
        if offset is None:
            assert not free and len(self.fates) >= TERMS.in_flight_max
            return
        assert offset == (free[0] if free else self._end())
        batches = [batch for batch in self.log if batch[1] >= offset][:readable]
        acquired = self.share.acquire(member, offset, iter(batches), records_max, batch_size, is_record_limit)
        deadline_ms = self.timers.clock.monotonic_ms() + LOCK_MS
        taken: list[int] = []
        deliverable = {at for base, last, is_deliverable in batches if is_deliverable for at in range(base, last + 1)}
        for first, last, count in acquired:
            for at in range(first, last + 1):
                before = self.fates.get(at, Fate(AVAILABLE, 0))
                assert before.state is AVAILABLE and before.count + 1 == count and at in deliverable and at >= self.log_start
                self.fates[at] = Fate(ACQUIRED, count, member, deadline_ms)
                taken.append(at)
        assert taken == sorted(set(taken))
        if is_record_limit:
            assert len(taken) <= records_max
        else:
            # Before its last log batch, the member had fewer records than the limit.
            last_base = max((base for base, last, _ in batches if taken and base <= taken[-1] <= last), default=0)
            assert sum(at < last_base for at in taken) < records_max
        if not taken and batches and any(at in deliverable for at in free):
            raise AssertionError(f"{free} are available and none was given")
        self._note_archived(deliverable)
        self._advance()

    def _note_archived(self, deliverable: set[int]) -> None:
        """Updates the model: only offsets without a record, and records that must not be delivered, may have been archived."""
        for at, fate in self._seen().items():
            before = self.fates.get(at, Fate(AVAILABLE, 0))
            if fate.state is ARCHIVED and before.state is AVAILABLE:
                assert at not in deliverable
                self.fates[at] = Fate(ARCHIVED, before.count)
        flight = self.share.flight
        for at in range(self.start, flight.start):
            if self.fates.get(at, Fate(AVAILABLE, 0)).state is AVAILABLE:
                assert at not in deliverable
                self.fates[at] = Fate(ARCHIVED, 0)

    def acknowledge(self, member: str, first: int, size: int, kinds: list[int]) -> None:
        first = max(self.start + first, 0)
        last = first + (len(kinds) if len(kinds) > 1 else size) - 1
        self._acknowledge(member, first, last, kinds)

    def acknowledge_acquired(self, pick: int, kind: int, length: int) -> None:
        held = [at for at, fate in sorted(self.fates.items()) if fate.state is ACQUIRED]
        if not held:
            return
        first = held[pick % len(held)]
        member = self.fates[first].member
        last = first
        while last - first + 1 < length and self.fates.get(last + 1, Fate(AVAILABLE, 0)).member == member:
            last += 1
        self._acknowledge(member, first, last, [kind])

    def _acknowledge(self, member: str, first: int, last: int, kinds: list[int]) -> None:
        expected = self._expect(member, first, last)
        change = Change({})
        if expected is ErrorCode.NONE:
            for at in range(max(first, self.start), last + 1):
                kind = kinds[0] if len(kinds) == 1 else kinds[at - first]
                fate = self.fates[at]
                if kind == 4:
                    self.fates[at] = fate._replace(deadline_ms=self.timers.clock.monotonic_ms() + LOCK_MS)
                else:
                    change.fates[at] = outcome(fate, kind)
        self._begin(change)
        self.share.acknowledge(member, [Acknowledgement(first, last, kinds)], lambda code: self._answered(change, code))
        if expected or not change.fates:
            self.changes.remove(change)
            assert change.answer is expected
        elif change.answer is ErrorCode.NONE and len(self.changes) == 1:
            self._settle_all()
            state = self.persister.states[KEY]
            done_count = sum(fate.state in TERMINAL for fate in self.fates.values())
            assert state.delivery_complete_count == done_count + self.start - state.start_offset

    def _expect(self, member: str, first: int, last: int) -> ErrorCode:
        if last < self.start:
            return ErrorCode.NONE
        if last >= self._end():
            return ErrorCode.INVALID_REQUEST if self.fates else ErrorCode.INVALID_RECORD_STATE
        for at in range(max(first, self.start), last + 1):
            fate = self.fates[at]
            if fate.state is not ACQUIRED or fate.member != member or self._is_changing(at):
                return ErrorCode.INVALID_RECORD_STATE
        return ErrorCode.NONE

    def leave(self, member: str) -> None:
        held = {at: fate for at, fate in self.fates.items() if fate.member == member and not self._is_changing(at)}
        change = Change({at: outcome(fate, 2) for at, fate in held.items()})
        self._begin(change)
        self.share.release(frozenset((member,)), lambda code: self._answered(change, code))
        if not held:
            self.changes.remove(change)

    # Writing

    def hold_writes(self) -> None:
        self.persister.is_held = True

    def let_writes_through(self) -> None:
        self.persister.release()
        self._settle_all()

    def fail_writes(self) -> None:
        self.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.persister.release()
        self.persister.fail_with = None
        self._settle_all()

    def _begin(self, change: Change) -> None:
        self.changes.append(change)

    def _answered(self, change: Change, code: ErrorCode) -> None:
        change.answer = code

    def _settle_all(self) -> None:
        for change in list(self.changes):
            if change.answer is None:
                continue
            self.changes.remove(change)
            if change.answer is ErrorCode.NONE:
                for at, fate in change.fates.items():
                    if at in self.fates:
                        self.fates[at] = fate
        self._advance()

    # Time

    def wait(self, ms: int) -> None:
        self.timers.advance(ms)
        now_ms = self.timers.clock.monotonic_ms()
        for at, fate in self.fates.items():
            if fate.state is ACQUIRED and fate.deadline_ms <= now_ms and not self._is_changing(at):
                self.fates[at] = outcome(fate, 2)
        self._settle_all()

    def lead_anew(self) -> None:
        """Loads the share partition again. Changes that were not stored are lost."""
        self.let_writes_through()
        self.share.close()
        self._load()
        state = self.persister.states[KEY]
        self.share.fetch_offset(self.log_start)
        last = max((batch.last_offset for batch in state.batches), default=state.start_offset - 1)
        self.start = state.start_offset
        known = explode(state.batches)
        self.fates = {at: known.get(at, Fate(AVAILABLE, 0)) for at in range(self.start, last + 1)}
        self._forget_below(self.log_start)
        self._advance()

    # What must hold

    def agrees_with_the_model(self) -> None:
        self._settle_all()
        flight = self.share.flight
        assert (flight.start, flight.end) == (self.start, self._end())
        assert self._seen() == self.fates
        assert flight.available_count == sum(fate.state is AVAILABLE for fate in self.fates.values())
        assert flight.complete_count == sum(fate.state in TERMINAL for fate in self.fates.values())

    def runs_touch(self) -> None:
        at = self.share.flight.start
        for run in self.share.flight.runs:
            assert run.first == at <= run.last
            assert (run.state is ACQUIRED) == bool(run.member)
            assert run.target is None or run.state is ACQUIRED
            at = run.last + 1
        assert at == self.share.flight.end

    def _seen(self) -> dict[int, Fate]:
        return {
            at: Fate(run.state, run.delivery_count, run.member, run.deadline_ms)
            for run in self.share.flight.runs
            for at in range(run.first, run.last + 1)
        }

    def _end(self) -> int:
        return max(self.fates, default=self.start - 1) + 1

    def _is_changing(self, at: int) -> bool:
        return any(at in change.fates for change in self.changes if change.answer is None)

    def _advance(self) -> None:
        while self.fates.get(self.start, Fate(AVAILABLE, 0)).state in TERMINAL:
            del self.fates[self.start]
            self.start += 1

    def _forget_below(self, offset: int) -> None:
        if offset > self.start:
            for at in [at for at in self.fates if at < offset]:
                del self.fates[at]
            self.start = offset
            self._advance()


def explode(batches: tuple[StateBatch, ...]) -> dict[int, Fate]:
    return {at: Fate(DeliveryState(state), count) for first, last, state, count in batches for at in range(first, last + 1)}


def step(name: str, **arguments: Any) -> Any:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


MEMBER = st.sampled_from(MEMBERS)
APPEND = step(
    "append", size=st.integers(1, 12), hole=st.sampled_from((0, 0, 0, 1, 3)), is_deliverable=st.sampled_from((True, True, True, False))
)
ACQUIRE = step(
    "acquire", member=MEMBER, records_max=st.integers(1, 30), batch_size=st.integers(1, 20), is_record_limit=st.booleans(),
    readable=st.integers(1, 6),
)  # fmt: skip
SAY = step("acknowledge_acquired", pick=st.integers(0, 50), kind=st.sampled_from((1, 2, 0, 3, 4)), length=st.integers(1, 20))
SAY_ANYTHING = step(
    "acknowledge", member=MEMBER, first=st.integers(-3, 20), size=st.integers(1, 15),
    kinds=st.lists(st.sampled_from((1, 2, 0, 3, 4)), min_size=1, max_size=12),
)  # fmt: skip
SELDOM = st.one_of(
    step("move_log_start", part=st.integers(0, 20)), step("fail_writes"), step("lead_anew"),
    step("wait", ms=st.sampled_from((1, 300, 600, 1000, 2500))),
)  # fmt: skip
STEPS = st.one_of(
    APPEND, ACQUIRE, SAY, ACQUIRE, SAY, SAY, ACQUIRE, SAY_ANYTHING, step("hold_writes"), step("hold_writes"),
    step("let_writes_through"), step("leave", member=MEMBER), SELDOM, SELDOM,
)  # fmt: skip


@settings(max_examples=200)
@given(steps=st.lists(STEPS, min_size=20, max_size=70))
def test_agrees_with_a_model_of_single_offsets(steps: list[tuple[str, dict[str, Any]]]) -> None:
    model = ShareModel()
    for _ in range(4):
        model.append(8, 0, True)
    for name, arguments in steps:
        getattr(model, name)(**arguments)
        model.agrees_with_the_model()
        model.runs_touch()
    model.let_writes_through()
    model.agrees_with_the_model()
    assert model.changes == []
