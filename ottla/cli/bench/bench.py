"""`ottla bench producer|consumer|share-consumer|e2e`: Kafka's performance tools with their options and their exact result lines.

They measure this client together with the broker, from one thread; -o json gives the same figures as one object. The test of share
consumers stands in `share_consumer.py`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.cli.bench import figures, share_consumer
from ottla.cli.command import Command, Refused, UsageError
from ottla.cli.moments import now_ms
from ottla.cli.options import add_broker_list, connect, output_of, properties_of
from ottla.cli.output import Output, write
from ottla.cli.records.client_options import make_consumer, make_producer
from ottla.cli.topics.topic_names import pattern_of

if TYPE_CHECKING:
    from ottla.client.producer import Delivery, Producer

CHUNK_RECORDS = 256
TRANSACTION_MS = 3_000


def _line(output: Output, text: str) -> None:
    """A line of Kafka's, for people; whoever wants an object gets it at the end."""
    if not output.is_structured:
        write(text + "\n")
        sys.stdout.flush()


# producer


def _producer_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", required=True, metavar="NAME", help="where to write")
    add("--num-records", type=int, required=True, metavar="N", help="how many")
    add("--throughput", type=float, default=-1, metavar="R", help="at most so many a second (default -1: no limit)")
    add("--record-size", type=int, metavar="BYTES", help="random records of this size")
    add("--payload-file", metavar="FILE", help="records from this file, in random order")
    add("--payload-delimiter", default="\\n", metavar="TEXT", help="what separates them (default: a new line)")
    add("--payload-monotonic", action="store_true", help="records are their numbers")
    add("--transactional-id", metavar="ID", help="in transactions")
    add("--transaction-duration-ms", type=int, metavar="MS", help="how long each lasts (default 3000)")
    add("--warmup-records", type=int, default=0, metavar="N", help="the first ones do not count in a second result line")
    add("--reporting-interval", type=int, default=5_000, metavar="MS", help="how often to report")
    add("--print-metrics", action="store_true", help="figures of the client at the end")


def _payloads(args: argparse.Namespace) -> Iterator[list[bytes]]:
    """Chunks of values without end."""
    chosen = [args.record_size is not None, args.payload_file is not None, args.payload_monotonic]
    if sum(chosen) != 1:
        raise UsageError("give exactly one of --record-size, --payload-file, --payload-monotonic")
    source = random.Random(0)
    if args.payload_monotonic:
        return ([b"%d" % number for number in range(start, start + CHUNK_RECORDS)] for start in _counting(CHUNK_RECORDS))
    if args.payload_file is not None:
        known = _read_payloads(args.payload_file, args.payload_delimiter)
        return (source.choices(known, k=CHUNK_RECORDS) for _ in _counting(1))
    if args.record_size < 1:
        raise UsageError("--record-size must be 1 or more")
    size = args.record_size
    block = bytes(source.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size + 4096))
    return ([block[start : start + size] for start in source.choices(range(4096), k=CHUNK_RECORDS)] for _ in _counting(1))


def _counting(step: int) -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += step


def _read_payloads(path: str, delimiter: str) -> list[bytes]:
    from ottla.cli.records.record_input import unescape

    try:
        with open(path, "rb") as file:
            found = [part for part in file.read().split(unescape(delimiter).encode()) if part]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if not found:
        raise UsageError(f"{path} holds no record")
    return found


