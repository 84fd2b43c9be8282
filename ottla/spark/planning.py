"""Plans which offsets a batch reads and how they are divided among tasks. These are pure functions on maps from partition to offset.

An offset here is the next one to read; ranges are [start, end). All limits and sizes count offsets, not records: markers, aborted records
and compaction leave offsets without a record. A range is therefore done when the position reaches its end. The same arguments give the same
plan, so a batch that is planned again after a crash covers the same records. The module uses no clock, no sockets and no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.client import EARLIEST, LATEST, TopicPartition
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.options import ReadPosition

SourceOffsets = dict[TopicPartition, int]

TASK_BYTES_MAX = 16 << 20
TASK_BYTES_MIN = 4 << 20
"""Approximate maximum and minimum of the stored bytes that one task reads. They apply if no option says how ranges are split."""
UNEVEN_FACTOR = 2
"""Ranges are split only if the largest has at least this many times the average number of offsets of a wanted task."""


class Range(NamedTuple):
    """Offsets [start, end) of a partition. `topic_id` is the required id of its topic, empty if unknown."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: str = ""


class LogBounds(NamedTuple):
    """The first offset of a log, and its readable end."""

    start: int
    end: int


BoundsByPartition = Mapping[TopicPartition, LogBounds]


# Where to begin and to end


def wanted_timestamps(position: ReadPosition, partitions: Iterable[TopicPartition]) -> SourceOffsets:
    """Returns the timestamps to look up for a position. The result is empty if the position needs no look-up. Raises `OptionError` for a
    missing or unknown partition."""
    if position.kind == "timestamp":
        return dict.fromkeys(partitions, position.timestamp)
    if position.kind == "timestamps":
        return _of_all(position, partitions)
    return {}


def starting_offsets(
    position: ReadPosition, bounds: BoundsByPartition, found: Mapping[TopicPartition, int], *, is_latest_after_last: bool
) -> SourceOffsets:
    """Returns where each partition begins. `found` has the offset for each of `wanted_timestamps`, -1 if no record is that new.

    Records beyond the bounds are ignored, because they are newer than the snapshot. Raises `OptionError` for a timestamp without a record
    (unless `is_latest_after_last`), an offset beyond the end, and a missing or unknown partition.
    """
    if position.kind in ("timestamp", "timestamps"):
        late = [partition for partition, (_, end) in bounds.items() if not 0 <= found[partition] < end]
        if late and not is_latest_after_last:
            raise OptionError(
                f"{position.option}: {named(late)} has no readable record at or after the timestamp; choose an earlier one, or set "
                "startingOffsetsByTimestampStrategy=latest"
            )
        return {partition: end if partition in late else found[partition] for partition, (_, end) in bounds.items()}
    return _offsets_of(position, bounds)


def ending_offsets(position: ReadPosition, bounds: BoundsByPartition, found: Mapping[TopicPartition, int]) -> SourceOffsets:
    """Returns where each partition ends, at most the end of its bounds. `found` is as in `starting_offsets`; a partition without a record
    at or after the timestamp ends at the end of its bounds. Raises `OptionError` for `earliest`, an offset beyond the end, and a missing or
    unknown partition.
    """
    if position.kind == "earliest":
        raise OptionError(f"{position.option}: earliest makes no sense as an end")
    if position.kind in ("timestamp", "timestamps"):
        return {one: min(found[one], end) if found[one] >= 0 else end for one, (_, end) in bounds.items()}
    if EARLIEST in position.numbers.values():
        raise OptionError(f"{position.option}: -2 (earliest) makes no sense as an end")
    return _offsets_of(position, bounds)


def _offsets_of(position: ReadPosition, bounds: BoundsByPartition) -> SourceOffsets:
    if position.kind == "earliest":
        return {partition: start for partition, (start, _) in bounds.items()}
    if position.kind == "latest":
        return {partition: end for partition, (_, end) in bounds.items()}
    marks = {EARLIEST: 0, LATEST: 1}
    numbers = _of_all(position, bounds)
    for partition, number in numbers.items():
        if number > bounds[partition].end:
            raise OptionError(f"{position.option}: {number} is beyond the end of {partition}, {bounds[partition].end}")
    return {one: bounds[one][marks[number]] if number in marks else number for one, number in numbers.items()}


def _of_all(position: ReadPosition, partitions: Iterable[TopicPartition]) -> SourceOffsets:
    wanted = set(partitions)
    missing, unknown = sorted(wanted - set(position.numbers)), sorted(set(position.numbers) - wanted)
    if missing:
        raise OptionError(f"{position.option}: {named(missing)} is missing; all partitions that are read have to be there")
    if unknown:
        raise OptionError(f"{position.option}: {named(unknown)} is not read by this query, or does not exist")
    return dict(position.numbers)


