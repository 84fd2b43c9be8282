"""A broker with many more partitions than the process may have open files: all are written, read, flushed and opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.wire_client import WireClient
from tests.server.many_partitions import create_topic, fetch_all, produce_to_all

LIMIT = 256
PARTITIONS = 1_000
LIMITED = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$0" "$@"')


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, ("ottla.log.format=text", "flush.messages=1", "ottla.tick.interval.ms=50"), prefix=LIMITED)
    yield process
    if process.is_running:
        process.stop()


def open_descriptors(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def test_a_thousand_partitions_with_256_descriptors(broker: BrokerProcess) -> None:
    broker.start()
    with WireClient(broker.port) as client:
        create_topic(client, PARTITIONS)
        for value in (b"one", b"two", b"three"):
            produce_to_all(client, PARTITIONS, value)
        others = [WireClient(broker.port) for _ in range(60)]
        for _ in range(2):
            assert fetch_all(client, PARTITIONS) == [[b"one", b"two", b"three"]] * PARTITIONS
        assert fetch_all(others[-1], PARTITIONS) == [[b"one", b"two", b"three"]] * PARTITIONS, "sixty connections have their share"
        for other in others:
            other.socket.close()
    if Path("/proc/self/fd").exists():
        assert open_descriptors(broker) < LIMIT
    broker.crash()
    with WireClient(broker.port) as client:
        produce_to_all(client, PARTITIONS, b"four")
        assert fetch_all(client, PARTITIONS) == [[b"one", b"two", b"three", b"four"]] * PARTITIONS
    assert "offline" not in broker.log_text() and "open files" not in broker.log_text()
