"""Produces records at a constant rate, and measures in another process how long each takes until a consumer of the output has it."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from confluent_kafka import Consumer, Producer, TopicPartition

TICKS_PER_SECOND = 100
"""Records are produced in ticks of 10 ms, or one at a time if the rate is lower."""
SAMPLES_PER_SECOND_MAX = 1000
VALUE_BYTES = 100
QUIET_SECONDS_MAX = 180
"""Limit of the wait for the next record of the output."""


@dataclass(frozen=True)
class Delays:
    """Milliseconds of a sample of the records, in the order of their production, and the number of records that the consumer got."""

    milliseconds: list[float]
    count: int


def measure(address: str, source: str, sink: str, rate: int, seconds: float) -> Delays:
    """Produces to `source` at `rate` records per second, and consumes `sink` until the consumer got the same number of records."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_consume, args=(address, sink, theirs))
    process.start()
    assert ours.recv() == "ready"
    ours.send(_produce(address, source, rate, seconds))
    delays: Delays = ours.recv()
    process.join()
    return delays


def _produce(address: str, topic: str, rate: int, seconds: float) -> int:
    """Returns the number of records produced. A record's value begins with its time, or with zeros if it is not in the sample."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0 if rate < TICKS_PER_SECOND else 5, "acks": "all"})
    ticks_per_second = min(rate, TICKS_PER_SECOND)
    per_tick = rate // ticks_per_second
    sampled = max(1, per_tick * ticks_per_second // SAMPLES_PER_SECOND_MAX)
    filler = bytes(VALUE_BYTES - 8)
    without_time = bytes(VALUE_BYTES)
    start = time.monotonic()
    count = round(seconds * ticks_per_second)
    for tick in range(count):
        time.sleep(max(0.0, start + tick / ticks_per_second - time.monotonic()))
        value = time.monotonic_ns().to_bytes(8, "big") + filler
        for number in range(per_tick):
            producer.produce(topic, value if number % sampled == 0 else without_time)
        producer.poll(0)
    producer.flush()
    return count * per_tick


def _consume(address: str, topic: str, pipe: Connection) -> None:
    """Reads the records of a topic from its current end. When it has read as many records as the producing process reports, it sends the
    delays.
    """
    settings = {"bootstrap.servers": address, "group.id": str(uuid.uuid4()), "isolation.level": "read_committed", "fetch.wait.max.ms": 100}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    ends = [TopicPartition(topic, number, consumer.get_watermark_offsets(TopicPartition(topic, number))[1]) for number in partitions]
    consumer.assign(ends)
    consumer.poll(0.5)
    pipe.send("ready")
    delays: list[float] = []
    count, wanted, quiet_since = 0, -1, time.monotonic()
    while count != wanted and time.monotonic() - quiet_since < QUIET_SECONDS_MAX:
        if wanted < 0 and pipe.poll():
            wanted = pipe.recv()
        found = consumer.consume(1000, 0.02)
        now = time.monotonic_ns()
        for message in found:
            sent = int.from_bytes((message.value() or b"")[:8], "big")
            if sent:
                delays.append((now - sent) / 1e6)
        if found:
            count, quiet_since = count + len(found), time.monotonic()
    consumer.close()
    pipe.send(Delays(delays, count))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
