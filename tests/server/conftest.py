"""A whole broker in this process, on a loop that the test runs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.base.config import BrokerConfig, load
from ottla.server.app import BrokerServer, close_loop

MakeServer = Callable[..., BrokerServer]
Pem = Callable[[str], Path]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.SelectorEventLoop()
    yield loop
    close_loop(loop)


def config_for(path: Path, *assignments: str) -> BrokerConfig:
    basis = (f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0", "ottla.shutdown.timeout.ms=500")
    return load(assignments=(*basis, *assignments))[0]


@contextmanager
def serving(loop: asyncio.AbstractEventLoop, config: BrokerConfig) -> Iterator[BrokerServer]:
    """Yields a running broker, and stops it at the end, also when the test fails."""
    server = BrokerServer(loop, config)
    server.start()
    try:
        yield server
    finally:
        loop.run_until_complete(server.stop())


@pytest.fixture
def make_server(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[MakeServer]:
    """`make_server("a.setting=value")` starts a broker; all are stopped at the end."""
    servers: list[BrokerServer] = []

    def make(*assignments: str) -> BrokerServer:
        server = BrokerServer(loop, config_for(tmp_path / f"data{len(servers)}", *assignments))
        server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        loop.run_until_complete(server.stop())


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Pem:
    """`pem(name)` returns a file with a new key and a certificate for localhost."""
    openssl = need_program("openssl")
    directory = tmp_path_factory.mktemp("pem")

    def make(name: str) -> Path:
        path = directory / f"{name}.pem"
        if not path.exists():
            key = directory / f"{name}.key"
            subprocess.run(
                [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", path],
                check=True, capture_output=True, timeout=60,
            )  # fmt: skip
            path.write_bytes(key.read_bytes() + path.read_bytes())
        return path

    return make
