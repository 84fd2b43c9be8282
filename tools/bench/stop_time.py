"""How long a clean stop takes, with many partitions: after records were written to each, and after a start without any write.

usage: python -m tools.bench.stop_time [PARTITIONS]
"""

from __future__ import annotations

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


def fill(broker: Broker, count: int) -> None:
    """Creates so many partitions, and writes a record to each."""
    admin, producer = AdminClient({**broker.options}), Producer({**broker.options, "linger.ms": 50})
    for first in range(0, count, TOPIC_PARTITIONS_MAX):
        name, here = f"t{first}", min(TOPIC_PARTITIONS_MAX, count - first)
        admin.create_topics([NewTopic(name, here, 1)], request_timeout=WAIT_S)[name].result(WAIT_S)
        for partition in range(here):
            producer.produce(name, b"x" * 100, b"key", partition)
    if producer.flush(WAIT_S):
        sys.exit("some records were not written")


def stop(broker: Broker) -> float:
    """Seconds from SIGTERM to the end of the process."""
    started = time.perf_counter()
    broker.process.send_signal(signal.SIGTERM)
    broker.process.wait(WAIT_S)
    return time.perf_counter() - started


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    broker = start_ottla()
    fill(broker, count)
    print(f"{count:,} partitions, a record written to each: {stop(broker):.2f} s")
    for _ in range(2):
        broker = start_ottla(directory=broker.directory)
        print(f"start: {broker.start_ms / 1000:.2f} s; nothing written: stop {stop(broker):.2f} s", flush=True)
    shutil.rmtree(broker.directory)


if __name__ == "__main__":
    main()
