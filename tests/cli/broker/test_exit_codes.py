"""The exit codes of the broker's process after a second signal, and of `ottla status` (docs/operations.md)."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.broker.running import find
from ottla.testing.broker import Broker
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.records import Record, encode_batch
from tests.cli.conftest import Ottla
from tests.clients.broker_process import STOP_SECONDS, BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.sample_requests import World
from tests.clients.wire_client import In, WireClient
from tests.hostile.damage import read

SHELL = ("sh", "-c", '"$@"; echo "exit code $?"', "sh")
VALUE = b"x" * 60_000
ANSWERS = 400
"""Unread answers with the value: more than the buffers of both sockets hold."""


@contextmanager
def pending_answers(port: int) -> Iterator[None]:
    """A client does not read its answers, so that a clean stop waits for it."""
    with WireClient(port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        world = World(client)
        client.ask(world.make_topic(7, "t"), 7)
        client.ask(world.produce(In(9), "t", bytes(encode_batch([Record(0, 1, None, VALUE)]))), 9)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[wanted])])
        client.send(b"".join(client.frame(request, 11) for _ in range(ANSWERS)))
        yield


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_the_process_at_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    broker = BrokerProcess(tmp_path, [*SETTINGS, "ottla.shutdown.timeout.ms=86400000"], prefix=SHELL).start()
    found = find(str(broker.data))
    assert found is not None and broker.process is not None
    try:
        with pending_answers(broker.port):
            os.kill(found.pid, number)
            eventually(lambda: ": stopping" in broker.log_text())
            assert find(str(broker.data)) is not None, "it waits for the client"
            os.kill(found.pid, number)
            assert broker.process.communicate(timeout=STOP_SECONDS)[0] == f"exit code {code}\n"
    finally:
        if find(str(broker.data)) is not None:
            os.kill(found.pid, signal.SIGKILL)
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    broker.prefix = []
    broker.start()
    with WireClient(broker.port) as client:
        assert read(client, "t") == ([VALUE], 0)
    broker.stop()


def test_status_says_by_its_exit_code_whether_the_broker_answers(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert offline("status", "-d", data).code == 1
    with Broker(data_dir=data) as broker:
        assert offline("status", "-d", data).code == 0
        with broker.pause():
            assert offline("status", "-d", data).code == 3
        assert offline("status", "-d", data).code == 0
    assert offline("status", "-d", data).code == 1
