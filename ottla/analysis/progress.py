"""Shows progress on one line of stderr, which is overwritten.

A bar (`Progress`) is shown on a terminal and in a notebook. It is drawn up to ten times a second and only after the first half second, so
that short work shows nothing. It is removed at the end, so that the program's own output looks the same. `is_quiet` turns it off, and so
does `TERM=dumb` on a terminal.
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


def is_notebook() -> bool:
    """Returns whether stderr is shown in a notebook: Jupyter's kernel replaces `sys.stderr` by a class of its own."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


class StatusLine:
    """A line of stderr with one text at a time."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, text: str) -> None:
        """Overwrites the line. Spaces remove the rest of the previous one, because notebooks know no escape sequence for it."""
        sys.stderr.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
        sys.stderr.flush()
        self._width = len(text)

    def end(self) -> None:
        """Keeps the line, so that later output begins on the next one."""
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._width = 0


class Progress:
    """A bar of `total` steps, as a context manager. With `total` 0 (unknown) only the count is shown."""

    def __init__(self, what: str, total: int, *, is_quiet: bool = False) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._is_on = not is_quiet and (is_notebook() or (os.environ.get("TERM") != "dumb" and sys.stderr.isatty()))
        self._next_s = time.monotonic() + SHOWN_AFTER_S
        self._is_shown = False
        self._line = StatusLine()

    def expect(self, total: int) -> Callable[[int], None]:
        """Sets the number of steps, when it becomes known. Returns the function `add`, which adds finished steps."""
        self._total = total
        return self.add

    def add(self, steps: int) -> None:
        self._done += steps
        if self._is_on and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + SHOWN_EVERY_S
            self._is_shown = True
            self._line.show(self.line())

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
            self._line.show("")
