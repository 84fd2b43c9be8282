"""A share session with one broker (KIP-932): its partitions, the acquired records, and their acknowledgements.

Each request of a session raises its epoch by one. A request with epoch 0 begins the session with all partitions. Later requests name only
added and removed partitions, and partitions with acknowledgements. Epoch -1 ends the session, and the broker releases the unacknowledged
records. An acquired record is in `open` until a request acknowledges it. Until the answer arrives, the offsets of that request are in
`sent`. If the session is lost, other members get all these records, except records with an applied acknowledgement. This module does no
I/O: `share_consumer.py` sends the requests and passes in the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.base.errors import WireError
from ottla.base.types import TopicPartition
from ottla.base.uuids import Uuid
from ottla.wire.batch_header import MAGIC, BatchHeader, check_crc, iter_batches
from ottla.wire.messages import share_acknowledge, share_fetch
from ottla.wire.records import Record, iter_records

GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

FIRST_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF

BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1


class AcquiredRecord(NamedTuple):
    """A record that is acquired until it is acknowledged or its lock times out. `number` is its delivery count, from 1."""

    partition: TopicPartition
    header: BatchHeader
    record: Record
    number: int


class ShareFetchLimits(NamedTuple):
    """The limits of a ShareFetch (records, bytes, milliseconds) and its acquire mode."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    acquire_mode: int


