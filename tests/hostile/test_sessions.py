"""A client cannot evict the fetch sessions of other addresses, and one connection cannot evict those of other connections from its address
(I46).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages import fetch
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient

SLOTS = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, (*SETTINGS, f"max.incremental.fetch.session.cache.slots={SLOTS}")).start()
    yield process
    process.stop()


def connected(port: int, host: str) -> WireClient:
    """Returns a client that connects from another address of this machine."""
    client = WireClient(port)
    client.socket.close()
    client.socket = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(host, 0))
    return client


def ask(client: WireClient, topic: str, session_id: int = 0, epoch: int = 0) -> Any:
    wanted = [fetch.FetchTopic(topic=topic, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1)])]
    request = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, max_bytes=1, session_id=session_id, session_epoch=epoch, topics=[] if session_id else wanted
    )
    return client.ask(request, 11)


def test_sessions_of_others_live_on(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as honest, WireClient(broker.port) as beside, connected(broker.port, "127.0.0.2") as far:
        topic = World(honest).topic
        known = ask(honest, topic).session_id
        assert known
        for epoch, attacker in enumerate((beside, far), 1):
            taken = [ask(attacker, topic).session_id for _ in range(2 * SLOTS)]
            assert 0 not in taken
            assert ask(honest, topic, known, epoch).error_code == ErrorCode.NONE
        late = [ask(honest, topic).session_id for _ in range(2)]
        assert ask(honest, topic, late[0], 1).error_code == ErrorCode.NONE, "a new session takes the place of one of the greedy address"
