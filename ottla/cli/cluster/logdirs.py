"""`ottla logdirs`: log directories of the brokers, their sizes and free space."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ottla.base.errors import OttlaError, error_code
from ottla.cli.command import Command, UsageError, merged
from ottla.cli.options import connect, output_of
from ottla.cli.output import write
from ottla.client.blocking import admin
from ottla.client.blocking.cluster import Cluster

COLUMNS = (
    ("BROKER", "broker"),
    ("LOG-DIR", "log_dir"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("SIZE", "size"),
    ("OFFSET-LAG", "offset_lag"),
    ("FUTURE", "is_future"),
)


DIRECTORY_COLUMNS = (
    ("BROKER", "broker"),
    ("LOG-DIR", "log_dir"),
    ("PARTITIONS", "partition_count"),
    ("SIZE", "size"),
    ("DISK-FREE", "usable_bytes"),
    ("DISK-SIZE", "total_bytes"),
    ("FREE-%", "free_percent"),
    ("ERROR", "error"),
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--describe", action="store_true", help=argparse.SUPPRESS)
    add("--broker-list", metavar="ID,...", help="only these brokers")
    add("--topic-list", metavar="TOPIC,...", help="only these topics")
    add("--exclude-internal", action="store_true", help="without the partitions of internal topics, such as __consumer_offsets")


def failed_directories(cluster: Cluster) -> list[str]:
    """One sentence for each log directory that does not work. Brokers that do not answer, or not this client, have none."""
    failed = []
    for broker_id in sorted(cluster.brokers):
        try:
            found = admin.describe_log_dirs(cluster, broker_id, [])
        except OttlaError:
            continue
        failed += [f"log directory {one.log_dir} of broker {broker_id} is offline" for one in found if one.error_code]
    return failed


def _run(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        topics_found = cluster.refresh(None if args.exclude_internal else []).topics
        internal = frozenset(str(topic.name) for topic in topics_found if topic.is_internal)
        try:
            brokers = [int(part) for part in merged([args.broker_list])] if args.broker_list else sorted(cluster.brokers)
        except ValueError:
            raise UsageError(f"--broker-list {args.broker_list!r} is not ID,ID,...") from None
        topics = merged([args.topic_list]) if args.topic_list else None
        found = {broker_id: admin.describe_log_dirs(cluster, broker_id, topics) for broker_id in brokers}
    objects: list[dict[str, Any]] = [
        {"broker": broker_id, "log_dirs": [_directory(directory, internal) for directory in found[broker_id]]} for broker_id in brokers
    ]
    if getattr(args, "is_shim", False):
        write("Querying brokers for log directories information\n")
        write(f"Received log directory information from brokers {','.join(map(str, brokers))}\n{_as_kafka(objects)}\n")
    elif output.is_structured:
        output.show("brokers", objects, ())
    else:
        rows = [
            {"broker": broker["broker"], "log_dir": directory["log_dir"], **partition}
            for broker in objects
            for directory in broker["log_dirs"]
            for partition in directory["partitions"]
        ]
        output.show("partitions", rows, COLUMNS)
        if output.form == "table":
            write("\n")
            output.show("log_dirs", [{"broker": one["broker"], **found} for one in objects for found in one["log_dirs"]], DIRECTORY_COLUMNS)
    return 1 if any(directory["error"] for broker in objects for directory in broker["log_dirs"]) else 0


def _directory(directory: Any, hidden: frozenset[str]) -> dict[str, Any]:
    """A directory with its partitions and their total; the room is that of its disk, None if the broker does not know."""
    partitions = [partition for partition in _partitions(directory) if partition["topic"] not in hidden]
    has_room = directory.total_bytes > 0 and directory.usable_bytes >= 0
    return {
        "log_dir": directory.log_dir,
        "error": error_code(directory.error_code).name if directory.error_code else None,
        "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
        "usable_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
        "free_percent": round(100 * directory.usable_bytes / directory.total_bytes, 1) if has_room else None,
        "size": sum(partition["size"] for partition in partitions),
        "partition_count": len(partitions),
        "partitions": partitions,
    }


def _partitions(directory: Any) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "partition": partition.partition_index,
            "size": partition.partition_size,
            "offset_lag": partition.offset_lag,
            "is_future": partition.is_future_key,
        }
        for topic in sorted(directory.topics, key=lambda found: str(found.name))
        for partition in sorted(topic.partitions, key=lambda found: int(found.partition_index))
    ]


def _as_kafka(objects: list[dict[str, Any]]) -> str:
    """The one line of JSON that kafka-log-dirs prints."""
    brokers = [
        {
            "broker": broker["broker"],
            "logDirs": [
                {
                    "partitions": [
                        {
                            "partition": f"{partition['topic']}-{partition['partition']}",
                            "size": partition["size"],
                            "offsetLag": partition["offset_lag"],
                            "isFuture": partition["is_future"],
                        }
                        for partition in directory["partitions"]
                    ],
                    "error": directory["error"],
                    "logDir": directory["log_dir"],
                }
                for directory in broker["log_dirs"]
            ],
        }
        for broker in objects
    ]
    return json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":"))


COMMAND = Command("Log directories of the brokers: sizes and free space.", _arguments, _run, may_watch=True)
