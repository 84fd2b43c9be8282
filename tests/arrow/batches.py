"""Makes and reads batches with the record codec of `ottla.wire`, with which the tests compare the vectorised codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ottla.client import Fetched, TopicPartition
from ottla.wire.batch_header import LOG_APPEND_TIME, set_max_timestamp
from ottla.wire.records import Headers, Record, encode_batch, iter_records, read_batch_header, rewrite_batch

PARTITION = TopicPartition("orders", 3)
NOW_MS = 1_700_000_000_000

blobs = st.none() | st.binary(max_size=20) | st.integers(120, 130).map(bytes) | st.integers(8180, 8200).map(bytes)
header_names = st.text(max_size=5)
headers = st.lists(st.tuples(header_names, st.none() | st.binary(max_size=5)), max_size=4).map(tuple)
timestamps = st.integers(-1, 2 * NOW_MS) | st.sampled_from([NOW_MS, NOW_MS + 63, NOW_MS + 64, NOW_MS + 9000, 0])


@st.composite
def record_lists(draw: st.DrawFn, min_size: int = 1) -> list[Record]:
    """Records as they come from a producer; offsets from 0."""
    fields = draw(st.lists(st.tuples(timestamps, blobs, blobs, headers | st.just(())), min_size=min_size, max_size=12))
    return [Record(offset, *each) for offset, each in enumerate(fields)]


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    """Consecutive batches of a log: with each codec, both kinds of timestamps, compacted ones and empty ones."""
    batches, offset = [], draw(st.integers(0, 1 << 40))
    for records in draw(st.lists(record_lists(), min_size=1, max_size=4)):
        batch = encode_batch(
            records,
            base_offset=offset,
            codec=draw(st.integers(0, 4)),
            is_transactional=draw(st.booleans()),
        )
        if draw(st.booleans()):
            set_max_timestamp(batch, 0, LOG_APPEND_TIME, NOW_MS + 5)
        header = read_batch_header(batch)
        offset = header.next_offset
        if draw(st.booleans()):
            retained = [record for record in iter_records(batch) if draw(st.booleans())]
            batch = rewrite_batch(header, retained, delete_horizon_ms=draw(st.none() | st.just(NOW_MS - 1000)))
        batches.append(batch)
    return batches


def fetch(batches: Sequence[Any], start: int = 0) -> Fetched:
    """Returns a Fetch answer with these batches."""
    found = [(read_batch_header(batch), memoryview(batch)) for batch in batches]
    return Fetched(PARTITION, start, found[-1][0].next_offset if found else start, found, [], 0, 0, 0)


def as_row(record: Record, *, timestamp_type: int = 0, include_headers: bool = True) -> dict[str, Any]:
    """Returns the row that the source makes from a record."""
    row = {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": timestamp_type,
    }
    return {**row, "headers": _as_entries(record.headers)} if include_headers else row


def _as_entries(found: Headers) -> list[dict[str, Any]] | None:
    entries = [{"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value} for name, value in found]
    return entries or None
