"""A broker process for the tests of this folder that need one, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla.client
from ottla.client import Client
from ottla.testing.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with ottla.client.connect(broker.get_bootstrap_server()) as connected:
        yield connected
