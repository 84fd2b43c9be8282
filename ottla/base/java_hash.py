"""Java's `String.hashCode`. Kafka uses it to choose a partition of an internal topic for each group, transactional id and share partition.

A directory that Kafka wrote has the records of a group in that partition, so the broker must use the same function.
"""

from __future__ import annotations

from ottla.base.bounded_cache import remembered

_INT_MASK = 0xFFFFFFFF
_INT_SIGN = 0x80000000


def java_hash(text: str) -> int:
    """Returns the signed 32-bit hash of the UTF-16 code units of `text`."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & _INT_MASK
    return _to_int32(value)


def _to_int32(value: int) -> int:
    """Returns the lowest 32 bits of a number as a signed integer, as Java's arithmetic does."""
    value &= _INT_MASK
    return value - (1 << 32) if value & _INT_SIGN else value


def java_abs(value: int) -> int:
    """Returns the absolute value of the lowest 32 bits, as a signed number. Returns 0 for -2^31, as Kafka does, because 2^31 does not fit
    into 32 bits."""
    number = _to_int32(value)
    return 0 if number == -_INT_SIGN else abs(number)


@remembered(1 << 20)
def java_partition(text: str, partition_count: int) -> int:
    return java_abs(java_hash(text)) % partition_count
