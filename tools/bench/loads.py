"""The loads of the benchmarks. A load is a function that sends requests to a broker with a stock client (librdkafka through
confluent-kafka), and returns the measured figures by name. It takes a broker and a scale. Payloads are random bytes. Every delivery is
checked, and every expected record is read. Throughput counts payload bytes (1 MB = 10^6 bytes). The CPU figures count only the broker's
processes.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.bench.bare_transactions import BareTransactions
from tools.bench.brokers import Broker

Figures = dict[str, float]
Load = Callable[[Broker, float], Figures]
READ_SECONDS_MAX = 120


def new_topic(broker: Broker, partitions: int = 1) -> str:
    name = f"bench-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({**broker.options, "log_level": 3})  # the client must exist until the result has arrived
    admin.create_topics([NewTopic(name, partitions, broker.replicas)])[name].result(60)
    time.sleep(0.2)
    return name


def drop_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({**broker.options, "log_level": 3})
    admin.delete_topics([name])[name].result(60)


def send(broker: Broker, topic: str, count: int, size: int, partitions: int, options: Mapping[str, Any], *, spread: int = 0) -> float:
    """Produces records of `size` bytes, or up to `spread` more or less, and waits for every acknowledgement. Returns the seconds."""
    producer = Producer({
        **broker.options, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 1 << 20, **options,
    })  # fmt: skip
    sizes, longest = Random(1), os.urandom(size + spread)
    values = [longest[: sizes.randint(size - spread, size + spread)] for _ in range(4096)] if spread else [longest]
    failures: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], partition=number % partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.005)
        if not number & 1023:
            producer.poll(0)
    left = producer.flush(READ_SECONDS_MAX)
    seconds = time.perf_counter() - started
    if failures or left:
        raise RuntimeError(f"{broker.name}: {len(failures)} deliveries failed, {left} are missing: {failures[:1]}")
    return seconds


def produce(size: int, megabytes: float, partitions: int = 1, options: Mapping[str, Any] | None = None, *, spread: int = 0) -> Load:
    def load(broker: Broker, scale: float) -> Figures:
        count = max(1000, int(megabytes * 1e6 * scale / size))
        topic = new_topic(broker, partitions)
        send(broker, topic, min(count, 2000), size, partitions, options or {}, spread=spread)
        cpu = broker.cpu_seconds()
        seconds = send(broker, topic, count, size, partitions, options or {}, spread=spread)
        cpu = broker.cpu_seconds() - cpu
        drop_topic(broker, topic)
        return {"MB/s": count * size / seconds / 1e6, "CPU s/GB": cpu / (count * size / 1e9)}

    return load


def consume(size: int, megabytes: float, **options: Any) -> Load:
    """Returns a load that reads records. librdkafka pauses for a second each time that 100,000 records wait in it; here it pauses for 1 ms,
    because a faster broker would cause more pauses.
    """

    def load(broker: Broker, scale: float) -> Figures:
        count = max(1000, int(megabytes * 1e6 * scale / size))
        topic = new_topic(broker)
        send(broker, topic, count, size, 1, {})
        consumer = Consumer({
            **broker.options, "group.id": uuid.uuid4().hex, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "fetch.max.bytes": 52_428_800, "queued.max.messages.kbytes": 1 << 20, "fetch.queue.backoff.ms": 1, **options,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, 0)])
        cpu, seen, started = broker.cpu_seconds(), 0, time.perf_counter()
        while seen < count:
            messages = consumer.consume(10_000, READ_SECONDS_MAX)
            if not messages:
                raise RuntimeError(f"{broker.name}: {seen} of {count} records came")
            seen += sum(1 for message in messages if message.error() is None)
        seconds, cpu = time.perf_counter() - started, broker.cpu_seconds() - cpu
        consumer.close()
        drop_topic(broker, topic)
        return {"MB/s": count * size / seconds / 1e6, "CPU s/GB": cpu / (count * size / 1e9)}

    return load


def one_record_requests(broker: Broker, scale: float) -> Figures:
    """Measures pipelined requests of one record each."""
    count, topic = int(100_000 * scale), new_topic(broker)
    options = {"batch.num.messages": 1, "linger.ms": 0}
    send(broker, topic, 2000, 100, 1, options)
    cpu = broker.cpu_seconds()
    seconds = send(broker, topic, count, 100, 1, options)
    cpu = broker.cpu_seconds() - cpu
    drop_topic(broker, topic)
    return {"requests/s": count / seconds, "CPU us/request": cpu / count * 1e6}


def round_trip(acks: str) -> Load:
    def load(broker: Broker, scale: float) -> Figures:
        topic = new_topic(broker)
        producer = Producer({**broker.options, "linger.ms": 0, "acks": acks})
        times = []
        for _ in range(int(4000 * scale) + 500):
            done: list[object] = []
            started = time.perf_counter()
            producer.produce(topic, b"x" * 100, on_delivery=lambda error, _message, done=done: done.append(error))  # type: ignore[misc]
            while not done:
                producer.poll(1)
            if done[0] is not None:
                raise RuntimeError(str(done[0]))
            times.append(time.perf_counter() - started)
        drop_topic(broker, topic)
        return percentiles(times[500:], "us")

    return load


def produce_to_consume(broker: Broker, scale: float) -> Figures:
    """Measures the time from produce() to the consumer's poll, at 1,000 records a second."""
    topic, count, rate = new_topic(broker), int(4000 * scale) + 500, 1000
    times: list[float] = []
    consumer = Consumer({
        **broker.options, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> None:
        while len(times) < count:
            message = consumer.poll(10)
            if message is None:
                return
            if message.error() is None:
                times.append(time.perf_counter() - float(message.value() or b"0"))

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(1)
    producer = Producer({**broker.options, "linger.ms": 0, "acks": 1})
    started = time.perf_counter()
    for number in range(count):
        while (left := started + number / rate - time.perf_counter()) > 0:
            producer.poll(min(left, 0.001))
        producer.produce(topic, repr(time.perf_counter()).encode())
    producer.flush(30)
    reader.join(30)
    consumer.close()
    drop_topic(broker, topic)
    if len(times) < count:
        raise RuntimeError(f"{broker.name}: {len(times)} of {count} records came")
    return percentiles(times[500:], "us")


def transactions(records: int) -> Load:
    def load(broker: Broker, scale: float) -> Figures:
        topic, count = new_topic(broker), int(300 * scale) + 10
        producer = Producer({**broker.options, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
        producer.init_transactions(30)
        times = []
        started = time.perf_counter()
        for _ in range(count):
            began = time.perf_counter()
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, b"x" * 100)
            producer.commit_transaction(30)
            times.append(time.perf_counter() - began)
        seconds = time.perf_counter() - started
        drop_topic(broker, topic)
        return {"txn/s": count / seconds, **percentiles(times, "us")}

    return load


def bare_transactions(records: int) -> Load:
    """Returns the load `transactions` without the client's pauses (`bare_transactions.py`)."""

    def load(broker: Broker, scale: float) -> Figures:
        topic, times = new_topic(broker), []
        producer = BareTransactions(broker.address, topic, records)
        started = time.perf_counter()
        for _ in range(int(300 * scale) + 10):
            began = time.perf_counter()
            producer.run_one()
            times.append(time.perf_counter() - began)
        seconds = time.perf_counter() - started
        producer.close()
        drop_topic(broker, topic)
        return {"txn/s": len(times) / seconds, **percentiles(times, "us")}

    return load


def first_consume(broker: Broker, _scale: float) -> Figures:
    """Measures the time to a new group's first record: join, sync, fetch."""
    topic = new_topic(broker)
    send(broker, topic, 10, 100, 1, {})
    times = []
    for _ in range(5):
        consumer = Consumer({**broker.options, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
        started = time.perf_counter()
        consumer.subscribe([topic])
        while (message := consumer.poll(10)) is None or message.error() is not None:
            pass
        times.append(time.perf_counter() - started)
        consumer.close()
    drop_topic(broker, topic)
    return {"ms": sorted(times)[2] * 1e3}


def confirmed(client: Producer, topic: str) -> float:
    """Sends one small record, waits for its acknowledgement, and returns the seconds."""
    done: list[object] = []
    sent = time.perf_counter()
    client.produce(topic, b"x", on_delivery=lambda error, _record: done.append(error))
    while not done:
        client.poll(1)
    if done[0] is not None:
        raise RuntimeError(str(done[0]))
    return time.perf_counter() - sent


def percentiles(times: list[float], unit: str) -> Figures:
    ordered = sorted(times)
    factor = {"us": 1e6, "ms": 1e3}[unit]
    return {f"p50 {unit}": ordered[len(ordered) // 2] * factor, f"p99 {unit}": ordered[int(len(ordered) * 0.99)] * factor}


IDEMPOTENT = {"enable.idempotence": True, "acks": "all"}

LOADS: dict[str, Load] = {
    "produce 100 B": produce(100, 60),
    "produce 50 to 150 B": produce(100, 60, spread=50),
    "produce 1 KB": produce(1000, 400),
    "produce 10 KB": produce(10_000, 600),
    "produce 1 KB, lz4": produce(1000, 300, options={"compression.type": "lz4"}),
    "produce 1 KB, idempotent, acks=all": produce(1000, 400, options=IDEMPOTENT),
    "produce 1 KB, 64 partitions": produce(1000, 300, 64),
    "consume 1 KB": consume(1000, 400),
    "consume 1 KB, read_committed": consume(1000, 400, **{"isolation.level": "read_committed"}),
    "one-record requests": one_record_requests,
    "round trip 100 B, acks=1": round_trip("1"),
    "round trip 100 B, acks=all": round_trip("all"),
    "produce to consume": produce_to_consume,
    "transaction of 10 records": transactions(10),
    "transaction of 10 records, bare requests": bare_transactions(10),
    "first consume of a new group": first_consume,
}

WITHOUT_COORDINATORS = [name for name in LOADS if not name.startswith("transaction") and name != "first consume of a new group"]
"""The loads for the bare loop, which has no coordinators and only one isolation level."""
WITHOUT_COORDINATORS.remove("consume 1 KB, read_committed")
