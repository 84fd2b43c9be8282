"""`ottla bench consumer`, `share-consumer` and `e2e`: Kafka's performance tests, with their options and result lines.

Each of the `--threads` share consumers is a member of the group with its own connections. They stop when they have received `--num-records`
records together. The total may be higher, because a consumer counts all records of its last batch. Counted records are acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from ottla.analysis.moments import now_ms
from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.cli.bench import figures
from ottla.cli.bench.figures import write_line
from ottla.cli.command import Args, Refused, UsageError, command, flag, hidden, option
from ottla.cli.options import BROKER_LIST, connect, properties_of
from ottla.cli.output import write
from ottla.cli.records.client_options import make_consumer, make_producer, make_share_consumer
from ottla.cli.render.ottla import Output
from ottla.cli.topics.topic_names import pattern_of
from ottla.client.blocking.cluster import Cluster

NUM_RECORDS = option("--num-records", "--messages", type=int, dest="num_records", required=True, metavar="N", help="how many")
REPORT_OPTIONS = (
    option("--timeout", type=int, default=10_000, dest="idle_ms", metavar="MS", help="give up after this time without a record"),
    option("--reporting-interval", type=int, default=5_000, metavar="MS", help="reporting interval"),
    flag("--show-detailed-stats", help="report while running"),
)
LINE_OPTIONS = (
    flag("--hide-header", help="no header line"),
    option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT", help="in the form of Java's SimpleDateFormat"),
    flag("--print-metrics", help="print metrics of the client at the end"),
)
TIMED_OUT = (
    "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. You can use the --timeout option to "
    "increase the timeout."
)


@command(
    "bench consumer",
    "Read as fast as possible.",
    option("--topic", metavar="NAME", help="what to read"),
    option("--include", metavar="REGEX", help="topics by regular expression"),
    NUM_RECORDS,
    option("--group", metavar="GROUP", help="the group to read as (default: a new one)"),
    option("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="maximum bytes of a partition in a fetch"),
    flag("--from-latest", help="start at the end if the group has no offset"),
    *REPORT_OPTIONS,
    *LINE_OPTIONS,
    *(hidden(name) for name in ("--socket-buffer-size", "--threads", "--num-fetch-threads", "--max-wait-ms")),
    hidden("--new-consumer", action="store_true"),
    BROKER_LIST,
)
def _consumer(args: Args, cluster: Cluster, output: Output) -> None:
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
            output.note(TIMED_OUT.format(args.idle_ms))
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


GROUP = "perf-share-consumer"
CLIENT_ID = "perf-share-consumer-client"
POLL_S = 0.1


class _Member(threading.Thread):
    """A thread with one consumer and its connections. `members` are the threads of all consumers; `failure` is the error that ended it."""

    def __init__(self, number: int, args: Args, output: Output, members: list[_Member]) -> None:
        super().__init__(daemon=True)
        self.number, self.args, self.output, self.members = number, args, output, members
        self.client_id = CLIENT_ID if args.threads == 1 else f"{CLIENT_ID}-{number}"
        self.count = self.bytes = 0
        self.is_timed_out = False
        self.failure: OttlaError | None = None

    def run(self) -> None:
        try:
            with connect(self.args) as cluster:
                cluster.client_id = self.client_id
                properties = {**properties_of(self.args), "fetch.max.bytes": str(self.args.fetch_size)}
                with make_share_consumer(cluster, properties, self.args.group) as consumer:
                    consumer.subscribe([self.args.topic])
                    self._consume(consumer)
                    consumer.commit()
        except OttlaError as error:
            self.failure = error

    def _consume(self, consumer: Any) -> None:
        last_seen = window_started = time.perf_counter()
        window_count = window_size = 0
        while sum(member.count for member in self.members) < self.args.num_records:
            found = consumer.poll(POLL_S)
            now = time.perf_counter()
            for _, _, record, _ in found:
                self.bytes += (0 if record[2] is None else len(record[2])) + (0 if record[3] is None else len(record[3]))
            if found:
                self.count += len(found)
                last_seen = now
            elif (now - last_seen) * 1000 > self.args.idle_ms:
                self.is_timed_out = True
                return
            if self.args.show_detailed_stats and (now - window_started) * 1000 >= self.args.reporting_interval:
                window = figures.share_figures(self.count - window_count, self.bytes - window_size, (now - window_started) * 1000)
                start, end = (figures.format_date(now_ms() - age, self.args.date_format) for age in (int((now - window_started) * 1000), 0))
                write_line(self.output, f"{figures.consumer_line(start, end, window)} for share consumer {self.number}")
                window_count, window_size, window_started = self.count, self.bytes, now


@command(
    "bench share-consumer",
    "Measure consuming in a share group, with the options of kafka-share-consumer-perf-test.",
    option("--topic", required=True, metavar="NAME", help="what to read"),
    NUM_RECORDS,
    option("--group", default=GROUP, metavar="GROUP", help=f"the share group (default {GROUP})"),
    option("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="maximum bytes in a fetch"),
    option("--threads", type=int, default=1, metavar="N", help="number of consumers (default 1)"),
    *REPORT_OPTIONS,
    flag("--show-consumer-stats", help="a line for each consumer"),
    *LINE_OPTIONS,
    hidden("--socket-buffer-size"),
)
def _share_consumer(args: Args, cluster: Cluster, output: Output) -> None:
    if args.num_records < 1 or args.threads < 1:
        raise UsageError("--num-records and --threads must be 1 or more")
    cluster.topic(args.topic)
    if not args.hide_header:
        write_line(output, figures.SHARE_HEADER)
    members: list[_Member] = []
    members += [_Member(number, args, output, members) for number in range(1, args.threads + 1)]
    wall_started, started = now_ms(), time.perf_counter()
    for member in members:
        member.start()
    for member in members:
        member.join()
    elapsed_ms = (time.perf_counter() - started) * 1000
    for member in members:
        if member.failure is not None:
            raise member.failure
    count = sum(member.count for member in members)
    if any(member.is_timed_out for member in members) and count < args.num_records:
        output.note(TIMED_OUT.format(args.idle_ms))
    start, end = (figures.format_date(wall, args.date_format) for wall in (wall_started, now_ms()))
    if args.show_consumer_stats:
        for member in members:
            found = figures.consumer_line(start, end, figures.share_figures(member.count, member.bytes, elapsed_ms))
            write_line(output, f"Share consumer {member.number} having client id {member.client_id} consumption metrics- {found}")
    total = figures.share_figures(count, sum(member.bytes for member in members), elapsed_ms)
    write_line(output, figures.consumer_line(start, end, total))
    if args.print_metrics:
        write_line(output, f"records-consumed-total : {count}")
    if output.is_structured:
        output.show_object({"start.time": start, "end.time": end, **total})


@command(
    "bench e2e",
    "Latency of single records from producer to consumer.",
    option("--topic", required=True, metavar="NAME", help="written and read"),
    option("--num-records", type=int, required=True, metavar="N", help="number of records, sent one after another"),
    option("--record-size", type=int, default=100, metavar="BYTES", help="size of each record (default 100)"),
    option("--producer-acks", choices=("0", "1", "all", "-1"), default="all", metavar="ACKS", help="0, 1 or all"),
)
def _e2e(args: Args, cluster: Cluster, output: Output) -> None:
    from ottla.client.core.admin import LATEST, create_topic

    if args.num_records < 1 or args.record_size < 1:
        raise UsageError("--num-records and --record-size must be 1 or more")
    latencies: list[float] = []
    value = bytes(random.Random(0).choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=args.record_size))
    if args.topic not in cluster.topic_names():
        write_line(output, f'Topic "{args.topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
        create_topic(cluster, args.topic, partitions=1, replication_factor=1)
    properties = properties_of(args)
    with (
        make_producer(cluster, properties, acks=args.producer_acks, linger_ms=0) as producer,
        make_consumer(cluster, {**properties, "enable.auto.commit": "false"}) as consumer,
    ):
        consumer.assign({TopicPartition(args.topic, number): LATEST for number in cluster.partitions(args.topic)})
        for number in range(args.num_records):
            started = time.perf_counter()
            producer.produce(args.topic, value)
            producer.flush()
            _await_record(consumer, value, cluster.timeout_s)
            latencies.append((time.perf_counter() - started) * 1000)
            if number % 1000 == 0:
                write_line(output, f"{number}\t{latencies[-1]:f}")
    for text in figures.end_to_end_lines(latencies):
        write_line(output, text)
    if output.is_structured:
        ordered = sorted(latencies)
        last = len(ordered) - 1
        shares = {f"p{name}": ordered[min(len(ordered) * int(name) // 10 ** len(name), last)] for name in ("50", "99", "999")}
        output.show_object({"records": len(ordered), "latency_ms": {"average": sum(ordered) / len(ordered), **shares}})


def _await_record(consumer: Any, value: bytes, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for fetched in consumer.poll(timeout_s):
            for record in fetched.records():
                if record.value != value:
                    raise Refused("another record came back; the topic must be used by this test alone")
                return
    raise Refused(f"a record did not come back within {timeout_s:g} s", "REQUEST_TIMED_OUT")
