"""`ottla bench e2e`: how long one record takes from the producer to the consumer, one record after another."""

from __future__ import annotations

import random
import time
from typing import Any

from ottla.base.types import TopicPartition
from ottla.cli.bench import figures
from ottla.cli.bench.figures import write_line
from ottla.cli.command import Args, Refused, UsageError, command, option
from ottla.cli.options import properties_of
from ottla.cli.records.client_options import make_consumer, make_producer
from ottla.cli.render.ottla import Output
from ottla.client.blocking.cluster import Cluster


@command(
    "bench e2e",
    "Latency of single records from producer to consumer.",
    option("--topic", required=True, metavar="NAME", help="written and read"),
    option("--num-records", type=int, required=True, metavar="N", help="how many, one after another"),
    option("--record-size", type=int, default=100, metavar="BYTES", help="size of each (default 100)"),
    option("--producer-acks", choices=("0", "1", "all", "-1"), default="all", metavar="ACKS", help="0, 1 or all"),
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
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
