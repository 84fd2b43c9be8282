"""The tables of `kafka-consumer-groups`, `kafka-share-groups` and `kafka-streams-groups`: titles, values and widths of the columns, by view
and kind of group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition


class ToolColumn(NamedTuple):
    """A column: title, function from a row to the value, and minimum width. The last column may have width 0: its cells are not padded."""

    title: str
    value: Callable[[Any], Any]
    width: int = 15
    is_verbose: bool = False
    is_fixed: bool = False
    """Whether `width` is also kept when a cell is longer."""


def attribute(title: str, name: str, width: int = 15, is_verbose: bool = False) -> ToolColumn:
    return ToolColumn(title, lambda row: getattr(row, name), width, is_verbose)


def item(title: str, position: int, width: int = 15) -> ToolColumn:
    return ToolColumn(title, lambda row: row[position], width)


def table(columns: Sequence[ToolColumn], rows: Sequence[Any], *, is_verbose: bool = False) -> str:
    """Returns the heading and a line for each row. None and empty text are `-`. Verbose columns are left out unless `is_verbose`."""
    shown = [column for column in columns if is_verbose or not column.is_verbose]
    values = [[column.value(row) for column in shown] for row in rows]
    texts = [["-" if value is None or value == "" else str(value) for value in found] for found in values]
    lines = [[column.title for column in shown], *texts]
    widths = [
        column.width if column.is_fixed or not column.width else max([column.width, *(len(line[n]) for line in texts)])
        for n, column in enumerate(shown)
    ]
    return "".join(" ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + "\n" for line in lines)


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """Returns the partitions as text, grouped by topic: `t:0,1;u:0`."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())


_GROUP, _TOPIC, _PARTITION = attribute("GROUP", "group"), attribute("TOPIC", "topic"), attribute("PARTITION", "partition", 10)
_MEMBER = (attribute("HOST", "host"), attribute("CLIENT-ID", "client_id"))

CONSUMER_OFFSETS = (
    _GROUP,
    _TOPIC,
    _PARTITION,
    attribute("LEADER-EPOCH", "leader_epoch", is_verbose=True),
    attribute("CURRENT-OFFSET", "current_offset"),
    attribute("LOG-END-OFFSET", "log_end_offset"),
    attribute("LAG", "lag"),
    attribute("CONSUMER-ID", "consumer_id"),
    attribute("HOST", "host"),
    attribute("CLIENT-ID", "client_id", 0),
)
SHARE_OFFSETS = (
    _GROUP,
    _TOPIC,
    _PARTITION,
    attribute("LEADER-EPOCH", "leader_epoch", 13, is_verbose=True),
    attribute("START-OFFSET", "start_offset", 13),
    attribute("LAG", "lag", 0),
)


STREAMS_OFFSETS = (
    _GROUP,
    _TOPIC,
    _PARTITION,
    attribute("CURRENT-OFFSET", "current_offset", is_verbose=True),
    attribute("LEADER-EPOCH", "leader_epoch", is_verbose=True),
    attribute("LOG-END-OFFSET", "log_end_offset", is_verbose=True),
)


def streams_offsets(rows: Sequence[Any], *, is_verbose: bool) -> str:
    """Returns the table of a streams group's offsets. Kafka pads its last column only in the verbose table."""
    return table((*STREAMS_OFFSETS, attribute("OFFSET-LAG", "lag", 15 if is_verbose else 0)), rows, is_verbose=is_verbose)


def consumer_members(group: Any, *, is_verbose: bool) -> str:
    """Returns the table of a consumer group's members. It has a column of instance ids if a member has one."""
    instance = (attribute("GROUP-INSTANCE-ID", "instance_id", len("GROUP-INSTANCE-ID")),)
    columns = (
        ToolColumn("GROUP", lambda _: group.group_id),
        attribute("CONSUMER-ID", "member_id"),
        *(instance if any(member.instance_id for member in group.members) else ()),
        *_MEMBER,
        ToolColumn("#PARTITIONS", lambda member: len(member.assignment), 15 if is_verbose else 16),
        attribute("CURRENT-EPOCH", "epoch", is_verbose=True),
        ToolColumn("CURRENT-ASSIGNMENT", lambda member: assignment_text(member.assignment), 20, is_verbose=True),
        ToolColumn("TARGET-EPOCH", lambda _: group.target_epoch, is_verbose=True),
        ToolColumn("TARGET-ASSIGNMENT", lambda member: assignment_text(member.target or ()), 20, is_verbose=True),
    )
    return table(columns, group.members, is_verbose=is_verbose)


