"""Batches of idempotent producers that were refused for a reason that passes, and those which were sent right behind them.

A producer has up to five requests under way. If a broker that is just becoming the leader refuses the first (NOT_LEADER_OR_FOLLOWER) and
leads when it reads the second, then the second is behind a gap that the broker itself has made. As OUT_OF_ORDER_SEQUENCE_NUMBER that would
mean lost data to librdkafka: it begins a new producer epoch and sends what is not acknowledged again, also to other partitions, where it
may have been appended, so that records are there twice. And as the first that a partition has of a producer it would be taken, before the
first comes again and is out of order for good. So the second is refused for the same reason as the first, and both come again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.storage.log import Log
from ottla.wire.records import BATCH_OVERHEAD, read_batch_header
from ottla.wire.schema import Buffer

PASSING = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR,
    )
)  # fmt: skip
"""Refusals after which a producer sends the same batch again; nothing was appended."""
FOLLOWERS_MAX = 4
"""So many requests of an idempotent producer can be under way behind another (`max.in.flight.requests.per.connection` is at most 5)."""
PRODUCERS_MAX = 1_000
"""So many producers, each in one partition, are remembered; the oldest is dropped."""


class _Key(NamedTuple):
    partition: TopicPartition
    producer_id: int
    producer_epoch: int


class _Refused(NamedTuple):
    sequence: int
    code: ErrorCode
    followers: int
    """How many batches behind it may still be refused for its reason."""


class BehindRefusedError(ApiError):
    """A batch is refused since one before it was; this is not remembered, so that it ends."""


class RefusedBatches:
    """See the module."""

    def __init__(self) -> None:
        self.by_producer: dict[_Key, _Refused] = {}

    def __len__(self) -> int:
        return len(self.by_producer)

    def remember(self, partition: TopicPartition, records: Buffer | None, error: ApiError) -> None:
        """A batch was refused and not appended."""
        if error.code not in PASSING or isinstance(error, BehindRefusedError):
            return
        if records is None or len(memoryview(records)) < BATCH_OVERHEAD:
            return
        header = read_batch_header(records, 0)
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        key = _Key(partition, header.producer_id, header.producer_epoch)
        known = self.by_producer.pop(key, None)
        sequence = header.base_sequence if known is None else min(known.sequence, header.base_sequence)
        self.by_producer[key] = _Refused(sequence, error.code, FOLLOWERS_MAX)
        if len(self.by_producer) > PRODUCERS_MAX:
            del self.by_producer[next(iter(self.by_producer))]

    def check(self, log: Log, records: Buffer, *, is_out_of_order: bool) -> None:
        """Raises `BehindRefusedError` if one before it was refused a moment ago, and the log has refused it as out of order or would take
        it as the first of its producer."""
        if not self.by_producer or len(memoryview(records)) < BATCH_OVERHEAD:
            return
        header = read_batch_header(records, 0)
        key = _Key(log.topic_partition, header.producer_id, header.producer_epoch)
        known = self.by_producer.get(key)
        if known is None or header.base_sequence <= known.sequence:
            return
        if not is_out_of_order and log.producers.get(header.producer_id) is not None:
            return
        if known.followers > 1:
            self.by_producer[key] = known._replace(followers=known.followers - 1)
        else:
            del self.by_producer[key]
        raise BehindRefusedError(known.code, f"the batch of sequence {known.sequence} was refused a moment ago")
