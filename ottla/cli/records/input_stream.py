"""Reads standard input or a file as text. Calls the caller when no more input is ready, so that it can send the records read so far."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable
from typing import Any

READ_BYTES = 1024 * 1024


def text_stream(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> io.TextIOWrapper:
    """Returns the input decoded as UTF-8, with line ends unchanged and invalid bytes as surrogates. Does not close the descriptor."""
    raw = _IdleInput(descriptor, linger_s, on_idle)
    return io.TextIOWrapper(io.BufferedReader(raw, READ_BYTES), encoding="utf-8", errors="surrogateescape", newline="")


def wait_for_input(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> None:
    """Waits until there is input, or its end. Calls `on_idle` once if this takes `linger_s`. A regular file is always ready."""
    if not select.select([descriptor], [], [], linger_s)[0]:
        on_idle()
        select.select([descriptor], [], [])


class _IdleInput(io.RawIOBase):
    """A descriptor that calls `on_idle` when a read has waited `linger_s` for input."""

    def __init__(self, descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._linger_s = linger_s
        self._on_idle = on_idle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wait_for_input(self._descriptor, self._linger_s, self._on_idle)
        return os.readv(self._descriptor, [buffer])
