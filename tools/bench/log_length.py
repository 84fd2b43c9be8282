"""Measures whether an append or a fetch costs more in a longer log: the CPU of each at 10^3 and at 10^6 batches, in a real directory.

usage: python -m tools.bench.log_length [--batches 1000,1000000] [--segment-bytes 16777216]

The log is a broker's partition, without the network. Measured are `Partition.append`, `Partition.read` at the end and at random offsets,
and the look-up of random times. A batch has one record of 100 bytes. It prints rows for a table, without thresholds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from random import Random

from ottla.adapters.disk import OsDisk
from ottla.base.config import BrokerConfig
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.open_files import OpenFiles
from ottla.wire.records import Record, encode_batch
from tools.bench.report import Row, number

LENGTHS = (1_000, 1_000_000)
SEGMENT_BYTES = 16 << 20
REPETITIONS = 5_000
READ_BYTES = 100_000
RECORD_BYTES = 100
FIRST_TIMESTAMP = 1_700_000_000_000


class MeasuredLog:
    """One partition that grows. Its records' timestamps are a millisecond apart."""

    def __init__(self, directory: str, segment_bytes: int) -> None:
        key = TopicPartition("bench", 0)
        config = BrokerConfig().log_config({"segment.bytes": str(segment_bytes)})
        log = Log.open(OsDisk(), f"{directory}/{key}", key, config, now_ms=0, was_clean=False, open_files=OpenFiles(512))
        self.partition = Partition(log, broker_id=0)
        self.partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,), now_ms=0)
        self.random = Random(1)

    @property
    def length(self) -> int:
        return self.partition.log.log_end_offset

    def append(self, count: int) -> None:
        append, value = self.partition.require_leading().append, b"v" * RECORD_BYTES
        for number_ in range(self.length, self.length + count):
            timestamp = FIRST_TIMESTAMP + number_
            append(encode_batch([Record(0, timestamp, None, value)]), acks=1, now_ms=timestamp)

    def append_cost(self) -> float:
        """Returns the CPU microseconds of one append. The time to build the batches is not included."""
        first = self.length
        batches = [encode_batch([Record(0, FIRST_TIMESTAMP + first + i, None, b"v" * RECORD_BYTES)]) for i in range(REPETITIONS)]
        append, now_ms = self.partition.require_leading().append, FIRST_TIMESTAMP + first
        started = time.process_time()
        for batch in batches:
            append(batch, acks=1, now_ms=now_ms)
        return (time.process_time() - started) * 1e6 / REPETITIONS

    def read_cost(self, offsets: Sequence[int]) -> float:
        read = self.partition.read
        return cost_of(lambda offset: read(offset, READ_BYTES, isolation=0), offsets)

    def time_cost(self, offsets: Sequence[int]) -> float:
        look_up = self.partition.list_offset
        return cost_of(lambda offset: look_up(FIRST_TIMESTAMP + offset, 0), offsets)

    def rows(self, batches: int) -> list[Row]:
        self.append(batches - self.length)
        at_random = [self.random.randrange(batches) for _ in range(REPETITIONS)]
        at_the_end = [max(batches - 1 - self.random.randrange(100), 0) for _ in range(REPETITIONS)]
        self.read_cost(at_random)  # opens indexes and files, so that the measured reads do not include it
        self.time_cost(at_random)
        measured = [
            ("fetch at the end", self.read_cost(at_the_end)),
            ("fetch at a random offset", self.read_cost(at_random)),
            ("offset of a random time", self.time_cost(at_random)),
            ("append", self.append_cost()),
        ]
        return [(f"{what}, {batches:,} batches", "us of CPU", cost) for what, cost in measured]


def cost_of(work: Callable[[int], object], offsets: Sequence[int]) -> float:
    started = time.process_time()
    for offset in offsets:
        work(offset)
    return (time.process_time() - started) * 1e6 / len(offsets)


def log_length(lengths: Sequence[int] = LENGTHS, segment_bytes: int = SEGMENT_BYTES) -> list[Row]:
    """Returns the rows of each length, in ascending order. The log grows from one length to the next."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        measured = MeasuredLog(directory, segment_bytes)
        rows = [row for length in sorted(lengths) for row in measured.rows(length)]
        measured.partition.log.close(clean=False)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default=",".join(map(str, LENGTHS)), help="lengths to measure at")
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES)
    args = parser.parse_args(argv)
    for what, unit, figure in log_length([int(length) for length in args.batches.split(",")], args.segment_bytes):
        print(f"| {what} | {unit} | {number(figure)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
