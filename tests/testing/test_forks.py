"""A forked child of a process that has started brokers: whatever ends it, its parent's brokers, directories and connections stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.test_plugin import ROOT, check_passed, run

PARENT = """
import os, sys
from ottla.testing import Broker, Cluster

how, kind = sys.argv[1:]
ends = {
    "exit": sys.exit,
    "exception": lambda: 1 / 0,
    "stop": lambda: (running.stop(), sys.exit()),
    "close": lambda: (running.close(), os._exit(0)),
}

def directory():
    return running.data_dir if kind == "broker" else running.brokers[0].process.data_dir

def write(value):
    producer = running.producer(client="confluent-kafka")  # through the proxy of the parent
    producer.produce("orders", value)
    assert producer.flush(60) == 0

with Broker(topics=["orders"]) if kind == "broker" else Cluster(1, topics=["orders"]) as running:
    write("before")
    child = os.fork()
    if not child:
        running.add_record("orders", "child")
        ends[how]()
    os.waitpid(child, 0)
    assert directory().is_dir()
    write("after")
    assert [record.value for record in running.records("orders")] == [b"before", b"child", b"after"]
    kept = directory()
assert not kept.exists()
print("WHOLE")
"""
FAULTS = """
import os
from ottla.testing import Broker

with Broker() as broker:
    broker.bootstrap_server
    if not os.fork():
        try:
            broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
"""
SESSION = """
import os, sys

def test_a_child_ends(kafka_broker, kafka_topic):
    if not os.fork():
        sys.exit(1)  # pytest takes it for a failed test, and its fixtures end in the child too
    os.wait()
    kafka_broker.add_record(kafka_topic, "x")
    assert kafka_broker.data_dir.is_dir()

def test_afterwards(kafka_broker, kafka_topic):
    kafka_broker.add_record(kafka_topic, "x")
    assert kafka_broker.data_dir.is_dir()
"""


def script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("how", ["exit", "exception", "stop", "close"])
def test_the_end_of_a_child_leaves_its_parents_broker(how: str) -> None:
    done = script(PARENT, how, "broker")
    assert done.stdout.endswith("WHOLE\n"), done.stderr


def test_the_end_of_a_child_leaves_its_parents_cluster() -> None:
    done = script(PARENT, "exit", "cluster")
    assert done.stdout.endswith("WHOLE\n"), done.stderr


def test_the_end_of_a_child_within_a_run_of_pytest(tmp_path: Path) -> None:
    check_passed(run(tmp_path, SESSION), 2)


def test_a_child_cannot_inject_faults() -> None:
    assert script(FAULTS).stdout == "faults are injected by the process that has made the proxy, not by a forked child of it\n"
