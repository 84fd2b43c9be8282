"""`ottla topic`: list, describe, create, delete. Changes to an existing topic are in `changes.py`.

Topics are named by position or by `--topic`. In `list`, `describe` and `delete`, `--topic` is a regular expression, as in Kafka's tool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import COMMANDS, YES, Args, Refused, UsageError, command, confirm, flag, granted, hidden, option
from ottla.cli.denials import explained
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, column, json_only, spaced, unshown
from ottla.cli.setting_values import parse_settings
from ottla.cli.topics.topic_names import TOPIC_FILTER, chosen_topics, names_topics, parse_replica_assignment
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin

DEFAULT_SOURCE = 5


class ListedTopic(Row):
    """A topic in `topic list`."""

    name: str = column("TOPIC")
    topic_id: str = json_only()
    partitions: int
    replication_factor: int = column("REPLICATION")
    internal: bool


class PartitionRow(Row, titles=spaced):
    """A partition in `topic describe`. `leader` is None without a leader, `elr` and `last_known_elr` if the broker does not report them."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int = json_only()
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    elr: list[int] | None
    last_known_elr: list[int] | None


class DescribedTopic(Row):
    """A topic in `topic describe`, with the settings that differ from the default."""

    name: str = column("TOPIC")
    topic_id: str = json_only()
    internal: bool = json_only()
    partition_count: int = column("PARTITIONS")
    replication_factor: int = column("REPLICATION")
    configs: dict[str, str]
    partitions: list[PartitionRow] = json_only()
    min_isr: int = unshown(default=1)


@command(
    "topic list", "Names of all topics.", *TOPIC_FILTER, hidden("--topic-id-type"), hidden("--list", action="store_true"), may_watch=True
)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    topics = chosen_topics(cluster, args)
    rows = [ListedTopic(topic.name, _uuid(topic.topic_id), len(topic.partitions), _factor(topic), topic.is_internal) for topic in topics]
    if output.form == "plain":
        write("".join(f"{row.name}\n" for row in rows))
    else:
        output.rows("topics", ListedTopic, rows)


def _factor(topic: Any) -> int:
    return max((len(partition.replica_nodes) for partition in topic.partitions), default=0)


def _uuid(raw: bytes) -> str:
    from ottla.base.uuids import ZERO_UUID, uuid_to_text

    return "" if raw == ZERO_UUID else uuid_to_text(raw)


@command(
    "topic describe",
    "Partitions, leaders, replicas, settings.",
    *TOPIC_FILTER,
    flag("--if-exists", help="no error when there is no such topic"),
    flag("--under-replicated-partitions", help="only partitions whose ISR lacks a replica"),
    flag("--unavailable-partitions", help="only partitions without a leader"),
    flag("--under-min-isr-partitions", help="only partitions whose ISR is smaller than min.insync.replicas"),
    flag("--at-min-isr-partitions", help="only partitions whose ISR is just min.insync.replicas"),
    flag("--topics-with-overrides", help="only topics with overridden settings, without their partitions"),
    flag("--all", help="without names: every partition of internal topics too, not only their number"),
    hidden("--partition-size-limit-per-response", type=int),
    may_watch=True,
)
def _describe(args: Args, cluster: Cluster, output: Output) -> None:
    described = describe(cluster, chosen_topics(cluster, args, is_optional=args.if_exists), args)
    if output.is_structured:
        output.rows("topics", DescribedTopic, described)
    else:
        _show_tables(output, described, args)


def describe(cluster: Cluster, topics: Sequence[Any], args: Args) -> list[DescribedTopic]:
    """Returns the topics with partitions and settings. With filters, it returns only partitions that match a filter, and topics with such a
    partition.
    """
    described = [_described(topic) for topic in _with_eligible_leaders(cluster, topics)]
    _add_configs(cluster, described)
    _apply_filters(described, args)
    return [topic for topic in described if topic.configs] if args.topics_with_overrides else described


def _with_eligible_leaders(cluster: Cluster, topics: Sequence[Any]) -> list[Any]:
    """Returns the topics as DescribeTopicPartitions describes them, with ELR; unchanged if the broker does not support this API."""
    try:
        found = admin.describe_topics(cluster, [topic.name for topic in topics])
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        found = {}
    return [found.get(topic.name, topic) for topic in topics]


