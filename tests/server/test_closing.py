"""A clean stop of many logs is killed at any moment. The next start has all acknowledged records and reports no damage."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.wire_client import WireClient
from tests.server.many_partitions import create_topic, fetch_all, produce_to_all

PARTITIONS = 300
KILLS = 8
LOSS = re.compile("damage|cut |lost|missing|made it again|made its indexes again|cannot be used|removed", re.IGNORECASE)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, ("ottla.log.format=text",))
    yield process
    if process.is_running:
        process.kill()


def test_kills_in_the_middle_of_stops(broker: BrokerProcess) -> None:
    """Few records follow the last snapshot in some rounds, and many in others, so that the stop writes different files."""
    chance, values = random.Random(7), list[bytes]()

    def write(value: bytes) -> None:
        with WireClient(broker.port) as client:
            if not values:
                create_topic(client, PARTITIONS)
            produce_to_all(client, PARTITIONS, value)
            values.append(value)

    broker.start()
    write(b"first")
    began = time.monotonic()
    broker.stop()
    stop_seconds = time.monotonic() - began
    kills = 0
    while kills < KILLS:
        broker.start()
        write(b"%d " % len(values) * chance.choice((1, 1, 3000)))
        assert broker.process is not None
        broker.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            broker.process.wait(chance.uniform(0, stop_seconds))
        broker.kill()
        if (broker.data / ".kafka_cleanshutdown").exists():
            stop_seconds *= 0.7  # the stop was faster than the first one
        else:
            kills += 1
        broker.start()
        with WireClient(broker.port) as client:
            assert fetch_all(client, PARTITIONS) == [values] * PARTITIONS
        found = LOSS.search(broker.log_text())
        assert found is None, broker.log_text()[max(0, found.start() - 500) : found.end() + 200]
        broker.stop()
