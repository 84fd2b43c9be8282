"""Fixtures: a broker for the tests of this folder, and a topic that a test fills."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import ottla.client
from ottla.client import Client
from ottla.testing.broker import Broker

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    with ottla.client.connect(broker.bootstrap_server) as connected:
        yield connected


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions."""
    return broker.create_topic(f"topic-{uuid.uuid4().hex[:12]}", partitions=2)


@pytest.fixture
def frame(broker: Broker) -> Any:
    """`ottla.frame` on this broker."""
    from ottla.frames.frame import frame

    return partial(frame, bootstrap=broker.bootstrap_server)
