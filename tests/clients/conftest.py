"""Fixtures: a broker process for the tests of one module, and new names, so that tests do not see each other's topics and groups. A test
fails if it leaves clients open (`left_open.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.left_open import leaves_nothing_open
from tests.fakes import kafka_python  # noqa: F401

__all__ = ["leaves_nothing_open"]

SETTINGS = (
    "group.consumer.heartbeat.interval.ms=200",
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "auto.create.topics.enable=true",
    "message.max.bytes=12000000",
    "ottla.log.format=text",
)

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module. The tests fail if it does not stop cleanly."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may kill; not started yet."""
    process = BrokerProcess(tmp_path, SETTINGS)
    yield process
    if process.is_running:
        process.stop()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """`fresh("topic")` returns a name that no other test uses."""
    return lambda prefix: f"{prefix}-{next(_numbers)}"
