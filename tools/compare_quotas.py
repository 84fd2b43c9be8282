"""Compares quotas on Apache Kafka and on Ottla with the same load: how exactly each client is limited, and the effect on others.

usage: python -m tools.compare_quotas [--seconds 10] [--only ottla]

Three clients have quotas: a producer and a consumer in bytes per second, an administrator in mutations per second. A client without a quota
makes round trips at a steady pace, first alone and then with the others. Exit code 1 if a rate differs by more than 10 %.

A client that was idle may use the quota of ten windows at once, and is then throttled until these windows have passed. Its rate over ten
seconds would depend more on the moment than on the quota. Therefore producer and consumer first limit their own rates for these windows,
and then try 1.5 times their quota.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.blocking.cluster import Cluster
from ottla.client.core.quota_admin import CLIENT_ID, alter_quotas
from tools.bench.brokers import Broker, start_kafka, start_ottla
from tools.bench.loads import confirmed, percentiles
from tools.bench.peer import JARS
from tools.bench.report import machine, number

PRODUCE_RATE, FETCH_RATE, MUTATION_RATE = 200_000, 400_000, 5
RECORD = b"x" * 5_000
WARM_UP_S = 12
"""Seconds before the measurement. The windows of Kafka's default settings take eleven: ten past windows of a second each, and the current
one.
"""
EAGERNESS = 1.5
"""The rate that a limited client tries while it is measured, as a multiple of its quota."""
STEADY_RATE = 100
DEVIATION_MAX = 0.10
EVENTS_MAX = 1_000_000


class Measured(NamedTuple):
    """A client's measured rate and its quota, per second."""

    what: str
    wanted: float
    rate: float

    @property
    def deviation(self) -> float:
        return self.rate / self.wanted - 1


class Found(NamedTuple):
    """The results of one broker: the limited clients, and the round trips in milliseconds of the client without a quota, alone and with the
    others.
    """

    held: list[Measured]
    alone: dict[str, float]
    among: dict[str, float]


class Meter:
    """Limits how fast a client tries, and measures its rate after the warm-up, from the first event to the last."""

    def __init__(self, quota: float, seconds: float) -> None:
        self._quota = quota
        self._due = time.monotonic()
        self._begin = self._due + WARM_UP_S
        self.end = self._begin + seconds
        self._first = self._last = 0.0
        self._amount = 0.0

    @property
    def is_done(self) -> bool:
        return self._last >= self.end

    def pace(self, amount: float) -> None:
        """Waits until the client may try `amount` more. During the warm-up, a client that was late catches up, because quota that it left
        unused would still be in the windows.
        """
        now = time.monotonic()
        if now < self._begin:
            self._due += amount / self._quota
        else:
            self._due = max(self._due, now) + amount / (self._quota * EAGERNESS)
        time.sleep(max(self._due - now, 0.0))

    def note(self, amount: float) -> None:
        now = time.monotonic()
        if now < self._begin or self.is_done:
            return
        if self._first:
            self._amount += amount
        else:
            self._first = now
        self._last = now

    def rate(self) -> float:
        return self._amount / (self._last - self._first)


def held_producer(broker: Broker, topic: str, seconds: float) -> Measured:
    """Produces one record per request, so that deliveries are as even as the broker allows."""
    meter = Meter(PRODUCE_RATE, seconds)
    client = Producer({
        "bootstrap.servers": broker.address, "client.id": "held-producer", "batch.num.messages": 1, "linger.ms": 0,
        "max.in.flight.requests.per.connection": 1, "queue.buffering.max.messages": 1, "log_level": 2,
    })  # fmt: skip

    def delivered(error: object, _record: object) -> None:
        if error is None:
            meter.note(len(RECORD))

    while not meter.is_done:
        meter.pace(len(RECORD))
        client.produce(topic, RECORD, on_delivery=delivered)
        client.flush(30)
    client.purge()
    client.flush(5)
    return Measured("producer", PRODUCE_RATE, meter.rate())


def held_consumer(broker: Broker, topic: str, seconds: float) -> Measured:
    """Consumes with small client queues: by default a client with enough records pauses for a second."""
    meter = Meter(FETCH_RATE, seconds)
    client = Consumer({
        "bootstrap.servers": broker.address, "client.id": "held-consumer", "group.id": "held", "enable.auto.commit": False,
        "fetch.message.max.bytes": 4 * len(RECORD), "queued.min.messages": 20, "fetch.queue.backoff.ms": 1,
        "log_level": 2,
    })  # fmt: skip
    client.assign([TopicPartition(topic, 0, 0)])
    for _ in range(EVENTS_MAX):
        if meter.is_done:
            break
        for message in client.consume(1, 1.0):
            if message.error() is None:
                meter.note(len(RECORD))
                meter.pace(len(RECORD))
    client.close()
    return Measured("consumer", FETCH_RATE, meter.rate())


