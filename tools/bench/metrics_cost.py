"""Measures what one scrape costs the event loop: a broker with many partitions in this process is scraped in pieces, as its HTTP port does.

usage: python -m tools.bench.metrics_cost [--partitions 2000] [--scrapes 20]

`measure` returns rows for `make bench`. There are three kinds of scrapes: the first one, one without a change since the last, and one after
every partition has changed. "In all" is the CPU time of the whole scrape. "Longest piece" is the longest time that the loop is blocked:
between the pieces it serves clients.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.config import load
from ottla.controller.api import NewTopic
from ottla.server.app import BrokerServer, new_event_loop
from ottla.server.monitoring.metric_page import Page
from ottla.server.monitoring.metrics import Metrics
from ottla.wire.records import Record, encode_batch

TOPICS = 20


class Cost(NamedTuple):
    """The cost of one kind of scrape, in milliseconds: the median of several scrapes."""

    label: str
    total_ms: float
    longest_ms: float
    page_bytes: int


def measure(partitions: int = 2000, scrapes: int = 20) -> list[Cost]:
    """Returns the costs on a new broker with `partitions` partitions."""
    loop = new_event_loop()
    with tempfile.TemporaryDirectory(prefix="ottla-metrics-") as directory:
        assignments = (f"log.dirs={directory}/data", "listeners=PLAINTEXT://127.0.0.1:0", "ottla.shutdown.timeout.ms=1000")
        server = BrokerServer(loop, load(assignments=assignments)[0])
        server.start()
        try:
            return _measure(server, partitions, scrapes)
        finally:
            loop.run_until_complete(server.stop())
            loop.close()


def _measure(server: BrokerServer, partitions: int, scrapes: int) -> list[Cost]:
    topics = min(TOPICS, partitions)
    names = [NewTopic(name=f"topic-{number}", num_partitions=partitions // topics) for number in range(topics)]
    server.node.controller.create_topics(names, False, lambda _results: None)
    node = server.node
    metrics = Metrics(node)
    write = _writer(server)
    first = scrape(metrics)
    resting = [scrape(metrics) for _ in range(scrapes)]
    moving = []
    for _ in range(scrapes):
        write()
        moving.append(scrape(metrics))
    return [_median("first scrape", [first]), _median("nothing has moved", resting), _median("every partition has moved", moving)]


def _writer(server: BrokerServer) -> Callable[[], None]:
    """Returns a function that appends a record to every partition."""
    now_ms = server.clock.wall_ms()
    batch = bytes(encode_batch([Record(0, now_ms, b"key", b"value")]))

    def write() -> None:
        for partition in server.node.partitions.all():
            partition.require_leading().append(bytearray(batch), acks=1, now_ms=now_ms)

    return write


def scrape(metrics: Metrics) -> Cost:
    """Makes one scrape, piece by piece. The whole is measured as CPU time, a piece as wall time, because it blocks the loop for that
    long.
    """
    page = Page()
    longest = 0.0
    started = time.thread_time()
    before = time.perf_counter()
    for _ in metrics.steps(page):
        now = time.perf_counter()
        longest = max(longest, now - before)
        before = time.perf_counter()
    text = metrics.finish(page)
    longest = max(longest, time.perf_counter() - before)
    return Cost("", (time.thread_time() - started) * 1000, longest * 1000, len(text))


def _median(label: str, costs: Sequence[Cost]) -> Cost:
    return Cost(
        label,
        statistics.median(cost.total_ms for cost in costs),
        statistics.median(cost.longest_ms for cost in costs),
        costs[-1].page_bytes,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--scrapes", type=int, default=20)
    args = parser.parse_args(argv)
    print(f"| /metrics, {args.partitions:,} partitions | in all, ms | longest piece, ms | page, KiB |\n| --- | --- | --- | --- |")
    for cost in measure(args.partitions, args.scrapes):
        print(f"| {cost.label} | {cost.total_ms:.2f} | {cost.longest_ms:.2f} | {cost.page_bytes / 1024:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
