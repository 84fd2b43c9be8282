"""One broker for the tests of this folder that only use it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"topic-{uuid.uuid4().hex}")


@pytest.fixture(autouse=True)
def no_faults_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that uses the shared broker leaves it without faults."""
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker")._faults().reset()
