"""`ottla topic clone` and `ottla topic analyze`: commands that read all records of a topic.

`clone` creates a topic like another, with its number of partitions, replication factor and settings. With `--records`, records keep their
partition, key, headers and timestamp; offsets begin at 0. It copies the records before the last stable offsets at the start, except aborted
ones. `analyze` counts records, bytes, batches and codecs by the headers of batches. The first batch counts as a whole, also with
`--from-time`. `--keys` decodes the records. Transaction markers are not counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.analysis.moments import format_ms
from ottla.analysis.progress import Progress
from ottla.analysis.resets import offsets_at
from ottla.base.counted import counted
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.cli.command import Args, UsageError, command, flag, option
from ottla.cli.moments import parse_moment_ms
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.cli.topics.changes import topic_settings
from ottla.cli.topics.topic_names import ONE_TOPIC, named_partitions, one_topic
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.wire.compression import CODEC_NAMES

if TYPE_CHECKING:
    from ottla.client.core.fetching import Fetched

TOPIC_CONFIG_SOURCE = 1
FETCH_BYTES = 4 * 1024 * 1024


@command(
    "topic clone",
    "Make a topic like another, with or without its records.",
    option("source", metavar="FROM", help="the topic to copy"),
    option("target", metavar="TO", help="the new topic"),
    flag("--records", help="copy the records, too"),
    option("-z", "--compression-codec", choices=CODEC_NAMES, default="none", metavar="CODEC", help="codec of the copied batches"),
    flag("--dry-run", help="only validate the change on the broker"),
)
def _clone(args: Args, cluster: Cluster, output: Output) -> None:
    if args.source == args.target:
        raise UsageError("a topic cannot be cloned to itself")
    count = 0
    source = cluster.topic(args.source)
    partitions = cluster.partitions(args.source)
    factor = max(len(partition.replica_nodes) for partition in source.partitions)
    own = [entry for entry in topic_settings(cluster, args.source) if entry.config_source == TOPIC_CONFIG_SOURCE]
    configs = {entry.name: entry.value for entry in own if not entry.is_sensitive}
    admin.create_topic(
        cluster, args.target, partitions=len(partitions), replication_factor=factor, configs=configs, validate_only=args.dry_run
    )
    if args.records and not args.dry_run:
        count = copy_records(cluster, args.source, args.target, partitions, args.compression_codec, is_quiet=args.quiet)
    what = {"source": args.source, "topic": args.target, "partitions": len(partitions), "configs": configs, "records": count}
    done = f"Topic {args.source} could be cloned to" if args.dry_run else f"Cloned topic {args.source} to"
    records = f" with {counted(count, 'record')}" if args.records and not args.dry_run else ""
    output.done(f"{done} {args.target}{records}.", {**what, "dry_run": args.dry_run})


def copy_records(cluster: Cluster, source: str, target: str, partitions: list[int], codec: str, *, is_quiet: bool = False) -> int:
    """Copies the records before the current last stable offset of each partition, except aborted ones. Returns their number. Raises
    `KafkaError` if such an offset is not known."""
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.blocking.producer import Producer

    wanted = [TopicPartition(source, number) for number in partitions]
    ends = admin.list_offsets(cluster, dict.fromkeys(wanted, admin.LATEST), isolation_level=READ_COMMITTED)
    stops: dict[TopicPartition, int] = {}
    for partition, end in ends.items():
        if not isinstance(end, admin.OffsetAt):
            raise end
        stops[partition] = end.offset
    count = 0
    with (
        Consumer(cluster, isolation_level=READ_COMMITTED, partition_bytes_max=FETCH_BYTES, auto_offset_reset="earliest") as consumer,
        Producer(cluster, codec=codec) as producer,
        Progress(f"to {target}", 0, is_quiet=is_quiet) as progress,
    ):
        consumer.assign(dict.fromkeys(wanted, admin.EARLIEST))
        while any(consumer.positions.get(partition, 0) < stops[partition] for partition in consumer.assignment):
            for fetched in consumer.poll(0.5):
                stop = stops[fetched.partition]
                for record in fetched.records():
                    if record.offset < stop:
                        number, when, headers = fetched.partition.partition, record.timestamp, record.headers
                        producer.produce(target, record.value, record.key, partition=number, timestamp=when, headers=headers)
                        count += 1
                        progress.add(1)
            producer.poll()
        producer.flush()
    return count


class TallyRow(Row):
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
def _analyze(args: Args, cluster: Cluster, output: Output) -> None:
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
        while any(consumer.positions.get(partition, 0) < ends[partition] for partition in consumer.assignment):
            for fetched in consumer.poll(0.5):
                tallies[fetched.partition].add(fetched)
    return tallies
