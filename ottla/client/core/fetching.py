"""Fetch for consumers: makes the request, and selects the batches in the answer that a reader may see.

`read_partition` reads headers, checks checksums and decodes transaction markers, but no other records. So the next request can be sent
before records are decoded. Under read_committed it drops the batches of aborted transactions: the answer lists the producer id and first
offset of each, and an abort marker ends the transaction. Control batches are never returned as records. A damaged batch ends the
partition's part of an answer: the batches before it are returned, and the next Fetch, which begins with it, has the error CORRUPT_MESSAGE.
`read_headers` is for copies of a log: the broker that stores the batches checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, WireError, error_code
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.client.core.topic_lists import each_partition, topic_list
from ottla.client.errors import KafkaError, refused
from ottla.wire.batch_header import MAGIC, BatchHeader, Buffer, check_crc, iter_batches
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.records import CONTROL_ABORT, ControlRecord, Record, iter_records, read_control_record

FETCH_BYTES_MAX = 50 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024
MAX_WAIT_MS = 500


class Fetched(NamedTuple):
    """Batches of one partition from offset `start` on, as (header, bytes). `records` decodes them.

    `next_offset` is the offset of the next Fetch. It may be larger than the last record's offset plus 1, because control batches and, under
    read_committed, aborted batches are omitted. The first batch may begin before `start`. `markers` are the control records. The bytes are
    views into the answer.
    """

    partition: TopicPartition
    start: int
    next_offset: int
    batches: Sequence[tuple[BatchHeader, Buffer]]
    markers: Sequence[tuple[BatchHeader, ControlRecord]]
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    data: Buffer = b""
    """The bytes of the answer, as they are in the broker's log: whole batches, control batches among them, and perhaps the first
    part of another batch."""

    def records(self) -> Iterator[Record]:
        """Decodes the records from `start` on."""
        for header, batch in self.batches:
            if header.base_offset >= self.start:
                yield from iter_records(batch)
            else:
                yield from (record for record in iter_records(batch) if record.offset >= self.start)


class FetchLimits(NamedTuple):
    """The limits of one Fetch: bytes, and how many milliseconds the broker waits for `min_bytes`."""

    max_wait_ms: int = MAX_WAIT_MS
    min_bytes: int = 1
    max_bytes: int = FETCH_BYTES_MAX
    partition_max_bytes: int = PARTITION_BYTES_MAX


def fetch_request(positions: Mapping[TopicPartition, int], isolation_level: int, limits: FetchLimits) -> FetchRequest:
    size = limits.partition_max_bytes
    asked = {
        partition: FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=size)
        for partition, offset in positions.items()
    }
    return FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=isolation_level,
        topics=topic_list(FetchTopic, asked),
    )


def read_answer(
    positions: Mapping[TopicPartition, int],
    answer: FetchResponse,
    isolation_level: int,
    peer: str,
    read: Callable[[TopicPartition, int, Any, bool], Fetched] | None = None,
) -> Iterator[Fetched | tuple[TopicPartition, KafkaError]]:
    """Yields the batches or the error of each partition, read by `read`, which is `read_partition` by default. Raises `KafkaError` if the
    whole Fetch was refused. `peer` names the broker in messages.
    """
    if answer.error_code:
        raise refused(error_code(answer.error_code), f"reading from {peer}")
    for partition, result in each_partition(answer.responses):
        start = positions.get(partition)
        if start is None:
            continue
        if result.error_code:
            yield partition, refused(error_code(result.error_code), f"reading {partition} from offset {start}")
            continue
        try:
            yield (read or read_partition)(partition, start, result, isolation_level == READ_COMMITTED)
        except WireError as error:
            yield partition, refused(ErrorCode.CORRUPT_MESSAGE, f"{peer}: {error}")


def read_partition(partition: TopicPartition, start: int, result: Any, is_committed_only: bool) -> Fetched:
    """Reads one partition in a Fetch answer. Raises WireError if its first batch is damaged."""
    data = result.records or b""
    batches: list[tuple[BatchHeader, Buffer]] = []
    markers: list[tuple[BatchHeader, ControlRecord]] = []
    next_offset = start
    aborted = sorted(((entry.first_offset, entry.producer_id) for entry in result.aborted_transactions or ()), reverse=True)
    open_aborts: set[int] = set()
    end = 0
    try:
        for header, batch in sound_batches(partition, memoryview(data)):
            next_offset, end = max(next_offset, header.next_offset), end + len(batch)
            if header.last_offset < start:
                continue
            if is_committed_only:
                while aborted and aborted[-1][0] <= header.last_offset:
                    open_aborts.add(aborted.pop()[1])
            if header.is_control:
                marker = read_control_record(batch)
                if marker is not None:
                    markers.append((header, marker))
                    if marker.kind == CONTROL_ABORT:
                        open_aborts.discard(header.producer_id)
            elif not (is_committed_only and header.is_transactional and header.producer_id in open_aborts):
                batches.append((header, batch))
    except WireError:
        if next_offset == start:
            raise
        data = memoryview(data)[:end]
    return _fetched(partition, start, next_offset, batches, markers, result, data)


def read_headers(partition: TopicPartition, start: int, result: Any, is_committed_only: bool) -> Fetched:
    """Reads one partition in a Fetch answer without its checksums and markers: `batches` has all batches. Raises WireError if the first
    batch has an impossible length."""
    data = memoryview(result.records or b"")
    batches: list[tuple[BatchHeader, Buffer]] = []
    try:
        batches.extend((header, data[position : position + header.size_bytes]) for position, header in iter_batches(data))
    except WireError:
        if not batches:
            raise
    next_offset = max(start, batches[-1][0].next_offset) if batches else start
    return _fetched(partition, start, next_offset, batches, (), result, data)


def sound_batches(partition: TopicPartition, data: Buffer) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yields the whole batches in `data`, and raises WireError for a damaged one."""
    for position, header in iter_batches(data):
        batch = data[position : position + header.size_bytes]
        if header.magic != MAGIC:
            raise WireError(f"{partition} holds batches of magic {header.magic}, only {MAGIC} can be read")
        if not check_crc(batch, 0, header.size_bytes):
            raise WireError(f"the batch at offset {header.base_offset} of {partition} is damaged (its checksum is wrong)")
        yield header, batch


def _fetched(
    partition: TopicPartition,
    start: int,
    next_offset: int,
    batches: Sequence[tuple[BatchHeader, Buffer]],
    markers: Sequence[tuple[BatchHeader, ControlRecord]],
    result: Any,
    data: Buffer,
) -> Fetched:
    stable = result.last_stable_offset if result.last_stable_offset >= 0 else result.high_watermark
    return Fetched(partition, start, next_offset, batches, markers, result.log_start_offset, stable, result.high_watermark, data)
