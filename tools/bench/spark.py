"""`make bench-spark`: compares the Spark source and sink with Spark's own Kafka connector, on the same broker, data and machine,
alternately.

usage: python -m tools.bench.spark [--rounds 3] [--scale 1.0] [--on-kafka] [--only "read;write"]

Each side has a Spark session with two task slots in a process of its own. Ottla's uses this interpreter, the connector's uses the one of
`tools/spark_connector.py`. Both use lz4 and read committed records; everything else is at its default. The connector writes at least once,
Ottla's sink exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ottla.client
from ottla.arrow.encode import encode_rows
from ottla.arrow.partitioning import assign_partitions
from ottla.client import Client
from ottla.spark.tables.table import ICEBERG, TABLE_FORMATS
from tools.bench.brokers import Broker, start_kafka, start_ottla
from tools.bench.process_memory import PeakMemory
from tools.bench.report import machine, number
from tools.bench.spark_codec import CHUNK_ROWS, make_rows
from tools.bench.transaction_times import open_ms
from tools.spark_connector import SPARK_VERSION, environment, python_program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("spark_program.py")
JARS = Path("build/kafka")
SMALL_BATCH_ROWS = 10_000
SMALL_BATCHES = 10
LARGE_BYTES = 256 << 20
PAGES_MIB = 1024
"""MiB that `take_pages` writes. It is more than a load writes: files of tasks, staged output, and the log."""


class Shape(NamedTuple):
    """Size and number of a topic's rows, and its number of partitions."""

    value_bytes: int
    rows: int
    partitions: int

    @property
    def topic(self) -> str:
        return f"source-{self.value_bytes}-{self.partitions}"

    @property
    def label(self) -> str:
        size = "1 KB" if self.value_bytes == 1000 else f"{self.value_bytes} B"
        return f"{size}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


class Side:
    """One of the two sides: a Spark session in a process of its own (`spark_program.py`), which gets a job per line."""

    def __init__(self, name: str, address: str, cluster: Sequence[str] = ()) -> None:
        """`cluster` is the master and the settings of the session. If empty, it runs in local mode."""
        self.name = name
        self.address = address
        is_ours = name == "ottla"
        python = sys.executable if is_ours else python_program()
        variables = {**os.environ, "PYTHONPATH": str(ROOT)} if is_ours else environment()
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [python, str(PROGRAM), name, *cluster]
        folder = tempfile.gettempdir()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=variables, cwd=folder
        )

    def run(self, job: str, **details: Any) -> dict[str, Any]:
        """Runs a job and returns its outcome. Raises RuntimeError if the session has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"job": job, **details}), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("RESULT "):
                return dict(json.loads(line.removeprefix("RESULT ")))
        self.errors.seek(0)
        raise RuntimeError(f"{job} failed in the session of {self.name}:\n{self.errors.read()[-4000:]}")

    def time(self, job: str, **details: Any) -> float:
        """Runs a job and returns its seconds. `take_pages` runs before it."""
        take_pages()
        return float(self.run(job, **details)["seconds"])

    def source(self, topic: str, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            **more,
        }

    def sink(self, topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.address, "topic": topic, "kafka.compression.type": "lz4", **more}

    def group(self) -> dict[str, str]:
        """Returns the option for the group, which streams of Ottla need and Spark's connector does not use."""
        return {"group": new_name("group")} if self.name == "ottla" else {}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Bench:
    """A broker with filled topics, and the sides."""

    def __init__(self, broker: Broker, shapes: Sequence[Shape], sides: Sequence[str]) -> None:
        self.broker = broker
        self.client = ottla.client.connect(broker.address)
        for shape in shapes:
            fill(self.client, shape)
        self.sides = [Side(name, broker.address) for name in sides]
        self.targets: list[str] = []

    def close(self) -> None:
        for side in self.sides:
            side.close()
        self.client.close()
        self.broker.stop()

    def new_topic(self, partitions: int) -> str:
        name = new_name("target")
        self.client.create_topic(name, partitions=partitions, configs={"file.delete.delay.ms": "0"})
        self.targets.append(name)
        return name

    def run(self, load: str, side: Side, shape: Shape) -> float:
        """Runs a load, deletes its output, and returns its seconds."""
        took = LOADS[load](self, side, shape)
        while self.targets:
            self.client.delete_topic(self.targets.pop())
        return took


def new_name(kind: str) -> str:
    return f"{kind}-{time.time_ns():x}"


def take_pages() -> None:
    """Writes a large file and deletes it, so that the machine has free pages. A virtual machine returns free memory to its host, and the
    host takes five times as long as the kernel to provide a page. Without this, the figures of loads that write would include that time, by
    chance for one side more than for the other.
    """
    with tempfile.TemporaryFile() as file:
        for _ in range(PAGES_MIB):
            file.write(bytes(1 << 20))


