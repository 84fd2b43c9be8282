"""Measures a topic as a DataFrame: rows per second of CPU time of one core, and `ottla sql` with the start of its process.

usage: python -m tools.bench.frame [--rows 1000000]

Rows have values of 100 bytes: one topic of equal sizes, one of 90 to 110 bytes. Figures are the reader's CPU time in the best round, so
that other work on the machine has little influence. Needs the packages of `ottla[frame]`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import ottla
from ottla.client import connect
from tools.bench.brokers import start_ottla
from tools.bench.report import machine

ROUNDS = 3


def fill(address: str, rows: int) -> None:
    """Makes the topics `even` and `uneven`, with one partition each."""
    with connect(address) as client:
        for topic, spread in (("even", 1), ("uneven", 21)):
            client.create_topic(topic, partitions=1)
            with client.producer(batch_bytes=900_000) as producer:
                producer.produce_values(topic, (b"%0*d" % (100 - spread // 2 + number % spread, number) for number in range(rows)))


def seconds_of_reading(address: str, topic: str, columns: Sequence[str]) -> float:
    """Returns the CPU seconds of the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _batch in ottla.frame(topic, columns=columns, bootstrap=address, progress=False).to_reader():
            pass
        best = min(best, time.process_time() - started)
    return best


def seconds_of_query(address: str, query: str) -> float:
    """Returns the CPU seconds of `ottla sql`, with those of the start of Python, in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "ottla.cli.main", "sql", query, "-b", address, "-q"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each topic (default 1000000)")
    args = parser.parse_args(argv)
    print(f"{machine()}; {args.rows:,} rows of 100 B\n\n| a topic as a DataFrame | unit | ottla |\n| --- | --- | --- |")
    broker = start_ottla()
    try:
        fill(broker.address, args.rows)
        for topic in ("even", "uneven"):
            for columns in (["value"], ["key", "value", "partition", "offset", "timestamp"]):
                seconds = seconds_of_reading(broker.address, topic, columns)
                what = f"values of {topic} size, {len(columns)} column{'s' if len(columns) > 1 else ''}"
                print(f"| {what} | rows/s of a core | {args.rows / seconds:,.0f} |", flush=True)
        for query in ("select 1", "select count(*) from uneven", "select length(value), count(*) from uneven group by 1"):
            print(f"| ottla sql '{query}' | s of CPU | {seconds_of_query(broker.address, query):.2f} |", flush=True)
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
