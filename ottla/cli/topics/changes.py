"""`ottla topic alter|config|add-partitions|trim`: changes to an existing topic."""

from __future__ import annotations

from typing import Any

from ottla.analysis.resets import offsets_at
from ottla.base.counted import counted
from ottla.base.types import TopicPartition
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, flag, granted, merged, option
from ottla.cli.moments import parse_moment_ms
from ottla.cli.render.ottla import Output, Row
from ottla.cli.setting_values import parse_settings
from ottla.cli.topics.topic_names import ONE_TOPIC, one_topic, parse_replica_assignment
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import admin
from ottla.client.errors import AuthorizationError, KafkaError

DEFAULT_SOURCE = 5


class TopicSettingRow(Row):
    key: str
    value: str | None
    default: bool


class TrimRow(Row):
    """A partition whose old records are deleted."""

    topic: str
    partition: int
    before: int
    low_watermark: int | None
    error: str | None


@command(
    "topic alter",
    "Grow a topic or change its settings.",
    *ONE_TOPIC,
    option("-p", "--partitions", type=int, metavar="N", help="new number of partitions"),
    option("--replica-assignment", metavar="0:1,1:2", help="brokers of all partitions, the new ones at the end"),
    option("-c", "--config", action="append", metavar="KEY=VALUE", help="set a setting, such as retention.ms=7d"),
    option("--delete-config", action="append", metavar="KEY", help="reset a setting to its default"),
    flag("--if-exists", help="no error when there is no such topic"),
    flag("--dry-run", help="only validate the change on the broker"),
)
def _alter(args: Args, cluster: Cluster, output: Output) -> None:
    name = one_topic(args)
    changes, deletions = parse_settings(args.config, "--config"), merged(args.delete_config)
    if args.partitions is None and not changes and not deletions:
        raise UsageError("give what to alter: --partitions, --config or --delete-config")
    if args.if_exists and name not in cluster.topic_names():
        output.done(f"No topic {name}.", {"topic": name, "altered": False})
        return
    if args.partitions is not None:
        _grow(cluster, args, name, args.partitions)
    if changes or deletions:
        cluster.topic(name)
        _check_deletions(cluster, name, deletions)
        admin.alter_configs(cluster, admin.TOPIC_RESOURCE, name, changes=changes, deletions=deletions, validate_only=args.dry_run)
    what = {"topic": name, "partitions": args.partitions, "configs": changes, "deleted_configs": deletions, "dry_run": args.dry_run}
    output.done(f"Topic {name} could be altered." if args.dry_run else f"Altered topic {name}.", what)


def _check_deletions(cluster: Cluster, name: str, deletions: list[str]) -> None:
    """Refuses unknown settings, because brokers report no error when an unknown setting is reset."""
    known = {str(entry.name): entry for entry in topic_settings(cluster, name)} if deletions else {}
    for key in deletions:
        if key not in known:
            raise Refused(f"topics have no setting {key!r}{nearest_hint(key, known)}", "INVALID_CONFIG")


def topic_settings(cluster: Cluster, name: str) -> list[Any]:
    """All settings of a topic, as DescribeConfigs describes them."""
    return granted(admin.describe_configs(cluster, admin.TOPIC_RESOURCE, [name])[name])


def _grow(cluster: Cluster, args: Args, name: str, total: int) -> None:
    before = len(cluster.partitions(name))
    placed = parse_replica_assignment(getattr(args, "replica_assignment", None))
    if total <= before:
        raise UsageError(f"topic {name!r} has {counted(before, 'partition')} already; a topic can only grow")
    admin.create_partitions(cluster, name, total, assignments=placed and placed[before:], validate_only=args.dry_run)


