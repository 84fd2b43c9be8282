"""A number with its noun, as sentences need it: `1 partition`, `2 partitions`.

Lines that Kafka's tools print word for word keep Kafka's plural.
"""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and the noun, with an s unless the number is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
