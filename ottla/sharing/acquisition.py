"""Selects the records that a member acquires from the batches that were read.

The batches are examined in order, from the first one. A member may acquire available records in flight, and records beyond those in flight.
The examination ends when the member has enough, or at the limit of records in flight. Then the runs are changed in one pass. Offsets that
are not in the log (compaction) or must not be delivered (control batches, aborted transactions) are archived at the same time.

In the mode `batch_optimized` a member gets whole log batches, so it may get more records than it wants. In the mode `record_limit`
(KIP-1206) it never does. If the limit of deliveries is above two, records that have used half of their deliveries (at least two) are
delivered in smaller and smaller groups. Their last delivery is one by one. Otherwise a record that makes readers fail would cause the
archiving of its neighbours.

Invariants: only available records are acquired, so no record has two owners; each delivery raises the delivery count by one.
`handlers/share_groups/log_reads.py` reads the log and defines the batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.sharing.in_flight import ACQUIRED, AVAILABLE, InFlight, OffsetRun

BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1

THROTTLED_DELIVERIES_MIN = 2

LogBatch = tuple[int, int, bool]
"""First offset, last offset, whether its records may be delivered."""


class Acquired(NamedTuple):
    """A run of offsets that a member acquired, and their delivery count, which includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Terms(NamedTuple):
    """The limits of one acquisition: some are requested by the member, the others are settings of the group."""

    records_max: int
    batch_size: int
    is_record_limit: bool
    in_flight_max: int
    delivery_count_max: int
    deadline_ms: int


class Stretch(NamedTuple):
    """Consecutive offsets of the log. Either all of them can be delivered, or none of them."""

    first: int
    last: int
    is_deliverable: bool


def may_acquire(flight: InFlight, in_flight_max: int) -> bool:
    """Whether records in flight are available, or the limit of records in flight allows more."""
    return flight.available_count > 0 or flight.count < in_flight_max


def acquire(flight: InFlight, member: str, offset: int, batches: Iterable[LogBatch], terms: Terms) -> list[Acquired]:
    """Acquires records for a member. `batches` are the batches that were read from `offset` on."""
    if terms.records_max <= 0:
        return []
    taker = Taker(flight, member, terms)
    for stretch in survey(flight, offset, batches, terms):
        if not stretch.is_deliverable:
            flight.archive_free(stretch.first, stretch.last)
        elif stretch.first < flight.end:
            if not taker.take_again(stretch):
                break
        elif not taker.take_new(stretch):
            break
    flight.advance()
    return taker.taken


def survey(flight: InFlight, offset: int, batches: Iterable[LogBatch], terms: Terms) -> list[Stretch]:
    """Divides the needed part of the log into stretches. Each stretch lies either within the records in flight or after them."""
    stretches: list[Stretch] = []
    end, batch_size, wanted = flight.end, terms.batch_size, terms.records_max
    slots = terms.in_flight_max - flight.count
    at = max(offset, flight.start)
    index = flight.index_of(at) if at < end else 0
    fresh = -1  # start of an unfinished stretch beyond the records in flight
    for base, last, is_deliverable in batches:
        if fresh >= 0:
            if base == at and is_deliverable and at - fresh < batch_size and slots > 0:
                wanted -= last - at + 1
                slots -= last - at + 1
                at = last + 1
                if wanted <= 0:
                    break
                continue
            stretches.append(Stretch(fresh, at - 1, True))
            fresh = -1
        if last < at:
            continue
        if base > at:
            add(stretches, at, base - 1, False, end)
            at = base
        if at < end:
            inside = min(last, end - 1)
            add(stretches, at, inside, is_deliverable, end)
            if is_deliverable:
                found, index = count_free(flight, index, at, inside)
                wanted -= found
            if wanted <= 0 or (slots <= 0 and inside < last):
                break
            at = inside + 1
        if at <= last:
            if slots <= 0:
                break
            if is_deliverable:
                fresh = at
                wanted -= last - at + 1
                slots -= last - at + 1
            else:
                add(stretches, at, last, False, end)
        at = last + 1
        if wanted <= 0:
            break
    if fresh >= 0:
        stretches.append(Stretch(fresh, at - 1, True))
    return stretches


