"""The log of a partition: its batches as the leader stores them, and each byte of a batch with its meaning.

A Fetch answer has the same bytes as the log, so this works with any Kafka cluster. Segments and indexes are files of a broker, which
`ottla log dump` shows on its machine.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.analysis.moments import format_ms
from ottla.analysis.resets import bounds_of
from ottla.analysis.span_messages import attribute_words, walk_batch
from ottla.analysis.spans import SpanReader
from ottla.base.errors import ErrorCode, WireError
from ottla.base.types import TopicPartition
from ottla.client.core.fetching import FetchLimits, fetch_request
from ottla.client.core.topic_lists import each_partition
from ottla.console.model import Field, Form, Link, Mark, Note, Page, PageError, Table, columns, href
from ottla.console.pages.topic import TRAIL, tabs_of, topic_of
from ottla.console.span_tables import SPANS_MAX, span_table
from ottla.console.visit import Visit, page
from ottla.wire.batch_header import LOG_OVERHEAD, MAGIC, BatchHeader, check_crc, legacy_magic, read_batch_header

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
            "timestamp": format_ms(header.max_timestamp),
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
    hint = f"Segments and indexes are files of the broker: ottla log dump --files DIRECTORY/{place}/*.log --hex shows them there."
    table = Table("batches", f"Batches of {place}", titles, rows, "No batch begins there.")
    return Page(name, facts, [table], [form], [Note(hint)], tabs_of(name), TRAIL)


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
