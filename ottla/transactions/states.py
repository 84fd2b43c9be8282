"""The states of a transaction, and the allowed transitions.

Empty: no transaction. Ongoing: it has partitions. Prepare*: the outcome is logged, and markers are being written. Complete*: all partitions
have their markers. PrepareEpochFence, in Kafka a state in memory between Ongoing and PrepareAbort, is never entered here: one transition
aborts the transaction and fences the producer.

`ALLOWED` has the possible next states of each state; `metadata.move` asserts every transition. The diagram in the documentation is
generated from it.
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """The values are Kafka's names, as clients and tools show them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    # By identity, because Enum's own hash is slow.
    __hash__ = object.__hash__


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

ALLOWED: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    DEAD: frozenset(),
}

STATUS_NUMBERS: dict[TransactionState, int] = {state: number for number, state in enumerate(TransactionState)}
"""The number of each state in a record of `__transaction_state`."""
STATUS_STATES: dict[int, TransactionState] = {number: state for state, number in STATUS_NUMBERS.items()}

PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
COMPLETED = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})
EXPIRABLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""States of an id without an open transaction; such an id may expire."""
