"""What a pytest run leaves behind, by how it ended: no process and no directory. The table in docs/testing.md has the same cases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.testing.reaper_process import with_token
from tests.testing.test_plugin import ROOT

pytest_plugins = ["pytester"]

SECONDS_MAX = 120.0
ONE = """
import os, time
from ottla.testing.reaper import reaper

def test_it(kafka_broker, kafka_topic, kafka_cluster):
    own = kafka_cluster(1, topics=["orders"])
    own.snapshot()
    own.pause()
    kafka_broker.pause()
    wait(reaper().token, kafka_broker.process.pid, own.process.pid)
"""
THREE = """
from ottla.testing.reaper import reaper

def test_it(kafka_cluster):
    cluster = kafka_cluster(3)
    wait(reaper().token, cluster.zookeeper.pid, *[broker.process.pid for broker in cluster.brokers])
"""
SHARED = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_it(kafka_broker, number):
    wait(kafka_broker.data_dir.parent.name, kafka_broker.pid, number=number)
"""
WAIT = """
import os, signal, time

def wait(token, *pids, number=0):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a run that nohup began ignores it
    with open(f"ready-{number}.new", "w") as file:
        print(os.getpid(), token, *pids, file=file)
    os.rename(f"ready-{number}.new", f"ready-{number}")
    while True:
        time.sleep(0.05)
"""


def eventually(has_happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not has_happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Run:
    """A pytest run that waits in its tests, with brokers."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str, *options: str, tests: int = 1) -> None:
        self.left = pytester.mkdir("left")
        for name in [name for name in os.environ if name.startswith(("PYTEST_", "OTTLA_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("TMPDIR", str(self.left))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        pytester.makepyfile(WAIT + source)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ottla.testing.plugin", "-p", "no:cacheprovider", *options]
        log = pytester.path / "said"
        with log.open("wb") as said:
            # A session of its own, as a terminal has: Ctrl-C goes to all of its processes.
            self.process = subprocess.Popen(command, cwd=pytester.path, stdout=said, stderr=said, start_new_session=True)
        ready = [pytester.path / f"ready-{number}" for number in range(tests)]
        eventually(lambda: all(path.exists() for path in ready) or self.process.poll() is not None)
        assert self.process.poll() is None, log.read_text()
        words = [path.read_text().split() for path in ready]
        self.test_pids = [int(found[0]) for found in words]
        self.token = words[0][1]
        self.pids = [int(pid) for found in words for pid in found[2:]]
        assert set(self.pids) <= set(with_token(self.token))

    def check_nothing_is_left(self) -> None:
        """No process, and no directory, once the run has ended."""
        self.process.wait(SECONDS_MAX)
        eventually(lambda: not with_token(self.token))
        eventually(lambda: not list(self.left.glob("ottla*")))  # pytest's own directories are its own affair

    def end(self) -> None:
        for pid in (self.process.pid, *self.test_pids, *with_token(self.token)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(SECONDS_MAX)


@pytest.fixture
def start(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Starts a run, which ends with the test."""
    with ExitStack() as ends:

        def begin(source: str, *options: str, tests: int = 1) -> Run:
            run = Run(pytester, monkeypatch, source, *options, tests=tests)
            ends.callback(run.end)
            return run

        yield begin


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_with_paused_brokers_leaves_nothing(start: Callable[..., Run], number: int) -> None:
    run = start(ONE)
    assert len(run.pids) == 2
    os.killpg(run.process.pid, number) if number == signal.SIGINT else run.process.send_signal(number)
    run.check_nothing_is_left()


def test_a_killed_run_leaves_no_broker_of_a_cluster_and_no_zookeeper(start: Callable[..., Run], need_zookeeper: None) -> None:
    run = start(THREE)
    assert len(run.pids) == 4
    run.process.kill()
    run.check_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_controller_leaves_no_shared_broker(start: Callable[..., Run], number: int) -> None:
    run = start(SHARED, "-p", "xdist", "-n", "2", tests=2)
    os.killpg(run.process.pid, number) if number == signal.SIGINT else run.process.send_signal(number)
    run.check_nothing_is_left()


def test_a_killed_worker_leaves_the_shared_broker_to_the_others(pytester: pytest.Pytester, start: Callable[..., Run]) -> None:
    run = start(SHARED, "-p", "xdist", "-n", "2", tests=2)
    os.kill(run.test_pids[0], signal.SIGKILL)
    eventually(lambda: "crashed" in (pytester.path / "said").read_text() or "node down" in (pytester.path / "said").read_text())
    assert run.pids[0] in with_token(run.token)
    run.process.kill()
    run.check_nothing_is_left()


def test_the_table_in_the_docs_names_each_way(pytester: pytest.Pytester) -> None:
    page = Path(ROOT, "docs", "testing.md").read_text()
    for name in ("kill -9", "SIGTERM", "Ctrl-C", "SIGHUP"):
        assert f"| {name}" in page
