"""Converts between partitions and the lists of topics in messages.

In every message the last field of a topic has its partitions. A partition is a number, or a struct whose first field is its number. The
first field of a topic in a request is its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

from ottla.base.types import TopicPartition

T = TypeVar("T")

_NAMES = ("name", "topic_name", "topic")
_CODES = ("error_code", "partition_error_code")


def topic_list(topic_class: Callable[..., T], partitions: Mapping[TopicPartition, Any]) -> list[T]:
    """Returns the topics of a request with these structs or numbers as their partitions, in this order."""
    found: dict[str, list[Any]] = {}
    for partition, one in partitions.items():
        found.setdefault(partition.topic, []).append(one)
    fields: tuple[str, ...] = topic_class.__slots__  # type: ignore[attr-defined]
    return [topic_class(**{fields[0]: topic, fields[-1]: some}) for topic, some in found.items()]


def each_partition(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Yields the partitions in a list of topics, each with its struct or number."""
    for topic in topics:
        name = next(getattr(topic, field) for field in _NAMES if hasattr(topic, field))
        some = getattr(topic, topic.__slots__[-1])
        numbers = some if not some or isinstance(some[0], int) else map(attrgetter(some[0].__slots__[0]), some)
        yield from zip(map(TopicPartition, repeat(name), numbers), some, strict=True)


def partitions_in(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """Returns the partitions in a list of topics, sorted."""
    return tuple(sorted(partition for partition, _ in each_partition(topics)))


def first_code(answer: Any) -> int:
    """Returns the first error code in an answer, at any depth; 0 if there is none."""
    for field in answer.__slots__:
        value = getattr(answer, field)
        if not value:
            continue
        if field in _CODES:
            return int(value)
        if isinstance(value, list) and hasattr(value[0], "__slots__"):
            for one in value:
                if code := first_code(one):
                    return code
    return 0
