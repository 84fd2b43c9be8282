"""What the system knows of this process's memory.

`/proc` is read where there is one. Elsewhere only the most that was ever resident is known.
"""

from __future__ import annotations

import resource
import sys

_MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def virtual_and_resident_bytes() -> tuple[int, int]:
    """Raises OSError where there is no `/proc`."""
    with open("/proc/self/statm", "rb") as file:
        virtual, resident = file.read().split()[:2]
    return int(virtual) * resource.getpagesize(), int(resident) * resource.getpagesize()


def resident_bytes() -> int:
    """What is resident now, or the most that ever was where the system does not say."""
    try:
        return virtual_and_resident_bytes()[1]
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES


def give_back_free_memory() -> None:
    """Gives memory that is free, but that the C library has kept, back to the system. Belongs into a thread: it walks over all free pieces.
    Does nothing where the C library has no such function; glibc has one."""
    import ctypes  # on use: most brokers are never flooded

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
