"""Reports the outcome of each batch of a producer once: to the program's function `on_delivery`, or by raising its error.

Only this module calls `on_delivery`. If that function raises, the other batches are still reported, and `raise_failure` raises the first
exception. Without a function, `raise_failure` raises the first error of a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.send_queue import BatchOutcome
from ottla.client.errors import ClientError
from ottla.wire.records import Record


class Delivery(NamedTuple):
    """The result of a batch: the offset of its first record (-1: unknown), or the error. The records may have been appended in spite of the
    error, unless the only attempt was refused permanently.
    """

    partition: TopicPartition
    base_offset: int
    records: Sequence[Record]
    error: ClientError | None


class Deliveries:
    """See the module. `SendQueue` appends the outcomes of batches to `ended`."""

    def __init__(self, ended: deque[BatchOutcome], on_delivery: Callable[[Delivery], object] | None) -> None:
        self.on_delivery = on_delivery
        self.delivered = 0
        self._ended = ended
        self._is_reporting = False
        self._failure: Exception | None = None

    def report(self) -> None:
        """Reports the outcomes in `ended`. If `on_delivery` itself calls the producer, the reports wait until it returns."""
        if self._is_reporting:
            return
        self._is_reporting = True
        try:
            while self._ended:
                self._report_first()
        finally:
            self._is_reporting = False

    def _report_first(self) -> None:
        """Reports the first outcome. Python runs signal handlers only at calls, so none runs between the removal of the outcome and the
        call of `on_delivery`."""
        batch, base_offset, error = self._ended[0]
        delivery = Delivery(batch.partition, base_offset, batch.records, error)
        try:
            if error is None:
                self.delivered += batch.count
            elif self.on_delivery is None:
                self._failure = self._failure or error
            del self._ended[0]
            if self.on_delivery is not None:
                self.on_delivery(delivery)
        except Exception as failure:  # the program's own
            self._failure = self._failure or failure

    def raise_failure(self) -> None:
        """Reports the outcomes in `ended`, and raises the first kept exception once."""
        self.report()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def forget_failure(self) -> None:
        """Reports the outcomes in `ended` and forgets a kept ClientError, because the caller knows why the batches failed."""
        self.report()
        if isinstance(self._failure, ClientError):
            self._failure = None
