"""Spark's Python worker processes: detects them, keeps their garbage collections short, and keeps freed memory.

After each task a worker runs a full garbage collection. With pyspark, pyarrow and numpy in memory that takes 30 to 40 ms of CPU, more than
most tasks of a small batch. Objects of imported modules are therefore excluded from collection (`gc.freeze`).

Record batches use buffers of about a megabyte. The C library returns such memory to the kernel when it is freed, and the kernel clears
every page of the next buffer. A worker therefore keeps freed memory, up to `KEPT_BYTES_MAX` (`mallopt`, glibc only).
"""

from __future__ import annotations

import ctypes
import gc
import sys

KEPT_BYTES_MAX = 64 * 1024 * 1024
KEPT_BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Largest size of a buffer whose memory is kept: the documented limit of `mallopt` for 64 bits. Older versions of glibc refuse more."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_frozen_counts: set[int] = set()
"""The number of modules at each freeze. If nothing was imported since, there is nothing more to freeze."""


def is_worker_process() -> bool:
    """Whether Spark started this process to run or plan tasks."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def freeze_imports() -> None:
    """Excludes the objects of imported modules from garbage collection, and keeps freed memory. Called when Spark enters our code; does
    nothing outside of Spark's workers."""
    count = len(sys.modules)
    if count not in _frozen_counts and is_worker_process():
        if not _frozen_counts:
            keep_freed_memory()
        _frozen_counts.add(count)
        gc.freeze()


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for later buffers; does nothing without glibc's `mallopt`."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BUFFER_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
