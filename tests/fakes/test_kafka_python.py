"""With `kafka_python.py` no socket of kafka-python stays open."""

from __future__ import annotations

import socket
from collections.abc import Generator
from types import coroutine
from typing import Any

import pytest

from tests.fakes.kafka_python import KafkaNetSocket


class Selector:
    """Suspends a task that waits for its connection; the test decides how the task continues."""

    @coroutine
    def wait_write(self, connecting: socket.socket, timeout_at: float | None) -> Generator[None, None, None]:
        self.connecting = connecting
        yield


@pytest.fixture
def suspended() -> Any:
    """Returns a task of kafka-python that waits for its connection, and the connection's socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        selector = Selector()
        task = KafkaNetSocket().connect(selector, (socket.AF_INET, socket.SOCK_STREAM, 0, "", server.getsockname()))
        task.send(None)
        yield task, selector.connecting
        task.close()
        selector.connecting.close()


def test_the_socket_of_a_dropped_task_is_closed(suspended: Any) -> None:
    task, connecting = suspended
    task.close()
    assert connecting.fileno() == -1


def test_a_connected_socket_stays_open(suspended: Any) -> None:
    task, connecting = suspended
    with pytest.raises(StopIteration) as connected:
        task.send(None)
    assert connected.value.value is connecting and connecting.fileno() != -1
