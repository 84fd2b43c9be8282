"""`ottla bench share-consumer`: Kafka's performance test of share consumers, with its options and its result lines.

Each of the `--threads` consumers is a member of the group with connections of its own. The consumers stop when they have received
`--num-records` together. The total may be higher, because each consumer counts its last batch whole. Counted records are acknowledged.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ottla.base.errors import OttlaError
from ottla.cli.bench import figures
from ottla.cli.bench.figures import write_line
from ottla.cli.command import Args, UsageError, command, flag, hidden, option
from ottla.cli.moments import now_ms
from ottla.cli.options import connect, properties_of
from ottla.cli.records.client_options import make_share_consumer
from ottla.cli.render.ottla import Output
from ottla.client.blocking.cluster import Cluster

GROUP = "perf-share-consumer"
CLIENT_ID = "perf-share-consumer-client"
POLL_S = 0.1


class _Totals:
    """The record count of all consumers, updated under the lock, and whether a consumer has timed out."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.count = 0
        self.lock = threading.Lock()
        self.is_timed_out = False

    def add(self, count: int) -> None:
        with self.lock:
            self.count += count


class _Member(threading.Thread):
    """A thread with one consumer and its connections. `failure` is the error that ended it."""

    def __init__(self, number: int, args: Args, output: Output, tally: _Totals) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.args = args
        self.output = output
        self.tally = tally
        self.count = self.bytes = 0
        self.failure: OttlaError | None = None

    def run(self) -> None:
        try:
            with connect(self.args) as cluster:
                cluster.client_id = CLIENT_ID if self.args.threads == 1 else f"{CLIENT_ID}-{self.number}"
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
        while self.tally.count < self.tally.wanted:
            found = consumer.poll(POLL_S)
            now = time.perf_counter()
            for _, _, record, _ in found:
                self.bytes += (0 if record[2] is None else len(record[2])) + (0 if record[3] is None else len(record[3]))
            if found:
                self.count += len(found)
                self.tally.add(len(found))
                last_seen = now
            elif (now - last_seen) * 1000 > self.args.idle_ms:
                self.tally.is_timed_out = True
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
    option("--num-records", "--messages", type=int, dest="num_records", required=True, metavar="N", help="how many"),
    option("--group", default=GROUP, metavar="GROUP", help=f"the share group (default {GROUP})"),
    option("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="at most this much per fetch"),
    option("--threads", type=int, default=1, metavar="N", help="number of consumers (default 1)"),
    option("--timeout", type=int, default=10_000, dest="idle_ms", metavar="MS", help="give up after this time without a record"),
    option("--reporting-interval", type=int, default=5_000, metavar="MS", help="how often to report"),
    flag("--show-detailed-stats", help="report while running"),
    flag("--show-consumer-stats", help="a line for each consumer"),
    flag("--hide-header", help="no header line"),
    option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT", help="in the form of Java's SimpleDateFormat"),
    flag("--print-metrics", help="metrics of the client at the end"),
    hidden("--socket-buffer-size"),
)
def _run(args: Args, cluster: Cluster, output: Output) -> None:
    if args.num_records < 1 or args.threads < 1:
        raise UsageError("--num-records and --threads must be 1 or more")
    cluster.topic(args.topic)
    if not args.hide_header:
        write_line(output, figures.SHARE_HEADER)
    tally = _Totals(args.num_records)
    members = [_Member(number, args, output, tally) for number in range(1, args.threads + 1)]
    wall_started, started = now_ms(), time.perf_counter()
    for member in members:
        member.start()
    for member in members:
        member.join()
    elapsed_ms = (time.perf_counter() - started) * 1000
    for member in members:
        if member.failure is not None:
            raise member.failure
    if tally.is_timed_out and tally.count < args.num_records:
        why = f"Exiting before consuming the expected number of records: timeout ({args.idle_ms} ms) exceeded."
        output.note(f"WARNING: {why} You can use the --timeout option to increase the timeout.")
    start, end = (figures.format_date(wall, args.date_format) for wall in (wall_started, now_ms()))
    if args.show_consumer_stats:
        for member in members:
            found = figures.consumer_line(start, end, figures.share_figures(member.count, member.bytes, elapsed_ms))
            name = CLIENT_ID if args.threads == 1 else f"{CLIENT_ID}-{member.number}"
            write_line(output, f"Share consumer {member.number} having client id {name} consumption metrics- {found}")
    total = figures.share_figures(tally.count, sum(member.bytes for member in members), elapsed_ms)
    write_line(output, figures.consumer_line(start, end, total))
    if args.print_metrics:
        write_line(output, f"records-consumed-total : {tally.count}")
    if output.is_structured:
        output.show_object({"start.time": start, "end.time": end, **total})
