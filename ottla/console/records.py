"""Reads records of a topic for the pages, and shows their bytes as text."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.analysis.resets import Bounds
from ottla.base.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.core.fetching import Fetched
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, Record

MARKERS = {CONTROL_COMMIT: "commit", CONTROL_ABORT: "abort"}
READ_S = 3.0
"""Seconds that a page reads records before it shows the found ones."""
PARTITION_BYTES = 256 * 1024
LETTERS_MAX = 2_000
"""Characters of a key, of a value, or of the value of a header in a page. A record's own page has more, and the download has all bytes of
the value.
"""


class Decoded(NamedTuple):
    """A record whose value and key are JSON if a schema has decoded them. `size` is the number of bytes before decoding. `schema` names the
    schema, or says why the record could not be decoded; it is empty for a record without a schema.
    """

    record: Record
    size: int
    schema: str


Decode = Callable[[str, Record], Decoded]
"""Decodes a record of a topic by its schema. Raises nothing."""


def undecoded(_topic: str, record: Record) -> Decoded:
    return Decoded(record, len(record.key or b"") + len(record.value or b""), "")


class Shown(NamedTuple):
    """A record as a page shows it. `kind` is the form of the value: json, text, hex, null or marker. `is_cut` means that the value, not the
    key, is shortened. `schema` is as in `Decoded`.
    """

    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    kind: str
    size: int
    headers: list[list[str | None]]
    is_cut: bool
    schema: str = ""


def as_text(data: bytes | None, letters_max: int = LETTERS_MAX, *, is_indented: bool = False) -> tuple[str | None, str, bool]:
    """Returns bytes as text, the form of the text (json, text, hex or null), and whether it is cut."""
    if data is None:
        return None, "null", False
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data[: letters_max // 3].hex(" "), "hex", len(data) > letters_max // 3
    kind = "text"
    if len(data) <= 10 * letters_max and text[:1] in ("{", "["):
        try:
            text, kind = json.dumps(json.loads(text), indent=2 if is_indented else None, ensure_ascii=False), "json"
        except (ValueError, RecursionError):
            pass
    return text[:letters_max], kind, len(text) > letters_max


def show(partition: int, decoded: Decoded, letters_max: int = LETTERS_MAX, *, is_indented: bool = False) -> Shown:
    record = decoded.record
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    text, kind, is_cut = as_text(value, letters_max, is_indented=is_indented)
    headers = [[name, as_text(None if found is None else bytes(found), letters_max)[0]] for name, found in record.headers]
    shown_key = as_text(key, letters_max)[0]
    return Shown(
        partition, record.offset, record.timestamp, shown_key, text, kind, decoded.size, headers, is_cut, decoded.schema
    )  # fmt: skip


class Wanted(NamedTuple):
    """A query for records from `positions` up to `ends`. It finds at most `limit` records that `matches(partition, record)` accepts after
    `decode`: the first ones, or with `is_newest` the last ones.
    """

    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    limit: int
    matches: Callable[[int, Record], bool]
    is_committed: bool = False
    has_markers: bool = False
    is_newest: bool = False
    decode: Decode = undecoded


class Found(NamedTuple):
    """The found records in the order of their timestamps, the number of records that were compared, and whether the search stopped after
    `READ_S` seconds before its end.
    """

    records: list[Shown]
    scanned: int
    is_partial: bool


def read(cluster: Cluster, wanted: Wanted) -> Found:
    """Reads the records of a query, for at most `READ_S` seconds."""
    left = {place: start for place, start in wanted.positions.items() if start < wanted.ends[place]}
    kept: dict[TopicPartition, deque[Shown]] = {place: deque(maxlen=wanted.limit) for place in left}
    scanned = 0
    deadline = time.monotonic() + READ_S
    isolation = READ_COMMITTED if wanted.is_committed else READ_UNCOMMITTED
    with Consumer(cluster, isolation_level=isolation, partition_bytes_max=PARTITION_BYTES, max_wait_ms=100) as consumer:
        consumer.assign(left)
        while left and time.monotonic() < deadline:
            for fetched in consumer.poll(0.5):
                place = fetched.partition
                if place not in left:
                    continue
                own = kept[place]
                for shown in _matching(fetched, wanted):
                    scanned += 1
                    if shown is not None:
                        own.append(shown)
                        if len(own) == wanted.limit and not wanted.is_newest:
                            break
                if fetched.next_offset >= wanted.ends[place] or (len(own) == wanted.limit and not wanted.is_newest):
                    del left[place]
    found = sorted((one for own in kept.values() for one in own), key=lambda one: (one.timestamp, one.partition, one.offset))
    return Found(found[-wanted.limit :] if wanted.is_newest else found[: wanted.limit], scanned, bool(left))


def _matching(fetched: Fetched, wanted: Wanted) -> Iterator[Shown | None]:
    """Yields each record before the end, None for one that does not match, and the markers if they are wanted."""
    end = wanted.ends[fetched.partition]
    topic, partition = fetched.partition
    for record in fetched.records():
        if record.offset < end:
            decoded = wanted.decode(topic, record)
            yield show(partition, decoded) if wanted.matches(partition, decoded.record) else None
    if wanted.has_markers:
        for header, marker in fetched.markers:
            what = MARKERS.get(marker.kind, f"unknown marker {marker.kind}")
            text = f"{what} of producer {header.producer_id}, epoch {header.producer_epoch}, coordinator epoch {marker.coordinator_epoch}"
            yield Shown(
                partition, header.base_offset, header.max_timestamp, None, text, "marker", header.size_bytes, [], False
            )


def starts_before_end(bounds: Mapping[TopicPartition, Bounds], count: int) -> dict[TopicPartition, int]:
    """Returns the position of each partition that is `count` records before its end, or its start."""
    return {place: max(found.start, found.end - count) for place, found in bounds.items()}


def as_event(shown: Shown) -> dict[str, Any]:
    return shown._asdict()
