"""May a transactional batch begin to write here? The guard between asking the coordinator and the first append (KIP-890).

The coordinator is asked whether the partition is part of the producer's ongoing transaction. While the answer is on its way a marker
may end that transaction, and another may begin; a "yes" for the old one must not let a batch into the new one. So whoever asks takes a
guard first, every marker throws the producer's guard away, and the first append must show the guard that still stands. After it the
transaction is open in the partition's own state and nobody need ask again. The lowest sequence seen by askers is kept, so that of
several batches in flight the first is appended first.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.wire.batch_header import BatchHeader

_PENDING_MAX = 10_000


class VerificationGuard:
    """One round of asking; compared by identity."""

    __slots__ = ("lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, lowest_sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence


class Verifications:
    """The guards of one partition, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int) -> VerificationGuard:
        """The guard to show with the append; askers of the same epoch share one."""
        guard = self._guards.get(producer_id)
        if guard is None or guard.producer_epoch < producer_epoch:
            if len(self._guards) >= _PENDING_MAX:
                # The oldest asker has long given up, or asks again and is refused once.
                del self._guards[next(iter(self._guards))]
            guard = self._guards[producer_id] = VerificationGuard(producer_epoch, base_sequence)
        elif guard.producer_epoch == producer_epoch and base_sequence < guard.lowest_sequence:
            guard.lowest_sequence = base_sequence
        return guard

    def stands(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> bool:
        """No marker has come since this round of asking began, and no later epoch asks."""
        return self._guards.get(producer_id) is guard and guard.producer_epoch == producer_epoch

    def check(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Refuses the first batch of a transaction whose guard does not stand any more."""
        standing = self._guards.get(header.producer_id)
        if guard is None or guard is not standing or guard.producer_epoch != header.producer_epoch:
            message = f"producer {header.producer_id} epoch {header.producer_epoch} has no verified transaction here"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
        if header.base_sequence > guard.lowest_sequence:
            message = f"sequence {header.base_sequence} of producer {header.producer_id} before its {guard.lowest_sequence}"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def forget(self, producer_id: int) -> None:
        """The transaction has begun in the log, or a marker has ended it: older answers of the coordinator are void."""
        self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()