class _ProducerRun:
    """Counts deliveries and reports every few seconds."""

    def __init__(self, output: Output, interval_ms: int, warmup: int) -> None:
        self.output = output
        self.interval_ms = interval_ms
        self.warmup = warmup
        self.total = figures.Latencies()
        self.steady = figures.Latencies()
        self.bytes = self.steady_bytes = self.window_bytes = 0
        self.window = figures.Latencies()
        self.started = self.window_started = time.perf_counter()
        self.steady_started = self.started
        self.failure: Exception | None = None

    def delivered(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failure = self.failure or delivery.error
            return
        now = now_ms()
        latencies = [max(0, now - record[1]) for record in delivery.records]
        size = sum([len(record[3] or b"") for record in delivery.records])
        is_steady = self.total.count >= self.warmup
        if is_steady and self.warmup:
            if not self.steady.count:
                self.steady_started = time.perf_counter()
            self.steady.add(latencies)
            self.steady_bytes += size
        self.total.add(latencies)
        self.window.add(latencies)
        self.bytes += size
        self.window_bytes += size
        elapsed_ms = (time.perf_counter() - self.window_started) * 1000
        if elapsed_ms >= self.interval_ms:
            _line(self.output, figures.progress_line(self.window.count, self.window_bytes, elapsed_ms, self.window))
            self.window, self.window_bytes, self.window_started = figures.Latencies(), 0, time.perf_counter()

    def finish(self) -> dict[str, Any]:
        """Prints the last lines and gives the figures."""
        if self.failure is not None:
            raise self.failure
        elapsed_ms = (time.perf_counter() - self.started) * 1000
        _line(self.output, figures.total_line(self.total.count, self.bytes, elapsed_ms, self.total))
        if self.warmup and self.steady.count:
            steady_ms = (time.perf_counter() - self.steady_started) * 1000
            line = figures.total_line(self.steady.count, self.steady_bytes, steady_ms, self.steady)
            _line(self.output, line.replace(" records sent", " steady state records sent"))
        p50, p95, p99, p999 = self.total.percentiles()
        return {
            "records": self.total.count,
            "records_per_second": self.total.count / (elapsed_ms / 1000),
            "megabytes_per_second": self.bytes / figures.BYTES_IN_MB / (elapsed_ms / 1000),
            "latency_ms": {
                "average": self.total.average_ms(),
                "max": self.total.max_ms,
                "p50": p50,
                "p95": p95,
                "p99": p99,
                "p999": p999,
            },
        }


def _producer(args: argparse.Namespace) -> int:
    output = output_of(args)
    payloads = _payloads(args)
    if args.num_records < 1:
        raise UsageError("--num-records must be 1 or more")
    properties = properties_of(args)
    transactional_id = args.transactional_id or properties.get("transactional.id")
    if args.transaction_duration_ms is not None and transactional_id is None:
        transactional_id = f"performance-producer-{random.randrange(1 << 32):08x}"
    run = _ProducerRun(output, args.reporting_interval, args.warmup_records)
    with connect(args) as cluster:
        cluster.topic(args.topic, auto_create=True)
        with make_producer(cluster, properties, transactional_id=transactional_id, on_delivery=run.delivered) as producer:
            duration_ms = args.transaction_duration_ms or (TRANSACTION_MS if transactional_id else None)
            _produce(producer, args, payloads, run, duration_ms)
    found = run.finish()
    if args.print_metrics and not output.is_structured:
        write(f"record-send-total : {producer.delivered}\nbyte-total : {producer.bytes_sent}\n")
    if output.is_structured:
        output.show_object(found)
    return 0


def _produce(
    producer: Producer, args: argparse.Namespace, payloads: Iterator[list[bytes]], run: _ProducerRun, duration_ms: int | None
) -> None:
    sent = 0
    begun = run.started = run.window_started = time.perf_counter()
    if duration_ms is not None:
        producer.begin()
    while sent < args.num_records and run.failure is None:
        due = args.num_records - sent
        if args.throughput > 0:
            due = min(due, int((time.perf_counter() - run.started) * args.throughput) + 1 - sent)
            if due <= 0:
                producer.poll(0.001)
                continue
        values = next(payloads)
        if due < len(values):
            values = values[:due]
        producer.produce_values(args.topic, values)
        sent += len(values)
        if args.throughput > 0:
            producer.poll()
        if duration_ms is not None and (time.perf_counter() - begun) * 1000 >= duration_ms:
            producer.commit()
            producer.begin()
            begun = time.perf_counter()
    if duration_ms is not None:
        producer.commit()
    else:
        producer.flush()


# consumer


def _consumer_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", metavar="NAME", help="what to read")
    add("--include", metavar="REGEX", help="topics by regular expression")
    add("--num-records", "--messages", type=int, dest="num_records", required=True, metavar="N", help="how many")
    add("--group", metavar="GROUP", help="the group to read as (default: one of its own)")
    add("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="at most so much of a partition at once")
    add("--from-latest", action="store_true", help="start at the end if the group has no offset")
    add("--timeout", type=int, default=10_000, dest="idle_ms", metavar="MS", help="give up after so long without a record")
    add("--reporting-interval", type=int, default=5_000, metavar="MS", help="how often to report")
    add("--show-detailed-stats", action="store_true", help="report on the way")
    add("--hide-header", action="store_true", help="no line of headings")
    add("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT", help="as of Java's SimpleDateFormat")
    add("--print-metrics", action="store_true", help="figures of the client at the end")
    for name in ("--socket-buffer-size", "--threads", "--num-fetch-threads", "--max-wait-ms"):
        add(name, help=argparse.SUPPRESS)
    add("--new-consumer", action="store_true", help=argparse.SUPPRESS)
    add_broker_list(parser)


def _consumer(args: argparse.Namespace) -> int:
    output = output_of(args)
    for name in ("threads", "num_fetch_threads", "max_wait_ms", "new_consumer"):
        if getattr(args, name):
            output.note(f"--{name.replace('_', '-')} has no effect any more")
    if bool(args.topic) == bool(args.include):
        raise UsageError("give --topic or --include")
    if not args.hide_header:
        _line(output, figures.CONSUMER_DETAIL_HEADER if args.show_detailed_stats else figures.CONSUMER_HEADER)
    with connect(args) as cluster:
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
    return 0


def _consume(consumer: Any, args: argparse.Namespace, output: Output) -> dict[str, Any]:
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
            _line(output, figures.consumer_line(figures.format_date(now_ms(), args.date_format), "0", window))
            window_count, window_size, window_started = count, size, now
    elapsed_ms = (time.perf_counter() - started) * 1000
    total = figures.consumer_figures(count, size, elapsed_ms, ((joined or started) - started) * 1000)
    start, end = (figures.format_date(wall, args.date_format) for wall in (wall_started, now_ms()))
    if not args.show_detailed_stats:
        _line(output, figures.consumer_line(start, end, total))
    return {"start.time": start, "end.time": end, **total}


# e2e


def _end_to_end_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", required=True, metavar="NAME", help="written and read")
    add("--num-records", type=int, required=True, metavar="N", help="how many, one after another")
    add("--record-size", type=int, default=100, metavar="BYTES", help="size of each (default 100)")
    add("--producer-acks", choices=("0", "1", "all", "-1"), default="all", metavar="ACKS", help="0, 1 or all")


def _end_to_end(args: argparse.Namespace) -> int:
    from ottla.client.admin import LATEST, create_topic

    output = output_of(args)
    if args.num_records < 1 or args.record_size < 1:
        raise UsageError("--num-records and --record-size must be 1 or more")
    latencies: list[float] = []
    value = bytes(random.Random(0).choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=args.record_size))
    with connect(args) as cluster:
        if args.topic not in cluster.topic_names():
            _line(output, f'Topic "{args.topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
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
                    _line(output, f"{number}\t{latencies[-1]:f}")
    for text in figures.end_to_end_lines(latencies):
        _line(output, text)
    if output.is_structured:
        ordered = sorted(latencies)
        last = len(ordered) - 1
        shares = {f"p{name}": ordered[min(len(ordered) * int(name) // 10 ** len(name), last)] for name in ("50", "99", "999")}
        output.show_object({"records": len(ordered), "latency_ms": {"average": sum(ordered) / len(ordered), **shares}})
    return 0


def _await_record(consumer: Any, value: bytes, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for fetched in consumer.poll(timeout_s):
            for record in fetched.records():
                if record.value != value:
                    raise Refused("another record came back; the topic must be used by this test alone")
                return
    raise Refused(f"a record did not come back within {timeout_s:g} s", "REQUEST_TIMED_OUT")


COMMANDS = {
    "producer": Command("Write as fast as possible, or at a rate.", _producer_arguments, _producer),
    "consumer": Command("Read as fast as possible.", _consumer_arguments, _consumer),
    "share-consumer": share_consumer.COMMAND,
    "e2e": Command("One record at a time, there and back.", _end_to_end_arguments, _end_to_end),
}
