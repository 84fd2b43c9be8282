"""Fills offsets without a record at the target: each marker of an empty, aborted transaction takes one offset, and no reader sees it.

The mirror has a transactional id for each topic. A new run of the mirror initializes the id, which ends the transaction of a killed run.
The marker of that transaction is therefore in the log before the new run asks where the log ends.
"""

from __future__ import annotations

import time

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.blocking.transaction import Transaction
from ottla.client.core.admin import LATEST
from ottla.client.errors import KafkaError
from ottla.cloning.plan import CloneError

OFFSETS_MAX = 10_000
"""Largest gap that is filled. Each offset takes a transaction, about 5 ms: more would take minutes, or hours for a compacted topic."""
MARKER_SECONDS_MAX = 30.0
POLL_SECONDS = 0.005


class GapFiller:
    """The transactions of one target."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._transactions: dict[str, Transaction] = {}

    def settle(self, partition: TopicPartition) -> None:
        """Ends an open transaction of an earlier run, and fences that run. Raises `ClientError`."""
        self._transactions.pop(partition.topic, None)
        self._transaction(partition.topic)

    def fill(self, partition: TopicPartition, begin: int, end: int) -> None:
        """Fills the offsets from `begin`, where the log ends, up to `end`. Raises `CloneError` for a large gap, and `ClientError`."""
        if end - begin > OFFSETS_MAX:
            raise CloneError(
                f"{partition} has no records from offset {begin} to {end}, and no more than {OFFSETS_MAX:,} offsets can be filled; "
                "mirror it to Ottla, or copy its records with new offsets"
            )
        transaction = self._transaction(partition.topic)
        for offset in range(begin, end):
            transaction.begin()
            transaction.add_partitions([partition])
            transaction.abort()
            self._await_end(partition, offset + 1)

    def _transaction(self, topic: str) -> Transaction:
        known = self._transactions.get(topic)
        if known is None:
            known = self._client.transaction(f"ottla-mirror-{topic}-gaps", may_use_v2=False)
            known.initialize()
            self._transactions[topic] = known
        return known

    def _await_end(self, partition: TopicPartition, end: int) -> None:
        deadline = time.monotonic() + MARKER_SECONDS_MAX
        while (found := self._end(partition)) < end:
            if time.monotonic() > deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{partition} of the target got no marker at offset {end - 1}")
            time.sleep(POLL_SECONDS)
        if found > end:
            raise CloneError(f"{partition} of the target ends at offset {found} and not at {end}: someone else writes to it")

    def _end(self, partition: TopicPartition) -> int:
        return self._client.list_offsets({partition: LATEST}, isolation="read_uncommitted")[partition].offset
