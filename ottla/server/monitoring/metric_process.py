"""Metrics of the process: CPU, memory, descriptors, garbage collection, and the lag of its event loop.

Memory and open descriptors are read from `/proc`; on systems without `/proc` these metrics are omitted. `LoopLag` schedules a call ten
times a second and measures its delay; it runs only while metrics are on.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator

from ottla.adapters.process_memory import virtual_and_resident_bytes
from ottla.base.ports import TimerHandle, Timers
from ottla.server.monitoring.histogram import Histogram
from ottla.server.monitoring.metric_page import Page

PROBE_MS = 100

_GENERATIONS = tuple(f'{{generation="{generation}"}}' for generation in range(3))


class ProcessMetrics:
    """Reads what the system knows of this process."""

    def __init__(self) -> None:
        self._started_seconds = _started_seconds()

    def collect(self, page: Page) -> Iterator[None]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        page.put("process_cpu_seconds_total", round(usage.ru_utime + usage.ru_stime, 6))
        page.put("process_start_time_seconds", round(self._started_seconds, 3))
        page.put("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._collect_from_proc(page)
        yield
        for labels, generation in zip(_GENERATIONS, gc.get_stats(), strict=True):
            page.put("python_gc_objects_collected_total", generation["collected"], labels)
            page.put("python_gc_objects_uncollectable_total", generation["uncollectable"], labels)
            page.put("python_gc_collections_total", generation["collections"], labels)

    def _collect_from_proc(self, page: Page) -> None:
        try:
            virtual, resident = virtual_and_resident_bytes()
            descriptors = _open_descriptors()
        except OSError:
            return
        page.put("process_virtual_memory_bytes", virtual)
        page.put("process_resident_memory_bytes", resident)
        page.put("process_open_fds", descriptors)


def _open_descriptors() -> int:
    """Counts open descriptors. Since Linux 6.2 the directory's size is their number. Older kernels list them; the descriptor of the listing
    is subtracted."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1


def _started_seconds() -> float:
    """Returns the wall time of the process's start, in seconds since 1970; the current time if the system does not provide it."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name, the second field, is in brackets and may contain blanks.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return time.time()


class LoopLag:
    """Measures the delay of the event loop's timers."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._handle: TimerHandle | None = None
        self._due_ns = 0
        self.histogram = Histogram()

    def start(self) -> None:
        self._due_ns = time.monotonic_ns() + PROBE_MS * 1_000_000
        self._handle = self._timers.call_later(PROBE_MS, self._probe)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _probe(self) -> None:
        self.histogram.add(time.monotonic_ns() - self._due_ns)
        self.start()
