"""Measures the codec of the Spark pipeline on one core: rows per second into record batches and back, and into partitions.

usage: python -m tools.bench.spark_codec [--rows 500000]

Rows are JSON values of about 100 bytes or 1 KB, with and without a key. Figures are from the best of several rounds in CPU time, so that
other work on the machine has little influence. Needs the Spark packages that `make test` installs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.arrow.decode import decode_batches
from ottla.arrow.encode import EncodedBatch, encode_rows
from ottla.arrow.partitioning import assign_partitions
from ottla.client import Fetched, TopicPartition
from ottla.wire.records import read_batch_header, set_base_offset
from tools.bench.report import machine

CHUNK_ROWS = 20_000
"""Number of rows that Spark passes at once."""
ROUNDS = 5
PARTITIONS = 8
WORDS = ("departed", "landed", "boarding", "delayed", "diverted", "cancelled", "taxiing", "climbing")


def make_rows(count: int, value_bytes: int) -> Any:
    """Makes rows with keys of 10 bytes and different values of about `value_bytes`."""
    choose = random.Random(1)
    values = []
    for number in range(count):
        value = f'{{"flight":{number},"delay":{choose.randrange(-30, 400)},"state":"{choose.choice(WORDS)}","note":"'.encode()
        values.append(value + choose.randbytes((value_bytes - len(value) - 2) // 2).hex().encode() + b'"}')
    return pa.record_batch({"key": [b"key%07d" % choose.randrange(10**7) for _ in range(count)], "value": values})


def seconds_of(run: Callable[[], object]) -> float:
    """Returns the CPU seconds of the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best


def encode_all(rows: Any, compression: str) -> list[EncodedBatch]:
    chunks = (rows.slice(start, CHUNK_ROWS) for start in range(0, rows.num_rows, CHUNK_ROWS))
    return [batch for chunk in chunks for batch in encode_rows(chunk, compression=compression, is_transactional=True)]


def assign_all(rows: Any) -> int:
    chunks = (rows.slice(start, CHUNK_ROWS) for start in range(0, rows.num_rows, CHUNK_ROWS))
    return sum(part.num_rows for chunk in chunks for _, part in assign_partitions(chunk, {"flights": PARTITIONS}, "flights"))


def fetched(encoded: Sequence[EncodedBatch]) -> Fetched:
    """Returns a Fetch response with these batches."""
    offset, batches = 0, []
    for batch in encoded:
        set_base_offset(batch.data, 0, offset)
        offset += batch.count
        batches.append((read_batch_header(batch.data), memoryview(batch.data)))
    return Fetched(TopicPartition("flights", 0), 0, offset, batches, [], 0, offset, offset)


def decode_all(answer: Fetched) -> int:
    return sum(rows.num_rows for rows in decode_batches(answer, answer.next_offset))


def print_figures(rows: Any, label: str) -> None:
    count, size = rows.num_rows, rows.nbytes / rows.num_rows
    for compression in ("none", "lz4"):
        encoding = seconds_of(partial(encode_all, rows, compression))
        decoding = seconds_of(partial(decode_all, fetched(encode_all(rows, compression))))
        for what, seconds in (("encode", encoding), ("decode", decoding)):
            print(f"| {label}, {compression} | {what} | {count / seconds:,.0f} | {count * size / seconds / 1e6:,.0f} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of 100 bytes; a tenth of it of 1 KB (default 500000)")
    args = parser.parse_args(argv)
    print(f"{machine()}; one core, chunks of {CHUNK_ROWS:,} rows\n\n| rows | | rows/s | MB/s |\n| --- | --- | --- | --- |")
    for value_bytes, count in ((100, args.rows), (1000, args.rows // 10)):
        rows = make_rows(count, value_bytes)
        for part in (rows.select(["value"]), rows):
            names = "value only" if part.num_columns == 1 else "key and value"
            label = f"{value_bytes} B, {names}"
            print_figures(part, label)
            seconds = seconds_of(partial(assign_all, part))
            print(f"| {label} | assign to {PARTITIONS} partitions | {count / seconds:,.0f} | |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
