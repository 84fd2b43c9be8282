"""Runs a broker that counts, between two signals, the work of its event loop: for each function its calls, its calls of builtins, and its
Python instructions. A busy machine does not change these numbers.

While a broker counts it is many times slower. Therefore its clock and its timers are made `SLOWDOWN` times slower too: a timer of 2 ms
fires after the same amount of work as without the counting, and no request is treated as expensive.

usage: python -m tools.bench.path_counter FILE COMMAND...      (a command of `ottla`; SIGUSR1 begins, SIGUSR2 ends and writes FILE)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from ottla.adapters import clock
from ottla.adapters.clock import SystemClock
from ottla.adapters.timers import LoopTimers
from ottla.base.ports import TimerHandle
from ottla.cli.main import main as run

ROOT = f"{Path(__file__).parents[2]}{os.sep}"
SLOWDOWN = 1000


class Work(NamedTuple):
    """The work of a function: how often it was called (or resumed, if it is a generator), how many builtins it called, and how many
    instructions it executed.
    """

    calls: float
    builtins: float
    instructions: float


NO_WORK = Work(0, 0, 0)


class PathCounter:
    """Counts the work of this thread by function."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: Counter[CodeType] = Counter()
        self._builtins: Counter[CodeType] = Counter()
        self._instructions: Counter[CodeType] = Counter()
        self._clocks: list[Callable[[], int]] = []
        self._began: dict[Callable[[], int], int] = {}  # the time of each clock when the counting began

    def slow_down(self) -> None:
        """Replaces the clock and the timers of the broker by a clock and timers that are slower from `begin` on."""
        clock.monotonic_ns = self._slowed(time.monotonic_ns)  # type: ignore[attr-defined]
        SystemClock.nanoseconds = staticmethod(self._slowed(SystemClock.nanoseconds))
        call_later = LoopTimers.call_later

        def call_later_slowly(timers: LoopTimers, delay_ms: float, function: Callable[[], object]) -> TimerHandle:
            return call_later(timers, delay_ms * SLOWDOWN if self._began else delay_ms, function)

        LoopTimers.call_later = call_later_slowly  # type: ignore[method-assign,assignment]

    def _slowed(self, read: Callable[[], int]) -> Callable[[], int]:
        def read_slowly() -> int:
            now, began = read(), self._began.get(read, 0)
            return began + (now - began) // SLOWDOWN if began else now

        self._clocks.append(read)
        return read_slowly

    def begin(self, *_signal: object) -> None:
        self._began = self._began or {read: read() for read in self._clocks}
        for counts in (self._calls, self._builtins, self._instructions):
            counts.clear()
        sys.setprofile(self._profile)
        sys.settrace(self._trace)

    def end(self, *_signal: object) -> None:
        """Ends the counting, and writes the work by function as JSON."""
        sys.settrace(None)
        sys.setprofile(None)
        found: dict[str, Work] = {}
        for code, count in self._instructions.items():
            work, name = Work(self._calls[code], self._builtins[code], count), name_of(code)
            # Generated functions may have the same name.
            found[name] = Work(*map(sum, zip(work, found.get(name, NO_WORK), strict=True)))
        write_result(self._path, found)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "c_call":
            self._builtins[frame.f_code] += 1
        elif event == "call" and frame.f_code.co_filename != __file__:
            self._calls[frame.f_code] += 1

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._instructions[frame.f_code] += 1
        return self._trace


class Watching(Protocol):
    """The base class of observers of the broker in this process: they observe it between two signals."""

    def begin(self, *_signal: object) -> None: ...

    def end(self, *_signal: object) -> None:
        """Ends the observation, and calls `write_result`."""


def write_result(path: Path, found: object) -> None:
    """Writes the file atomically, so that a process that waits for it reads the whole file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.rename(path)


def run_watched(watching: Watching, command: Sequence[str]) -> int:
    """Runs a command of `ottla` until it ends."""
    signal.signal(signal.SIGUSR1, watching.begin)
    signal.signal(signal.SIGUSR2, watching.end)
    return run(command)


def name_of(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(ROOT)}:{code.co_firstlineno} {code.co_qualname}"


def main(argv: Sequence[str]) -> int:
    counter = PathCounter(Path(argv[0]))
    counter.slow_down()
    return run_watched(counter, argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
