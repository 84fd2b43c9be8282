"""Formats a number with its noun for messages: `1 partition`, `2 partitions`. Messages that are copied from Kafka keep Kafka's plural."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns the number and the noun, with an s unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
