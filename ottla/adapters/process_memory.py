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
