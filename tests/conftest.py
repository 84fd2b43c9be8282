"""What all tests share: hypothesis profiles, and foreign programs that are there or whose absence is reported.

Profiles, chosen by `HYPOTHESIS_PROFILE`: `quick` (the default) and `ci` draw the same examples in each run, so that a red build can be
repeated; `night` draws many new ones. None has a deadline: a busy machine is not a bug.

A test that needs a foreign program asks `need_program` for it. Without the program the test is skipped and the end of the run says so in
plain words; where `CI` is set, a missing program is a failure, because there no one reads the report.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from ottla.testing import plugin

if TYPE_CHECKING:
    from ottla.testing.zookeeper_process import EmbeddedZooKeeper, ZooKeeperProcess

settings.register_profile("quick", max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("night", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs us in the background has SIGINT ignored, which every child would inherit: no test could press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

plugin.HIDDEN = ()  # the frames of Ottla are what a failure here is about

TESTS = Path(__file__).parent
LONG = ("spark_jobs", "clients", "clusters", "hostile", "testing", "docs", "release")
"""Folders whose tests mostly wait for other processes: they begin first, so that the short ones run beside them."""

SPARK = "spark_jobs"
"""The folder whose tests stay in two workers of pytest-xdist: those that share a Spark session in one, those that start Spark applications
in the other. More applications at a time would be too slow for their time limits."""

ONE_BY_ONE = ("sim/", "hostile/test_attacks_memory.py")
"""Tests that are handed out singly: they share nothing, and all tests of a file would keep one worker busy for long."""

FOREIGN = {"need_program", "need_zookeeper"}
"""The fixtures that look for a foreign program."""

LAST = "sim"
"""The folder whose tests begin last: each takes a few seconds, so that all workers end at the same time."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects the tests without looking for garbage: modules and tests by the thousand stay, and are not walked over later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests that need foreign programs."""
    if isinstance(item, pytest.Function) and not FOREIGN.isdisjoint(item.fixturenames):
        item.add_marker("foreign")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Lets each worker begin to collect at another folder. In a new clone pytest has to rewrite the asserts of all test modules, which is
    two thirds of the collection's processor time. A worker finds the modules that another one has rewritten before.
    """
    report = yield
    if collector.path == TESTS and "PYTEST_XDIST_WORKER" in os.environ:
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        first = len(report.result) * number // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """Puts the tests that share a Spark session first, then the long folders, and the simulations last. All workers have the same order."""
    items.sort(key=lambda item: _folder(item.nodeid))
    result = yield
    items.sort(key=lambda item: _rank(item.nodeid))
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Hands out tests in the order of their collection, a file at a time: its tests share what is made for it, such as a broker."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if _folder(file) == SPARK:
                return "Spark session" if _shares_session(file) else SPARK
            return nodeid if nodeid.removeprefix("tests/").startswith(ONE_BY_ONE) else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@cache
def _shares_session(file: str) -> bool:
    return _folder(file) == SPARK and "spark: Any" in (TESTS.parent / file).read_text(encoding="utf-8")


def _folder(nodeid: str) -> str:
    return nodeid.removeprefix("tests/").partition("/")[0]


def _rank(nodeid: str) -> int:
    if _shares_session(nodeid.partition("::")[0]):
        return -1
    folder = _folder(nodeid)
    return LONG.index(folder) if folder in LONG else len(LONG) + (folder == LAST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Frees everything that a failed test has left open. Python keeps the last traceback and the sockets of its frames. Otherwise a later
    test would free them, and fail because they are not closed.
    """
    before = item.session.testsfailed
    result = yield
    if item.session.testsfailed > before:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for name in ("last_type", "last_value", "last_traceback", "last_exc"):
                vars(sys).pop(name, None)
            gc.collect()
    return result


LOGGERS = ("ottla", "asyncio")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Takes back what a broker that a test started in this process has set: it would write to the output which that test captured."""
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in map(logging.getLogger, LOGGERS)]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(scope="session")
def need_program() -> Callable[[str], str]:
    """`need_program("kcat")` answers where the program is, or ends the test: skipped for a person, failed in CI."""

    def need(name: str) -> str:
        found = shutil.which(name)
        if found is None:
            _end_test(f"{name} is not installed")
        return found

    return need


@pytest.fixture(scope="session")
def need_zookeeper() -> None:
    """Ends the test if there is no ZooKeeper: skipped for a person, failed in CI."""
    from ottla.testing.zookeeper_process import ZooKeeperMissing, class_path, java

    try:
        java()
        class_path()
    except ZooKeeperMissing as error:
        _end_test(str(error))


@pytest.fixture(scope="session")
def zookeeper(need_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """One ZooKeeper for all tests of a worker. Each test or module has its own chroot in it."""
    from ottla.testing.zookeeper_process import ZooKeeperProcess

    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def embedded_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One server of `ottla.zookeeper_server` for all tests of a worker."""
    from ottla.testing.zookeeper_process import EmbeddedZooKeeper

    with EmbeddedZooKeeper(tmp_path_factory.mktemp("embedded-zookeeper")) as server:
        yield server


def _end_test(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI it has to be")
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"NOT RUN: {report.nodeid}: {reason.removeprefix('Skipped: ')}", yellow=True, bold=True)
