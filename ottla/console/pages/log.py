"""Pages about the log of a partition: its batches as the leader stores them, and each byte of a batch with its meaning.

A Fetch answer has the same bytes as the log, so this works with any Kafka cluster. Only Ottla's brokers can describe their segments and
indexes. For other brokers use `ottla log dump` on the broker's machine.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.analysis.resets import bounds_of
from ottla.analysis.span_messages import attribute_words, walk_batch
from ottla.analysis.spans import SpanReader
from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.base.types import TopicPartition
from ottla.client.core.fetching import FetchLimits, fetch_request
from ottla.client.core.own_apis import describe_segments
from ottla.client.core.topic_lists import each_partition
from ottla.console.model import Field, Form, Link, Mark, Note, Page, PageError, Table, columns, href, moment, size
from ottla.console.pages.topic import TRAIL, tabs_of, topic_of
from ottla.console.span_tables import SPANS_MAX, span_table
from ottla.console.visit import Visit, page
from ottla.wire.batch_header import LOG_OVERHEAD, MAGIC, BatchHeader, check_crc, legacy_magic, read_batch_header
from ottla.wire.messages.describe_segments import NO_INDEX, DescribeSegmentsResponse

BATCHES_MAX = 50
FETCH_BYTES = 512 * 1024


def _batches(visit: Visit, place: TopicPartition, offset: int) -> list[tuple[BatchHeader, memoryview]]:
    """Returns whole batches from the batch with `offset` on, at most `BATCHES_MAX`, control batches included. Raises `PageError` if they
    cannot be read, and for messages from before Kafka 0.11."""
    deadline = time.monotonic() + 3.0
    size = FETCH_BYTES
    while True:
        request = fetch_request({place: offset}, 0, FetchLimits(0, 0, size, size))
        answer = visit.cluster.ask_broker(visit.cluster.leader(place), request)
        data = memoryview(b"")
        for _, result in each_partition(answer.responses):
            if result.error_code:
                raise PageError(f"{place} cannot be read at offset {offset}: {ErrorCode(result.error_code).name}.", 404)
            data = memoryview(bytes(result.records or b""))
        found: list[tuple[BatchHeader, memoryview]] = []
        position = 0
        while len(data) - position > LOG_OVERHEAD + 50 and len(found) < BATCHES_MAX:
            if legacy_magic(data, position) is not None:
                raise PageError(f"{place} has messages from before Kafka 0.11 there, which the console does not show.")
            header = read_batch_header(data, position)
            if header.magic != MAGIC or position + header.size_bytes > len(data):
                break
            found.append((header, data[position : position + header.size_bytes]))
            position += header.size_bytes
        if found or not data or time.monotonic() > deadline or size >= 64 * FETCH_BYTES:
            return found
        size *= 8  # the first batch is larger


@page("/topics/{topic}/log", "The batches of a partition's log", query=("partition", "offset"))
def log(visit: Visit) -> Page:
    name, topic = topic_of(visit)
    place = TopicPartition(name, visit.whole("partition", 0))
    if place.partition not in {one.partition_index for one in topic.partitions}:
        raise PageError(f"{name} has no partition {place.partition}.", 404)
    bounds = bounds_of(visit.cluster, [place])[place]
    offset = min(max(visit.whole("offset", bounds.start), bounds.start), bounds.end)
    found = _batches(visit, place, offset) if bounds.end > offset else []
    rows = [
        {
            "batch": Link(f"{header.base_offset} to {header.last_offset}", _at(name, place, header.base_offset, "batch")),
            "records": header.record_count, "bytes": header.size_bytes, "attributes": attribute_words(header.attributes),
            "producer": f"{header.producer_id} epoch {header.producer_epoch}" if header.producer_id >= 0 else None,
            "sequence": header.base_sequence if header.base_sequence >= 0 else None, "leader_epoch": header.partition_leader_epoch,
            "timestamp": moment(header.max_timestamp),
            "crc": Mark("right", "ok") if check_crc(data, 0, header.size_bytes) else Mark("WRONG", "bad"),
        }
        for header, data in found
    ]  # fmt: skip
    titles = columns(
        batch="Offsets", records="Records", bytes="Bytes", attributes="Attributes", producer="Producer", sequence="First sequence",
        leader_epoch="Leader epoch", timestamp="Newest record", crc="CRC",
    )  # fmt: skip
    facts: list[tuple[str, Any]] = [("First offset", bounds.start), ("End offset", bounds.end)]
    if found and found[-1][0].last_offset + 1 < bounds.end:
        facts.append(("Next batches", Link(f"from {found[-1][0].last_offset + 1} on", _at(name, place, found[-1][0].last_offset + 1))))
    choices = [(str(one.partition_index),) * 2 for one in topic.partitions]
    form = Form(href("topics", name, "log"), "Choose a place in the log", "Show", [
        Field("partition", "Partition", str(place.partition), choices=choices), Field("offset", "From offset on", str(offset), "number"),
    ], is_query=True, is_open=True)  # fmt: skip
    table = Table("batches", f"Batches of {place}", titles, rows, "No batch begins there.")
    segments, notes = _segment_table(visit, place, offset)
    return Page(name, facts, [table, segments], [form], notes, tabs_of(name), TRAIL)


def _segments(visit: Visit, place: TopicPartition, offset: int, index_of: int = NO_INDEX) -> DescribeSegmentsResponse | None:
    """Asks the leader for the segments of its log. Returns None if it is not Ottla's."""
    try:
        visit.desk.extended.refresh([place.topic])
        return describe_segments(
            visit.desk.extended, visit.desk.extended.leader(place), place, first_offset=offset, index_of=index_of
        )
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None


