"""Measures the memory of a Spark session while a job runs: the memory of the JVM, of the tasks' Python processes, and of the driver's
Python processes.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.05
TASKS = "pyspark.daemon"


class PeakMemory(threading.Thread):
    """Samples a process and its child processes during the `with` block. `grown_mib` returns the peak of each kind of process minus its
    memory at the start.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.is_over = threading.Event()
        self.before = self._sample()
        self.peak = dict(self.before)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.is_over.set()
        self.join()

    def run(self) -> None:
        while not self.is_over.wait(SAMPLE_SECONDS):
            for kind, used in self._sample().items():
                self.peak[kind] = max(self.peak.get(kind, 0.0), used)

    def grown_mib(self) -> dict[str, float]:
        return {kind: peak - self.before.get(kind, 0.0) for kind, peak in self.peak.items()}

    def _sample(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for process in [self.root, *self.root.children(recursive=True)]:
            try:
                kind, used = _kind(process), process.memory_info().rss / 2**20
            except psutil.NoSuchProcess:
                continue
            found[kind] = found.get(kind, 0.0) + used
        return found


def _kind(process: psutil.Process) -> str:
    """Returns the kind of a process: JVM, tasks, or driver (the program itself, and the workers that Spark starts for planning and
    committing).
    """
    if process.name().startswith("java"):
        return "JVM"
    return "tasks" if TASKS in process.cmdline() else "driver"
