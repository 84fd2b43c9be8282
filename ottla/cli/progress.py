"""A progress bar: one line on stderr that is overwritten, shown only on a terminal.

It is drawn up to ten times a second and only after the first half second, so that short work shows nothing. It is removed at the end, so
that the command's own output looks the same. `-q`, `TERM=dumb` and a stderr that is no terminal turn it off.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType

SHOWN_AFTER_S = 0.5
SHOWN_EVERY_S = 0.1
WIDTH = 30


class Progress:
    """A bar of `total` steps, as a context manager. With `total` 0 (unknown) only the count is shown."""

    def __init__(self, what: str, total: int, *, is_quiet: bool = False) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._is_on = not is_quiet and os.environ.get("TERM") != "dumb" and sys.stderr.isatty()
        self._next_s = time.monotonic() + SHOWN_AFTER_S
        self._is_shown = False

    def expect(self, total: int) -> Callable[[int], None]:
        """Sets the number of steps once it is known. Returns `add`."""
        self._total = total
        return self.add

    def add(self, steps: int) -> None:
        self._done += steps
        if self._is_on and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + SHOWN_EVERY_S
            self._is_shown = True
            sys.stderr.write(f"\r{self.line()}\x1b[K")
            sys.stderr.flush()

    def line(self) -> str:
        if self._total <= 0:
            return f"{self._what} {self._done:,}"
        share = min(1.0, self._done / self._total)
        filled = int(share * WIDTH)
        return f"{self._what} [{'#' * filled}{' ' * (WIDTH - filled)}] {share:4.0%}"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
