"""Output that `kafka-consumer-groups` and `kafka-share-groups` share: columns, plans of a reset, deletions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.groups.group_scope import parse_scope
from ottla.cli.groups.reset_plan import Plan
from ottla.cli.output import write, write_error
from ottla.client.blocking.cluster import Cluster

WIDTH = 15


def columns(widths: Sequence[int]) -> Callable[..., str]:
    """A function that formats a line of cells with these widths; an empty cell is `-`."""

    def line(*cells: Any) -> str:
        texts = ["-" if cell is None or cell == "" else str(cell) for cell in cells]
        return " ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)) + "\n"

    return line


def widest(values: Sequence[Any], least: int = WIDTH) -> int:
    return max([least, *(len(str(value)) for value in values if value is not None)])


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())


def refuse_missing(cluster: Cluster, args: argparse.Namespace) -> None:
    """Raises an error that names all the given partitions that do not exist."""
    named = [
        TopicPartition(topic, number)
        for topic, numbers in parse_scope(args.topic or []).items()
        for number in numbers or ()
        if number not in cluster.partitions(topic)
    ]
    if named:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{",".join(map(str, named))}" do not exist')


def write_warnings(plans: Mapping[str, Plan]) -> None:
    for plan in plans.values():
        for warning in plan.warnings:
            write_error(f"warning: {warning}\n")


def write_plans(plans: Mapping[str, Plan]) -> None:
    """Prints the table of a reset: the new offset of each partition."""
    rows = [(name, step.partition.topic, step.partition.partition, step.new) for name, plan in plans.items() for step in plan.steps]
    line = columns([widest([row[0] for row in rows]), widest([row[1] for row in rows]), 10, 0])
    write("\n" + line("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET") + "".join(line(*row) for row in rows))


def write_failures(failures: Mapping[tuple[str, TopicPartition], ApiError]) -> int:
    """Prints the refusals of a reset; returns the exit code."""
    for (name, partition), failed in failures.items():
        write_error(f"error: {name}, {partition}: {failed.code.name}\n")
    return 1 if failures else 0


def write_deletions(kind: str, names: Sequence[str], reasons: Mapping[str, str]) -> int:
    """Prints the result of deleting groups; `reasons` has the refused ones. Returns the exit code."""
    deleted = ", ".join(f"'{name}'" for name in names if name not in reasons)
    if not reasons:
        write(f"Deletion of requested {kind} groups ({deleted}) was successful.\n" if deleted else "")
        return 0
    write(f"\nError: Deletion of some {kind} groups failed:\n")
    write("".join(f"* Group '{name}' could not be deleted due to: {reason}\n" for name, reason in reasons.items()))
    write(f"\nThese {kind} groups were deleted successfully: {deleted}\n" if deleted else "")
    return 1
