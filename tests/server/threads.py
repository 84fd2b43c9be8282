"""A blocking client beside a broker on the test's own loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from ottla.server.app import BrokerServer
from tests.clients.wire_client import WireClient

T = TypeVar("T")


def with_client(loop: asyncio.AbstractEventLoop, server: BrokerServer, talk: Callable[[WireClient], T]) -> T:
    """Runs `talk` with a connection of its own, in a thread, while the broker serves."""

    def work() -> T:
        with WireClient(server.node.endpoints[0].port) as client:
            return talk(client)

    return loop.run_until_complete(loop.run_in_executor(None, work))


def run_until(loop: asyncio.AbstractEventLoop, is_true: Callable[[], object], seconds: float = 60) -> None:
    """Runs the broker until `is_true` returns a true value."""

    async def wait() -> None:
        deadline = time.monotonic() + seconds
        while not is_true():
            assert time.monotonic() < deadline, f"not within {seconds} s"
            await asyncio.sleep(0.002)

    loop.run_until_complete(wait())
