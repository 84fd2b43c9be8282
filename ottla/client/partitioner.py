"""Which partition does a record go to? As Kafka's own client decides, so that a key lands where other producers put it.

A key is hashed by murmur2 (seed 0x9747b28c) and the sign bit dropped; a record without a key sticks to one partition until its batch is
sent, then moves to another (KIP-480): full batches instead of many small ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

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


class StickyPartitioner:
    """One partition at a time for records without a key."""

    def __init__(self, choose: random.Random | None = None) -> None:
        self._random = choose or random.Random()
        self._current: dict[str, int] = {}

    def current(self, topic: str, available: Sequence[int]) -> int:
        found = self._current.get(topic, -1)
        if found < 0:
            found = self._current[topic] = self._random.choice(available)
        return found

    def move_on(self, topic: str, available: Sequence[int]) -> None:
        """A batch was finished: the next one goes elsewhere, if there is an elsewhere."""
        before = self._current.pop(topic, -1)
        others = [partition for partition in available if partition != before]
        if others:
            self._current[topic] = self._random.choice(others)
