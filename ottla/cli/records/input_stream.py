"""Standard input or a file as text. While no more input is ready, the caller can send the records read so far."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable
from typing import Any

READ_BYTES = 1024 * 1024


def text_stream(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> io.TextIOWrapper:
    """UTF-8 with all line ends as they are; bytes that are no UTF-8 are kept as surrogates. The descriptor stays open."""
    raw = _IdleInput(descriptor, linger_s, on_idle)
    return io.TextIOWrapper(io.BufferedReader(raw, READ_BYTES), encoding="utf-8", errors="surrogateescape", newline="")


def wait_for_input(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> None:
    """Returns when there is something to read, or the end; calls `on_idle` if that takes a while. A regular file is always ready."""
    if not select.select([descriptor], [], [], linger_s)[0]:
        on_idle()
        select.select([descriptor], [], [])


class _IdleInput(io.RawIOBase):
    """A descriptor that calls `on_idle` before it waits for long."""

    def __init__(self, descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._linger_s = linger_s
        self._on_idle = on_idle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wait_for_input(self._descriptor, self._linger_s, self._on_idle)
        return os.readv(self._descriptor, [buffer])
