"""Reads the committed transactions in a pipeline's sink topics (read_committed), and computes the number of rows and a digest for each.
Other producers may have written to the topics, too.

The number of rows is read from the batch headers, and digests are computed from the batches' bytes. Only a batch that begins before the log
start is decoded, because DeleteRecords may cut a batch, and readers get only the records after the cut. Aborted transactions are not
visible, and open ones are above the last stable offset, where `extend` stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client import EARLIEST, LATEST, AuthorizationError, Client, Fetched, TopicPartition
from ottla.spark.commit_history import CommittedTransaction
from ottla.spark.output_digest import DigestPart, OutputDigest
from ottla.wire.records import iter_records


class SinkPartition(NamedTuple):
    """One partition of the sink: its first and next offset, and the rows between them by transaction (None: outside of transactions).

    `has_open` is True if there are records after the last stable offset. `spans` has the first and last offset of each transaction's
    batches.
    """

    start: int
    end: int
    has_open: bool
    rows: dict[CommittedTransaction | None, int]
    spans: dict[CommittedTransaction, tuple[int, int]]


class SinkContents:
    """The committed batches of the sink topics as far as they were read; `extend` reads further. Raises `UnknownTopicError` for a missing
    topic."""

    def __init__(self, client: Client, topics: Sequence[str]) -> None:
        self._client = client
        found = [TopicPartition(topic, one.partition) for topic in topics for one in client.describe_topic(topic).partitions]
        configs = {topic: _configs_of(client, topic) for topic in topics}
        starts = client.list_offsets(dict.fromkeys(found, EARLIEST))
        self.is_compacted = any("compact" in (config.get("cleanup.policy") or "") for config in configs.values())
        self.is_recompressed = any((config.get("compression.type") or "producer") != "producer" for config in configs.values())
        self.partitions = {one: SinkPartition(starts[one].offset, starts[one].offset, False, {}, {}) for one in found}
        self.outputs: dict[CommittedTransaction, OutputDigest] = {}

    def extend(self) -> bool:
        """Reads each partition up to its last stable offset; returns whether an end has moved or a transaction is open."""
        ends = self._client.list_offsets(dict.fromkeys(self.partitions, LATEST))
        log_ends = self._client.list_offsets(dict.fromkeys(self.partitions, LATEST), isolation="read_uncommitted")
        is_moving = False
        for partition, known in list(self.partitions.items()):
            position = known.end
            for fetched in self._client.read(partition, position, ends[partition].offset):
                self._take(partition, known, fetched)
                position = fetched.next_offset
            has_open = log_ends[partition].offset > ends[partition].offset
            self.partitions[partition] = known._replace(end=position, has_open=has_open)
            is_moving = is_moving or has_open or position > known.end
        return is_moving

    def _take(self, partition: TopicPartition, known: SinkPartition, fetched: Fetched) -> None:
        for header, batch in fetched.batches:
            is_cut = header.base_offset < known.start
            rows = sum(1 for record in iter_records(batch) if record.offset >= known.start) if is_cut else header.record_count
            transaction = CommittedTransaction(header.producer_id, header.producer_epoch) if header.is_transactional else None
            known.rows[transaction] = known.rows.get(transaction, 0) + rows
            if transaction is None:
                continue
            first, _ = known.spans.get(transaction, (header.base_offset, 0))
            known.spans[transaction] = first, header.next_offset - 1
            output = self.outputs.setdefault(transaction, OutputDigest())
            if is_cut:
                output.add_part(partition, DigestPart(rows))
            else:
                output.add(partition, batch)


def _configs_of(client: Client, topic: str) -> dict[str, str | None]:
    """Returns the settings of a topic, or no settings if the caller is not permitted to read them."""
    try:
        return client.topic_configs(topic)
    except AuthorizationError:
        return {}
