"""Guards between asking the transaction coordinator about a batch and its append (KIP-890).

The coordinator is asked whether the partition is part of the producer's ongoing transaction. Before its answer arrives a marker may end
that transaction, and another may begin; a "yes" for the old one must not let a batch into the new one. So the request takes a guard
first, every marker deletes the producer's guards, and the first append must present a guard that is still valid. After it the transaction
is open in the partition's own state, and the coordinator is not asked again.

Of several batches in flight the first must be appended first. The log ensures that for a producer whose sequences it knows. A producer
without state may begin with any sequence, so for such a producer the guard keeps the lowest sequence that was asked about.

In a cluster the marker of the transaction before may come while the coordinator is asked about the next one: EndTxn is answered before the
markers have arrived. Then it is asked again, since whose transaction a marker has ended is not to be seen. Batches in flight are appended
in the order in which they came, whatever the order of the answers (`Line`).

Each epoch has a guard of its own: a made-up epoch must not void the guard of the current one. That is safe, since a "yes" is always about
an epoch's own transaction, and the end of that transaction brings a marker to this partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.wire.batch_header import BatchHeader

_PENDING_MAX = 10_000
_EPOCHS_MAX = 8
"""How many epochs of one producer may be asked about at once; the real ones are at most two."""


class VerificationGuard:
    """One round of asking; compared by identity."""

    __slots__ = ("lowest_sequence",)

    def __init__(self, lowest_sequence: int) -> None:
        self.lowest_sequence = lowest_sequence


class Line:
    """The batches of one producer and epoch about which the coordinator is asked, in the order in which they came: so they are appended."""

    __slots__ = ("_finishers",)

    def __init__(self) -> None:
        self._finishers: dict[object, Callable[[], bool] | None] = {}

    def __len__(self) -> int:
        return len(self._finishers)

    def join(self, batch: object) -> None:
        """A batch that is in the line already keeps its place, and waits for another answer."""
        self._finishers[batch] = None

    def answered(self, batch: object, finish: Callable[[], bool]) -> None:
        """The coordinator has answered: `finish` is called when the batches before are done, and returns whether this one is."""
        self._finishers[batch] = finish
        while self._finishers:
            first, finisher = next(iter(self._finishers.items()))
            if finisher is None or not finisher():
                return
            del self._finishers[first]


class Verifications:
    """The guards of one partition, by producer id and epoch, and the batches that wait."""

    __slots__ = ("_guards", "_lines")

    def __init__(self) -> None:
        self._guards: dict[int, dict[int, VerificationGuard]] = {}
        self._lines: dict[tuple[int, int], Line] = {}

    def is_waited_for(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether batches of this producer wait for the coordinator: later ones must not overtake them."""
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
        """The guard to show with the append; askers of the same epoch share one."""
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
        """Whether no marker was appended since this request to the coordinator began."""
        return self._guards.get(producer_id, {}).get(producer_epoch) is guard

    def check(self, header: BatchHeader, guard: VerificationGuard | None, *, has_state: bool = False) -> None:
        """Refuses the first batch of a transaction whose guard is no longer valid.

        With `has_state` the log has checked that the sequence is the next one. A lower sequence that was asked about is then a batch of an
        earlier transaction, which has arrived late on a connection that the producer has given up: it must not stop the producer.
        """
        if guard is None or not self.stands(header.producer_id, header.producer_epoch, guard):
            message = f"producer {header.producer_id} epoch {header.producer_epoch} has no verified transaction here"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
        if not has_state and header.base_sequence > guard.lowest_sequence:
            message = f"sequence {header.base_sequence} of producer {header.producer_id} before its {guard.lowest_sequence}"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def forget(self, producer_id: int) -> None:
        """Voids older answers of the coordinator, when the transaction has begun in the log or a marker has ended it."""
        self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()
        self._lines.clear()


def _make_room(asking: dict[Any, Any], most: int) -> None:
    """Drops the oldest asker, which has long given up, or asks again and is refused once."""
    if len(asking) >= most:
        del asking[next(iter(asking))]