@command(
    "topic config",
    "Show and change a topic's settings.",
    *ONE_TOPIC,
    option("-c", "--set", action="append", dest="config", metavar="KEY=VALUE", help="set a setting, such as retention.ms=7d"),
    option("--delete", "--delete-config", action="append", metavar="KEY", help="reset a setting to its default"),
    flag("--all", help="defaults too"),
)
def _config(args: Args, cluster: Cluster, output: Output) -> None:
    name = one_topic(args)
    changes, deletions = parse_settings(args.config, "--set"), merged(args.delete)
    cluster.topic(name)
    _check_deletions(cluster, name, deletions)
    if changes or deletions:
        admin.alter_configs(cluster, admin.TOPIC_RESOURCE, name, changes=changes, deletions=deletions)
    rows = [
        TopicSettingRow(entry.name, None if entry.is_sensitive else entry.value, entry.config_source == DEFAULT_SOURCE)
        for entry in topic_settings(cluster, name)
    ]
    rows = [row for row in rows if args.all or not row.default]
    output.rows("configs", TopicSettingRow, rows, extra={"topic": name})


@command(
    "topic add-partitions",
    "Add partitions to a topic.",
    *ONE_TOPIC,
    option("-n", "--count", type=int, required=True, metavar="N", help="how many more"),
    flag("--dry-run", help="only validate the change on the broker"),
    needs="ALTER TOPIC",
)
def _add_partitions(args: Args, cluster: Cluster, output: Output) -> None:
    name = one_topic(args)
    if args.count < 1:
        raise UsageError("--count must be 1 or more")
    total = len(cluster.partitions(name)) + args.count
    _grow(cluster, args, name, total)
    sentence = f"Topic {name} {'could have' if args.dry_run else 'has'} {counted(total, 'partition')}."
    output.done(sentence, {"topic": name, "partitions": total, "dry_run": args.dry_run})


@command(
    "topic trim",
    "Delete the oldest records of a topic.",
    *ONE_TOPIC,
    option("--before", "--offset", dest="before", type=int, metavar="OFFSET", help="delete the records before this (default: all)"),
    option("--before-time", metavar="TIME", help="delete older records (2024-01-31T12:00:00, or -1h)"),
    option("--partition", type=int, action="append", metavar="N", help="only these partitions"),
    flag("--dry-run", help="show the offsets, change nothing"),
    YES,
    needs="DELETE TOPIC",
)
def _trim(args: Args, cluster: Cluster, output: Output) -> int:
    name = one_topic(args)
    if args.before is not None and args.before_time is not None:
        raise UsageError("--before and --before-time exclude each other")
    there = cluster.partitions(name)
    missing = [number for number in args.partition or [] if number not in there]
    if missing:
        raise UsageError(f"topic {name!r} has {counted(len(there), 'partition')}, so no partition {missing[0]}")
    partitions = [TopicPartition(name, number) for number in args.partition or there]
    before = _trim_points(cluster, args, partitions)
    results: dict[TopicPartition, int | KafkaError] = dict(before.items())
    if not args.dry_run:
        confirm(args, f"Delete records of {name} before the offsets {', '.join(map(str, before.values()))}?")
        results = admin.delete_records(cluster, before)
    rows = []
    for partition, result in sorted(results.items()):
        low, error = (None, result.code.name) if isinstance(result, KafkaError) else (result, None)
        rows.append(TrimRow(*partition, before[partition], low, error))
    output.rows("partitions", TrimRow, rows, extra={"dry_run": args.dry_run})
    failed = [row.error for row in rows if row.error]
    for result in results.values():
        if isinstance(result, AuthorizationError) and not output.is_structured:
            raise result
    if failed and not output.is_structured:
        raise Refused(f"not trimmed: {counted(len(failed), 'partition')}", str(failed[0]))
    return 1 if failed else 0


def _trim_points(cluster: Cluster, args: Args, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the offset before which each partition is trimmed: `--before`, the offset of `--before-time`, or the end of the partition."""
    wanted = admin.LATEST if args.before_time is None else parse_moment_ms(args.before_time)
    if args.before is not None:
        return dict.fromkeys(partitions, args.before)
    ends = offsets_at(cluster, partitions, admin.LATEST)
    found = offsets_at(cluster, partitions, wanted)
    return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}
