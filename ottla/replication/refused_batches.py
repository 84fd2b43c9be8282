"""Remembers batches of idempotent producers that were refused with a retriable error. The batches that the producer sent after a refused
one are refused with the same error.

A producer has up to five requests in flight. A broker may refuse the first (NOT_LEADER_OR_FOLLOWER) and become the leader before it reads
the second. The second batch then follows a gap that the broker itself caused. OUT_OF_ORDER_SEQUENCE_NUMBER would mean lost data to
librdkafka: it begins a new producer epoch and sends all unacknowledged batches again, also to other partitions. A batch that another
partition has already appended would then be duplicated. If the partition does not know the producer, it would accept the second batch, and
the first would be out of order forever. Therefore the second batch is refused with the error of the first, and the producer sends both
again.
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
"""Errors after which a producer sends the same batch again; nothing was appended."""
FOLLOWERS_MAX = 4
"""Requests of an idempotent producer that may be in flight behind another (`max.in.flight.requests.per.connection` is at most 5)."""
PRODUCERS_MAX = 1_000
"""Remembered producers, counted per partition; the oldest is dropped."""


class _Key(NamedTuple):
    """The producer of a refused batch."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int


class _Refused(NamedTuple):
    """The lowest refused sequence of a producer, and the error of the latest refusal."""

    sequence: int
    code: ErrorCode
    followers: int
    """The number of following batches that may still be refused with its error."""


class BehindRefusedError(ApiError):
    """A batch is refused because an earlier one was refused. This refusal is not remembered, so that the refusals end."""


class RefusedBatches:
    """See the module."""

    def __init__(self) -> None:
        self.by_producer: dict[_Key, _Refused] = {}

    def __len__(self) -> int:
        return len(self.by_producer)

    def remember(self, partition: TopicPartition, records: Buffer | None, error: ApiError) -> None:
        """Remembers a batch that was refused with a retriable error."""
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
        """Raises `BehindRefusedError` if a batch with a lower sequence was refused, and this batch is out of order or its producer is
        unknown here.
        """
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
        raise BehindRefusedError(known.code, f"the batch of sequence {known.sequence} was refused before it")
