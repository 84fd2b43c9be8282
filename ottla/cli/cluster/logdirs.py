"""`ottla logdirs`: log directories of the brokers, their sizes and free space. The exit code is 1 if a directory has an error."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ottla.base.errors import OttlaError, error_code
from ottla.cli.command import Args, command, flag, hidden, merged, merged_numbers, option
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin


class ReplicaRow(Row):
    broker: int
    log_dir: str
    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool = column("FUTURE")


class DirectoryRow(Row):
    """A log directory. The sizes of its disk are None if the broker does not know them."""

    broker: int
    log_dir: str
    partition_count: int = column("PARTITIONS")
    size: int
    usable_bytes: int | None = column("DISK-FREE")
    total_bytes: int | None = column("DISK-SIZE")
    free_percent: float | None = column("FREE-%")
    cordoned: bool
    error: str | None
    partitions: list[ReplicaRow] = json_only()


class BrokerDirectories(Row):
    """The log directories of a broker."""

    broker: int
    log_dirs: list[DirectoryRow] = json_only()

    def as_json(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Returns the broker with its directories and their replicas. The inner objects omit the broker id and the directory."""
        directories = [found.as_json(without=("broker", "partitions")) for found in self.log_dirs]
        for found, directory in zip(directories, self.log_dirs, strict=True):
            found["partitions"] = [replica.as_json(without=("broker", "log_dir")) for replica in directory.partitions]
        return {"broker": self.broker, "log_dirs": directories}


def failed_directories(cluster: Cluster) -> list[str]:
    """Returns a sentence for each offline log directory. Skips brokers that do not answer or refuse the request."""
    failed = []
    for broker_id in sorted(cluster.metadata.brokers):
        try:
            found = admin.describe_log_dirs(cluster, broker_id, [])
        except OttlaError:
            continue
        failed += [f"log directory {one.log_dir} of broker {broker_id} is offline" for one in found if one.error_code]
    return failed


@command(
    "logdirs",
    "Log directories of the brokers: sizes and free space.",
    hidden("--describe", action="store_true"),
    option("--broker-list", metavar="ID,...", help="only these brokers"),
    option("--topic-list", metavar="TOPIC,...", help="only these topics"),
    flag("--exclude-internal", help="without the partitions of internal topics, such as __consumer_offsets"),
    may_watch=True,
)
def _run(args: Args, cluster: Cluster, output: Output) -> int:
    topics_found = cluster.refresh(None if args.exclude_internal else []).topics
    internal = frozenset(str(topic.name) for topic in topics_found if topic.is_internal)
    named = merged_numbers([args.broker_list or ""], f"--broker-list {args.broker_list!r} is not ID,ID,...")
    brokers = named if args.broker_list else sorted(cluster.metadata.brokers)
    topics = merged([args.topic_list]) if args.topic_list else None
    found = {broker_id: admin.describe_log_dirs(cluster, broker_id, topics) for broker_id in brokers}
    directories = [_directory(broker_id, directory, internal) for broker_id in brokers for directory in found[broker_id]]
    if output.has_objects:
        objects = [BrokerDirectories(broker_id, [one for one in directories if one.broker == broker_id]) for broker_id in brokers]
        output.rows("brokers", BrokerDirectories, objects)
    else:
        output.rows("partitions", ReplicaRow, [replica for directory in directories for replica in directory.partitions])
        if output.form == "table":
            write("\n")
            output.rows("log_dirs", DirectoryRow, directories)
    return 1 if any(directory.error for directory in directories) else 0


def _directory(broker_id: int, found: Any, hidden: frozenset[str]) -> DirectoryRow:
    replicas = [
        ReplicaRow(broker_id, found.log_dir, topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for topic in sorted(found.topics, key=lambda topic: str(topic.name))
        for one in sorted(topic.partitions, key=lambda one: int(one.partition_index))
        if topic.name not in hidden
    ]
    total, usable = (value if value >= 0 else None for value in (found.total_bytes, found.usable_bytes))
    return DirectoryRow(
        broker_id,
        found.log_dir,
        partition_count=len(replicas),
        size=sum(replica.size for replica in replicas),
        usable_bytes=usable,
        total_bytes=total,
        free_percent=round(100 * usable / total, 1) if total and usable is not None else None,
        cordoned=bool(found.is_cordoned),
        error=error_code(found.error_code).name if found.error_code else None,
        partitions=replicas,
    )