def share_members(group: Any, *, is_verbose: bool) -> str:
    columns = (
        ToolColumn("GROUP", lambda _: group.group_id),
        attribute("CONSUMER-ID", "member_id"),
        *_MEMBER,
        ToolColumn("#PARTITIONS", lambda member: len(member.assignment), 12),
        attribute("MEMBER-EPOCH", "epoch", 13, is_verbose=True),
        ToolColumn("ASSIGNMENT", lambda member: assignment_text(member.assignment) or " ", 0),
    )
    lines = table(columns, group.members, is_verbose=is_verbose).splitlines()
    return "".join(line.rstrip() + (" \n" if line.endswith("  ") else "\n") for line in lines)


def consumer_state(group: Any, where: str, *, is_verbose: bool) -> str:
    """Returns the table with the state of a consumer group. `where` names its coordinator."""
    columns = (
        attribute("GROUP", "group_id"),
        ToolColumn("COORDINATOR (ID)", lambda _: where, 25),
        attribute("ASSIGNMENT-STRATEGY", "assignor", 20)._replace(is_fixed=True),
        attribute("STATE", "state", 20),
        attribute("GROUP-EPOCH", "epoch", is_verbose=True),
        attribute("TARGET-ASSIGNMENT-EPOCH", "target_epoch", 25, is_verbose=True),
        ToolColumn("#MEMBERS", lambda found: len(found.members), 0),
    )
    return table(columns, [group], is_verbose=is_verbose)


def share_state(group: Any, where: str, *, is_verbose: bool) -> str:
    """Returns the table with the state of a share group. `where` names its coordinator."""
    columns = (
        attribute("GROUP", "group_id"),
        ToolColumn("COORDINATOR (ID)", lambda _: where, 25),
        attribute("STATE", "state"),
        attribute("GROUP-EPOCH", "epoch", 12, is_verbose=True),
        attribute("ASSIGNMENT-EPOCH", "assignment_epoch", 17, is_verbose=True),
        ToolColumn("#MEMBERS", lambda found: len(found.members), 0),
    )
    return table(columns, [group], is_verbose=is_verbose)


def streams_members(group: Any, *, is_verbose: bool) -> str:
    columns = (
        ToolColumn("GROUP", lambda _: group.group_id),
        ToolColumn("TARGET-ASSIGNMENT-EPOCH", lambda _: group.assignment_epoch, 25, is_verbose=True),
        attribute("TOPOLOGY-EPOCH", "topology_epoch", 14, is_verbose=True),
        attribute("MEMBER", "member_id"),
        ToolColumn("MEMBER-PROTOCOL", lambda member: "classic" if member.is_classic else "streams", is_verbose=True),
        attribute("MEMBER-EPOCH", "epoch", is_verbose=True),
        attribute("PROCESS", "process_id"),
        attribute("CLIENT-ID", "client_id"),
        ToolColumn("ASSIGNMENTS", lambda member: _tasks_text(member, is_verbose=is_verbose), 0),
    )
    return table(columns, group.members, is_verbose=is_verbose)


def _tasks_text(member: Any, *, is_verbose: bool) -> str:
    """Returns the tasks as text: `ACTIVE: 0:[0,1]; 1:[0]; `, then the standby and warm-up tasks, and with `is_verbose` the target."""
    kinds = [("", member.assignment), *([("TARGET-", member.target)] if is_verbose else [])]
    found = ""
    for prefix, assignment in kinds:
        for kind, tasks in zip(("ACTIVE", "STANDBY", "WARMUP"), assignment, strict=True):
            if tasks:
                parts = [f"{name}:[{','.join(map(str, tasks[name]))}]; " for name in sorted(tasks)]
                found += f"{prefix}{kind}: {''.join(parts)}"
    return found


def streams_state(group: Any, where: str, *, is_verbose: bool) -> str:
    """Returns the table with the state of a streams group; if the group has no members, a remark precedes the table. `where` names its
    coordinator.
    """
    remark = f"\nError: Streams group '{group.group_id}' has no active members.\n" if group.state == "Empty" else ""
    columns = (
        attribute("GROUP", "group_id"),
        ToolColumn("COORDINATOR (ID)", lambda _: where, 25),
        attribute("ASSIGNOR", "assignor", is_verbose=True),
        attribute("STATE", "state", 25),
        attribute("GROUP-EPOCH", "epoch", is_verbose=True),
        attribute("TARGET-ASSIGNMENT-EPOCH", "assignment_epoch", 25, is_verbose=True),
        ToolColumn("#MEMBERS", lambda found: len(found.members), 0),
    )
    return remark + table(columns, [group], is_verbose=is_verbose)
