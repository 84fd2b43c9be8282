"""Verification guards: protect the append of a batch while the transaction coordinator is asked about it (KIP-890).

The coordinator is asked whether the partition is in the producer's ongoing transaction. Before it answers, a marker may end that
transaction and the next one may begin; a "yes" for the old one must not admit a batch into the new one. The request therefore takes a guard
first, every marker deletes the producer's guards, and the first append must present a valid guard. After that append the transaction is
open in the partition's own state, and the coordinator is not asked again.

Of several batches in flight the first must be appended first. The log ensures that for a producer whose sequences it knows. A producer
without state may begin with any sequence; for it the guard keeps the lowest sequence that was asked about.

In a cluster the marker of the previous transaction may arrive while the coordinator is asked about the next one, because EndTxn is answered
before the markers are written. The coordinator is then asked again, because a marker does not say which transaction it ended. Batches in
flight are appended in the order of arrival, whatever the order of the answers (`Line`).

Each epoch has its own guard, so that an invented epoch does not delete the guard of the real one. This is safe: a "yes" concerns the
transaction of one epoch, and the end of that transaction writes a marker to this partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.wire.batch_header import BatchHeader

_PENDING_MAX = 10_000
_EPOCHS_MAX = 8
"""Maximum number of epochs of one producer in verification at a time. A correct producer uses at most two."""


class VerificationGuard:
    """One verification; compared by identity."""

    __slots__ = ("lowest_sequence",)

    def __init__(self, lowest_sequence: int) -> None:
        self.lowest_sequence = lowest_sequence


class Line:
    """The batches of one producer and epoch in verification. They are appended in the order of arrival."""

    __slots__ = ("_finishers",)

    def __init__(self) -> None:
        self._finishers: dict[object, Callable[[], bool] | None] = {}

    def __len__(self) -> int:
        return len(self._finishers)

    def join(self, batch: object) -> None:
        """Adds a batch. A batch that is in the line already keeps its position and waits for another answer."""
        self._finishers[batch] = None

    def answered(self, batch: object, finish: Callable[[], bool]) -> None:
        """Records the coordinator's answer. `finish` is called when all earlier batches are done; it returns whether this batch is done."""
        self._finishers[batch] = finish
        while self._finishers:
            first, finisher = next(iter(self._finishers.items()))
            if finisher is None:
                return
            self._finishers[first] = None  # `finisher` may cause answers to other batches, which must not call it again
            if finisher():
                del self._finishers[first]


class Verifications:
    """The guards of one partition by producer id and epoch, and the waiting batches."""

    __slots__ = ("_guards", "_lines")

    def __init__(self) -> None:
        self._guards: dict[int, dict[int, VerificationGuard]] = {}
        self._lines: dict[tuple[int, int], Line] = {}

    def is_waited_for(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether batches of this producer wait for the coordinator, so that later ones must wait too."""
        return bool(self._lines and self._lines.get((producer_id, producer_epoch)))

    def line(self, producer_id: int, producer_epoch: int) -> Line:
        key = (producer_id, producer_epoch)
        line = self._lines.get(key)
        if line is None:
            _make_room(self._lines, _PENDING_MAX)
            line = self._lines[key] = Line()
        return line

    def forget_line_if_empty(self, producer_id: int, producer_epoch: int) -> None:
        line = self._lines.get((producer_id, producer_epoch))
        if line is not None and not line:
            del self._lines[producer_id, producer_epoch]

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int) -> VerificationGuard:
        """Returns the guard for the append; requests of the same epoch share one."""
        guards = self._guards.get(producer_id)
        if guards is None:
            _make_room(self._guards, _PENDING_MAX)
            guards = self._guards[producer_id] = {}
        guard = guards.get(producer_epoch)
        if guard is None:
            _make_room(guards, _EPOCHS_MAX)
            guard = guards[producer_epoch] = VerificationGuard(base_sequence)
        elif base_sequence < guard.lowest_sequence:
            guard.lowest_sequence = base_sequence
        return guard

    def stands(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> bool:
        """Whether `guard` is still registered: since it was created, no marker and no first batch of a transaction of this producer was
        appended, and it was not evicted.
        """
        return self._guards.get(producer_id, {}).get(producer_epoch) is guard

    def check(self, header: BatchHeader, guard: VerificationGuard | None, *, has_state: bool = False) -> None:
        """Raises `ApiError` for the first batch of a transaction without a valid guard, or with a sequence above one that was asked about.

        With `has_state` the log has checked that the sequence is the next one. A lower sequence in the guard then belongs to a late batch
        of an earlier transaction, on a connection that the producer has abandoned. The late batch must not block the producer.
        """
        if guard is None or not self.stands(header.producer_id, header.producer_epoch, guard):
            message = f"producer {header.producer_id} epoch {header.producer_epoch} has no verified transaction here"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
        if not has_state and header.base_sequence > guard.lowest_sequence:
            message = f"sequence {header.base_sequence} of producer {header.producer_id} before its {guard.lowest_sequence}"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def forget(self, producer_id: int) -> None:
        """Deletes the producer's guards, so that older answers of the coordinator are ignored. Called when the first batch of a transaction
        has passed its checks, and when a marker ends the transaction.
        """
        self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()
        self._lines.clear()


def _make_room(asking: dict[Any, Any], most: int) -> None:
    """Drops the oldest entry if there are `most`. A request that waits with a dropped guard asks the coordinator again. Batches of a
    dropped line are no longer ordered with later batches."""
    if len(asking) >= most:
        del asking[next(iter(asking))]