class Run(NamedTuple):
    """Consecutive acknowledged offsets, both ends included. `kinds` has one acknowledgement for all of them, or one for each."""

    first: int
    last: int
    kinds: list[int]

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class ConsumerShareSession:
    """See the module."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = FIRST_EPOCH
        self.partitions: dict[TopicPartition, Uuid] = {}
        self.open: dict[TopicPartition, dict[int, int | None]] = {}
        """The acquired records by offset, each with its unsent acknowledgement, or None."""
        self.sent: dict[TopicPartition, list[Run]] = {}
        """The acknowledgements in the request in flight."""
        self._ids: dict[TopicPartition, Uuid] = {}
        self._names: dict[tuple[Uuid, int], TopicPartition] = {}

    def reset(self) -> None:
        """Prepares a new session after the broker dropped the old one or its connection was lost. No record remains acquired."""
        self.epoch = FIRST_EPOCH
        self.partitions.clear()
        self.open.clear()

    def acknowledged(self) -> list[TopicPartition]:
        return [partition for partition, held in self.open.items() if any(kind is not None for kind in held.values())]

    def has_renewals(self) -> bool:
        return any(kind == RENEW for held in self.open.values() for kind in held.values())

    def acknowledge(self, partition: TopicPartition, offset: int, kind: int) -> bool:
        """Notes the acknowledgement of a record. Returns False if the record is no longer acquired."""
        held = self.open.get(partition)
        if held is None or offset not in held:
            return False
        held[offset] = kind
        return True

    def accept_all(self) -> None:
        for held in self.open.values():
            for offset, kind in held.items():
                if kind is None:
                    held[offset] = ACCEPT

    # Requests

    def fetch_request(self, wanted: Mapping[TopicPartition, Uuid], limits: ShareFetchLimits) -> share_fetch.ShareFetchRequest:
        """Makes a request that fetches `wanted` and carries all unsent acknowledgements, which must be of these partitions.
        `acknowledge_request` is for others.
        """
        self._learn(wanted)
        sent = self._take_acknowledgements()
        assert self.epoch != FIRST_EPOCH or not sent, "a session cannot begin with acknowledgements"
        named = [partition for partition in wanted if partition in sent or partition not in self.partitions]
        gone = [partition for partition in self.partitions if partition not in wanted]
        request = share_fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=limits.acquire_mode,
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=one.partition,
                            acknowledgement_batches=[
                                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                                for first, last, kinds in sent.get(one, ())
                            ],
                        )
                        for one in some
                    ],
                )
                for topic_id, some in self._by_topic(named).items()
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[one.partition for one in some])
                for topic_id, some in self._by_topic(gone).items()
            ],
        )
        self.partitions = dict(wanted)
        self._advance()
        return request

    def acknowledge_request(self, *, is_final: bool = False) -> share_acknowledge.ShareAcknowledgeRequest:
        """Makes a request with all unsent acknowledgements. With `is_final` it also ends the session."""
        is_renewal = self.has_renewals()
        sent = self._take_acknowledgements()
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=FINAL_EPOCH if is_final else self.epoch,
            is_renew_ack=is_renewal,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=one.partition,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                                for first, last, kinds in sent[one]
                            ],
                        )
                        for one in some
                    ],
                )
                for topic_id, some in self._by_topic(sent).items()
            ],
        )
        self._advance()
        return request

    def _advance(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def _learn(self, wanted: Mapping[TopicPartition, Uuid]) -> None:
        for partition, topic_id in wanted.items():
            self._ids[partition] = topic_id
            self._names[topic_id, partition.partition] = partition

    def _by_topic(self, partitions: Iterable[TopicPartition]) -> dict[Uuid, list[TopicPartition]]:
        found: dict[Uuid, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            found.setdefault(self._ids[partition], []).append(partition)
        return found

    def _take_acknowledgements(self) -> dict[TopicPartition, list[Run]]:
        """Moves the unsent acknowledgements to `sent`, as runs of offsets. Of the acknowledged records, only renewed ones stay in
        `open`.
        """
        sent = {}
        for partition, held in self.open.items():
            kinds = sorted((offset, kind) for offset, kind in held.items() if kind is not None)
            if kinds:
                sent[partition] = list(_runs(kinds))
                for offset, kind in kinds:
                    if kind == RENEW:
                        held[offset] = None
                    else:
                        del held[offset]
        self.open = {partition: held for partition, held in self.open.items() if held}
        self.sent = sent
        return sent

    # Answers

    def named(self, topic_id: Uuid, number: int) -> TopicPartition | None:
        """Returns the partition with this topic id and number, None if it was never fetched."""
        return self._names.get((topic_id, number))

    def take(self, partition: TopicPartition, result: Any) -> list[AcquiredRecord]:
        """Returns the acquired records in an answer. Acquired offsets without a record (markers, compaction) are acknowledged as gaps."""
        acquired = result.acquired_records
        if not acquired:
            return []
        found = list(_deliveries(partition, result.records, acquired))
        held: dict[int, int | None] = dict.fromkeys((delivery.record.offset for delivery in found), None)
        if len(found) < sum(run.last_offset - run.first_offset + 1 for run in acquired):
            for run in acquired:
                held.update({offset: GAP for offset in range(run.first_offset, run.last_offset + 1) if offset not in held})
        self.open.setdefault(partition, {}).update(held)
        return found


def _runs(acknowledged: list[tuple[int, int]]) -> Iterator[Run]:
    start = 0
    for end in range(1, len(acknowledged) + 1):
        if end == len(acknowledged) or acknowledged[end][0] != acknowledged[end - 1][0] + 1:
            kinds = [kind for _, kind in acknowledged[start:end]]
            is_same = kinds.count(kinds[0]) == len(kinds)
            yield Run(acknowledged[start][0], acknowledged[end - 1][0], kinds[:1] if is_same else kinds)
            start = end


def _deliveries(partition: TopicPartition, data: Any, acquired: Iterable[Any]) -> Iterator[AcquiredRecord]:
    """Yields the records that were acquired; a batch may contain others too. Raises WireError for broken batches."""
    runs = sorted((run.first_offset, run.last_offset, run.delivery_count) for run in acquired)
    if data is None or not len(data):
        return
    at = 0
    for position, header in iter_batches(data):
        batch = memoryview(data)[position : position + header.size_bytes]
        if header.magic != MAGIC:
            raise WireError(f"{partition} holds batches of magic {header.magic}, only {MAGIC} can be read")
        while at < len(runs) and runs[at][1] < header.base_offset:
            at += 1
        if at == len(runs):
            return
        if header.is_control or runs[at][0] > header.last_offset:
            continue
        if not check_crc(batch, 0, header.size_bytes):
            raise WireError(f"the batch at offset {header.base_offset} of {partition} is damaged (its checksum is wrong)")
        for record in iter_records(batch):
            while at < len(runs) and runs[at][1] < record.offset:
                at += 1
            if at == len(runs):
                return
            if runs[at][0] <= record.offset:
                yield AcquiredRecord(partition, header, record, runs[at][2])
