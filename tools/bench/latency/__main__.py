"""`make bench-latency`: how long a record takes from its producer, through a program that copies a topic, to a read_committed consumer.

usage: python -m tools.bench.latency [--rates 10,1000,50000] [--seconds 15] [--only "ottla,connector,streams,flink"] [--on-kafka]

The four programs run one after another on the same broker, each for all rates: a pipeline of Ottla, Spark's own connector (at least once),
Kafka Streams (exactly once, a commit each 100 ms) and Flink (exactly once, a checkpoint each second). Checkpoints are on the disk of the
temporary directory. Records have 100 bytes. The first `WARM_SECONDS` of a program and the first `SETTLE_SECONDS` of a rate are not
measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import ottla.client
from tools.bench.brokers import start_kafka, start_ottla
from tools.bench.latency.probe import Delays, measure, percentile
from tools.bench.report import machine, number
from tools.maven import copy_artifacts
from tools.spark_connector import environment, python_program

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parent
LIBRARIES = ROOT / "build" / "latency"
PARTITIONS = 2
WARM_RATE, WARM_SECONDS, SETTLE_SECONDS = 1000, 20, 3
STREAMS = [("org.apache.kafka", "kafka-streams", "4.3.0"), ("org.slf4j", "slf4j-nop", "1.7.36")]
FLINK = [
    ("org.apache.flink", "flink-streaming-java", "2.0.0"),
    ("org.apache.flink", "flink-clients", "2.0.0"),
    ("org.apache.flink", "flink-connector-base", "2.0.0"),
    ("org.apache.flink", "flink-connector-kafka", "4.0.0-2.0"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
]
OPEN_MODULES = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.util", "java.lang", "java.util.concurrent")]

Command = tuple[list[str], dict[str, str]]
"""A command without its last arguments, which are address, source, sink and directory, and its environment."""


def ottla_command() -> Command:
    return [sys.executable, str(HERE / "spark_copy.py"), "ottla"], {**os.environ, "PYTHONPATH": str(ROOT)}


def connector_command() -> Command:
    return [python_program(), str(HERE / "spark_copy.py"), "kafka"], environment()


def streams_command() -> Command:
    return _java("StreamsCopy.java", STREAMS)


def flink_command() -> Command:
    return _java("FlinkCopy.java", FLINK)


def _java(source: str, artifacts: Sequence[tuple[str, str, str]]) -> Command:
    library = LIBRARIES / source.removesuffix(".java")
    if not library.is_dir():
        LIBRARIES.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=LIBRARIES))
        copy_artifacts(making / "pom", artifacts, library=making / "jars")
        (making / "jars").rename(library)
        shutil.rmtree(making)
    classes = tempfile.mkdtemp(prefix="ottla-latency-classes-")
    subprocess.run(["javac", "-d", classes, "-cp", f"{library}/*", str(HERE / source)], check=True)
    return ["java", *OPEN_MODULES, "-Xmx1g", "-cp", f"{classes}:{library}/*", source.removesuffix(".java")], dict(os.environ)


PROGRAMS: dict[str, Callable[[], Command]] = {
    "ottla": ottla_command,
    "connector": connector_command,
    "streams": streams_command,
    "flink": flink_command,
}


def run(name: str, address: str, rates: Sequence[int], seconds: float) -> None:
    """Starts a program, and prints a row for each rate."""
    source, sink = f"{name}-in", f"{name}-out"
    with ottla.client.connect(address) as client:
        client.create_topic(source, partitions=PARTITIONS)
        client.create_topic(sink, partitions=PARTITIONS)
    directory = tempfile.mkdtemp(prefix="ottla-latency-")
    command, variables = PROGRAMS[name]()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*command, address, source, sink, directory], stdin=subprocess.PIPE, stdout=errors, stderr=errors, env=variables, cwd=directory
        )
        try:
            for rate, settle, counted in [(WARM_RATE, WARM_SECONDS, 0), *((rate, SETTLE_SECONDS, seconds) for rate in rates)]:
                found = measure(address, source, sink, rate, settle + counted)
                if process.poll() is not None or not found.count:
                    errors.seek(0)
                    raise RuntimeError(f"{name} copied nothing or ended:\n{errors.read().decode(errors='replace')[-4000:]}")
                if counted:
                    print(_row(name, rate, found, settle / (settle + counted)), flush=True)
        finally:
            process.kill()
            process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _row(name: str, rate: int, found: Delays, left_out: float) -> str:
    counted = found.milliseconds[int(len(found.milliseconds) * left_out) :]
    return f"| {name} | {rate:,} | {' | '.join(number(percentile(counted, share)) for share in (0.5, 0.99))} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="10,1000,50000", help="records per second")
    parser.add_argument("--seconds", type=int, default=15, help="time that counts, for each rate (default 15)")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="which programs (default all)")
    parser.add_argument("--on-kafka", action="store_true", help="on Apache Kafka, fetched into build/kafka, in the place of our broker")
    args = parser.parse_args(argv)
    broker = start_kafka((ROOT / "build" / "kafka").absolute()) if args.on_kafka else start_ottla()
    print(f"{machine()}; broker {broker.name}\n\n| program | records/s | p50 ms | p99 ms |\n| --- | --- | --- | --- |", flush=True)
    try:
        for name in args.only.split(","):
            run(name, broker.address, [int(rate) for rate in args.rates.split(",")], args.seconds)
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
