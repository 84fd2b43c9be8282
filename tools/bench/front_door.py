"""Measures what a new user does first: commands, a run of tests with the fixtures, the live view. All figures are CPU time, which hardly
changes on a busy machine.

Every function returns rows for the first table of `make bench`: (what, unit, figure). `python -m tools.bench.front_door` prints only them.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.analysis.sample import Sampler
from ottla.cli.top.top import INTERVAL_S
from ottla.cli.top.view import draw
from ottla.client.blocking.cluster import Cluster
from ottla.testing import Broker
from tools.bench.report import Row, number

COMMAND = [sys.executable, "-m", "ottla.cli.main"]
TESTS = 50
LOOKS = 10
TOPICS, PARTITIONS_OF_A_TOPIC = 100, 20
EMPTY_TEST = "def test_{n}():\n    assert True\n"
FIXTURE_TEST = """
def test_{n}(kafka_broker, kafka_topic):
    kafka_broker.add_record(kafka_topic, "x")
    assert [record.value for record in kafka_broker.records(kafka_topic)] == [b"x"]
"""


def children_s() -> float:
    """Returns the CPU seconds of all child processes that have ended, and of their child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_s(command: list[str], directory: str | None = None) -> float:
    before = children_s()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, check=True)
    return children_s() - before


def commands() -> list[Row]:
    """Measures commands, each from the start of its process to the end."""
    with Broker(topics=["orders:3"]) as broker:
        lines = (("ottla --help", ["--help"]), ("ottla topic list", ["topic", "list", "-b", broker.direct_server]))
        return [(label, "ms of CPU", statistics.median(cpu_s([*COMMAND, *words]) for _ in range(9)) * 1000) for label, words in lines]


def fixture_tests() -> list[Row]:
    """Measures a run of tests that each write and read a record, minus a run of the same number of empty tests. It includes the broker's
    time.
    """
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        for name, text in (("test_empty.py", EMPTY_TEST), ("test_fixture.py", FIXTURE_TEST)):
            Path(directory, name).write_text("".join(text.format(n=n) for n in range(TESTS)))
        more = [cpu_s([*pytest, "test_fixture.py"], directory) - cpu_s([*pytest, "test_empty.py"], directory) for _ in range(3)]
    return [(f"{TESTS} tests with `kafka_broker` and `kafka_topic`, more than {TESTS} empty ones", "s of CPU", statistics.median(more))]


def live_view() -> list[Row]:
    """Measures updates of `ottla top`, drawn as on a terminal, for a broker with 2,000 partitions."""
    from rich.console import Console

    topics = [f"topic-{number}:{PARTITIONS_OF_A_TOPIC}" for number in range(TOPICS)]
    with Broker(topics=topics, start_timeout=120) as broker, Cluster(broker.direct_server) as cluster, open("/dev/null", "w") as nowhere:
        console, sampler = Console(file=nowhere, width=120, height=40, force_terminal=True), Sampler(cluster)
        sampler.look()
        used = time.process_time()
        for _ in range(LOOKS):
            time.sleep(INTERVAL_S)
            console.print(draw(sampler.look(), "all", console.height))
        share = (time.process_time() - used) / (LOOKS * INTERVAL_S)
    return [(f"ottla top, {TOPICS * PARTITIONS_OF_A_TOPIC:,} partitions, a look each {INTERVAL_S:g} s", "% of a core", share * 100)]


def measure() -> list[Row]:
    return [*commands(), *fixture_tests(), *live_view()]


if __name__ == "__main__":
    for what, unit, figure in measure():
        print(f"| {what} | {unit} | {number(figure)} |", flush=True)
