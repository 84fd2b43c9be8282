"""Limits the memory of the share partitions that this broker leads. Share partitions and runs of records in flight are counted exactly.

A new share partition is refused at the limit. An existing share partition continues with a low limit of records in flight, so its members
must acknowledge records before they get more.
"""

from __future__ import annotations

from ottla.machine.memory import CoordinatorMemory

PARTITION_BYTES = 2_200
"""Memory of a share partition without records in flight, in bytes: its notifier, a timer, its dict entry."""
RUN_BYTES = 150
IN_FLIGHT_WHEN_SHORT = 10
"""Records of a share partition that may be in flight while the memory is at its limit."""


class PartitionMemory:
    def __init__(self, memory: CoordinatorMemory | None = None) -> None:
        self._memory = memory or CoordinatorMemory()
        self._share = self._memory.exact_share()

    def require_free(self) -> None:
        """Raises `ApiError` COORDINATOR_NOT_AVAILABLE if there is no memory for another share partition."""
        self._share.require_free(PARTITION_BYTES)

    def hold(self, size: int) -> None:
        """Adds `size` bytes to the memory in use; a negative size frees memory."""
        self._share.bytes += size

    @property
    def held_bytes(self) -> int:
        return self._share.bytes

    def in_flight_max(self, wanted: int) -> int:
        """Returns the limit of records in flight for a share partition whose group has the limit `wanted`."""
        is_short = self._share.bytes >= self._memory.bytes_max
        return min(wanted, IN_FLIGHT_WHEN_SHORT) if is_short else wanted