def _described(topic: Any) -> DescribedTopic:
    partitions = [
        PartitionRow(
            topic.name,
            partition.partition_index,
            partition.leader_id if partition.leader_id >= 0 else None,
            partition.leader_epoch,
            list(partition.replica_nodes),
            list(partition.isr_nodes),
            list(partition.offline_replicas),
            getattr(partition, "eligible_leader_replicas", None),
            getattr(partition, "last_known_elr", None),
        )
        for partition in sorted(topic.partitions, key=lambda found: int(found.partition_index))
    ]
    return DescribedTopic(topic.name, _uuid(topic.topic_id), topic.is_internal, len(partitions), _factor(topic), {}, partitions)


def _add_configs(cluster: Cluster, described: list[DescribedTopic]) -> None:
    """Adds to each topic the settings that differ from the default, except sensitive ones, and its min.insync.replicas."""
    names = [topic.name for topic in described]
    found = admin.describe_configs(cluster, admin.TOPIC_RESOURCE, names) if names else {}
    for topic in described:
        configs = granted(found.get(topic.name, []))
        topic.configs = {entry.name: entry.value for entry in configs if entry.config_source != DEFAULT_SOURCE and not entry.is_sensitive}
        topic.min_isr = next((int(entry.value) for entry in configs if entry.name == "min.insync.replicas"), 1)


FILTERS: dict[str, Callable[[PartitionRow, int], bool]] = {
    "under_replicated_partitions": lambda row, _: len(row.isr) < len(row.replicas),
    "unavailable_partitions": lambda row, _: row.leader is None,
    "under_min_isr_partitions": lambda row, min_isr: len(row.isr) < min_isr,
    "at_min_isr_partitions": lambda row, min_isr: len(row.isr) == min_isr,
}
"""Filters by the option of `topic describe`. A filter returns whether to show a partition of a topic with this min.insync.replicas."""


def has_partition_filters(args: Args) -> bool:
    return any(getattr(args, name) for name in FILTERS)


def _apply_filters(described: list[DescribedTopic], args: Args) -> None:
    filters = [shows for name, shows in FILTERS.items() if getattr(args, name)]
    if filters:
        for topic in described:
            topic.partitions = [row for row in topic.partitions if any(shows(row, topic.min_isr) for shows in filters)]
        described[:] = [topic for topic in described if topic.partitions]


def _show_tables(output: Output, described: list[DescribedTopic], args: Args) -> None:
    if args.topics_with_overrides:
        output.rows("topics", DescribedTopic, described)
        return
    if not has_partition_filters(args) and output.form == "table":
        for topic in described:
            counts = f"partitions: {topic.partition_count}  replication: {topic.replication_factor}"
            write(f"topic: {topic.name}  id: {topic.topic_id or '-'}  {counts}  configs: {configs_text(topic) or '-'}\n")
    folded = [topic for topic in described if topic.internal and output.form == "table" and not (args.all or names_topics(args))]
    shown = [topic for topic in described if topic not in folded]
    if shown or not folded:
        output.rows("partitions", PartitionRow, [partition for topic in shown for partition in topic.partitions])
    for topic in folded:
        write(f"{topic.name}: {counted(len(topic.partitions), 'partition')} (internal; --all shows them)\n")


def configs_text(topic: DescribedTopic) -> str:
    """Returns the topic's settings as `key=value,key=value`."""
    return ",".join(f"{key}={value}" for key, value in topic.configs.items())