def fill(client: Client, shape: Shape) -> None:
    """Creates the topic of the shape and writes its rows."""
    client.create_topic(shape.topic, partitions=shape.partitions)
    rows = make_rows(shape.rows, shape.value_bytes)
    for start in range(0, shape.rows, CHUNK_ROWS):
        parts = assign_partitions(rows.slice(start, CHUNK_ROWS), {shape.topic: shape.partitions}, shape.topic)
        client.produce_batches({target: [batch.data for batch in encode_rows(part, is_transactional=False)] for target, part in parts})


# Loads: each runs once on a side, and returns the seconds.


def read(bench: Bench, side: Side, shape: Shape) -> float:
    return side.time("read", source=side.source(shape.topic))


def write(bench: Bench, side: Side, shape: Shape) -> float:
    """Writes rows that are in memory, in two Spark partitions."""
    side.run("keep", name="rows", source=side.source(shape.topic))
    side.run("drop", name="rows")
    took = side.time("write", name="rows", sink=side.sink(bench.new_topic(shape.partitions)))
    side.run("forget", name="rows")
    return took


def copy(bench: Bench, side: Side, shape: Shape) -> float:
    return side.time("copy", source=side.source(shape.topic), sink=side.sink(bench.new_topic(shape.partitions)))


def stream(bench: Bench, side: Side, shape: Shape) -> float:
    group = side.group()
    return side.time("stream", source=side.source(shape.topic, **group), sink=side.sink(bench.new_topic(shape.partitions), **group))


def stream_at_once(bench: Bench, side: Side, shape: Shape) -> float:
    """Copies all rows in one batch, which is the default of Spark's connector."""
    group = side.group()
    source = side.source(shape.topic, maxOffsetsPerTrigger=str(shape.rows), **group)
    return side.time("stream", source=source, sink=side.sink(bench.new_topic(shape.partitions), **group))


LOADS: dict[str, Callable[[Bench, Side, Shape], float]] = {
    "read": read,
    "write": write,
    "batch copy": copy,
    "streaming copy": stream,
    "streaming copy, one batch": stream_at_once,
}


def compare(bench: Bench, shapes: Sequence[Shape], loads: Sequence[str], rounds: int) -> None:
    """Prints a row for each load and shape: medians, and for two sides the median of the ratios within a round."""
    names = [side.name for side in bench.sides]
    columns = [f"{name}, {unit}" for name in names for unit in ("rows/s", "MB/s")]
    ratio = [f"{names[0]} / {names[1]}"] if len(names) == 2 else []
    print(f"| load | rows | {' | '.join([*columns, *ratio])} |\n|{' --- |' * (2 + len(columns) + len(ratio))}", flush=True)
    for load in loads:
        for shape in shapes:
            # The first round of each load is ignored: the JVM compiles, and workers start.
            taken = [[bench.run(load, side, shape) for side in bench.sides] for _ in range(rounds + 1)][1:]
            print(f"| {load} | {shape.label} | {' | '.join(figures(shape, taken))} |", flush=True)


def figures(shape: Shape, taken: Sequence[Sequence[float]]) -> list[str]:
    cells = []
    for times in zip(*taken, strict=True):
        rate = shape.rows / statistics.median(times)
        cells += [number(rate), number(rate * (shape.value_bytes + 10) / 1e6)]
    if len(taken[0]) == 2:
        cells.append(f"{statistics.median(theirs / ours for ours, theirs in taken):.2f}")
    return cells


NOTHING = "nothing"


def compare_with_nothing(bench: Bench, shapes: Sequence[Shape], rounds: int) -> None:
    """Prints the rates of a source and a sink in Python that do nothing (`spark_nothing.py`): Ottla's source and sink cannot be faster."""
    side = bench.sides[0]
    print("\n| does nothing | rows | rows/s | MB/s |\n| --- | --- | --- | --- |")
    for shape in shapes:
        side.run("keep", name="rows", source=side.source(shape.topic))
        options = {"rows": shape.rows, "valueBytes": shape.value_bytes, "partitions": 2}
        taken = [(side.time("read_nothing", **options), side.time("write_nothing", name="rows")) for _ in range(rounds + 1)][1:]
        side.run("forget", name="rows")
        for kind, times in zip(("source", "sink"), zip(*taken, strict=True), strict=True):
            rate = shape.rows / statistics.median(times)
            size = shape.label.split(",")[0]
            print(f"| {kind} | {size} | {number(rate)} | {number(rate * (shape.value_bytes + 10) / 1e6)} |", flush=True)


# Single figures.


