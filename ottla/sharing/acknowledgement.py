"""Acknowledgements of members: checks them and plans the changes of the records' states.

Accepted records become acknowledged. Rejected records and gaps (offsets without a record) become archived. Released records become
available again. If their delivery count has reached its limit, released records become archived, except records that their owner has
accepted in a failed write. If the group has a dead-letter topic, these and the rejected records become archiving instead, until they were
copied (`dead_letters.py`). A renewal (KIP-1222) changes no state: it restarts the time of the lock.

The acknowledgements of a request for one partition are all checked before any takes effect. If one is impossible, all are refused. The code
is INVALID_RECORD_STATE if the member has not acquired the record or has acknowledged it already, if nothing is in flight, or if the group
allows no renewals. It is INVALID_REQUEST for offsets after the records in flight. Offsets before the records in flight are ignored.

`check` does the checks that need no state; callers use it first. `share_partition.py` makes the changes durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import DeliveryState
from ottla.sharing.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, InFlight, OffsetRun

GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

OUTCOMES = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class Acknowledgement(NamedTuple):
    """The acknowledgement of the offsets from `first` to `last`: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Rules(NamedTuple):
    """The settings of a group for acknowledgements."""

    delivery_count_max: int
    may_renew: bool
    has_dead_letters: bool = False


def check(acknowledgements: Sequence[Acknowledgement], is_renewing: bool) -> None:
    """Raises INVALID_REQUEST for acknowledgements that are invalid whatever the records' state."""
    before = -1
    for first, last, types in acknowledgements:
        if first > last:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the first offset {first} is above the last offset {last}")
        if first < before:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the batch from offset {first} on begins before the end of the batch before it")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(types)} acknowledge types for the offsets {first} to {last}")
        largest = max(types)
        if min(types) < GAP or largest > RENEW:
            raise ApiError(ErrorCode.INVALID_REQUEST, "an acknowledge type is unknown")
        if largest == RENEW and not is_renewing:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request renews a lock, but its field IsRenewAck is false")
        before = last


def ranges(acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, int]]:
    """Yields (first, last, type) of each run of offsets with the same type."""
    first, last, types = acknowledgement
    if len(types) == 1:
        yield first, last, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield first + begin, first + at - 1, types[begin]
            begin = at


def plan(
    flight: InFlight, member: str, acknowledgements: Sequence[Acknowledgement], rules: Rules, deadline_ms: int
) -> tuple[list[OffsetRun], list[OffsetRun]]:
    """Sets the target state of the acknowledged runs. Returns these runs, and the runs whose lock is renewed. Changes nothing if it raises
    `ApiError`."""
    changing: list[OffsetRun] = []
    renewed: list[OffsetRun] = []
    try:
        for acknowledgement in acknowledgements:
            _plan_one(flight, member, acknowledgement, rules, changing, renewed)
    except ApiError:
        for run in changing:
            run.target = None
        raise
    for run in renewed:
        run.deadline_ms = deadline_ms
    return changing, renewed


def _plan_one(
    flight: InFlight, member: str, acknowledgement: Acknowledgement, rules: Rules, changing: list[OffsetRun], renewed: list[OffsetRun]
) -> None:
    if acknowledgement.last < flight.start:
        return  # the offsets are before the records in flight
    if acknowledgement.last >= flight.end:
        code = ErrorCode.INVALID_REQUEST if flight.runs else ErrorCode.INVALID_RECORD_STATE
        raise ApiError(code, f"offset {acknowledgement.last} was not handed out yet")
    for first, last, kind in ranges(acknowledgement):
        if last < flight.start:
            continue
        first = max(first, flight.start)
        index = flight.index_of(first)
        while index < len(flight.runs) and flight.runs[index].first <= last:
            run = flight.runs[index]
            if run.state is not ACQUIRED or run.member != member or run.target is not None:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"{member} has not acquired the offsets {run.first} to {run.last}")
            index = flight.isolate(index, first, last)
            run = flight.runs[index]
            if kind != RENEW:
                run.target = outcome(run, kind, rules)
                run.was_rejected = kind == REJECT
                changing.append(run)
            elif rules.may_renew:
                renewed.append(run)
            else:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, "the group does not allow its members to renew locks")
            index += 1


def outcome(run: OffsetRun, kind: int, rules: Rules) -> DeliveryState:
    state = OUTCOMES[kind]
    is_spent = run.delivery_count >= rules.delivery_count_max and not run.was_accepted
    if kind == REJECT or (state is AVAILABLE and is_spent):
        return ARCHIVING if rules.has_dead_letters else ARCHIVED
    return state


def plan_release(flight: InFlight, members: frozenset[str], rules: Rules) -> list[OffsetRun]:
    """Plans the release of all records that these members have acquired and not acknowledged; returns their runs."""
    held = [run for run in flight.runs if run.state is ACQUIRED and run.member in members and run.target is None]
    for run in held:
        run.target = outcome(run, RELEASE, rules)
        run.was_rejected = False
    return held
