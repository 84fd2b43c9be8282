"""Measures a mirror between two brokers: megabytes per second, and the CPU seconds per gigabyte of the mirror and of both brokers.

usage: python -m tools.bench.mirror [--megabytes 1024] [--partitions 4] [--batch 65536] [--rounds 3]

The source is filled first. Each round starts an empty target, and measures `ottla mirror --graduate`, which copies everything and ends.
Then the bytes of the segments are compared.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import ottla.client
from ottla.base.types import TopicPartition
from tools.bench.brokers import Broker, start_ottla
from tools.bench.report import machine

TOPIC = "mirrored"
VALUE_BYTES = 1_000


def fill(broker: Broker, megabytes: int, partitions: int, batch_bytes: int) -> None:
    with ottla.client.connect(broker.address) as client:
        client.create_topic(TOPIC, partitions=partitions)
        with client.producer(batch_bytes=batch_bytes, linger_s=0.02) as producer:
            for number in range(megabytes * 1_000_000 // VALUE_BYTES):
                producer.produce(TOPIC, os.urandom(8) * (VALUE_BYTES // 8), partition=number // 1000 % partitions)


def segments(broker: Broker, partition: TopicPartition) -> list[Path]:
    return sorted((Path(broker.directory) / f"{partition.topic}-{partition.partition}").glob("*.log"))


def compare(source: Broker, target: Broker, partition: TopicPartition) -> int:
    """Returns the size of the partition in bytes. Ends the process if its bytes differ."""
    both = [segments(broker, partition) for broker in (source, target)]
    names = [[path.name for path in some] for some in both]
    if names[0] != names[1] or not all(filecmp.cmp(one, other, shallow=False) for one, other in zip(*both, strict=True)):
        sys.exit(f"bench: {partition} of the target differs from the source")
    return sum(path.stat().st_size for path in both[0])


def measure(source: Broker, partitions: int) -> str:
    target = start_ottla()
    try:
        before = [broker.cpu_seconds() for broker in (source, target)]
        begun_s = time.monotonic()
        command = [sys.executable, "-m", "ottla.cli.main", "mirror", source.address, target.address, "--topics", TOPIC, "--graduate", "-q"]
        mirror = subprocess.Popen(command)
        _, status, usage = os.wait4(mirror.pid, 0)
        took_s = time.monotonic() - begun_s
        if status:
            sys.exit(f"bench: the mirror ended with status {status}")
        costs = [broker.cpu_seconds() - cpu for broker, cpu in zip((source, target), before, strict=True)]
        costs.append(usage.ru_utime + usage.ru_stime)
        copied = sum(compare(source, target, TopicPartition(TOPIC, number)) for number in range(partitions))
        gigabytes = copied / 1e9
        of_each = ", ".join(
            f"{name} {cost / gigabytes:.2f}" for name, cost in zip(("source", "target", "mirror"), costs, strict=True)
        )
        return (
            f"{copied / 1e6 / took_s:.0f} MB/s; {sum(costs) / gigabytes:.2f} CPU s/GB ({of_each}), {2e3 * gigabytes / sum(costs):.0f} MB/s "
            f"if two cores do nothing else; {usage.ru_maxrss / 1024:.0f} MiB; bytes equal"
        )
    finally:
        target.stop()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch", type=int, default=65_536, help="bytes of the producer's batches")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    print(f"{machine()}; {args.megabytes} MB, {args.partitions} partitions, batches of {args.batch} bytes", flush=True)
    source = start_ottla()
    try:
        fill(source, args.megabytes, args.partitions, args.batch)
        for _ in range(args.rounds):
            print(measure(source, args.partitions), flush=True)
    finally:
        source.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
