"""Measures how long `poll(0)` takes, and makes peers that never answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

MOMENT_S = 0.5
"""Far more than a few milliseconds and far less than any time-out, in seconds. The machine may be busy."""

LOGIN = {"sasl.username": "u", "sasl.password": "p"}
SECURITY = [{"security.protocol": "SSL"}, {"security.protocol": "SASL_PLAINTEXT"} | LOGIN]


def silent(_body: Any, _version: int) -> None:
    return None


def longest_poll_s(poll: Callable[[], object], until: Callable[[], bool]) -> float:
    """Polls until something is true. Returns the time of the longest poll."""
    longest, deadline = 0.0, time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline
        began = time.monotonic()
        poll()
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.002)
    return longest


@contextmanager
def deaf_listener() -> Iterator[int]:
    """The port of a listener that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def slow_names(monkeypatch: pytest.MonkeyPatch, is_over: Callable[[], object]) -> Iterator[str]:
    """A host name whose server answers when `is_over` returns."""
    resolve = socket.getaddrinfo

    def slow(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "slow.invalid":
            is_over()
        return resolve("127.0.0.1" if host == "slow.invalid" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    yield "slow.invalid"
