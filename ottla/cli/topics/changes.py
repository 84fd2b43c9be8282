"""`ottla topic alter|config|add-partitions|trim`: changes to an existing topic."""

from __future__ import annotations

import argparse

from ottla.base.counted import counted
from ottla.base.types import TopicPartition
from ottla.cli.command import Command, Refused, UsageError, merged, parse_pairs
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.render.rows import Row
from ottla.cli.topics.partition_offsets import offsets_at
from ottla.cli.topics.replica_assignment import parse_replica_assignment
from ottla.cli.topics.topic_names import one_topic
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import admin
from ottla.client.errors import KafkaError


class TopicSettingRow(Row):
    """A setting of a topic."""

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


def _topic_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the topic")
    parser.add_argument("--topic", metavar="NAME", help="the topic, as an option")


# alter, add-partitions


def _alter_arguments(parser: argparse.ArgumentParser) -> None:
    _topic_arguments(parser)
    add = parser.add_argument
    add("-p", "--partitions", type=int, metavar="N", help="new number of partitions")
    add("--replica-assignment", metavar="0:1,1:2", help="brokers of all partitions, the new ones at the end")
    add("-c", "--config", action="append", metavar="KEY=VALUE", help="set a setting")
    add("--delete-config", action="append", metavar="KEY", help="reset a setting to its default")
    add("--if-exists", action="store_true", help="no error when there is no such topic")
    add("--dry-run", action="store_true", help="let the broker validate, change nothing")


def _alter(args: argparse.Namespace) -> int:
    name = one_topic(args)
    changes, deletions = parse_pairs(args.config, "--config"), merged(args.delete_config)
    if args.partitions is None and not changes and not deletions:
        raise UsageError("give what to alter: --partitions, --config or --delete-config")
    with connect(args) as cluster:
        if args.if_exists and name not in cluster.topic_names():
            output_of(args).done(f"No topic {name}.", {"topic": name, "altered": False})
            return 0
        if args.partitions is not None:
            _grow(cluster, args, name, args.partitions)
        if changes or deletions:
            cluster.topic(name)
            _check_deletions(cluster, name, deletions)
            admin.alter_configs(
                cluster, admin.TOPIC_RESOURCE, name, changes=changes, deletions=deletions, validate_only=args.dry_run
            )
    what = {"topic": name, "partitions": args.partitions, "configs": changes, "deleted_configs": deletions, "dry_run": args.dry_run}
    output_of(args).done(f"Topic {name} could be altered." if args.dry_run else f"Altered topic {name}.", what)
    return 0


def _check_deletions(cluster: Cluster, name: str, deletions: list[str]) -> None:
    """Refuses names that no setting has: brokers reset them without an error."""
    if not deletions:
        return
    found = admin.describe_configs(cluster, admin.TOPIC_RESOURCE, [name])[name]
    if isinstance(found, KafkaError):
        raise found
    known = {str(entry.name): entry for entry in found}
    for key in deletions:
        if key not in known:
            raise Refused(f"topics have no setting {key!r}{nearest_hint(key, known)}", "INVALID_CONFIG")


def _grow(cluster: Cluster, args: argparse.Namespace, name: str, total: int) -> None:
    before = len(cluster.partitions(name))
    assignments = None
    if getattr(args, "replica_assignment", None):
        placed = parse_replica_assignment(args.replica_assignment)
        assignments = [placed[number] for number in sorted(placed)][before:]
    if total <= before:
        raise UsageError(f"topic {name!r} has {counted(before, 'partition')} already; a topic can only grow")
    admin.create_partitions(cluster, name, total, assignments=assignments, validate_only=args.dry_run)


def _add_partitions_arguments(parser: argparse.ArgumentParser) -> None:
    _topic_arguments(parser)
    parser.add_argument("-n", "--count", type=int, required=True, metavar="N", help="how many more")
    parser.add_argument("--dry-run", action="store_true", help="let the broker validate, change nothing")


def _add_partitions(args: argparse.Namespace) -> int:
    name = one_topic(args)
    if args.count < 1:
        raise UsageError("--count must be 1 or more")
    with connect(args) as cluster:
        total = len(cluster.partitions(name)) + args.count
        _grow(cluster, args, name, total)
    done = "could have" if args.dry_run else "has"
    sentence = f"Topic {name} {done} {counted(total, 'partition')}."
    output_of(args).done(sentence, {"topic": name, "partitions": total, "dry_run": args.dry_run})
    return 0


# config


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    _topic_arguments(parser)
    parser.add_argument("-c", "--set", action="append", dest="config", metavar="KEY=VALUE", help="set a setting")
    parser.add_argument("--delete", "--delete-config", action="append", metavar="KEY", help="reset a setting to its default")
    parser.add_argument("--all", action="store_true", help="defaults too")


def _config(args: argparse.Namespace) -> int:
    name = one_topic(args)
    changes, deletions = parse_pairs(args.config, "--set"), merged(args.delete)
    with connect(args) as cluster:
        cluster.topic(name)
        _check_deletions(cluster, name, deletions)
        if changes or deletions:
            admin.alter_configs(cluster, admin.TOPIC_RESOURCE, name, changes=changes, deletions=deletions)
        found = admin.describe_configs(cluster, admin.TOPIC_RESOURCE, [name])[name]
    if isinstance(found, KafkaError):
        raise found
    rows = [
        TopicSettingRow(entry.name, None if entry.is_sensitive else entry.value, entry.config_source == 5)
        for entry in found
        if args.all or entry.config_source != 5
    ]
    output_of(args).rows("configs", TopicSettingRow, rows, extra={"topic": name})
    return 0


# trim


def _trim_arguments(parser: argparse.ArgumentParser) -> None:
    _topic_arguments(parser)
    add = parser.add_argument
    add("--before", "--offset", dest="before", type=int, metavar="OFFSET", help="delete the records before it (default: all)")
    add("--before-time", metavar="TIME", help="delete older records (2024-01-31T12:00:00, or -1h)")
    add("--partition", type=int, action="append", metavar="N", help="only these partitions")
    add("--dry-run", action="store_true", help="show the offsets, change nothing")
    add_yes(parser)


def _trim(args: argparse.Namespace) -> int:
    name = one_topic(args)
    output = output_of(args)
    if args.before is not None and args.before_time is not None:
        raise UsageError("--before and --before-time exclude each other")
    with connect(args) as cluster:
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
    if failed and not output.is_structured:
        raise Refused(f"not trimmed: {counted(len(failed), 'partition')}", str(failed[0]))
    return 1 if failed else 0


def _trim_points(cluster: Cluster, args: argparse.Namespace, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The new start of each partition; ends are looked up, so that a dry run can show them."""
    wanted = admin.LATEST
    if args.before_time is not None:
        from ottla.cli.moments import parse_moment_ms

        wanted = parse_moment_ms(args.before_time)
    if args.before is not None:
        return dict.fromkeys(partitions, args.before)
    ends = offsets_at(cluster, partitions, admin.LATEST)
    found = offsets_at(cluster, partitions, wanted)
    return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}


COMMANDS = {
    "alter": Command("Grow a topic or change its settings.", _alter_arguments, _alter),
    "config": Command("Show and change a topic's settings.", _config_arguments, _config),
    "add-partitions": Command("Add partitions to a topic.", _add_partitions_arguments, _add_partitions),
    "trim": Command("Delete the oldest records of a topic.", _trim_arguments, _trim),
}