def held_administrator(broker: Broker, topic: str, seconds: float) -> Measured:
    """Creates topics one by one, as fast as possible: the rate of a token bucket shows only when the bucket is empty."""
    meter = Meter(MUTATION_RATE, seconds)
    client = AdminClient({"bootstrap.servers": broker.address, "client.id": "held-admin", "log_level": 2})
    count = 0
    while not meter.is_done:
        count += 1
        try:
            client.create_topics([NewTopic(f"{topic}-{count}", 1, 1)], operation_timeout=30)[f"{topic}-{count}"].result(60)
            meter.note(1)
        except KafkaException:  # over the quota
            time.sleep(0.01)
    return Measured("administrator", MUTATION_RATE, meter.rate())


def steady(broker: Broker, topic: str, seconds: float) -> dict[str, float]:
    """Makes round trips of one small record at a steady rate. Returns percentiles in milliseconds."""
    client = Producer({"bootstrap.servers": broker.address, "client.id": "free", "linger.ms": 0, "acks": "1", "log_level": 2})
    times: list[float] = []
    started = time.perf_counter()
    for count in range(int(seconds * STEADY_RATE)):
        time.sleep(max(0.0, started + count / STEADY_RATE - time.perf_counter()))
        times.append(confirmed(client, topic))
    return percentiles(times, "ms")


def measure(broker: Broker, seconds: float) -> Found:
    prepare(broker, seconds)
    alone = steady(broker, "free", seconds)
    results: list[Measured] = []
    loads: list[Callable[[Broker, str, float], Measured]] = [held_producer, held_consumer, held_administrator]
    threads = [threading.Thread(target=lambda load=load: results.append(load(broker, f"of-{load.__name__}", seconds))) for load in loads]
    for thread in threads:
        thread.start()
    among = steady(broker, "free", WARM_UP_S + seconds)
    for thread in threads:
        thread.join()
    if len(results) < len(loads):
        raise RuntimeError(f"{broker.name}: a client has failed")
    return Found(sorted(results), alone, among)


def prepare(broker: Broker, seconds: float) -> None:
    """Creates the topics, the records for the consumer, and the quotas."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("free", "of-held_producer", "of-held_consumer")]).values():
        future.result(60)
    filler = Producer({"bootstrap.servers": broker.address})
    for _ in range(int(FETCH_RATE * (WARM_UP_S + seconds) * 2 / len(RECORD))):
        filler.produce("of-held_consumer", RECORD)
        filler.poll(0)
    filler.flush(60)
    with Cluster(broker.address) as cluster:
        for client, name, rate in (
            ("held-producer", "producer_byte_rate", PRODUCE_RATE), ("held-consumer", "consumer_byte_rate", FETCH_RATE),
            ("held-admin", "controller_mutation_rate", MUTATION_RATE),
        ):  # fmt: skip
            alter_quotas(cluster, ((CLIENT_ID, client),), changes={name: float(rate)})


def show(names: Sequence[str], found: Sequence[Found]) -> bool:
    """Prints both tables. Returns whether every client's rate was within 10 % of its quota."""
    print(f"| held client | quota | {' | '.join(f'{name} | off' for name in names)} |")
    print(f"|{' --- |' * (2 + 2 * len(names))}")
    for rows in zip(*(one.held for one in found), strict=True):
        cells = [f"{number(one.rate)} | {100 * one.deviation:+.1f} %" for one in rows]
        print(f"| {rows[0].what} | {number(rows[0].wanted)} | {' | '.join(cells)} |")
    print(f"\n| a client without a quota, {STEADY_RATE} round trips a second | {' | '.join(names)} |\n|{' --- |' * (1 + len(names))}")
    for figure in found[0].alone:
        print(f"| alone, {figure} | {' | '.join(number(one.alone[figure]) for one in found)} |")
        print(f"| among the held ones, {figure} | {' | '.join(number(one.among[figure]) for one in found)} |")
    return all(abs(one.deviation) <= DEVIATION_MAX for side in found for one in side.held)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each rate is measured (default 10)")
    parser.add_argument("--only", choices=("ottla", "kafka"), help="one of the two")
    args = parser.parse_args(arguments)
    starts: dict[str, Callable[[], Broker]] = {"ottla": start_ottla, "kafka": lambda: start_kafka(JARS.absolute())}
    names = [args.only] if args.only else list(starts)
    print(f"{machine()}; rates over {args.seconds:g} s\n")
    found = []
    for name in names:
        broker = starts[name]()
        try:
            found.append(measure(broker, args.seconds))
        finally:
            broker.stop()
    return 0 if show(names, found) else 1


if __name__ == "__main__":
    sys.exit(main())
