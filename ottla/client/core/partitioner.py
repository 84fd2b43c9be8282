"""Chooses the partition of a record like Kafka's Java client, so that all producers place a key in the same partition.

The partition of a key is its murmur2 hash (seed 0x9747b28c) without the sign bit, modulo the partition count. Records without a key are
added to one partition until its batch is sealed, and then to another partition (KIP-480), so that batches become full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.java_hash import java_partition

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns Kafka's 32-bit murmur2 hash as an unsigned number."""
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
    """Returns the partition of `__consumer_offsets` with a group's records; `partition_count` is the topic's."""
    return java_partition(group, partition_count)


class StickyPartitioner:
    """The current partition of each topic for records without a key. `choose` returns a random item."""

    def __init__(self, choose: Callable[[Sequence[int]], int]) -> None:
        self._choose = choose
        self._current: dict[str, int] = {}

    def current(self, topic: str, available: Sequence[int]) -> int:
        found = self._current.get(topic, -1)
        if found < 0:
            found = self._current[topic] = self._choose(available)
        return found

    def move_on(self, topic: str, available: Sequence[int]) -> None:
        """Chooses another partition for the next batch, if there is one."""
        before = self._current.pop(topic, -1)
        others = [partition for partition in available if partition != before]
        if others:
            self._current[topic] = self._choose(others)
