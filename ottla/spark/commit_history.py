"""The commits of a pipeline's group, read from `__consumer_offsets` in log order.

Each record is a committed offset of one partition, or its deletion. Consecutive records of one transaction have its producer id and epoch
and form one commit. Outside transactions (a plain consumer, a manual reset) each record batch is a commit. Compaction only removes a prefix
of each partition's commits, so the remaining chain has no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.client import EARLIEST, LATEST, Client, TopicPartition, partition_for_group
from ottla.spark.commit_metadata import CommitMetadata, parse_metadata
from ottla.wire.batch_header import BatchHeader
from ottla.wire.codec import decoder
from ottla.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.wire.records import Record, iter_records

OFFSETS_TOPIC = "__consumer_offsets"
KEY_TYPES = (0, 1)
"""The key types of committed offsets (int16)."""


class CommittedTransaction(NamedTuple):
    """The identity of a pipeline's transaction: producer id and epoch, unique for each transaction."""

    producer_id: int
    epoch: int


class CommittedRange(NamedTuple):
    """One partition's part of a commit. `end` is the committed offset, None for a deletion. `metadata` is None unless a pipeline wrote it.
    """

    end: int | None
    metadata: CommitMetadata | None


class GroupCommit(NamedTuple):
    """The offsets of one commit of a group. `transaction` is None outside of a transaction; `position` is the offset of the first record.
    """

    transaction: CommittedTransaction | None
    position: int
    timestamp_ms: int
    ranges: dict[TopicPartition, CommittedRange]

    @property
    def metadata(self) -> CommitMetadata | None:
        """Returns the metadata of a pipeline's commit, from any of its partitions; None for the commit of another program."""
        return next((found.metadata for found in self.ranges.values() if found.metadata is not None), None)


class CommitHistory:
    """The commits of one group from `position` of its log on, as far as they were read. `extend` reads further.

    Raises `UnknownTopicError` if no group has ever committed.
    """

    def __init__(self, client: Client, group: str, *, position: int = 0) -> None:
        self._client = client
        count = len(client.describe_topic(OFFSETS_TOPIC).partitions)
        self.partition = TopicPartition(OFFSETS_TOPIC, partition_for_group(group, count))
        self._prefixes = tuple(key_prefix(kind, group) for kind in KEY_TYPES)
        self.position = max(position, client.list_offsets({self.partition: EARLIEST})[self.partition].offset)
        self.commits: list[GroupCommit] = []

    def extend(self) -> bool:
        """Reads up to the last stable offset; returns whether the position has moved."""
        end = self._client.list_offsets({self.partition: LATEST})[self.partition].offset
        before = self.position
        for fetched in self._client.read(self.partition, before, end):
            for header, batch in fetched.batches:
                self._take(header, iter_records(batch))
            self.position = fetched.next_offset
        return self.position > before

    def _take(self, header: BatchHeader, records: Iterator[Record]) -> None:
        ours = [record for record in records if record.key is not None and record.key.startswith(self._prefixes)]
        if not ours:
            return
        transaction = CommittedTransaction(header.producer_id, header.producer_epoch) if header.is_transactional else None
        last = self.commits[-1] if self.commits else None
        if last is None or transaction is None or last.transaction != transaction:
            last = GroupCommit(transaction, ours[0].offset, ours[0].timestamp, {})
            self.commits.append(last)
        for record in ours:
            partition, found = read_commit(record)
            last.ranges[partition] = found


def key_prefix(kind: int, group: str) -> bytes:
    name = group.encode()
    return kind.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name


def read_commit(record: Record) -> tuple[TopicPartition, CommittedRange]:
    assert record.key is not None
    key = decoder(OffsetCommitKey, 0)(record.key, 2)[0]
    partition = TopicPartition(key.topic, key.partition)
    if record.value is None:
        return partition, CommittedRange(None, None)
    value = decoder(OffsetCommitValue, int.from_bytes(record.value[:2], "big"))(record.value, 2)[0]
    return partition, CommittedRange(value.offset, parse_metadata(value.metadata))