@command(
    "topic create",
    "Make topics.",
    option("names", nargs="*", metavar="NAME", help="the names of the new topics"),
    option("--topic", action="append", metavar="NAME", help="a topic, as an option"),
    option("-p", "--partitions", type=int, default=-1, metavar="N", help="how many (default: the broker's num.partitions)"),
    option("-r", "--replication-factor", type=int, default=-1, metavar="N", help="how many copies (default: the broker's)"),
    option("--replica-assignment", metavar="0:1,1:2", help="brokers of each partition"),
    option("-c", "--config", action="append", metavar="KEY=VALUE", help="a setting of the topic, such as retention.ms=7d"),
    flag("--if-not-exists", help="no error when the topic exists"),
    flag("--dry-run", help="only validate the change on the broker"),
    needs="CREATE TOPIC",
)
def _create(args: Args, cluster: Cluster, output: Output) -> None:
    names = list(dict.fromkeys([*args.names, *(args.topic or [])]))
    if not names:
        raise UsageError("name a topic")
    assignments = parse_replica_assignment(args.replica_assignment)
    if assignments is not None and (args.partitions > 0 or args.replication_factor > 0):
        raise UsageError("--replica-assignment sets both numbers; leave out --partitions and --replication-factor")
    for value, name in ((args.partitions, "--partitions"), (args.replication_factor, "--replication-factor")):
        if value == 0 or value < -1:
            raise UsageError(f"{name} must be 1 or more")
    made: list[dict[str, Any]] = []
    failures: dict[str, ApiError] = {}
    for name in names:
        try:
            made.append(_create_one(cluster, name, assignments, args))
        except ApiError as error:
            if len(names) == 1:
                raise
            failures[name] = explained(error, COMMANDS["topic create"], args)
    if output.is_structured:
        errors = {name: failure.code.name for name, failure in failures.items()}
        output.show_object(made[0] if len(names) == 1 else {"topics": made, "errors": errors})
    else:
        for topic in made:
            output.done(_made_sentence(topic), topic)
        for name, failure in failures.items():
            output.error(f"{name}: {failure.message} ({failure.code.name})", failure.code.name)
    if failures:
        raise Refused(f"not created: {len(failures)} of {counted(len(names), 'topic')}", next(iter(failures.values())).code.name)


def _create_one(cluster: Cluster, name: str, assignments: list[list[int]] | None, args: Args) -> dict[str, Any]:
    """Creates a topic, or with `--dry-run` lets the broker validate it. Returns the result as a JSON object. Raises `ApiError`."""
    try:
        result = admin.create_topic(
            cluster,
            name,
            partitions=args.partitions,
            replication_factor=args.replication_factor,
            assignments=None if assignments is None else dict(enumerate(assignments)),
            configs=parse_settings(args.config, "--config"),
            validate_only=args.dry_run,
        )
    except ApiError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and args.if_not_exists:
            return {"topic": name, "created": False}
        raise
    what = {"topic": name, "topic_id": _uuid(result.topic_id), "partitions": result.num_partitions}
    return {**what, "created": not args.dry_run, "dry_run": args.dry_run}


def _made_sentence(topic: dict[str, Any]) -> str:
    if "dry_run" not in topic:
        return f"Topic {topic['topic']} exists already."
    return f"Topic {topic['topic']} could be created." if topic["dry_run"] else f"Created topic {topic['topic']}."


@command(
    "topic delete",
    "Delete topics with their records.",
    *TOPIC_FILTER,
    flag("--if-exists", help="no error when there is no such topic"),
    flag("--dry-run", help="show what would be deleted"),
    YES,
    needs="DELETE TOPIC",
)
def _delete(args: Args, cluster: Cluster, output: Output) -> None:
    if not args.names and not args.topic:
        raise UsageError("name the topics to delete")
    names = [topic.name for topic in chosen_topics(cluster, args, is_optional=args.if_exists)]
    if args.dry_run:
        output.done("Would delete: " + (", ".join(names) or "nothing"), {"deleted": [], "would_delete": names, "dry_run": True})
        return
    if not names:
        output.done("Nothing to delete.", {"deleted": []})
        return
    confirm(args, f"Delete {', '.join(names)} with all records?")
    results = admin.delete_topics(cluster, names)
    failures = {name: explained(error, COMMANDS["topic delete"], args) for name, error in results.items() if error is not None}
    deleted = [name for name in names if name not in failures]
    for name, error in failures.items():
        if not output.is_structured:
            output.error(f"{name}: {error.message} ({error.code.name})", error.code.name)
    errors = {name: error.code.name for name, error in failures.items()}
    if deleted or output.is_structured:
        output.done("Deleted " + ", ".join(deleted) + ".", {"deleted": deleted, "errors": errors})
    if failures:
        raise Refused(f"not deleted: {len(failures)} of {counted(len(results), 'topic')}", next(iter(errors.values())))
