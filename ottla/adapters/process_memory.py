"""Memory of this process, as the system reports it.

The numbers are read from `/proc` where it exists. Other systems report only the peak of the resident memory.
"""

from __future__ import annotations

import resource
import sys

_MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def virtual_and_resident_bytes() -> tuple[int, int]:
    """Returns the sizes of the virtual and the resident memory. Raises `OSError` on a system without `/proc`."""
    with open("/proc/self/statm", "rb") as file:
        virtual, resident = file.read().split()[:2]
    return int(virtual) * resource.getpagesize(), int(resident) * resource.getpagesize()


def resident_bytes() -> int:
    """Returns the resident memory, or its peak on systems without `/proc`."""
    try:
        return virtual_and_resident_bytes()[1]
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES


def give_back_free_memory() -> None:
    """Returns to the system the free memory that the C library keeps, by glibc's `malloc_trim`; does nothing with other C libraries. It
    walks over the whole heap, so it is called in a thread."""
    import ctypes  # imported here, because most brokers never need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