def initial_offsets(committed: Mapping[TopicPartition, int], starting: Mapping[TopicPartition, int], bounds: BoundsByPartition
                    ) -> SourceOffsets:  # fmt: skip
    """Returns where a query without checkpoint begins: at the group's committed offsets, else at `starting`.

    If the group has committed offsets, partitions without one are new, and begin at their first record.
    """
    if not any(partition in committed for partition in bounds):
        return dict(starting)
    return {partition: committed.get(partition, bound.start) for partition, bound in bounds.items()}


# The offsets of a batch


def check_progress(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> TopicPartition | None:
    """Returns the first partition that ends before it starts, if any."""
    return next((partition for partition, end in sorted(ends.items()) if starts.get(partition, 0) > end), None)


def check_partitions(starts: Iterable[TopicPartition], present: Iterable[TopicPartition], *, is_loss_fatal: bool) -> None:
    """Raises `DataLossError` if partitions that were being read no longer exist."""
    gone = sorted(set(starts) - set(present))
    if gone and is_loss_fatal:
        raise DataLossError(
            f"{named(gone)} was being read, and is deleted or no longer subscribed; if its records need not be read, set "
            "failOnDataLoss=false"
        )


def admit(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int) -> SourceOffsets:
    """Returns the ends of a batch of at most `limit` offsets, divided in proportion to the remaining offsets of each partition.

    Shares are assigned from the largest partition to the smallest. Each is rounded down, but is at least one offset until the limit is
    reached.
    """
    sizes = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    left, total = limit, sum(sizes.values())
    if total <= limit:
        return dict(ends)
    admitted = {}
    for partition, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        share = min(left, max(1, left * size // total)) if size else 0
        admitted[partition] = starts[partition] + share
        left, total = left - share, total - size
    return admitted


def available(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end - starts[partition]) for partition, end in ends.items())


def plan_ranges(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] = MappingProxyType({})
) -> list[Range]:
    """Returns one range for each partition with offsets, in order."""
    return [
        Range(partition, starts[partition], end, topic_ids.get(partition.topic, ""))
        for partition, end in sorted(ends.items())
        if end > starts[partition]
    ]


def wanted_tasks(ranges: Sequence[Range], offset_bytes: float, processors: int) -> int:
    """Returns the minimum number of tasks for the ranges, with `offset_bytes` stored bytes per offset. Returns 0 if one task per range is
    sufficient: no range has `UNEVEN_FACTOR` times the average number of offsets of a task.

    The number is a multiple of the number of processors, unless tasks would have less than `TASK_BYTES_MIN`.
    """
    sizes = [one.end - one.start for one in ranges]
    size_bytes = int(sum(sizes) * offset_bytes)
    least = -(-size_bytes // TASK_BYTES_MAX)
    wanted = min(least + -least % processors, size_bytes // TASK_BYTES_MIN)
    return wanted if wanted > 1 and max(sizes) * wanted >= UNEVEN_FACTOR * sum(sizes) else 0


def split(ranges: Sequence[Range], *, min_partitions: int = 0, max_records: int = 0) -> list[Range]:
    """Splits ranges into nearly equal pieces of at most `max_records` offsets. Returns at least `min_partitions` pieces, or one for each
    offset if there are fewer offsets."""
    total = sum(one.end - one.start for one in ranges)
    pieces: list[Range] = []
    for whole in ranges:
        start, end = whole.start, whole.end
        size = end - start
        count = max(1, -(-size * min_partitions // total), -(-size // max_records) if max_records else 1)
        count = min(count, size)
        cuts = [start + size * number // count for number in range(count + 1)]
        pieces += [whole._replace(start=low, end=high) for low, high in zip(cuts, cuts[1:], strict=False)]
    return pieces


def join(ranges: Iterable[Range], offsets_max: int) -> list[list[Range]]:
    """Groups ranges that follow one another, each group with at most `offsets_max` offsets. A larger range is a group of its own."""
    groups: list[list[Range]] = []
    size = 0
    for one in ranges:
        size += one.end - one.start
        if not groups or size > offsets_max:
            groups.append([])
            size = one.end - one.start
        groups[-1].append(one)
    return groups


def named(partitions: Sequence[TopicPartition]) -> str:
    """Lists a few partitions, and counts the rest."""
    shown = ", ".join(str(partition) for partition in partitions[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
