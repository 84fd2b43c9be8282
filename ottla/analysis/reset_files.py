"""Parses and formats CSV files of new offsets: `ottla group reset-offsets --export` prints them, `--from-file` and the console read them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from ottla.analysis.resets import ResetPlan
from ottla.base.types import TopicPartition

DIGITS_MAX = 18
"""Digits of a number. 18: every such number is a valid offset."""
LINE_LETTERS_MAX = 100
"""Letters of a bad line in the error."""


def parse_reset_file(text: str, name: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Parses lines `topic,partition,offset` (of one group) or `group,topic,partition,offset` into offsets by group and partition. Raises
    `ValueError` with the number of the first bad line, or the name of a group that is not among `groups`."""
    found: dict[str, dict[TopicPartition, int]] = {}
    widths = set()
    for number, fields in _rows(text, name):
        widths.add(len(fields))
        if len(fields) not in (3, 4) or len(widths) > 1:
            raise ValueError(f"{name}, line {number}: write topic,partition,offset or group,topic,partition,offset, not {_shown(fields)}")
        if len(fields) == 3 and len(groups) != 1:
            raise ValueError(f"{name}, line {number}: with several groups each line must begin with the group")
        group = groups[0] if len(fields) == 3 else fields[0]
        topic, partition, offset = (field.strip() for field in fields[-3:])
        if not all(field.isascii() and field.isdigit() and len(field) <= DIGITS_MAX for field in (partition, offset)):
            raise ValueError(f"{name}, line {number}: partition and offset must be numbers, not {_shown(fields)}")
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    if not found:
        raise ValueError(f"{name} names no partition")
    for group in found:
        if group not in groups:
            raise ValueError(f"{name} names the group {group!r}, which is not among {', '.join(groups)}")
    return found


def _shown(fields: Sequence[str]) -> str:
    return repr(",".join(fields)[:LINE_LETTERS_MAX])


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows that are not empty, each with the number of its last line: a quoted group name may contain line breaks."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in rows:
            if any(field.strip() for field in row):
                yield rows.line_num, row
    except csv.Error as error:
        raise ValueError(f"{name}, line {rows.line_num} is not CSV: {error}") from None


def format_reset_file(plans: Mapping[str, ResetPlan], *, is_quoted: bool = True) -> str:
    """Formats plans as lines that `parse_reset_file` can parse. Rows begin with the group if there are several groups. With `is_quoted` all
    names have quotes. Without it, as in Kafka's tool, only names that need quotes have them.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if is_quoted else csv.QUOTE_MINIMAL)
    for group, found in plans.items():
        for step in found.steps:
            row = (step.partition.topic, step.partition.partition, step.new)
            rows.writerow((group, *row) if len(plans) > 1 else row)
    return text.getvalue()
