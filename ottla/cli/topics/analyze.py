"""`ottla topic analyze`: counts records, bytes, batches, codecs, rate and time of each partition.

The counts are from the headers of batches; the records are not decoded. The first batch counts as a whole, also with `--from-time`.
`--keys` decodes the records and counts distinct keys, records without a key, and tombstones. Transaction markers are not counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.cli.command import Args, command, flag, option
from ottla.cli.moments import format_ms, parse_moment_ms
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row, column, json_only
from ottla.cli.topics.partitions import named_partitions, offsets_at
from ottla.cli.topics.topic_names import ONE_TOPIC, one_topic
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.wire.compression import CODEC_NAMES

if TYPE_CHECKING:
    from ottla.client.core.fetching import Fetched


FETCH_BYTES = 4 * 1024 * 1024


class TallyRow(Row):
    """The counts of a partition."""

    topic: str = json_only()
    partition: int
    records: int
    bytes: int
    batches: int
    records_per_batch: float | None = column("RECORDS/BATCH")
    bytes_per_record: float | None = column("BYTES/RECORD")
    codecs: dict[str, int]
    first: str | None
    last: str | None
    records_per_second: float | None = column("RECORDS/S")


class KeyTallyRow(TallyRow):
    """The counts of a partition with `--keys`."""

    keys: int
    no_key: int
    tombstones: int


class _Tally:
    """Counts a partition's batches while they are read."""

    def __init__(self, counts_keys: bool) -> None:
        self.records = self.bytes = self.batches = self.no_key = self.tombstones = 0
        self.codecs: Counter[str] = Counter()
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.keys: set[bytes] | None = set() if counts_keys else None

    def add(self, fetched: Fetched) -> None:
        for header, _ in fetched.batches:
            self.records += header.record_count
            self.bytes += header.size_bytes
            self.batches += 1
            self.codecs[CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else "unknown"] += 1
            if header.base_timestamp >= 0:
                self.first_ms = header.base_timestamp if self.first_ms is None else min(self.first_ms, header.base_timestamp)
                self.last_ms = max(self.last_ms or 0, header.max_timestamp)
        if self.keys is not None:
            for record in fetched.records():
                self.no_key += record.key is None
                self.tombstones += record.value is None
                if record.key is not None:
                    self.keys.add(bytes(record.key))

    def row(self, partition: TopicPartition) -> TallyRow:
        seconds = (self.last_ms - self.first_ms) / 1000 if self.first_ms is not None and self.last_ms is not None else 0.0
        row = TallyRow(
            *partition,
            self.records,
            self.bytes,
            self.batches,
            round(self.records / self.batches, 1) if self.batches else None,
            round(self.bytes / self.records, 1) if self.records else None,
            dict(sorted(self.codecs.items())),
            format_ms(self.first_ms) if self.first_ms is not None else None,
            format_ms(self.last_ms) if self.last_ms is not None else None,
            round(self.records / seconds, 1) if seconds > 0 else None,
        )
        if self.keys is None:
            return row
        return KeyTallyRow(**vars(row), keys=len(self.keys), no_key=self.no_key, tombstones=self.tombstones)


@command(
    "topic analyze",
    "Count the records, bytes, batches, codecs and rates of a topic.",
    *ONE_TOPIC,
    option("--partition", type=int, action="append", metavar="N", help="only these partitions"),
    option("--from-time", metavar="TIME", help="only records since then (2024-01-31T12:00:00, or -1h)"),
    flag("--keys", help="decode the records and count keys and tombstones"),
    may_watch=True,
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
    name = one_topic(args)
    tallies = _read(cluster, named_partitions(cluster, name, args.partition), args)
    rows = [tally.row(partition) for partition, tally in sorted(tallies.items())]
    totals = {key: sum(getattr(row, key) for row in rows) for key in ("records", "bytes", "batches")}
    output.rows("partitions", KeyTallyRow if args.keys else TallyRow, rows, extra={"topic": name, **totals})


def _read(cluster: Cluster, partitions: list[TopicPartition], args: Args) -> dict[TopicPartition, _Tally]:
    """Reads each partition at least up to its end at the time of the call. May count records that are written during the call."""
    from ottla.client.blocking.consumer import Consumer

    tallies = {partition: _Tally(args.keys) for partition in partitions}
    ends = offsets_at(cluster, partitions, admin.LATEST)
    starts = offsets_at(cluster, partitions, admin.EARLIEST)
    if args.from_time is not None:
        found = offsets_at(cluster, partitions, parse_moment_ms(args.from_time))
        starts = {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}
    with Consumer(cluster, partition_bytes_max=FETCH_BYTES, auto_offset_reset="earliest") as consumer:
        consumer.assign({partition: start for partition, start in starts.items() if start < ends[partition]})
        while any(position < ends[partition] for partition, position in consumer.positions.items()):
            for fetched in consumer.poll(0.5):
                tallies[fetched.partition].add(fetched)
    return tallies
