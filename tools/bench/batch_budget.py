"""Where the time of a batch of a pipeline is spent: Spark's own durations, the calls of source and sink, and the requests to the broker.

usage: python -m tools.bench.batch_budget [--rate 1000] [--seconds 20] [--trigger "2 seconds"]

Copies a topic of two partitions as `Pipeline.run` does, at a constant rate of records of 100 bytes. The parts of a batch follow one
another. Their times are medians of the last batches, those that Spark remembers. On a busy machine only the CPU times say something, and
only with a trigger that is longer than a batch: then batches have the same size in each run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import ottla.client
from ottla.spark import Pipeline
from ottla.spark.runner import StopRequest, run_pipelines, settings_of
from ottla.spark.session import build_session
from tools.bench.batch_budget_source import LOG, TimedDataSource
from tools.bench.brokers import Broker, cpu_seconds_of, start_ottla
from tools.bench.latency.probe import Delays, measure, percentile
from tools.bench.latency.spark_copy import MASTER, SETTINGS
from tools.bench.report import machine, number

ROOT = Path(__file__).resolve().parents[2]
WARM_RATE, WARM_SECONDS = 1000, 20
SOURCE, SINK = "budget-in", "budget-out"
CALLS = ("latestOffset", "reportLatestOffset", "partitions", "streamWriter", "plan", "read", "write", "commit")
PARTS = (
    ("Spark begins a trigger", "begin", "latestOffset"),
    ("source: `latestOffset`, `reportLatestOffset`", "latestOffset", "reported"),
    ("Spark: offset log, plan of the query", "reported", "partitions"),
    ("source: `partitions`", "partitions", "parted"),
    ("Spark: more of the plan", "parted", "planning"),
    ("sink: writer, and its state for the tasks", "planning", "planned"),
    ("Spark starts the tasks", "planned", "reading"),
    ("source: `read`, until the last task has its rows", "reading", "read"),
    ("Spark: rows to the sink; sink: `write`, until the last task", "read", "written"),
    ("Spark: messages of the tasks, to the committing process", "written", "committing"),
    ("sink: `commit`", "committing", "committed"),
    ("Spark: commit log, end of the trigger", "committed", "end"),
)

PROGRAM = "the pipeline's program: progress and state"
JAVA = {
    "C1 Comp": "Java: compilers", "C2 Comp": "Java: compilers", "G1 ": "Java: garbage collector", "GC ": "Java: garbage collector",
    "stream exec": "Java: the query's thread",
}  # fmt: skip
PYTHON = {
    "python_streaming_source": "Python: source's process", "write_into_data": "Python: sink's planning process",
    "streaming_sink": "Python: sink's committing process", "pyspark.worker": "Python: tasks",
}  # fmt: skip


class Call(NamedTuple):
    name: str
    process: int
    begin: float
    end: float
    cpu_s: float


def read_log(path: Path) -> list[Call]:
    return sorted((Call(*json.loads(line)) for line in path.read_text().splitlines()), key=lambda call: call.begin)


def points_of(progress: Mapping[str, Any], calls: Sequence[Call]) -> dict[str, float] | None:
    """Returns the times of a batch in seconds since the epoch, or None if a call of `CALLS` is missing in the log of this batch."""
    begin = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    end = begin + progress["durationMs"]["triggerExecution"] / 1000
    found = {name: [call for call in calls if call.name == name and begin <= call.begin <= end] for name in CALLS}
    if not all(found.values()):
        return None
    points = {
        "begin": begin,
        "latestOffset": found["latestOffset"][0].begin,
        "reported": found["reportLatestOffset"][0].end,
        "partitions": found["partitions"][0].begin,
        "parted": found["partitions"][-1].end,
        "planning": found["streamWriter"][0].begin,
        "planned": found["plan"][0].end,
        "reading": found["read"][0].begin,
        "read": max(call.end for call in found["read"]),
        "written": max(call.end for call in found["write"]),
        "committing": found["streamWriter"][-1].begin,
        "committed": found["commit"][-1].end,
        "end": end,
    }
    return points


def run(broker: Broker, rate: int, seconds: float, trigger: str) -> None:
    with ottla.client.connect(broker.address) as client:
        for topic in (SOURCE, SINK):
            client.create_topic(topic, partitions=2)
    directory = tempfile.mkdtemp(prefix="ottla-budget-")
    log = Path(directory, "log")
    os.environ[LOG] = str(log)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    pipeline = Pipeline(
        group=f"budget-{os.getpid()}", source=SOURCE, sink=SINK, transform=lambda rows: rows.select("key", "value"),
        bootstrap=broker.address, checkpoint=str(Path(directory, "checkpoint")), trigger=trigger,
        settings={**SETTINGS, "spark.master": MASTER},
    )  # fmt: skip
    session = build_session("budget", config=settings_of([pipeline]))
    session.dataSource.register(TimedDataSource)
    stop = StopRequest()
    load = Load(broker, rate, seconds, log, session, stop)
    load.start()
    run_pipelines([pipeline], session, stop=stop)
    load.join()
    session.stop()
    _report(load.progresses, read_log(log), load.delays, load.cpu_s)
    shutil.rmtree(directory, ignore_errors=True)


class Load(threading.Thread):
    """Produces records, first to warm up and then to measure, and stops the pipeline at the end of the measurement. Its attributes are what
    was measured."""

    def __init__(self, broker: Broker, rate: int, seconds: float, log: Path, session: Any, stop: StopRequest) -> None:
        super().__init__()
        self.broker, self.rate, self.seconds, self.log_file, self.session, self.stop = broker, rate, seconds, log, session, stop
        self.progresses: list[dict[str, Any]] = []

    def run(self) -> None:
        try:
            measure(self.broker.address, SOURCE, SINK, WARM_RATE, WARM_SECONDS)
            self.log_file.unlink()
            print("counting", flush=True)
            before = _cpu_seconds(self.broker)
            self.delays = measure(self.broker.address, SOURCE, SINK, self.rate, self.seconds)
            self.cpu_s = {name: spent - before.get(name, 0.0) for name, spent in _cpu_seconds(self.broker).items()}
            (query,) = self.session.streams.active
            self.progresses = [dict(one) for one in query.recentProgress]
        finally:
            self.stop.ask()


def _cpu_seconds(broker: Broker) -> dict[str, float]:
    """Returns CPU seconds by purpose: of each thread and process that works for the pipeline, since its start."""
    spent = {"broker": broker.cpu_seconds(), PROGRAM: _thread(Path(f"/proc/self/task/{os.getpid()}"))[1]}

    def add(purpose: str, seconds: float) -> None:
        spent[purpose] = spent.get(purpose, 0.0) + seconds

    for process in psutil.Process().children(recursive=True):
        try:
            command, times = " ".join(process.cmdline()), process.cpu_times()
            if "PythonGatewayServer" in command or "pyspark-shell" in command:
                add("processes that Java starts (chmod)", times.children_user + times.children_system)
                known = 0.0
                for thread in Path(f"/proc/{process.pid}/task").iterdir():
                    name, seconds = _thread(thread)
                    if purpose := _purpose(name, JAVA):
                        known += seconds
                        add(purpose, seconds)
                add("Java: tasks and others", cpu_seconds_of(process.pid) - known)
            elif purpose := _purpose(command, PYTHON):
                add(purpose, times.user + times.system)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, OSError):
            pass
    return spent


def _purpose(name: str, purposes: Mapping[str, str]) -> str:
    return next((purpose for part, purpose in purposes.items() if part in name), "")


def _thread(thread: Path) -> tuple[str, float]:
    """Returns the name of a thread and its CPU seconds; an empty name if it has ended."""
    try:
        return (thread / "comm").read_text(), int((thread / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return "", 0.0


def _report(progresses: Sequence[Mapping[str, Any]], calls: Sequence[Call], delays: Delays, cpu_s: Mapping[str, float]) -> None:
    batches = [one for one in progresses if "addBatch" in one["durationMs"]]
    timed = [points for one in batches if (points := points_of(one, calls)) is not None]
    commits = sum(call.name == "commit" for call in calls)
    calls = [call for call in calls if any(one["begin"] <= call.begin <= one["end"] for one in timed)]
    p50, p99 = (percentile(delays.milliseconds, share) for share in (0.5, 0.99))
    print(f"{commits} batches, of which {len(timed)} are timed; a record takes {p50:.0f} ms (p50), {p99:.0f} ms (p99)\n")
    print("| part of a batch | ms |\n| --- | --- |")
    for name, first, last in PARTS:
        print(f"| {name} | {number(statistics.median((one[last] - one[first]) * 1000 for one in timed))} |")
    print(f"| all | {number(statistics.median((one['end'] - one['begin']) * 1000 for one in timed))} |")
    print("\n| Spark's durations | ms |\n| --- | --- |")
    for name in batches[0]["durationMs"]:
        print(f"| {name} | {number(statistics.median(one['durationMs'].get(name, 0) for one in batches))} |")
    print("\n| CPU time | ms in a batch |\n| --- | --- |")
    for name, spent in sorted(cpu_s.items()):
        print(f"| {name} | {number(spent * 1000 / commits)} |")
    print(f"| all | {number(sum(cpu_s.values()) * 1000 / commits)} |")
    print("\n| call or request | in a batch | ms | CPU ms |\n| --- | --- | --- | --- |")
    counts = Counter(call.name for call in calls)
    for name in [*CALLS, *sorted(counts.keys() - set(CALLS))]:
        some = [call for call in calls if call.name == name]
        time_ms = statistics.median((one.end - one.begin) * 1000 for one in some)
        cpu_ms = statistics.median(one.cpu_s * 1000 for one in some)
        print(f"| {name} | {counts[name] / len(timed):.1f} | {number(time_ms)} | {number(cpu_ms)} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1000, help="records per second")
    parser.add_argument("--seconds", type=float, default=20, help="time that counts (default 20)")
    parser.add_argument("--trigger", default="", help="the pipeline's trigger (default: one batch after another)")
    args = parser.parse_args(argv)
    broker = start_ottla()
    print(machine())
    try:
        run(broker, args.rate, args.seconds, args.trigger)
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
