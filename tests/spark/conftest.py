"""Fixtures: a broker process for the tests of this folder that need one, a client, and a pipeline with its own topics.

`OTTLA_BOOTSTRAP` names another Kafka-compatible broker to use instead.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.client
from ottla.client import Client
from ottla.client.addresses import addresses_in
from ottla.testing.broker import Broker
from ottla.testing.handle import BrokerHandle
from tests.spark.kept_connections import close_clients, close_relays
from tests.spark.pipeline import Pipeline, wait_for_topic
from tests.spark.reading import Fill


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerHandle]:
    bootstrap = addresses_in(os.environ)
    if not bootstrap:
        with Broker() as started:
            yield started
            close_clients()
    else:
        handle = BrokerHandle(bootstrap)
        yield handle
        close_clients()
        handle.close()


@pytest.fixture
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the test its own temporary directory instead of the host's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def client(broker: BrokerHandle) -> Iterator[Client]:
    """A client that connects without the proxy, so that faults do not affect it."""
    with ottla.client.connect(broker.direct_server) as connected:
        yield connected


@pytest.fixture(params=[False, True], ids=["first-protocol", "second-protocol"])
def may_use_v2(request: pytest.FixtureRequest) -> bool:
    """Runs a test with both versions of the transaction protocol."""
    return bool(request.param)


@pytest.fixture
def pipeline(broker: BrokerHandle, client: Client, may_use_v2: bool) -> Iterator[Pipeline]:
    """A pipeline with a new source and a new sink of two partitions each, and a new group; its drivers connect to the broker through a
    proxy that injects faults.
    """
    name = uuid.uuid4().hex[:12]
    for topic in (f"in-{name}", f"out-{name}"):
        client.create_topic(topic, partitions=2)
        wait_for_topic(client, topic)
    made = Pipeline(broker.bootstrap_server, f"in-{name}", f"out-{name}", f"group-{name}", may_use_v2)
    yield made
    made.close()
    close_relays()


@pytest.fixture
def topic(broker: BrokerHandle, client: Client, request: pytest.FixtureRequest) -> str:
    name = broker.create_topic(f"topic-{abs(hash(request.node.name)):x}", partitions=2)
    wait_for_topic(client, name)
    return name


@pytest.fixture
def fill(client: Client, topic: str) -> Fill:
    """Writes values `0`, `1`, ... to one partition, in one batch."""

    def write(partition: int, count: int, *, first: int = 0, timestamp: int | None = None, name: str = topic) -> None:
        with client.producer() as producer:
            for number in range(first, first + count):
                producer.produce(name, b"%d" % number, partition=partition, timestamp=timestamp)

    return write
