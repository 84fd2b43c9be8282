"""The records in flight of a share partition, and the state of each.

Offsets below `start` need no more delivery; this leader has delivered none from `end` on. Between them are runs: consecutive offsets with
the same state, delivery count and owner. A whole batch is one run and costs as much as a single record. A run is split only where its
records get different states, and is joined with its neighbours again when they are equal.

A change that is not durable yet is stored beside the state (`OffsetRun.target`). Until the persister has answered, the records stay
acquired. The change is undone by clearing the target; `was_accepted` remembers a failed acceptance.

Records that are to be copied to the dead-letter topic are ARCHIVING until the copy is written. They are not completed, so the start offset
does not pass them.

Invariants: the runs are contiguous from `start` to `end`, and the first run is not completed. Only ACQUIRED runs have an owner, a deadline
or a target; an ARCHIVING run may have the target ARCHIVED. `available_count`, `archiving_count` and `complete_count` are the sums over the
runs.

`acquisition.py` decides which member acquires which records, `acknowledgement.py` handles acknowledgements, and `share_partition.py` stores
the changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from ottla.base.share_state import DeliveryState, StateBatch

AVAILABLE = DeliveryState.AVAILABLE
ACQUIRED = DeliveryState.ACQUIRED
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
ARCHIVING = DeliveryState.ARCHIVING
ARCHIVED = DeliveryState.ARCHIVED

TERMINAL = frozenset((ACKNOWLEDGED, ARCHIVED))
NO_MEMBER = ""

_first = attrgetter("first")


class OffsetRun:
    """Offsets from `first` to `last` in one state. `origin_size` is the number of offsets of the largest run that they were part of.
    `was_accepted`: the owner has accepted the records, but the write failed. When such records are released, they are not archived for too
    many deliveries. `was_rejected`: the owner has rejected the records. `is_copied`: ARCHIVING records were copied to the dead-letter
    topic.
    """

    __slots__ = (
        "deadline_ms", "delivery_count", "first", "is_copied", "last", "member", "origin_size", "state", "target", "was_accepted",
        "was_rejected",
    )  # fmt: skip

    def __init__(
        self, first: int, last: int, state: DeliveryState, delivery_count: int, member: str = NO_MEMBER, deadline_ms: int = 0
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member = member
        self.deadline_ms = deadline_ms
        self.target: DeliveryState | None = None
        self.was_accepted = False
        self.was_rejected = False
        self.is_copied = False
        self.origin_size = last - first + 1

    def __repr__(self) -> str:
        return f"<{self.first}..{self.last} {self.state.name} x{self.delivery_count} {self.member}>"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def is_free(self) -> bool:
        """Whether a member can acquire this run."""
        return self.state is AVAILABLE

    def is_alike(self, other: OffsetRun) -> bool:
        """Whether the two runs may be joined: they have equal states, counts and locks, and no planned change."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member == other.member
            and self.deadline_ms == other.deadline_ms
            and self.was_accepted is other.was_accepted
            and self.was_rejected is other.was_rejected
            and self.is_copied is other.is_copied
            and self.target is None
            and other.target is None
        )


