"""Sockets are waited for however many files the program has open."""

from __future__ import annotations

import fcntl
import resource
import socket
import time
from collections.abc import Iterator

import pytest

from ottla.client.blocking.readable import readable

BEYOND_SELECT = 1100


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for descriptors that `select.select` does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * BEYOND_SELECT), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_can_be_read_is_found_beside_what_cannot(many_files: None) -> None:
    (one, other), (third, _kept) = socket.socketpair(), socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, BEYOND_SELECT))
    with one, other, third, _kept, high:
        assert high.fileno() >= BEYOND_SELECT
        before = time.monotonic()
        assert readable([third.fileno(), high.fileno()], 0.02) == [] and time.monotonic() - before >= 0.02
        other.send(b"x")
        assert readable([third.fileno(), high.fileno()], 30.0) == [high.fileno()]
        other.close()
        assert high.recv(1) == b"x" and readable([high.fileno()], 30.0) == [high.fileno()], "the end can be read as well"
