"""Plans a reset of offsets, as a pure function of committed offsets and the start and end of each partition.

`plan` takes one scenario and returns the old and new offset of each partition, with a warning for each offset that was out of range.
This module sends no requests: `reset_offsets.py` collects the facts, shows the plan and executes it. It also reads and writes the CSV files
of `--from-file` and `--export`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.cli.command import Refused, UsageError

TO_EARLIEST = "to-earliest"
TO_LATEST = "to-latest"
TO_CURRENT = "to-current"
TO_OFFSET = "to-offset"
SHIFT_BY = "shift-by"
TO_DATETIME = "to-datetime"
FROM_FILE = "from-file"
TO_GROUP = "to-group"


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
    """Returns the new offset of each partition. Raises `Refused` if `shift-by` meets a partition without a committed offset."""
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
    """Returns the offset of the scenario, which may be out of range, and a warning or an empty text."""
    bounds, old = facts.bounds[partition], facts.committed.get(partition)
    if scenario == TO_EARLIEST:
        return bounds.start, ""
    if scenario == TO_LATEST:
        return bounds.end, ""
    if scenario == TO_CURRENT:
        return (bounds.end, "") if old is None else (old, "")
    if scenario == TO_OFFSET:
        return number, ""
    if scenario == SHIFT_BY:
        if old is None:
            raise Refused(f"{partition} has no committed offset to shift; leave it out or use another scenario", "INVALID_REQUEST")
        return old + number, ""
    if scenario == TO_DATETIME:
        found = facts.at_time.get(partition, -1)
        if found < 0:
            return bounds.end, f"{partition}: no record at or after that time, so the offset is set to the end, {bounds.end}"
        return found, ""
    assert scenario in (FROM_FILE, TO_GROUP), f"no scenario {scenario}"
    return facts.given[partition], ""


# The CSV files of --from-file and --export


def parse_reset_file(text: str, name: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Parses lines `topic,partition,offset` (of one group) or `group,topic,partition,offset` into offsets by group and partition.

    Raises `UsageError` with the number of the first bad line.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    widths = set()
    for number, fields in _rows(text, name):
        widths.add(len(fields))
        if len(fields) not in (3, 4) or len(widths) > 1:
            line = ",".join(fields)
            raise UsageError(f"{name}, line {number}: write topic,partition,offset or group,topic,partition,offset, not {line!r}")
        if len(fields) == 3 and len(groups) != 1:
            raise UsageError(f"{name}, line {number}: with several groups each line must begin with the group")
        group = groups[0] if len(fields) == 3 else fields[0]
        topic, partition, offset = (field.strip() for field in fields[-3:])
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise UsageError(f"{name}, line {number}: partition and offset must be numbers, not {','.join(fields)!r}")
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    if not found:
        raise UsageError(f"{name} names no partition")
    return found


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows that are not empty, each with the number of its last line: a quoted group name may contain line breaks."""
    import csv
    import io

    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in rows:
            if any(field.strip() for field in row):
                yield rows.line_num, row
    except csv.Error as error:
        raise UsageError(f"{name}, line {rows.line_num} is not CSV: {error}") from None


def format_reset_file(plans: Mapping[str, ResetPlan], *, is_quoted: bool = True) -> str:
    """Formats plans as `parse_reset_file` reads them. Rows begin with the group if there are several groups.

    With `is_quoted` all names have quotes. Without it, as in Kafka's tool, only names that need quotes have them.
    """
    import csv
    import io

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if is_quoted else csv.QUOTE_MINIMAL)
    for group, found in plans.items():
        for step in found.steps:
            row = (step.partition.topic, step.partition.partition, step.new)
            rows.writerow((group, *row) if len(plans) > 1 else row)
    return text.getvalue()