class InFlight:
    __slots__ = ("archiving_count", "available_count", "complete_count", "end", "runs", "start")

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        """Starts from stored state. Offsets between the batches are available."""
        self.start = start
        self.end = start
        self.runs: list[OffsetRun] = []
        self.available_count = 0
        self.archiving_count = 0
        self.complete_count = 0
        for batch in sorted(batches):
            first = max(batch.first_offset, self.end)
            if batch.last_offset < first:
                continue
            if first > self.end:
                self.append(first - 1, AVAILABLE, 0)
            self.append(batch.last_offset, DeliveryState(batch.delivery_state), batch.delivery_count)
        self.advance()

    @property
    def count(self) -> int:
        return self.end - self.start

    def next_offset(self) -> int:
        if not self.available_count:
            return self.end
        for run in self.runs:
            if run.state is AVAILABLE:
                return run.first
        raise AssertionError(f"{self.available_count} should be available")

    def index_of(self, offset: int) -> int:
        assert self.start <= offset < self.end, f"offset {offset} is not in flight"
        return bisect_right(self.runs, offset, key=_first) - 1

    # Shaping runs

    def append(self, last: int, state: DeliveryState, delivery_count: int, member: str = NO_MEMBER, deadline_ms: int = 0) -> OffsetRun:
        """Adds the offsets from `end` to `last` to the records in flight."""
        run = OffsetRun(self.end, last, state, delivery_count, member, deadline_ms)
        self.runs.append(run)
        self.end = last + 1
        self._count(run, 1)
        return run

    def isolate(self, index: int, first: int, last: int) -> int:
        """Splits the run at `index` so that the part from `first` to `last` is a separate run; returns its index."""
        run = self.runs[index]
        if run.first < first:
            self._split(index, first)
            index += 1
        if self.runs[index].last > last:
            self._split(index, last + 1)
        return index

    def _split(self, index: int, offset: int) -> None:
        run = self.runs[index]
        assert run.first < offset <= run.last and run.target is None, f"cannot cut {run} at {offset}"
        rest = OffsetRun(offset, run.last, run.state, run.delivery_count, run.member, run.deadline_ms)
        rest.origin_size, rest.was_accepted = run.origin_size, run.was_accepted
        rest.was_rejected, rest.is_copied = run.was_rejected, run.is_copied
        run.last = offset - 1
        self.runs.insert(index + 1, rest)

    def join(self, first_index: int, end_index: int) -> None:
        """Joins equal neighbours among the runs of [first_index, end_index) and the runs beside them."""
        runs = self.runs
        first_index = max(first_index - 1, 0)
        touched = runs[first_index : end_index + 1]
        if len(touched) < 2:
            return
        joined = [touched[0]]
        for run in touched[1:]:
            before = joined[-1]
            if before.is_alike(run):
                before.last = run.last
                before.origin_size = max(before.origin_size, run.origin_size, len(before))
            else:
                joined.append(run)
        if len(joined) < len(touched):
            runs[first_index : end_index + 1] = joined

    # Changing states

    def set_state(self, run: OffsetRun, state: DeliveryState, member: str = NO_MEMBER, deadline_ms: int = 0) -> None:
        self._count(run, -1)
        run.state = state
        run.member = member
        run.deadline_ms = deadline_ms
        run.target = None
        run.was_accepted = False
        run.was_rejected = run.was_rejected and state is ARCHIVING
        run.is_copied = False
        self._count(run, 1)

    def archive_free(self, first: int, last: int) -> None:
        """Archives the available offsets from `first` to `last`. Offsets from `end` to `last` are added as archived, so `first` must not be
        above `end`."""
        if last < self.start:
            return
        if first < self.end:
            index = self.index_of(max(first, self.start))
            while index < len(self.runs) and self.runs[index].first <= last:
                if self.runs[index].state is AVAILABLE:
                    index = self.isolate(index, first, last)
                    self.set_state(self.runs[index], ARCHIVED)
                index += 1
        if last >= self.end:
            self.append(last, ARCHIVED, 0)

    def settle(self, runs: Sequence[OffsetRun], is_durable: bool) -> bool:
        """Applies the planned changes of these runs, or cancels them if they are not durable; returns whether records have become
        available."""
        before = self.available_count
        for run in runs:
            if run.target is None or run.last < self.start:
                continue  # below the start, or the change was dropped
            if is_durable:
                self.set_state(run, run.target)
            else:
                run.was_accepted = run.was_accepted or run.target is ACKNOWLEDGED
                run.target = None
        if is_durable:
            self.advance()
            self._join_around(runs)
        return self.available_count > before

    def _join_around(self, runs: Sequence[OffsetRun]) -> None:
        for run in runs:
            if self.start <= run.first < self.end:
                index = self.index_of(run.first)
                self.join(index, index + 1)

    def advance(self) -> None:
        """Removes completed runs at the front."""
        done = 0
        for run in self.runs:
            if run.state not in TERMINAL:
                break
            self._count(run, -1)
            done += 1
        if done:
            self.start = self.runs[done - 1].last + 1
            del self.runs[:done]

    def forget_below(self, offset: int) -> None:
        """Moves the start to the new log start. Acknowledgements of removed offsets have no effect."""
        if offset <= self.start:
            return
        gone = 0
        for run in self.runs:
            if run.first >= offset:
                break
            self._count(run, -1)
            if run.last >= offset:
                run.first = offset
                self._count(run, 1)
                break
            gone += 1
        del self.runs[:gone]
        self.start = offset
        self.end = max(self.end, offset)
        self.advance()

    def forget_from(self, offset: int) -> None:
        """Removes the offsets from the new log end on, because later appends put other records there."""
        while self.runs and self.runs[-1].last >= offset:
            run = self.runs[-1]
            self._count(run, -1)
            if run.first < offset:
                run.last = offset - 1
                self._count(run, 1)
                break
            run.target = None
            self.runs.pop()
        self.start = min(self.start, offset)
        self.end = min(self.end, offset)

    def _count(self, run: OffsetRun, sign: int) -> None:
        size = (run.last - run.first + 1) * sign
        if run.state is AVAILABLE:
            self.available_count += size
        elif run.state is ARCHIVING:
            self.archiving_count += size
        elif run.state is not ACQUIRED:
            self.complete_count += size


def state_batches(runs: Iterable[OffsetRun], start: int) -> tuple[StateBatch, ...]:
    """Returns the runs' states (the planned ones, if any) from `start` on; equal neighbours are joined."""
    batches: list[StateBatch] = []
    for run in sorted(runs, key=_first):
        if run.last < start:
            continue
        state = int(run.state if run.target is None else run.target)
        first = max(run.first, start)
        if batches:
            before = batches[-1]
            if before.last_offset + 1 == first and before.delivery_state == state and before.delivery_count == run.delivery_count:
                batches[-1] = StateBatch(before.first_offset, run.last, state, run.delivery_count)
                continue
        batches.append(StateBatch(first, run.last, state, run.delivery_count))
    return tuple(batches)
