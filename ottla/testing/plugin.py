"""pytest's fixtures: `kafka_broker`, `kafka_topic`, `kafka_group_id`, `kafka_cluster`.

pytest imports this module in every run where Ottla is installed, so it imports nothing but pytest, and a broker starts when the first test
needs it. One broker serves the whole run, pytest-xdist's workers included; tests are isolated by unique names, not by brokers.

`OTTLA_BOOTSTRAP` names another Kafka-compatible broker to use instead.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.handle import BrokerHandle

BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"
WORKER_INPUT = "ottla_directory"
NAME_CHARACTERS_MAX = 100

_directory_key = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[BrokerHandle]:
    """A running broker: `.bootstrap_server`, clients, records, faults. One for the whole run."""
    bootstrap = os.environ.get(BOOTSTRAP_VARIABLE)
    shared = getattr(request.config, "workerinput", {}).get(WORKER_INPUT)
    if bootstrap:
        from ottla.testing.handle import BrokerHandle

        handle = BrokerHandle(bootstrap)
        yield handle
        handle.close()
    elif shared:
        from pathlib import Path

        from ottla.testing.broker import DEFAULTS
        from ottla.testing.sharing import share_broker

        handle = share_broker(Path(shared), DEFAULTS)
        yield handle
        handle.close()
    else:
        from ottla.testing.broker import Broker

        with Broker() as broker:
            yield broker


@pytest.fixture
def kafka_topic(kafka_broker: BrokerHandle, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic of this test's own."""
    name = kafka_broker.create_topic(_unique(request))
    yield name
    if os.environ.get(BOOTSTRAP_VARIABLE):
        kafka_broker.delete_topics([name])


@pytest.fixture
def kafka_group_id(request: pytest.FixtureRequest) -> str:
    """A group name of this test's own."""
    return _unique(request)


@pytest.fixture
def kafka_cluster() -> Iterator[Callable[..., Broker | Cluster]]:
    """`kafka_cluster(n)` starts n brokers for this test; they stop at its end. More than one need a ZooKeeper on this machine."""
    started: list[Broker | Cluster] = []

    def start(brokers: int = 1, **options: Any) -> Broker | Cluster:
        if brokers == 1:
            from ottla.testing.broker import Broker

            started.append(Broker(**options).start())
        else:
            from ottla.testing.cluster import Cluster

            started.append(Cluster(brokers, **options).start())
        return started[-1]

    yield start
    for running in started:
        running.stop()


def _unique(request: pytest.FixtureRequest) -> str:
    """The test's name in characters that Kafka allows, and a unique suffix."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-.")
    return f"{name}-{uuid.uuid4().hex[:12]}"


# pytest-xdist


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Passes each worker the directory through which this run's broker is found."""
    config = node.config
    if _directory_key not in config.stash:
        import tempfile

        config.stash[_directory_key] = tempfile.mkdtemp(prefix="ottla-")
    node.workerinput[WORKER_INPUT] = config.stash[_directory_key]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stops the broker that the workers have shared."""
    directory = config.stash.get(_directory_key, None)
    if directory is not None:
        from pathlib import Path

        from ottla.testing.sharing import stop_shared

        stop_shared(Path(directory))
