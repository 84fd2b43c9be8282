"""Measures a clean stop with many partitions: after they were created, after a record was written to some of them, and without a write
since the start. It also measures the starts in between, with their CPU time and memory.

usage: python -m tools.bench.stop_time [PARTITIONS [WRITTEN]]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.bench.brokers import Broker, start_ottla

TOPIC_PARTITIONS_MAX = 1000
WAIT_S = 300


def create(broker: Broker, count: int) -> None:
    """Creates this number of partitions."""
    admin = AdminClient({**broker.options})
    for first in range(0, count, TOPIC_PARTITIONS_MAX):
        name, here = f"t{first}", min(TOPIC_PARTITIONS_MAX, count - first)
        admin.create_topics([NewTopic(name, here, 1)], request_timeout=WAIT_S)[name].result(WAIT_S)


def write(broker: Broker, count: int) -> None:
    """Writes a record to each of the first partitions."""
    producer = Producer({**broker.options, "linger.ms": 50})
    for number in range(count):
        partition = number % TOPIC_PARTITIONS_MAX
        producer.produce(f"t{number - partition}", b"x" * 100, b"key", partition)
    if producer.flush(WAIT_S):
        sys.exit("some records were not written")


def stop(broker: Broker) -> str:
    """Stops the broker. Returns the time from SIGTERM to the end of the process, and the CPU time."""
    started, worked = time.perf_counter(), broker.cpu_seconds()
    broker.process.send_signal(signal.SIGTERM)
    _, _, usage = os.wait4(broker.process.pid, 0)
    return f"stop {time.perf_counter() - started:.2f} s (CPU {usage.ru_utime + usage.ru_stime - worked:.2f} s)"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    written = int(sys.argv[2]) if len(sys.argv) > 2 else count
    broker = start_ottla()
    create(broker, count)
    write(broker, written)
    print(f"{count:,} new partitions, a record written to {written:,}: {stop(broker)}", flush=True)
    for records in (written, 0):
        broker = start_ottla(directory=broker.directory)
        start = f"start {broker.start_ms / 1000:.2f} s (CPU {broker.cpu_seconds():.2f} s, {broker.resident_mib():.0f} MiB)"
        write(broker, records)
        print(f"{start}; a record written to {records:,}: {stop(broker)}", flush=True)
    shutil.rmtree(broker.directory)


if __name__ == "__main__":
    main()