def add(stretches: list[Stretch], first: int, last: int, is_deliverable: bool, end: int) -> None:
    """Appends offsets, and joins them to the last stretch if both are of the same kind. Splits the offsets at `end`, the end of the records
    in flight.
    """
    if first < end <= last:
        add(stretches, first, end - 1, is_deliverable, end)
        first = end
    before = stretches[-1] if stretches else None
    if (
        before is not None
        and before.is_deliverable is is_deliverable
        and before.last + 1 == first
        and (first < end) is (before.first < end)
    ):
        stretches[-1] = Stretch(before.first, last, is_deliverable)
        return
    stretches.append(Stretch(first, last, is_deliverable))


def count_free(flight: InFlight, index: int, first: int, last: int) -> tuple[int, int]:
    """Returns how many offsets from `first` to `last` are available, and the index of the run with `last`."""
    runs = flight.runs
    while runs[index].last < first:
        index += 1
    found = 0
    while True:
        run = runs[index]
        if run.state is AVAILABLE:
            found += min(run.last, last) - max(run.first, first) + 1
        if run.last >= last:
            return found, index
        index += 1


class Taker:
    """Acquires stretches for one member, until it has enough or must not get more at once."""

    __slots__ = ("_count", "_flight", "_member", "_part_max", "_terms", "_throttle_from", "taken")

    def __init__(self, flight: InFlight, member: str, terms: Terms) -> None:
        self._flight = flight
        self._member = member
        self._terms = terms
        self._count = 0
        self._part_max = 0  # limit of all acquired records once the member is throttled; 0 while it is not
        self._throttle_from = max(THROTTLED_DELIVERIES_MIN, (terms.delivery_count_max + 1) // 2)
        self.taken: list[Acquired] = []

    def take_new(self, stretch: Stretch) -> bool:
        """Acquires offsets beyond the records in flight; returns False when no more may be taken."""
        flight, terms = self._flight, self._terms
        assert stretch.first == flight.end, "a gap of the log is archived before the offsets after it are acquired"
        last = stretch.last
        if terms.is_record_limit:
            left = min(terms.records_max - self._count, terms.in_flight_max - flight.count)
            if left <= 0:
                return False
            last = min(last, stretch.first + left - 1)
        flight.append(last, ACQUIRED, 1, self._member, terms.deadline_ms)
        self._note(stretch.first, last, 1, is_new=True)
        return not terms.is_record_limit or last == stretch.last

    def take_again(self, stretch: Stretch) -> bool:
        """Acquires the available offsets of a stretch in flight; returns False when no more may be taken."""
        flight, terms = self._flight, self._terms
        if terms.is_record_limit and self._count >= terms.records_max:
            return False
        first_index = index = flight.index_of(stretch.first)
        may_continue = True
        while may_continue and index < len(flight.runs) and flight.runs[index].first <= stretch.last:
            run = flight.runs[index]
            if run.state is AVAILABLE:
                first, last = max(run.first, stretch.first), min(run.last, stretch.last)
                if terms.is_record_limit:
                    last = min(last, first + terms.records_max - self._count - 1)
                allowed, may_continue = self._allowed(run, last - first + 1)
                if allowed <= 0:
                    break
                last = min(last, first + allowed - 1)
                index = flight.isolate(index, first, last)
                self._take(flight.runs[index])
                if terms.is_record_limit and self._count >= terms.records_max:
                    may_continue = False
            index += 1
        flight.join(first_index, index)
        return may_continue

    def _allowed(self, run: OffsetRun, size: int) -> tuple[int, bool]:
        """Returns the number of the run's records that may be delivered now, and whether records of later runs may be delivered too."""
        limit, delivered = self._terms.delivery_count_max, run.delivery_count
        if limit > THROTTLED_DELIVERIES_MIN and delivered >= limit - 1:
            return (0 if self._count else 1), False
        if delivered >= self._throttle_from and not self._part_max:
            self._part_max = self._count + max(1, run.origin_size >> (delivered - self._throttle_from + 1))
        if not self._part_max:
            return size, True
        left = self._part_max - self._count
        return min(size, left), size < left

    def _take(self, run: OffsetRun) -> None:
        run.delivery_count += 1
        self._flight.set_state(run, ACQUIRED, self._member, self._terms.deadline_ms)
        self._note(run.first, run.last, run.delivery_count, is_new=False)

    def _note(self, first: int, last: int, delivery_count: int, *, is_new: bool) -> None:
        self._count += last - first + 1
        if self.taken and not is_new:
            before = self.taken[-1]
            if before.last_offset + 1 == first and before.delivery_count == delivery_count:
                self.taken[-1] = Acquired(before.first_offset, last, delivery_count)
                return
        self.taken.append(Acquired(first, last, delivery_count))
