"""The pytest plugin with the fixtures `kafka_broker`, `kafka_broker_settings`, `kafka_broker_users`, `kafka_topic`, `kafka_group_id`,
`kafka_cluster`.

pytest imports this module in every run where Ottla is installed, so it imports only pytest and the standard library, and a broker starts
when the first test needs it. One broker serves the whole run, pytest-xdist's workers included; tests are isolated by unique names, not by
brokers. Faults end with the test that has set them. The report of a failed test has the log lines of its brokers.

`OTTLA_BOOTSTRAP`, or else `KAFKA_BOOTSTRAP_SERVERS`, names another Kafka-compatible broker to use instead, and the head of the run says so;
`OTTLA_BOOTSTRAP_CONFIG` names a file of Kafka's client options for it.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.handle import BrokerHandle

CONFIG_VARIABLE = "OTTLA_BOOTSTRAP_CONFIG"
WORKER_INPUT = "ottla_directory"
WORKER_INPUT_PID = "ottla_controller"
NAME_CHARACTERS_MAX = 100
HIDDEN = ("ottla.testing", "ottla.client")
"""Packages whose frames are removed from the reports of failed tests, except with `--full-trace`."""

_directory_key = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, object]:
    """Settings of `server.properties` for `kafka_broker`: override this fixture in the topmost `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker_users() -> Mapping[str, str]:
    """Passwords of `kafka_broker` by user. Override this fixture in the topmost `conftest.py`; clients then have to log in."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_settings: Mapping[str, object], kafka_broker_users: Mapping[str, str]
) -> Iterator[BrokerHandle]:
    """A running broker: `.bootstrap_server`, clients, records, faults. One broker serves the whole run."""
    worker_input = getattr(request.config, "workerinput", {})
    shared = worker_input.get(WORKER_INPUT)
    if _is_foreign():
        from ottla.testing.foreign_broker import foreign_broker

        with foreign_broker(_foreign_addresses(), os.environ.get(CONFIG_VARIABLE, ""), kafka_broker_users) as broker:
            yield broker
    elif shared:
        from pathlib import Path

        from ottla.testing.broker import DEFAULTS, checked_settings
        from ottla.testing.sharing import share_broker

        settings = {**DEFAULTS, **checked_settings(kafka_broker_settings)}
        controller = worker_input[WORKER_INPUT_PID]
        handle = share_broker(Path(shared), settings, controller_pid=controller, users=kafka_broker_users)
        yield handle
        handle.close()
    else:
        from ottla.testing.broker import Broker

        with Broker(settings=kafka_broker_settings, users=kafka_broker_users) as own:
            yield own


@pytest.fixture
def kafka_topic(kafka_broker: BrokerHandle, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic for this test. On a broker that the tests have not started, the topic is deleted afterwards."""
    name = kafka_broker.create_topic(_unique(request))
    owner_pid = os.getpid()
    yield name
    if _is_foreign() and os.getpid() == owner_pid:  # a forked child must not delete its parent's topic
        kafka_broker.delete_topics([name])


@pytest.fixture
def kafka_group_id(request: pytest.FixtureRequest) -> str:
    """A unique group name for this test."""
    return _unique(request)


@pytest.fixture
def kafka_cluster() -> Iterator[Callable[..., Broker | Cluster]]:
    """`kafka_cluster(n)` starts n brokers, which stop at the end of this test. Several brokers need kazoo (`pip install kazoo`)."""
    from contextlib import ExitStack

    with ExitStack() as running:

        def start(brokers: int = 1, **options: Any) -> Broker | Cluster:
            if brokers == 1:
                from ottla.testing.broker import Broker

                return running.enter_context(Broker(**options))
            from ottla.testing.cluster import Cluster

            return running.enter_context(Cluster(brokers, **options))

        yield start


def _is_foreign() -> bool:
    return bool(_foreign_addresses() or os.environ.get(CONFIG_VARIABLE))


def _foreign_addresses() -> str:
    from ottla.client.addresses import addresses_in

    return addresses_in(os.environ)


def _unique(request: pytest.FixtureRequest) -> str:
    """Returns the test's name in characters that Kafka allows, with a unique suffix."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-.")
    return f"{name}-{uuid.uuid4().hex[:12]}"


def pytest_report_header() -> str | None:
    """Returns a line about a broker that the run uses and has not started, because a variable of the shell may have been forgotten."""
    if not any("BOOTSTRAP" in name for name in os.environ) or not _is_foreign():  # most runs import nothing of Ottla
        return None
    where = _foreign_addresses() or f"of {os.environ[CONFIG_VARIABLE]}"
    return f"kafka_broker: the running broker {where} (OTTLA_BOOTSTRAP= starts one instead)"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "after a failed test, show its broker in a console until Enter or Ctrl-C"
    parser.getgroup("ottla").addoption("--ottla-console", action="store_true", help=text)


# Each test


def _handles() -> Iterable[BrokerHandle]:
    """Returns this process's brokers, without an import in a run that has none."""
    module = sys.modules.get("ottla.testing.handle")
    return () if module is None else module.BrokerHandle.all_handles()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    for handle in _handles():
        handle._mark_logs()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Ends the test's faults before its fixtures close their clients, and again afterwards, because fixtures may set faults."""
    _end_faults()
    yield
    _end_faults()


def _end_faults() -> None:
    for handle in _handles():
        handle.end_faults()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    found = call.excinfo
    if found is not None and not item.config.getoption("fulltrace"):
        call.excinfo = _without_own_frames(found)
    outcome = yield
    call.excinfo = found  # --pdb stops in the frame that failed
    report = outcome.get_result()
    if report.failed:
        report.sections += sorted(section for handle in _handles() for section in handle._new_logs())
        if item.config.getoption("ottla_console") and _handles():
            from ottla.testing.console import TITLE, why_not

            if reason := why_not(item.config):
                report.sections.append((TITLE, reason))


def pytest_exception_interact(node: pytest.Item | pytest.Collector, report: pytest.CollectReport | pytest.TestReport) -> None:
    """Shows the brokers of a failed test before its fixtures end, if the user has asked for it."""
    if node.config.getoption("ottla_console") and _handles() and report.when != "teardown":
        from ottla.testing.console import show, why_not

        if not why_not(node.config):
            _end_faults()  # a paused broker would not answer the console
            show(node.config, node.nodeid, _handles())


def _without_own_frames(found: pytest.ExceptionInfo[BaseException]) -> pytest.ExceptionInfo[BaseException]:
    """Returns the exception without the frames from the first call into `HIDDEN` to the next frame of other code, so that a report ends in
    the user's own line. If no user's frame is before that call, one of Ottla's is kept."""
    entries = list[TracebackType]()
    rest: TracebackType | None = found.tb
    while rest is not None:
        entries.append(rest)
        rest = rest.tb_next
    names = [str(entry.tb_frame.f_globals.get("__name__")) for entry in entries]
    start = next((place for place, name in enumerate(names) if name.startswith(HIDDEN)), len(names))
    end = next((place for place, name in enumerate(names) if place >= start and not _is_library(name)), len(names))
    while start and _is_library(names[start - 1]):  # contextlib, for a context manager of Ottla
        start -= 1
    if names[start - 1].startswith("_pytest."):
        start += 1
    kept: TracebackType | None = None
    for entry in reversed(entries[:start] + entries[end:]):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return pytest.ExceptionInfo.from_exc_info((found.type, found.value, kept or found.tb))


def _is_library(module: str) -> bool:
    package = module.partition(".")[0]
    return package == "ottla" or package in sys.stdlib_module_names


# pytest-xdist


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Passes each worker the directory through which this run's broker is found. The first worker that needs the broker makes it."""
    config = node.config
    if _directory_key not in config.stash:
        import tempfile

        config.stash[_directory_key] = os.path.join(tempfile.gettempdir(), f"ottla-{uuid.uuid4().hex}")
    node.workerinput[WORKER_INPUT] = config.stash[_directory_key]
    node.workerinput[WORKER_INPUT_PID] = os.getpid()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    directory = config.stash.get(_directory_key, None)
    if directory is not None:
        from pathlib import Path

        from ottla.testing.sharing import stop_shared

        stop_shared(Path(directory))
