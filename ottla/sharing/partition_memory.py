"""The memory of the share partitions that this broker leads: what they and the runs of records in flight take is counted as it changes.

A share partition that is new must find room. One that is there goes on; while there is no room it takes few new records in flight, so that
its members acknowledge what they have before they get more.
"""

from __future__ import annotations

from ottla.machine.memory import CoordinatorMemory

PARTITION_BYTES = 2_200
"""What a share partition takes without records in flight: its notifier, a timer, its entry."""
RUN_BYTES = 150
IN_FLIGHT_WHEN_SHORT = 10
"""So many records of a share partition may be in flight while there is no room."""


class PartitionMemory:
    """What all share partitions of a broker take together."""

    def __init__(self, memory: CoordinatorMemory | None = None) -> None:
        self._memory = memory or CoordinatorMemory()
        self._share = self._memory.exact_share()

    def find_room(self) -> None:
        """Raises ApiError COORDINATOR_NOT_AVAILABLE where one more share partition is too much."""
        self._share.find_room(PARTITION_BYTES)

    def hold(self, size: int) -> None:
        """So many bytes more, or fewer, are held."""
        self._share.bytes += size

    @property
    def held_bytes(self) -> int:
        return self._share.bytes

    def in_flight_max(self, wanted: int) -> int:
        """How many records of one share partition may be in flight, of a group that wants so many."""
        is_short = self._share.bytes >= self._memory.bytes_max
        return min(wanted, IN_FLIGHT_WHEN_SHORT) if is_short else wanted
