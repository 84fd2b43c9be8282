"""The offsets of a frame: chooses partitions, and finds the first offset and the end (exclusive) of each by time or as given.

A frame's end is fixed when the frame is made. Under read_committed it is at most the last stable offset. Records below that offset never
change. A frame therefore gives the same rows each time it is read, until the topic's retention or compaction removes some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from ottla.analysis.moments import parse_moment_ms
from ottla.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.frames.errors import FrameError, FrameUsageError

Moment = str | int | datetime
"""A time: `-1h`, an ISO date (UTC unless it has a zone), milliseconds since 1970, or a datetime (UTC unless it has a zone)."""

Offsets = Mapping[int, tuple[int, int]]
"""By partition, the first offset and the end (exclusive)."""


def find_offsets(
    client: Client,
    topic: str,
    *,
    since: Moment | None,
    until: Moment | None,
    partitions: Iterable[int] | None,
    offsets: Offsets | None,
    isolation: str,
) -> dict[int, tuple[int, int]]:
    """Returns the offsets to read of each partition. Raises `UnknownTopicError`, `FrameUsageError` for wrong arguments, and `FrameError`
    for offsets that the log does not have.
    """
    found = [one.partition for one in client.describe_topic(topic).partitions]
    if offsets is not None:
        if partitions is not None or since is not None or until is not None:
            raise FrameUsageError("offsets: it names partitions, starts and ends; leave out partitions, since and until")
        partitions = offsets
    chosen = found if partitions is None else _chosen(topic, partitions, found)
    bounds = _bounds(client, topic, chosen, isolation)
    if offsets is not None:
        return {number: _checked(topic, number, offsets[number], bounds[number]) for number in chosen}
    starts = _at(client, topic, bounds, since, "since", otherwise=0)
    ends = _at(client, topic, bounds, until, "until", otherwise=1)
    return {number: (starts[number], max(starts[number], ends[number])) for number in chosen}


def _chosen(topic: str, partitions: Iterable[int], found: list[int]) -> list[int]:
    chosen = sorted(set(partitions))
    unknown = [number for number in chosen if number not in found]
    if unknown:
        raise FrameUsageError(f"partitions: topic {topic!r} has no partition {unknown[0]}, only 0 to {found[-1]}")
    return chosen


def _bounds(client: Client, topic: str, numbers: Iterable[int], isolation: str) -> dict[int, tuple[int, int]]:
    places = {number: TopicPartition(topic, number) for number in numbers}
    starts = client.list_offsets(dict.fromkeys(places.values(), EARLIEST), isolation=isolation)
    ends = client.list_offsets(dict.fromkeys(places.values(), LATEST), isolation=isolation)
    return {number: (starts[place].offset, ends[place].offset) for number, place in places.items()}


def _at(
    client: Client, topic: str, bounds: Mapping[int, tuple[int, int]], moment: Moment | None, argument: str, *, otherwise: int
) -> dict[int, int]:
    """Returns the offset of the first record at or after a time, or the end if there is none. Without a time returns the start (`otherwise`
    0) or the end (1)."""
    if moment is None:
        return {number: pair[otherwise] for number, pair in bounds.items()}
    at_ms = _moment_ms(moment, argument)
    found = client.list_offsets({TopicPartition(topic, number): at_ms for number in bounds})
    offsets = {place.partition: one.offset for place, one in found.items()}
    return {number: min(end, max(start, offsets[number])) if offsets[number] >= 0 else end for number, (start, end) in bounds.items()}


def _moment_ms(moment: Moment, argument: str) -> int:
    if isinstance(moment, datetime):
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    try:
        return max(0, parse_moment_ms(moment) if isinstance(moment, str) else int(moment))
    except (TypeError, ValueError) as error:
        raise FrameUsageError(f"{argument}: {error}; an hour ago is -1h") from None


def _checked(topic: str, number: int, wanted: tuple[int, int], bounds: tuple[int, int]) -> tuple[int, int]:
    start, end = wanted
    if start > end:
        raise FrameUsageError(f"offsets: partition {number} would end at {end}, before it begins at {start}")
    if not bounds[0] <= start <= end <= bounds[1]:
        raise FrameError(f"{topic}-{number} has the offsets {bounds[0]} to {bounds[1]} (exclusive); {start} to {end} are out of range")
    return start, end
