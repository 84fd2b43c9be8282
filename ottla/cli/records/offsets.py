"""Implements `ottla offsets`: shows the offset of each partition at a given time. Plain output is `topic:partition:offset`, as Kafka's
GetOffsetShell prints it.
"""

from __future__ import annotations

import re

from ottla.base.counted import counted
from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, Refused, UsageError, command, flag, hidden, option
from ottla.cli.options import BROKER_LIST
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row
from ottla.cli.topics.topic_names import pattern_of
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin

TIMES = {
    "latest": admin.LATEST,
    "earliest": admin.EARLIEST,
    "max-timestamp": admin.MAX_TIMESTAMP,
    "earliest-local": admin.EARLIEST_LOCAL,
    "latest-tiered": admin.LATEST_TIERED,
    "earliest-pending-upload": admin.EARLIEST_PENDING_UPLOAD,
}

NO_EFFECT = ("--max-wait-ms", "--offsets")
"""Options of GetOffsetShell up to 2.x. They are accepted, and have no effect."""


class OffsetAtRow(Row):
    """The offset of a partition at the given time; None if there is no such record. If the broker refused the request, `error` has its
    error.
    """

    topic: str
    partition: int
    offset: int | None = None
    timestamp: int | None = None
    error: str | None = None


def parse_time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"-[1-6]|\d+", text):
        return int(text)
    from ottla.cli.moments import parse_moment_ms

    return parse_moment_ms(text)


class Selection:
    """One `TOPIC[:PARTITIONS]`: a regular expression, and a range of partitions that excludes its end: `0-3` is 0, 1, 2."""

    def __init__(self, text: str) -> None:
        topic, colon, numbers = text.rpartition(":") if ":" in text else (text, "", "")
        match = re.fullmatch(r"(\d*)(-?)(\d*)", numbers)
        if match is None or (colon and not numbers):
            raise UsageError(f"--topic-partitions {text!r} is not TOPIC, TOPIC:N, TOPIC:N-M, TOPIC:N- or TOPIC:-M")
        self._topic = pattern_of(topic) if topic else None
        first, dash, last = match.groups()
        self._first = int(first or 0)
        self._end = int(last) if last else None if dash or not first else self._first + 1

    def has(self, partition: TopicPartition) -> bool:
        is_topic = self._topic is None or self._topic.fullmatch(partition.topic) is not None
        return is_topic and partition.partition >= self._first and (self._end is None or partition.partition < self._end)


def _partitions(cluster: Cluster, args: Args) -> list[TopicPartition]:
    """Returns the partitions that the arguments choose. Raises ApiError if an argument names an unknown topic, or if no topic matches
    `--topic`. Raises Refused if no partition matches, as Kafka's tool does."""
    if args.topic_partitions and (args.topic or args.partitions or args.names):
        raise UsageError("--topic-partitions names both; leave out topics and --partitions")
    answer = cluster.refresh(None)
    everything = sorted(
        TopicPartition(topic.name, partition.partition_index)
        for topic in answer.topics
        if topic.name is not None and not (args.exclude_internal_topics and (topic.is_internal or topic.name.startswith("__")))
        for partition in topic.partitions
    )
    if args.topic_partitions:
        chosen = [Selection(part) for part in args.topic_partitions.split(",") if part]
        found = [partition for partition in everything if any(selection.has(partition) for selection in chosen)]
        return _some(found, f"--topic-partitions {args.topic_partitions}")
    for name in args.names:
        cluster.topic(name)
    pattern = pattern_of(args.topic) if args.topic else None
    found = everything
    if args.names or pattern is not None:
        matching = {topic for topic, _ in everything if pattern is not None and pattern.fullmatch(topic)}
        found = [partition for partition in everything if partition.topic in args.names or partition.topic in matching]
    if pattern is not None and not found and not args.names:
        raise cluster.unknown_topic(args.topic)
    if args.partitions:
        try:
            numbers = {int(number) for number in args.partitions.split(",")}
        except ValueError:
            raise UsageError(f"--partitions {args.partitions!r} is not N,N,...") from None
        found = _some([partition for partition in found if partition.partition in numbers], f"--partitions {args.partitions}")
    return found


def _some(found: list[TopicPartition], options: str) -> list[TopicPartition]:
    if not found:
        raise Refused(f"no partition matches {options}; `ottla topic list` shows the topics", "UNKNOWN_TOPIC_OR_PARTITION")
    return found


@command(
    "offsets",
    "Offsets of each partition: the end, the start, or at a time.",
    option("names", nargs="*", metavar="TOPIC", help="topics"),
    option("--topic", metavar="REGEX", help="topics by regular expression"),
    option("--partitions", metavar="N,...", help="only these partitions"),
    option("--topic-partitions", metavar="t:0-3,...", help="topics with partitions: t, t:1, t:0-3, t:2-, t:-3"),
    option("--time", default="latest", metavar="TIME", help="latest|earliest|max-timestamp|-1|-2|-3, milliseconds, or a date"),
    flag("--exclude-internal-topics", help="leave out internal topics"),
    BROKER_LIST,
    *(hidden(name) for name in NO_EFFECT),
    may_watch=True,
    needs="DESCRIBE TOPIC",
)
def _run(args: Args, cluster: Cluster, output: Output) -> int:
    for name in NO_EFFECT:
        if getattr(args, name.removeprefix("--").replace("-", "_")) is not None:
            output.note(f"{name} has no effect any more")
    moment = parse_time(args.time)
    partitions = _partitions(cluster, args)
    found = admin.list_offsets(cluster, dict.fromkeys(partitions, moment)) if partitions else {}
    rows = []
    for partition, result in sorted(found.items()):
        row = OffsetAtRow(*partition)
        if isinstance(result, ApiError):
            row.error = result.code.name
        elif result.offset >= 0:
            row.offset, row.timestamp = result.offset, result.timestamp if result.timestamp >= 0 else None
        rows.append(row)
    if output.form == "plain":
        write("".join(f"{row.topic}:{row.partition}:{row.offset}\n" for row in rows if row.offset is not None))
    else:
        output.rows("offsets", OffsetAtRow, rows)
    failures = [row for row in rows if row.error is not None]
    if failures and output.is_structured:
        raise Refused(f"no offset of {len(failures)} of {counted(len(rows), 'partition')}", failures[0].error or "")
    for row in failures:
        output.error(f"{row.topic}-{row.partition}: {row.error}", row.error or "")
    return 1 if failures else 0
