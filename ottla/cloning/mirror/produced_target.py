"""A cluster of any Kafka as the target of a mirror: the mirror produces the source's committed records, with the same offsets. Kafka's
protocol has no request that appends batches at given offsets. The offsets are therefore equal only if every offset of the source takes one
offset at the target. A record takes one. For an offset without a committed record (a marker, an aborted or compacted record), the mirror
ends an empty transaction. Its marker takes one offset, and no reader sees it (`gap_filler.py`).

No batch is appended twice or at a wrong offset, whatever is killed. Each run of the mirror gets the same producer id, through a
transactional id, and continues its sequence numbers. A leader accepts a batch only if its sequence follows the producer's last batch. A
late request of a killed mirror is therefore refused, or it is the batch that the new mirror would send. A run waits until the last sequence
number that the leader knows is below the high watermark, so it does not miss a batch that is not replicated yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.base.errors import ErrorCode
from ottla.base.types import NO_LEADER_EPOCH, TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.admin import EARLIEST, LATEST
from ottla.client.core.fetching import Fetched
from ottla.client.core.transaction_admin import describe_producers
from ottla.client.errors import FencedError, KafkaError
from ottla.cloning.mirror.comparing import check_is_prefix
from ottla.cloning.mirror.gap_filler import GapFiller
from ottla.cloning.mirror.target import MirroredTopic, Outcome, Position, found_or_created
from ottla.cloning.plan import CloneError
from ottla.wire.batch_header import (
    ATTRIBUTES_AT,
    DELETE_HORIZON_BIT,
    SEQUENCE_MASK,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    set_base_offset,
    set_leader_epoch,
    stamp_producer,
)
from ottla.wire.records import Record, encode_batch, iter_records

EPOCH = 0
SETTLE_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05
LOOK_BACK = (1, 64, 4096, 262_144)
"""How many offsets before the end the last batch of this producer is looked for."""
MOVED = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH))


class ProducedTarget:
    """See the module."""

    isolation = "read_committed"
    is_exact = False
    omitted_settings = frozenset(("message.timestamp.type",))
    """With LogAppendTime the target would replace the source's times."""

    def __init__(self, source: Client, client: Client, *, replication_factor: int) -> None:
        self._source = source
        self._client = client
        self._replication_factor = replication_factor
        self._producer_ids: dict[str, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._gaps = GapFiller(client)

    def prepare(self, topic: MirroredTopic, settings: Mapping[str, str], leader_epoch: int) -> None:
        found = found_or_created(self._client, topic, settings, self._replication_factor)
        if found is not None:
            check_is_prefix(self._source, self._client, topic.partitions[: len(found.partitions)])
        identity = self._client.transaction(f"ottla-mirror-{topic.name}", may_use_v2=False)
        identity.initialize()
        self._producer_ids[topic.name] = identity.producer_id

    def positions(
        self, topics: Mapping[str, MirroredTopic], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position | KafkaError]:
        found: dict[TopicPartition, Position | KafkaError] = {}
        for partition in partitions:
            try:
                self._gaps.settle(partition)
                found[partition] = Position(self._settled_end(partition))
            except FencedError:
                raise CloneError(f"another mirror writes {partition.topic!r} to this target") from None
            except KafkaError as error:
                found[partition] = error
        return found

    def append(self, topics: Mapping[str, MirroredTopic], fetched: Sequence[Fetched]) -> dict[TopicPartition, Outcome]:
        found: dict[TopicPartition, Outcome] = {}
        for one in fetched:
            try:
                self._append(one)
                found[one.partition] = Outcome(one.next_offset)
            except CloneError as failure:
                found[one.partition] = Outcome(failure=failure)
            except FencedError:
                found[one.partition] = Outcome(failure=CloneError(f"another mirror writes {one.partition.topic!r} to this target"))
            except KafkaError as error:
                if error.code in MOVED or error.is_retriable:
                    found[one.partition] = Outcome(error=error)
                else:
                    found[one.partition] = Outcome(failure=CloneError(f"the target refuses records of {one.partition}: {error}"))
        return found

    def restart(self, topic: MirroredTopic, partition: TopicPartition, end: int, start: int) -> Outcome:
        self._gaps.fill(partition, end, start)
        self._client.delete_records({partition: start})
        return Outcome(start)

    def raise_epoch(self, topic: MirroredTopic, leader_epoch: int) -> None:
        """Does nothing: Kafka's leader epochs cannot be set."""

    def is_graduated(self, topic: MirroredTopic) -> bool:
        """Returns False: a topic of Kafka is always writable for every principal with permission."""
        return False

    def graduate(self, topic: MirroredTopic) -> None:
        """Does nothing, for the same reason."""

    # Appending

    def _append(self, fetched: Fetched) -> None:
        """Appends runs of records without gaps, and fills the gaps between them and after them."""
        end, ready = fetched.start, list[bytearray]()
        ready_from = end
        for base, batch, count in self._runs(fetched):
            if base > end:
                self._produce(fetched.partition, ready_from, ready)
                self._gaps.fill(fetched.partition, end, base)
                ready, ready_from = [], base
            ready.append(batch)
            end = base + count
        self._produce(fetched.partition, ready_from, ready)
        if fetched.next_offset > end:
            self._gaps.fill(fetched.partition, end, fetched.next_offset)

    def _runs(self, fetched: Fetched) -> Iterator[tuple[int, bytearray, int]]:
        """Yields (first offset, batch, number of records) for records without a gap between them, ready to be produced."""
        for header, data in fetched.batches:
            if header.base_offset >= fetched.start and _is_plain(header):
                yield header.base_offset, self._stamped(fetched.partition, _cleared(data), header.record_count), header.record_count
                continue
            records = [record for record in iter_records(data) if record.offset >= fetched.start]
            for run in _without_gaps(records):
                batch = encode_batch(run, base_offset=0, codec=header.codec)
                yield run[0].offset, self._stamped(fetched.partition, batch, len(run)), len(run)

    def _stamped(self, partition: TopicPartition, batch: bytearray, count: int) -> bytearray:
        sequence = self._sequences[partition]
        self._sequences[partition] = (sequence + count) & SEQUENCE_MASK
        stamp_producer(
            batch, 0, len(batch), producer_id=self._producer_ids[partition.topic], producer_epoch=EPOCH, base_sequence=sequence,
            is_transactional=False,
        )  # fmt: skip
        return batch

    def _produce(self, partition: TopicPartition, offset: int, batches: Sequence[bytearray]) -> None:
        if not batches:
            return
        at = self._client.produce_batches({partition: batches})[partition]
        if at not in (offset, -1):
            raise CloneError(
                f"{partition}: records of offset {offset} have offset {at} at the target; someone else writes to it, or has written"
            )

    # The end of the target

    def _settled_end(self, partition: TopicPartition) -> int:
        """Waits until no earlier request of this producer can still be appended. Then returns the end of the log, and sets the next
        sequence number. Raises `KafkaError` REQUEST_TIMED_OUT if a batch that the leader knows does not become visible.
        """
        producer_id, deadline = self._producer_ids[partition.topic], time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < deadline:
            known = self._known_sequence(partition, producer_id)
            end = self._client.list_offsets({partition: LATEST}, isolation="read_uncommitted")[partition].offset
            visible = self._visible_sequence(partition, producer_id, end)
            if known in (None, visible):
                self._sequences[partition] = 0 if visible is None else (visible + 1) & SEQUENCE_MASK
                return end
            time.sleep(POLL_SECONDS)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{partition} of the target has batches that its replicas do not confirm")

    def _known_sequence(self, partition: TopicPartition, producer_id: int) -> int | None:
        found = describe_producers(self._client.cluster, [partition])[partition]
        if isinstance(found, KafkaError):
            raise found
        return next((one.last_sequence for one in found if one.producer_id == producer_id and one.last_sequence >= 0), None)

    def _visible_sequence(self, partition: TopicPartition, producer_id: int, end: int) -> int | None:
        start = self._client.list_offsets({partition: EARLIEST})[partition].offset
        for offsets in LOOK_BACK:
            begin, last = max(start, end - offsets), None
            for fetched in self._client.read(partition, begin, end, isolation="read_uncommitted") if begin < end else ():
                for header, _ in fetched.batches:
                    if header.producer_id == producer_id and header.base_offset < end:
                        last = header.last_sequence
            if last is not None or begin == start:
                return last
        return None


def _is_plain(header: BatchHeader) -> bool:
    """Whether the batch can be sent with a changed header: no record is missing, and the records have their own timestamps."""
    return header.record_count == header.last_offset_delta + 1 and not header.attributes & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT)


def _cleared(data: Buffer) -> bytearray:
    """Returns a copy of the batch as a producer sends it: without offset, leader epoch and transaction."""
    batch = bytearray(data)
    set_base_offset(batch, 0, 0)
    set_leader_epoch(batch, 0, NO_LEADER_EPOCH)
    batch[ATTRIBUTES_AT + 1] &= ~TRANSACTIONAL_BIT & 0xFF
    return batch


def _without_gaps(records: Sequence[Record]) -> Iterator[list[Record]]:
    run: list[Record] = []
    for record in records:
        if run and record.offset != run[-1].offset + 1:
            yield run
            run = []
        run.append(record)
    if run:
        yield run
