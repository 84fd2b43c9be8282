"""`ottla topic clone`: creates a topic like another, with its number of partitions, replication factor and settings. `--records` copies the
records, too.

Records keep their partition, key, headers and timestamp; offsets begin at 0. Records of open and aborted transactions, and records that are
written after the start, are not copied.
"""

from __future__ import annotations

from ottla.base.counted import counted
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.cli.command import Args, UsageError, command, flag, option
from ottla.cli.progress import Progress
from ottla.cli.render.ottla import Output
from ottla.cli.topics.changes import topic_settings
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.wire.compression import CODEC_NAMES

TOPIC_CONFIG_SOURCE = 1
FETCH_BYTES = 4 * 1024 * 1024


@command(
    "topic clone",
    "Make a topic like another, with or without its records.",
    option("source", metavar="FROM", help="the topic to copy"),
    option("target", metavar="TO", help="the new topic"),
    flag("--records", help="copy the records, too"),
    option("-z", "--compression-codec", choices=CODEC_NAMES, default="none", metavar="CODEC", help="codec of the copied batches"),
    flag("--dry-run", help="let the broker validate, change nothing"),
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
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
    """Copies the records before the current last stable offset of each partition, except aborted ones. Returns their number."""
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.blocking.producer import Producer

    wanted = [TopicPartition(source, number) for number in partitions]
    ends = admin.list_offsets(cluster, dict.fromkeys(wanted, admin.LATEST), isolation_level=READ_COMMITTED)
    stops = {partition: end.offset for partition, end in ends.items() if isinstance(end, admin.OffsetAt)}
    count = 0
    with (
        Consumer(cluster, isolation_level=READ_COMMITTED, partition_bytes_max=FETCH_BYTES, auto_offset_reset="earliest") as consumer,
        Producer(cluster, codec=codec) as producer,
        Progress(f"to {target}", 0, is_quiet=is_quiet) as progress,
    ):
        consumer.assign(dict.fromkeys(wanted, admin.EARLIEST))
        while any(consumer.positions[partition] < stops[partition] for partition in wanted):
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
