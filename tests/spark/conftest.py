"""A broker process for the tests of this folder that need one, a client of it, and a pipeline with topics of the test's own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import ottla.client
from ottla.client import Client
from ottla.spark.connections import close_clients
from ottla.spark.relay import close_relays
from ottla.testing.broker import Broker
from tests.spark.pipeline import Pipeline


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started
        close_clients()


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    """A client that the proxy's faults do not reach."""
    with ottla.client.connect(broker.direct_server) as connected:
        yield connected


@pytest.fixture(params=[False, True], ids=["first-protocol", "second-protocol"])
def may_use_v2(request: pytest.FixtureRequest) -> bool:
    """Both transaction protocols."""
    return bool(request.param)


@pytest.fixture
def pipeline(broker: Broker, client: Client, may_use_v2: bool) -> Iterator[Pipeline]:
    """A source of two partitions, a sink of two, and a group, none used before; its drivers reach the broker by a proxy with faults."""
    name = uuid.uuid4().hex[:12]
    client.create_topic(f"in-{name}", partitions=2)
    client.create_topic(f"out-{name}", partitions=2)
    made = Pipeline(broker.bootstrap_server, f"in-{name}", f"out-{name}", f"group-{name}", may_use_v2)
    yield made
    made.close()
    close_relays()
