"""Serves a console over HTTP, until it is stopped."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from ottla.base.errors import OttlaError
from ottla.console.app import Console
from ottla.console.desk import Settings


class ConsoleRefused(OttlaError):
    """The console cannot be started; the message is one line."""


def serve(settings: Settings, *, is_with_parent: bool = False) -> None:
    """Serves until SIGINT or SIGTERM, and with `is_with_parent` at most until standard input ends. Prints `READY http://host:port in N ms`
    on stdout when it serves. Raises `ConsoleRefused`."""
    started = time.perf_counter()
    listening = _listen(settings)
    host, port = listening.getsockname()[:2]
    settings = settings._replace(port=port)
    try:
        console = Console(settings)
    except ValueError as error:
        listening.close()
        raise ConsoleRefused(str(error)) from None
    config = uvicorn.Config(
        console.app(), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1, server_header=False
    )
    shown = f"[{host}]" if ":" in host else host
    server = _Server(config, f"READY http://{shown}:{port} in {{:.0f}} ms\n", started)
    if is_with_parent:
        threading.Thread(target=server.end_with_input, name="parent", daemon=True).start()
    try:
        server.run(sockets=[listening])
    finally:
        console.close()


class _Server(uvicorn.Server):
    """A server that prints a line when it is ready. A signal to stop ends it without an error."""

    def __init__(self, config: uvicorn.Config, line: str, started: float) -> None:
        super().__init__(config)
        self._line = line
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        sys.stdout.write(self._line.format((time.perf_counter() - self._started) * 1000))
        sys.stdout.flush()

    def end_with_input(self) -> None:
        """Waits until standard input ends: the parent process has ended, or has closed it to stop the console. Then ends the server."""
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
        found.listen(128)
    except OSError as error:
        found.close()
        reason = (error.strerror or str(error)).lower()
        raise ConsoleRefused(f"cannot listen on {settings.host}:{settings.port}: {reason}; choose another port") from None
    return found
