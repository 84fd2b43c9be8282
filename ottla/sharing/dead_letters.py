"""Dead letters (KIP-1191): records that a share group gives up, and that are copied to the group's dead-letter topic.

A record becomes a dead letter if a member rejects it, or if it is released after its last delivery, and the group names a dead-letter
topic. Its state becomes ARCHIVING. When this state is stored, the share partition has the record copied; when the copy is written, or was
given up, the state becomes ARCHIVED. If a leader dies between the two, the records stay ARCHIVING. The next leader copies them again, so
each dead letter is copied at least once.

A share partition copies one run at a time. Its other dead letters wait in the records in flight, so they need no queue.
`handlers/share_groups/dead_letters.py` makes the copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.share_state import SharePartitionKey
from ottla.sharing.in_flight import ARCHIVED, ARCHIVING, InFlight, OffsetRun


class DeadLetters(NamedTuple):
    """Consecutive dead letters of a share partition, first to last offset, which are given up for the same reason. `leader_epoch` is the
    epoch of the share partition's leader."""

    key: SharePartitionKey
    leader_epoch: int
    first_offset: int
    last_offset: int
    delivery_count: int
    was_rejected: bool


class DeadLetterCounts:
    """The numbers of dead letters that a broker has copied, and archived without a copy, since it has started."""

    __slots__ = ("copied", "given_up")

    def __init__(self) -> None:
        self.copied = 0
        self.given_up = 0


Copied = Callable[[bool], None]
"""Called with True when the records may be archived: they were copied, or the copy was given up. Called with False if this broker does not
lead the partition any more, so that the next leader copies them."""

CopyDeadLetters = Callable[[DeadLetters, Copied], None]
"""Copies dead letters to the group's dead-letter topic. Calls back once, now or later."""


def no_dead_letter_topics(_letters: DeadLetters, done: Copied) -> None:
    """Copies nothing, because no group has a dead-letter topic."""
    done(True)


def first_run(flight: InFlight) -> OffsetRun | None:
    """Returns the first run of dead letters whose state is stored; None if there is none."""
    if not flight.archiving_count:
        return None
    return next(run for run in flight.runs if run.state is ARCHIVING)


def are_pending(flight: InFlight) -> bool:
    """Whether there are dead letters, including those with a state that is not stored yet."""
    return bool(flight.archiving_count) or any(run.target is ARCHIVING for run in flight.runs)


def plan_archiving(flight: InFlight, letters: DeadLetters) -> list[OffsetRun]:
    """Marks these dead letters as copied, and plans that they become archived; returns their runs. Some may be below the log's start by
    now."""
    first, last = max(letters.first_offset, flight.start), letters.last_offset
    changing: list[OffsetRun] = []
    if last < first or first >= flight.end:
        return changing
    index = flight.index_of(first)
    while index < len(flight.runs) and flight.runs[index].first <= last:
        if flight.runs[index].state is ARCHIVING:
            index = flight.isolate(index, first, last)
            run = flight.runs[index]
            run.target, run.is_copied = ARCHIVED, True
            changing.append(run)
        index += 1
    return changing