def _segment_table(visit: Visit, place: TopicPartition, offset: int) -> tuple[Table, list[Note]]:
    found = _segments(visit, place, offset)
    titles = columns(segment="Segment", end="End offset", size="Size", newest="Newest record", state="State")
    if found is None:
        hint = f"Segments and indexes are files of the broker: kafka-dump-log --files DIRECTORY/{place}/*.log shows them there."
        return Table("segments", "Segments", titles, [], "Only Ottla's brokers describe the segments of their logs."), [Note(hint)]
    rows = [
        {
            "segment": Link(f"{one.base_offset:020}", href("topics", place.topic, "log", "index", partition=place.partition,
                                                           segment=one.base_offset)),
            "end": one.end_offset, "size": size(one.size_bytes),
            "newest": moment(one.largest_timestamp) if one.largest_timestamp >= 0 else None,
            "state": Mark("active", "ok") if one.is_active else "sealed",
        }
        for one in found.segments
    ]  # fmt: skip
    return Table("segments", f"Segments of {place} on the leader, from this offset on", titles, rows), []


@page("/topics/{topic}/log/index", "The entries of a segment's indexes", query=("partition", "segment"))
def index(visit: Visit) -> Page:
    name, _ = topic_of(visit)
    place, base = TopicPartition(name, visit.whole("partition")), visit.whole("segment")
    found = _segments(visit, place, base, base)
    if found is None:
        raise PageError("Only Ottla's brokers describe the segments of their logs.", 404)
    if not any(one.base_offset == base for one in found.segments):
        raise PageError(f"{place} has no segment {base}.", 404)
    offsets = [
        {"offset": Link(str(one.offset), _at(name, place, one.offset, "batch")), "position": one.position} for one in found.offset_entries
    ]
    times = [
        {"time": moment(one.timestamp), "offset": Link(str(one.offset), _at(name, place, one.offset, "batch"))}
        for one in found.time_entries
    ]
    notes = [Note("The indexes have more entries; the first ones are shown.", "warn")] if found.is_cut else []
    tables = [
        Table("offsets", "Offset index: where batches are in the file", columns(offset="Offset in the batch", position="Position in bytes"),
              offsets, "The index is empty: all batches are found from the start of the segment."),
        Table("times", "Time index: records up to the offset are not newer than the time",
              columns(time="Time", offset="Offset"), times, "The index is empty."),
    ]  # fmt: skip
    trail = [*TRAIL, Link(name, href("topics", name)), Link("Log", _at(name, place, base))]
    return Page(f"Segment {base:020} of {place}", tables=tables, notes=notes, trail=trail)


def _at(name: str, place: TopicPartition, offset: int, *tab: str) -> str:
    return href("topics", name, "log", *tab, partition=place.partition, offset=offset)


@page("/topics/{topic}/log/batch", "Each byte of a batch with its meaning", query=("partition", "offset"))
def batch(visit: Visit) -> Page:
    name, _ = topic_of(visit)
    place, offset = TopicPartition(name, visit.whole("partition")), visit.whole("offset")
    found = next((pair for pair in _batches(visit, place, offset) if pair[0].base_offset <= offset <= pair[0].last_offset), None)
    if found is None:
        raise PageError(f"{place} has no batch with offset {offset}.", 404)
    header, data = found
    reader = SpanReader(data)
    notes = []
    try:
        walk_batch(reader)
    except WireError as error:
        notes.append(Note(f"The bytes after the last field cannot be explained: {error}", "bad"))
    if len(reader.spans) > SPANS_MAX:
        notes.append(Note(f"The batch has {len(reader.spans):,} fields; the first {SPANS_MAX:,} are shown.", "warn"))
    facts = [
        ("Offsets", f"{header.base_offset} to {header.last_offset}"), ("Bytes", header.size_bytes),
        ("Next batch", Link(f"from {header.last_offset + 1} on", _at(name, place, header.last_offset + 1, "batch"))),
        ("Records", Link("as messages", href("topics", name, "messages", partition=place.partition, at=offset, **{"from": "from_offset"}))),
    ]  # fmt: skip
    trail = [*TRAIL, Link(name, href("topics", name)), Link("Log", _at(name, place, header.base_offset))]
    tables = [span_table("spans", "Bytes; positions with u are those of decompressed bytes", reader.spans)]
    return Page(f"Batch of {place}", facts, tables, notes=notes, trail=trail)
