"""Raises the soft limit of open files and sockets to the hard limit, and divides the descriptors between files and connections.

The soft limit of most systems is small (1,024 or 256) to protect programs that use `select`; Ottla does not use it.
"""

from __future__ import annotations

from typing import NamedTuple

UNLIMITED = 1 << 20
"""Upper bound of the limit that is used. It is also assumed if the system sets or reports no limit."""
RESERVED = 40
"""Descriptors kept for listening sockets, the metadata store, locks, pipes, and files that are opened for a moment."""
LEAST = 16


def raise_limit() -> int:
    """Raises the soft limit of open descriptors to the hard limit, if the system accepts that. Returns the limit, at most `UNLIMITED`."""
    try:
        import resource
    except ImportError:
        return UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass  # some systems report a hard limit that they do not accept
    return UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, UNLIMITED)


class Descriptors(NamedTuple):
    """The numbers of descriptors that a process may use for each purpose."""

    files: int
    connections: int


def share_out(limit: int, files_wanted: int) -> Descriptors:
    """Divides `limit`. Open log files get a quarter, or `files_wanted`, but at most a third. Closed log files that a reader still uses get
    the same number, and connections get the rest. Each number is at least `LEAST`.
    """
    files = max(min(files_wanted, limit // 3) if files_wanted else limit // 4, LEAST)
    return Descriptors(files, max(limit - 2 * files - RESERVED, LEAST))
