"""The progress that `ottla pipeline run --watch` shows on stderr: batches, rows a second and lag of each pipeline.

A terminal has one line for each pipeline, which is overwritten. Elsewhere, and with `TERM=dumb`, a pipeline gets a new line after a batch,
at most one a second.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.state_file import PipelineState

RATE_SECONDS = 10.0
"""Rows a second are an average over this time, so that single batches do not make it jump."""
LINE_SECONDS = 1.0


class ProgressWatch:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._rows: dict[str, deque[tuple[float, int]]] = {}
        """For each group the times of the latest observations, and the rows that were read until then."""
        self._shown: dict[str, tuple[float, int]] = {}
        """For each group the time and the batches of the latest line. Not used on a terminal."""
        self._height = 0

    def show(self, states: Sequence[PipelineState], is_last: bool) -> None:
        lines = {state.group: self._line(state) for state in states}
        if self._is_terminal:
            self._overwrite(list(lines.values()))
            return
        now = self._clock()
        for state in states:
            shown_at, batches = self._shown.get(state.group, (now - LINE_SECONDS, state.batches))
            if is_last or (state.batches > batches and now - shown_at >= LINE_SECONDS):
                sys.stderr.write(lines[state.group] + "\n")
                batches, shown_at = state.batches, now
            self._shown[state.group] = (shown_at, batches)
        sys.stderr.flush()

    def _line(self, state: PipelineState) -> str:
        age = f" ({state.lag_seconds:,.1f} s)" if state.lag else ""
        lag = f", lag {state.lag:,}{age}" if state.positions else ""  # unknown before the first commit
        batches = "1 batch" if state.batches == 1 else f"{state.batches:,} batches"
        return f"{state.group}: {state.state}, {batches}, {self._rate(state):,.0f} rows/s{lag}"

    def _rate(self, state: PipelineState) -> float:
        now = self._clock()
        rows = self._rows.setdefault(state.group, deque())
        rows.append((now, state.rows_in))
        while len(rows) > 2 and rows[1][0] <= now - RATE_SECONDS:
            rows.popleft()
        seconds = now - rows[0][0]
        return (state.rows_in - rows[0][1]) / seconds if seconds > 0 else 0.0

    def _overwrite(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns - 1
        up = f"\x1b[{self._height}A" if self._height else ""
        sys.stderr.write(up + "".join(f"\r\x1b[K{line[:width]}\n" for line in lines))
        sys.stderr.flush()
        self._height = len(lines)
