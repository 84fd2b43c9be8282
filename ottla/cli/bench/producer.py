"""`ottla bench producer`: Kafka's performance test of producers, with its options and its result lines.

With `--warmup-records` a second result line is about the records after the warm-up (KIP-1052). With `--key-distribution` the records have
keys, the numbers from 0 up to `--record-key-range` as texts: one after the other, or at random (KIP-1299).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

from ottla.analysis.moments import now_ms
from ottla.cli.bench import figures
from ottla.cli.bench.figures import write_line
from ottla.cli.command import Args, UsageError, command, flag, option
from ottla.cli.input_files import read_bytes
from ottla.cli.options import properties_of
from ottla.cli.output import write
from ottla.cli.records.client_options import make_producer
from ottla.cli.render.ottla import Output
from ottla.client.blocking.cluster import Cluster

if TYPE_CHECKING:
    from ottla.client.blocking.producer import Delivery, Producer

CHUNK_RECORDS = 256
TRANSACTION_MS = 3_000


def _payloads(args: Args) -> Iterator[list[bytes]]:
    """Yields chunks of record values without end. Raises `UsageError` unless exactly one source of values is named."""
    chosen = [args.record_size is not None, args.payload_file is not None, args.payload_monotonic]
    if sum(chosen) != 1:
        raise UsageError("give exactly one of --record-size, --payload-file, --payload-monotonic")
    source = random.Random(0)
    if args.payload_monotonic:
        return ([b"%d" % number for number in range(start, start + CHUNK_RECORDS)] for start in count(0, CHUNK_RECORDS))
    if args.payload_file is not None:
        known = _read_payloads(args.payload_file, args.payload_delimiter)
        return (source.choices(known, k=CHUNK_RECORDS) for _ in repeat(None))
    if args.record_size < 1:
        raise UsageError("--record-size must be 1 or more")
    size = args.record_size
    block = bytes(source.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size + 4096))
    return ([block[start : start + size] for start in source.choices(range(4096), k=CHUNK_RECORDS)] for _ in repeat(None))


def _read_payloads(path: str, delimiter: str) -> list[bytes]:
    from ottla.cli.records.record_input import unescape

    found = [part for part in read_bytes(path).split(unescape(delimiter).encode()) if part]
    if not found:
        raise UsageError(f"{path} holds no record")
    return found


def _keys(args: Args) -> Iterator[bytes] | None:
    """Yields keys without end; None for records without keys. Raises `UsageError` if the options do not fit together."""
    if args.record_key_range is None and args.key_distribution is None:
        if args.random_seed is not None:
            raise UsageError("--random-seed needs --key-distribution random")
        return None
    if args.record_key_range is None or args.key_distribution is None:
        raise UsageError("--record-key-range and --key-distribution belong together; give both")
    if args.record_key_range < 1:
        raise UsageError("--record-key-range must be 1 or more")
    if args.key_distribution == "range":
        if args.random_seed is not None:
            raise UsageError("--random-seed needs --key-distribution random")
        return (b"%d" % (number % args.record_key_range) for number in count())
    source = random.Random(args.random_seed)
    return (b"%d" % source.randrange(args.record_key_range) for _ in repeat(None))


class _ProducerRun:
    """Counts deliveries and prints a line per reporting interval. Warm-up records are included in the total, but not in the steady state.
    """

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
        sizes = [len(record[3] or b"") for record in delivery.records]
        size = sum(sizes)
        left = max(0, self.warmup - self.total.count)  # warm-up records, which may end within this batch
        if self.warmup and left < len(latencies):
            if not self.steady.count:
                self.steady_started = time.perf_counter()
            self.steady.add(latencies[left:])
            self.steady_bytes += sum(sizes[left:])
        self.total.add(latencies)
        self.window.add(latencies)
        self.bytes += size
        self.window_bytes += size
        elapsed_ms = (time.perf_counter() - self.window_started) * 1000
        if elapsed_ms >= self.interval_ms:
            write_line(self.output, figures.progress_line(self.window.count, self.window_bytes, elapsed_ms, self.window))
            self.window, self.window_bytes, self.window_started = figures.Latencies(), 0, time.perf_counter()

    def finish(self) -> dict[str, Any]:
        """Prints the last lines and returns the figures. Raises the first error of a delivery."""
        if self.failure is not None:
            raise self.failure
        elapsed_ms = (time.perf_counter() - self.started) * 1000
        write_line(self.output, figures.total_line(self.total.count, self.bytes, elapsed_ms, self.total))
        if self.warmup and self.steady.count:
            steady_ms = (time.perf_counter() - self.steady_started) * 1000
            line = figures.total_line(self.steady.count, self.steady_bytes, steady_ms, self.steady)
            write_line(self.output, line.replace(" records sent", " steady state records sent"))
        shares = dict(zip(("p50", "p95", "p99", "p999"), self.total.percentiles(), strict=True))
        return {
            "records": self.total.count,
            "records_per_second": self.total.count / (elapsed_ms / 1000),
            "megabytes_per_second": self.bytes / figures.BYTES_IN_MB / (elapsed_ms / 1000),
            "latency_ms": {"average": self.total.average_ms(), "max": self.total.max_ms, **shares},
        }


@command(
    "bench producer",
    "Write as fast as possible, or at a rate.",
    option("--topic", required=True, metavar="NAME", help="where to write"),
    option("--num-records", type=int, required=True, metavar="N", help="how many"),
    option("--throughput", type=float, default=-1, metavar="R", help="maximum records per second (default -1: no limit)"),
    option("--record-size", type=int, metavar="BYTES", help="random records of this size"),
    option("--payload-file", metavar="FILE", help="records from this file, in random order"),
    option("--payload-delimiter", default="\\n", metavar="TEXT", help="separator of records in the file (default: a new line)"),
    flag("--payload-monotonic", help="each record is its number"),
    option("--record-key-range", type=int, metavar="N", help="number of different keys, with --key-distribution"),
    option("--key-distribution", choices=("range", "random"), help="keys one after the other, or at random (default: no keys)"),
    option("--random-seed", type=int, metavar="SEED", help="the same random keys in each run"),
    option("--transactional-id", metavar="ID", help="in transactions"),
    option("--transaction-duration-ms", type=int, metavar="MS", help="duration of each transaction (default 3000)"),
    option("--warmup-records", type=int, default=0, metavar="N", help="print a second result line without the first N records"),
    option("--reporting-interval", type=int, default=5_000, metavar="MS", help="reporting interval"),
    flag("--print-metrics", help="print metrics of the client at the end"),
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
    payloads, keys = _payloads(args), _keys(args)
    if args.num_records < 1:
        raise UsageError("--num-records must be 1 or more")
    properties = properties_of(args)
    transactional_id = args.transactional_id or properties.get("transactional.id")
    if args.transaction_duration_ms is not None and transactional_id is None:
        transactional_id = f"performance-producer-{random.randrange(1 << 32):08x}"
    run = _ProducerRun(output, args.reporting_interval, args.warmup_records)
    cluster.topic(args.topic, auto_create=True)
    with make_producer(cluster, properties, transactional_id=transactional_id, on_delivery=run.delivered) as producer:
        duration_ms = args.transaction_duration_ms or (TRANSACTION_MS if transactional_id else None)
        _produce(producer, args, payloads, keys, run, duration_ms)
    found = run.finish()
    if args.print_metrics and not output.is_structured:
        write(f"record-send-total : {producer.delivered}\nbyte-total : {producer.bytes_sent}\n")
    if output.is_structured:
        output.show_object(found)


def _produce(
    producer: Producer, args: Args, payloads: Iterator[list[bytes]], keys: Iterator[bytes] | None, run: _ProducerRun,
    duration_ms: int | None,
) -> None:  # fmt: skip
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
        if keys is None:
            producer.produce_values(args.topic, values)
        else:
            for value in values:
                producer.produce(args.topic, value, next(keys))
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
