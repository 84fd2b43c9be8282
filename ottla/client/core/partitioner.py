"""Chooses the partition of a record as Kafka's own client does, so that a key lands where other producers put it.

A key is hashed by murmur2 (seed 0x9747b28c) and the sign bit dropped; a record without a key sticks to one partition until its batch is
sent, then moves to another (KIP-480): full batches instead of many small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.java_hash import java_partition

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = length & 3
    if rest:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partition_for_group(group: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` (of so many partitions) that has a group's records."""
    return java_partition(group, partition_count)


class StickyPartitioner:
    """One partition at a time for records without a key; `choose` picks one of several at random."""

    def __init__(self, choose: Callable[[Sequence[int]], int]) -> None:
        self._choose = choose
        self._current: dict[str, int] = {}

    def current(self, topic: str, available: Sequence[int]) -> int:
        found = self._current.get(topic, -1)
        if found < 0:
            found = self._current[topic] = self._choose(available)
        return found

    def move_on(self, topic: str, available: Sequence[int]) -> None:
        """Chooses another partition, if there is one, for the next batch."""
        before = self._current.pop(topic, -1)
        others = [partition for partition in available if partition != before]
        if others:
            self._current[topic] = self._choose(others)
