"""Runs a broker that notes, between two signals, the times of its socket callbacks, sends and writes to files.

usage: python -m tools.bench.path_times FILE COMMAND...      (a command of `ottla`; SIGUSR1 begins, SIGUSR2 ends and writes FILE)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from ottla.adapters.disk import OsFile
from ottla.adapters.network import SocketChannel
from tools.bench.path_counter import run_watched, write_result

RECEIVED, SENT, WRITTEN = "received", "sent", "written"
"""A callback of a readable socket with all that it has done; a send; a write to a file."""


class PathTimes:
    """Notes (kind, begin, end) in nanoseconds of a clock that all processes of the machine share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_on = False
        self._found: list[tuple[str, int, int]] = []

    def install(self) -> None:
        """Replaces the methods that are measured. Called before the broker opens a socket or a file."""
        for cls, name, kind in ((SocketChannel, "_on_readable", RECEIVED), (SocketChannel, "send", SENT), (OsFile, "pwrite", WRITTEN)):
            setattr(cls, name, self._noting(getattr(cls, name), kind))

    def _noting(self, method: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            if not self._is_on:
                return method(*arguments)
            began_ns = perf_counter_ns()
            result = method(*arguments)
            self._found.append((kind, began_ns, perf_counter_ns()))
            return result

        return noted

    def begin(self, *_signal: object) -> None:
        self._found.clear()
        self._is_on = True

    def end(self, *_signal: object) -> None:
        self._is_on = False
        write_result(self._path, self._found)


def main(argv: Sequence[str]) -> int:
    times = PathTimes(Path(argv[0]))
    times.install()
    return run_watched(times, argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
