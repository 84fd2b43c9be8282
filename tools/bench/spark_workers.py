"""Measures the Spark sink on two workers: output staged on the broker, output in commit messages, and Spark's own Kafka connector,
alternately.

usage: python -m tools.bench.spark_workers [--rounds 3] [--scale 1.0] [--only "write;streaming copy"]

Each side has a standalone cluster of its own: a driver, a master, and two workers with an executor of one core each. Staged output and
commit messages alternate in one session. Neither uses files, which executors on other hosts could not share with the driver.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import ottla.client
from tools.bench.brokers import start_ottla
from tools.bench.report import machine, number
from tools.bench.spark import LARGE_BYTES, ROOT, Shape, Side, fill, new_name
from tools.spark_connector import SPARK_VERSION, environment, python_program
from tools.spark_standalone import Standalone

EXECUTOR_MEMORY = "1200m"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


class Way(NamedTuple):
    """A way to write rows: a side, and the options of its sink."""

    name: str
    side: Side
    options: dict[str, str]


def write(way: Way, shape: Shape, target: str) -> float:
    """Writes rows that are in the executors' memory, in two Spark partitions."""
    way.side.run("keep", name="rows", source=way.side.source(shape.topic))
    way.side.run("drop", name="rows")
    took = way.side.time("write", name="rows", sink=way.side.sink(target, **way.options))
    way.side.run("forget", name="rows")
    return took


def stream(way: Way, shape: Shape, target: str) -> float:
    group = way.side.group()
    source = way.side.source(shape.topic, **group)
    return way.side.time("stream", source=source, sink=way.side.sink(target, **group, **way.options))


LOADS: dict[str, Callable[[Way, Shape, str], float]] = {"write": write, "streaming copy": stream}


def start_side(name: str, address: str, stack: ExitStack) -> Side:
    """Starts a standalone cluster and a driver on it."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    python, variables = (sys.executable, None) if name == "ottla" else (python_program(), environment())
    cluster = Standalone(directory, python=python, variables=variables, executor_memory=EXECUTOR_MEMORY)
    stack.callback(cluster.stop)
    side = Side(name, address, (cluster.start().url, json.dumps(SETTINGS if name == "ottla" else without_path(SETTINGS))))
    stack.callback(side.close)
    return side


def without_path(settings: dict[str, str]) -> dict[str, str]:
    """Returns the settings without the Python path, for Spark's connector, whose interpreter must not import `ottla`."""
    return {name: value for name, value in settings.items() if not name.endswith("PYTHONPATH")}


def compare(ways: Sequence[Way], client: ottla.client.Client, shapes: Sequence[Shape], loads: Sequence[str], rounds: int) -> None:
    """Prints a row for each load and shape: the median of rows/s of each way, and the median of its ratio to the last way within a
    round.
    """
    names = [way.name for way in ways]
    columns = [*(f"{name}, rows/s" for name in names), *(f"{name} / {names[-1]}" for name in names[:-1])]
    print(f"| load | rows | {' | '.join(columns)} |\n|{' --- |' * (2 + len(columns))}", flush=True)
    for load in loads:
        for shape in shapes:
            taken = []
            for _ in range(rounds + 1):
                times = []
                for way in ways:
                    target = new_name("target")
                    client.create_topic(target, partitions=shape.partitions)
                    times.append(LOADS[load](way, shape, target))
                    client.delete_topic(target)
                taken.append(times)
            kept = taken[1:]  # the first round is ignored: the JVM compiles, and workers start
            cells = [number(shape.rows / statistics.median(times)) for times in zip(*kept, strict=True)]
            cells += [f"{statistics.median(times[-1] / times[at] for times in kept):.2f}" for at in range(len(ways) - 1)]
            print(f"| {load} | {shape.label} | {' | '.join(cells)} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="times each load is run each way, after a first one (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of rows (default 1)")
    parser.add_argument("--only", default="", help="names of loads, separated by semicolons")
    args = parser.parse_args(argv)
    names = [name.strip() for name in args.only.split(";") if name.strip()] or list(LOADS)
    if unknown := [name for name in names if name not in LOADS]:
        parser.error(f"no load named {unknown[0]!r}; there are: {'; '.join(LOADS)}")
    shapes = [Shape(100, int(1_000_000 * args.scale), 8), Shape(1000, int(LARGE_BYTES / 1000 * args.scale), 8)]
    broker = start_ottla()
    print(f"{machine()}; two workers, Spark's connector {SPARK_VERSION}; {args.rounds} rounds, scale {args.scale}\n", flush=True)
    with ExitStack() as stack:
        stack.callback(broker.stop)
        client = stack.enter_context(ottla.client.connect(broker.address))
        for shape in shapes:
            fill(client, shape)
        ours, theirs = (start_side(name, broker.address, stack) for name in ("ottla", "kafka"))
        ways = [Way("staged", ours, {"taskOutput": "staged"}), Way("messages", ours, {"taskOutput": "messages"}), Way("kafka", theirs, {})]
        compare(ways, client, shapes, names, args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
