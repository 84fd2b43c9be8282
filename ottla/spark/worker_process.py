"""Spark's Python worker processes: whether this is one, what keeps its garbage collections short, and its memory in place.

After each task a worker collects all garbage. With pyspark, pyarrow and numpy in memory, none of which is garbage, that takes 30 to 40 ms
of CPU, more than most tasks of a small batch. So what the imports have left is taken out of the collector's sight (`gc.freeze`).

Record batches come and go in buffers of about a megabyte. The C library returns so much to the kernel as soon as it is freed, and the
kernel clears every page of the next one anew. So a worker keeps what it has freed, up to `KEPT_BYTES_MAX` (`mallopt`, of glibc only).
"""

from __future__ import annotations

import ctypes
import gc
import sys

KEPT_BYTES_MAX = 64 * 1024 * 1024
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_frozen_counts: set[int] = set()
"""How many modules there were at each freeze: a process that has imported nothing since has nothing more to freeze."""


def is_worker_process() -> bool:
    """Whether Spark started this process to run or plan tasks."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def freeze_imports() -> None:
    """Spares later collections the objects of imported modules. Called where a worker enters our code; does nothing in other processes."""
    count = len(sys.modules)
    if count not in _frozen_counts and is_worker_process():
        if not _frozen_counts:
            keep_freed_memory()
        _frozen_counts.add(count)
        gc.freeze()


def keep_freed_memory() -> None:
    """Lets this process keep memory that it has freed, for the next buffers; where the C library has no such setting, nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name in _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD:
            mallopt(name, KEPT_BYTES_MAX)
