"""Plans new committed offsets of a group. `plan` is a pure function from the facts to the new offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.admin import EARLIEST, LATEST, list_offsets


class Bounds(NamedTuple):
    """The start and end offset of a partition."""

    start: int
    end: int


class Facts(NamedTuple):
    """The input of a plan. `at_time` has the first offset at or after the wanted time, or -1; `given` the offsets of a file or group."""

    bounds: Mapping[TopicPartition, Bounds]
    committed: Mapping[TopicPartition, int | None]
    at_time: Mapping[TopicPartition, int] = {}
    given: Mapping[TopicPartition, int] = {}


class Step(NamedTuple):
    """The old and new offset of a partition. `old` is None without a committed offset."""

    partition: TopicPartition
    old: int | None
    new: int


class ResetPlan(NamedTuple):
    steps: list[Step]
    warnings: list[str]


def plan(scenario: str, partitions: Sequence[TopicPartition], facts: Facts, number: int = 0) -> ResetPlan:
    """Returns the new offset of each partition. Raises `ApiError` if `shift_by` meets a partition without a committed offset."""
    steps, warnings = [], []
    for partition in partitions:
        old = facts.committed.get(partition)
        wanted, remark = _target(scenario, partition, facts, number)
        bounds = facts.bounds[partition]
        new = min(max(wanted, bounds.start), bounds.end)
        if new != wanted:
            side = "below the log start offset" if wanted < bounds.start else "beyond the log end offset"
            remark = f"{partition}: {wanted} is {side}, so the offset is set to {new}"
        if remark:
            warnings.append(remark)
        steps.append(Step(partition, old, new))
    return ResetPlan(steps, warnings)


def _target(scenario: str, partition: TopicPartition, facts: Facts, number: int) -> tuple[int, str]:
    """Returns the offset that the options ask for, which may be out of range, and a warning or an empty text."""
    bounds, old = facts.bounds[partition], facts.committed.get(partition)
    if scenario == "shift_by":
        if old is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{partition} has no committed offset to shift; leave it out or use another scenario"
            )
        return old + number, ""
    if scenario in ("to_datetime", "by_duration"):
        found = facts.at_time.get(partition, -1)
        if found < 0:
            return bounds.end, f"{partition}: no record at or after that time, so the offset is set to the end, {bounds.end}"
        return found, ""
    if scenario in ("from_file", "to_group"):
        return facts.given[partition], ""
    current = bounds.end if old is None else old
    return {"to_earliest": bounds.start, "to_latest": bounds.end, "to_current": current, "to_offset": number}[scenario], ""


def bounds_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Returns the start and end offset of each partition. If a partition is missing or has no leader, an error ends the whole reset."""
    starts, ends = offsets_at(cluster, partitions, EARLIEST), offsets_at(cluster, partitions, LATEST)
    return {partition: Bounds(starts[partition], ends[partition]) for partition in starts}


def offsets_at(
    cluster: Cluster, partitions: Iterable[TopicPartition], moment_ms: int, *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Returns the first offset at or after a time (or EARLIEST or LATEST) of each partition, -1 if all records are older. Raises the
    `ApiError` of the first partition with an error."""
    found = list_offsets(cluster, dict.fromkeys(partitions, moment_ms), isolation_level=isolation_level)
    offsets = {}
    for partition, result in found.items():
        if isinstance(result, ApiError):
            raise result
        offsets[partition] = result.offset
    return offsets