def small_batches(bench: Bench, _shape: Shape) -> None:
    """Measures the triggers of a stream that repeatedly gets 10,000 rows and is idle at the end. The rows are sent in a transaction, so
    that all become visible at once.
    """
    shape = Shape(100, SMALL_BATCH_ROWS, 8)
    rows = make_rows(shape.rows, shape.value_bytes)
    for side in bench.sides:
        topic, group = bench.new_topic(shape.partitions), side.group()
        side.run("start", source=side.source(topic, **group), sink=side.sink(bench.new_topic(shape.partitions), **group))
        for _ in range(SMALL_BATCHES):
            with bench.client.transaction("small-batches") as transaction:
                parts = assign_partitions(rows, {topic: shape.partitions}, topic)
                transaction.produce({target: [batch.data for batch in encode_rows(part, is_transactional=True)] for target, part in parts})
            side.run("wait")
        triggers = side.run("stop")["triggers"]
        full = [one["ms"] for one in triggers if one["rows"] == SMALL_BATCH_ROWS]
        idle = [one["ms"] for one in triggers if one["rows"] == 0]
        print(f"| {side.name}: trigger that finds nothing | ms | {number(statistics.median(idle)) if idle else '-'} |")
        print(
            f"| {side.name}: micro-batch of {SMALL_BATCH_ROWS:,} rows | ms | {number(statistics.median(full)) if full else '-'} |",
            flush=True,
        )


def large_batch(bench: Bench, shape: Shape) -> None:
    """Measures one batch of a stream of 256 MB, not compressed: its rate, how long its transaction is open, and its memory."""
    side = bench.sides[0]
    group = side.group()
    source = side.source(shape.topic, maxOffsetsPerTrigger=str(shape.rows), **group)
    sink = {**side.sink(bench.new_topic(shape.partitions), **group), "kafka.compression.type": "none"}
    with PeakMemory(side.process.pid) as memory:
        took = side.time("stream", source=source, sink=sink)
    megabytes = shape.rows * (shape.value_bytes + 10) / 1e6
    print(f"| {megabytes:,.0f} MB as one batch of a stream | MB/s | {number(megabytes / took)} |")
    transaction_ms = open_ms(bench.client, f"eos/{group['group']}")[-1]
    print(f"| its transaction is open | ms | {transaction_ms} |")
    for kind, grown in memory.grown_mib().items():
        print(f"| memory meanwhile, {kind}: peak (over that before) | MiB | {number(memory.peak[kind])} ({number(grown)}) |", flush=True)


def tables(bench: Bench, shape: Shape) -> None:
    """Measures a stream into a table of each format on the local disk, without partitions. The first of two runs is ignored."""
    side = bench.sides[0]
    for table_format in TABLE_FORMATS:
        times = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                catalog = json.dumps({"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"} if table_format == ICEBERG else {})
                table = {"location": f"{folder}/table", "format": table_format, "catalog": catalog}
                times.append(side.time("stream_to_table", source=side.source(shape.topic, **side.group()), table=table))
        megabytes = shape.rows * (shape.value_bytes + 10) / 1e6
        print(f"| {megabytes:,.0f} MB as a stream into {table_format} | MB/s | {number(megabytes / times[-1])} |", flush=True)


STREAM_LOADS: dict[str, Callable[[Bench, Shape], None]] = {"small batches": small_batches, "large batch": large_batch, "tables": tables}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="times each load is run on each side, after a first one (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of rows (default 1)")
    parser.add_argument("--only", default="", help="names of loads, separated by semicolons")
    parser.add_argument("--sides", default="ottla,kafka", help="which sides to run (default both)")
    parser.add_argument("--on-kafka", action="store_true", help="on Apache Kafka, fetched into build/kafka, in the place of our broker")
    args = parser.parse_args(argv)
    names = [name.strip() for name in args.only.split(";") if name.strip()] or [*LOADS, NOTHING, *STREAM_LOADS]
    unknown = [name for name in names if name not in (*LOADS, NOTHING, *STREAM_LOADS)]
    if unknown:
        parser.error(f"no load named {unknown[0]!r}; there are: {'; '.join([*LOADS, NOTHING, *STREAM_LOADS])}")
    rows = {100: int(1_000_000 * args.scale), 1000: int(LARGE_BYTES / 1000 * args.scale)}
    shapes = [Shape(size, count, partitions) for size, count in rows.items() for partitions in (1, 8)]
    broker = start_kafka(JARS.absolute()) if args.on_kafka else start_ottla()
    print(f"{machine()}; broker {broker.name}, Spark's connector {SPARK_VERSION}; {args.rounds} rounds, scale {args.scale}\n", flush=True)
    bench = Bench(broker, shapes, args.sides.split(","))
    try:
        compare(bench, shapes, [name for name in names if name in LOADS], args.rounds)
        if NOTHING in names:
            compare_with_nothing(bench, shapes[1::2], args.rounds)
        print("\n| one stream | unit | |\n| --- | --- | --- |", flush=True)
        for name in names:
            if name in STREAM_LOADS:
                STREAM_LOADS[name](bench, shapes[-1])
    finally:
        bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
