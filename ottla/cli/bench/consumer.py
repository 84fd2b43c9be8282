"""`ottla bench consumer`: Kafka's performance test of consumers, with its options and its result lines."""

from __future__ import annotations

import random
import time
from typing import Any

from ottla.cli.bench import figures
from ottla.cli.bench.figures import write_line
from ottla.cli.command import Args, UsageError, command, flag, hidden, option
from ottla.cli.moments import now_ms
from ottla.cli.options import BROKER_LIST, properties_of
from ottla.cli.output import write
from ottla.cli.records.client_options import make_consumer
from ottla.cli.render.ottla import Output
from ottla.cli.topics.topic_names import pattern_of
from ottla.client.blocking.cluster import Cluster


@command(
    "bench consumer",
    "Read as fast as possible.",
    option("--topic", metavar="NAME", help="what to read"),
    option("--include", metavar="REGEX", help="topics by regular expression"),
    option("--num-records", "--messages", type=int, dest="num_records", required=True, metavar="N", help="how many"),
    option("--group", metavar="GROUP", help="the group to read as (default: a new one)"),
    option("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="at most this much of a partition per fetch"),
    flag("--from-latest", help="start at the end if the group has no offset"),
    option("--timeout", type=int, default=10_000, dest="idle_ms", metavar="MS", help="give up after this time without a record"),
    option("--reporting-interval", type=int, default=5_000, metavar="MS", help="how often to report"),
    flag("--show-detailed-stats", help="report while running"),
    flag("--hide-header", help="no header line"),
    option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT", help="in the form of Java's SimpleDateFormat"),
    flag("--print-metrics", help="metrics of the client at the end"),
    *(hidden(name) for name in ("--socket-buffer-size", "--threads", "--num-fetch-threads", "--max-wait-ms")),
    hidden("--new-consumer", action="store_true"),
    BROKER_LIST,
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
    for name in ("threads", "num_fetch_threads", "max_wait_ms", "new_consumer"):
        if getattr(args, name):
            output.note(f"--{name.replace('_', '-')} has no effect any more")
    if bool(args.topic) == bool(args.include):
        raise UsageError("give --topic or --include")
    if not args.hide_header:
        write_line(output, figures.CONSUMER_DETAIL_HEADER if args.show_detailed_stats else figures.CONSUMER_HEADER)
    topics = [args.topic] if args.topic else [name for name in cluster.topic_names() if pattern_of(args.include).fullmatch(name)]
    for topic in topics:
        cluster.topic(topic)
    group = args.group or f"perf-consumer-{random.randrange(100_000)}"
    consumer = make_consumer(
        cluster,
        properties_of(args),
        group_id=group,
        auto_offset_reset="latest" if args.from_latest else "earliest",
        partition_bytes_max=args.fetch_size,
    )
    with consumer:
        consumer.subscribe(topics)
        found = _consume(consumer, args, output)
    if args.print_metrics and not output.is_structured:
        write(f"records-consumed-total : {found['data.consumed.in.nMsg']}\n")
    if output.is_structured:
        output.show_object(found)


def _consume(consumer: Any, args: Args, output: Output) -> dict[str, Any]:
    count = size = window_count = window_size = 0
    joined: float | None = None
    wall_started = now_ms()
    started = last_seen = window_started = time.perf_counter()
    while count < args.num_records:
        found = consumer.poll(0.1)
        now = time.perf_counter()
        if joined is None and consumer.positions:
            joined = now
        for fetched in found:
            for record in fetched.records():
                size += (0 if record[2] is None else len(record[2])) + (0 if record[3] is None else len(record[3]))
                count += 1
        if found:
            last_seen = time.perf_counter()
        elif (now - last_seen) * 1000 > args.idle_ms:
            why = f"Exiting before consuming the expected number of records: timeout ({args.idle_ms} ms) exceeded."
            output.note(f"WARNING: {why} You can use the --timeout option to increase the timeout.")
            break
        window_ms = (now - window_started) * 1000
        if args.show_detailed_stats and window_ms >= args.reporting_interval:
            window = figures.consumer_figures(count - window_count, size - window_size, window_ms, 0)
            write_line(output, figures.consumer_line(figures.format_date(now_ms(), args.date_format), "0", window))
            window_count, window_size, window_started = count, size, now
    elapsed_ms = (time.perf_counter() - started) * 1000
    total = figures.consumer_figures(count, size, elapsed_ms, ((joined or started) - started) * 1000)
    start, end = (figures.format_date(wall, args.date_format) for wall in (wall_started, now_ms()))
    if not args.show_detailed_stats:
        write_line(output, figures.consumer_line(start, end, total))
    return {"start.time": start, "end.time": end, **total}
