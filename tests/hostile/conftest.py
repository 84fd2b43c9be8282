"""Fixtures with a broker under attack. After each test the broker must run and serve an honest client, use no more memory than allowed, and
have no unexpected lines in its log (I46 and P12 of docs/invariants.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS, own_broker
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient

__all__ = ["own_broker"]

RSS_GROWTH_BYTES_MAX = 64 << 20
HONEST_APIS = ((0, 9), (1, 12), (3, 12), (8, 8), (9, 8), (12, 4), (18, 3), (2, 7))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def honest(attacked: BrokerProcess) -> Iterator[World]:
    """Yields an honest client that was connected before the attack."""
    with WireClient(attacked.port) as client:
        world = World(client)
        for key, version in HONEST_APIS:
            client.ask(world.request(key, version), version)
        yield world


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checks the broker after each test, for tests that attack the broker of their module."""
    if "attacked" not in request.fixturenames:
        yield
        return
    broker: BrokerProcess = request.getfixturevalue("attacked")
    world: World = request.getfixturevalue("honest")
    before, said = broker.rss_bytes(), len(broker.log_text())
    yield
    assert broker.is_running, broker.log_tail()
    broker.check_log(said)
    serve(world)
    with WireClient(broker.port) as client:
        assert client.ask(world.request(18, 3), 3).error_code == 0
    growth = broker.rss_bytes() - before
    assert growth <= RSS_GROWTH_BYTES_MAX, f"memory has grown by {growth >> 20} MiB"


def serve(world: World) -> None:
    """Makes the honest client send its usual requests."""
    for key, version in HONEST_APIS:
        assert world.client.ask(world.request(key, version), version) is not None


@pytest.fixture
def connect(attacked: BrokerProcess, honest: World) -> Iterator[Callable[[], WireClient]]:
    """Makes hostile connections and closes them at the end."""
    made: list[WireClient] = []

    def make() -> WireClient:
        made.append(WireClient(attacked.port, timeout=10))
        return made[-1]

    yield make
    for client in made:
        client.socket.close()
