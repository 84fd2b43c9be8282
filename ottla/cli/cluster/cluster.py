"""`ottla cluster`: brokers, health, and served versions."""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, OttlaError
from ottla.cli.cluster.cluster_info import INFO
from ottla.cli.cluster.logdirs import failed_directories
from ottla.cli.command import Command, no_arguments
from ottla.cli.options import connect, output_of
from ottla.cli.output import write
from ottla.client.blocking import admin, replica_admin
from ottla.client.blocking.cluster import Cluster
from ottla.wire.apis import API_NAMES, API_VERSION_RANGES
from ottla.wire.messages.describe_cluster import UNKNOWN


def _status(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args, with_extensions=True) as cluster:
        partitions = _partitions(cluster)
        found = _overview(cluster, partitions)
        hosts = {broker_id for _, partition in partitions for broker_id in partition.replica_nodes}
        views = {broker_id: _view_of(cluster, broker_id) for broker_id in sorted(hosts | set(cluster.brokers))}
        found["controller_epoch"] = max((view["controller_epoch"] for view in views.values()), default=-1)
        found["reassignments"] = _moves(cluster)
        found["brokers"] = [_broker_row(cluster, broker_id, partitions) | views[broker_id] for broker_id in views]
        found["troubled_partitions"] = [_partition_row(topic, one) for topic, one in partitions if _is_troubled(one)]
    for one in (found, *found["brokers"]):
        one.update({key: None for key in UNSAID if one.get(key, 0) == UNKNOWN})
    if output.is_structured:
        output.show_object(found)
        return 0
    for key in ("cluster_id", "controller", "controller_epoch", "topics", "partitions", "under_replicated", "offline", "reassignments"):
        value = found[key]
        write(f"{key.replace('_', ' ')}: {'unknown' if value is None else len(value) if isinstance(value, list) else value}\n")
    output.show("brokers", found["brokers"], [(key.upper().replace("_", " "), key) for key in BROKER_COLUMNS])
    if found["reassignments"]:
        output.show("reassignments", found["reassignments"], [(key.upper(), key) for key in MOVE_COLUMNS])
    if found["troubled_partitions"]:
        output.show("troubled_partitions", found["troubled_partitions"], [(key.upper(), key) for key in PARTITION_COLUMNS])
    return 0


UNSAID = ("controller_epoch", "isr_expansions", "isr_shrinks")
BROKER_COLUMNS = ("id", "host", "port", "rack", "controller", "leaders", "replicas", "out_of_sync", "isr_expansions", "isr_shrinks")
MOVE_COLUMNS = ("topic", "partition", "replicas", "adding", "removing")
PARTITION_COLUMNS = ("topic", "partition", "leader", "epoch", "replicas", "isr")


def _broker_row(cluster: Cluster, broker_id: int, partitions: Partitions) -> dict[str, Any]:
    """A broker that has replicas and is not registered has no address."""
    address = cluster.brokers.get(broker_id)
    hosted = [one for _, one in partitions if broker_id in one.replica_nodes]
    return {
        "id": broker_id,
        "host": address and address.host,
        "port": address and address.port,
        "rack": cluster.racks.get(broker_id),
        "controller": broker_id == cluster.controller_id,
        "leaders": sum(one.leader_id == broker_id for one in hosted),
        "replicas": len(hosted),
        "out_of_sync": sum(broker_id not in one.isr_nodes for one in hosted),
    }


def _view_of(cluster: Cluster, broker_id: int) -> dict[str, int]:
    """What only the broker itself knows: under which controller it is, and how often it has changed in-sync sets since it started. -1 where
    it does not answer, or is not one of ours."""
    try:
        seen = admin.describe_cluster(cluster, broker_id) if broker_id in cluster.brokers else None
    except OttlaError:
        seen = None
    if seen is None:
        return dict.fromkeys(UNSAID, UNKNOWN)
    return {
        "controller_epoch": seen.ottla_controller_epoch,
        "isr_expansions": seen.ottla_isr_expansions,
        "isr_shrinks": seen.ottla_isr_shrinks,
    }


def _moves(cluster: Cluster) -> list[dict[str, Any]] | None:
    """The reassignments that are pending; None where they cannot be asked for."""
    try:
        moves = replica_admin.moves_under_way(cluster)
    except OttlaError:
        return None
    return [{"topic": found.topic, "partition": found.partition, **move._asdict()} for found, move in sorted(moves.items())]


def _is_troubled(partition: Any) -> bool:
    """Without a leader, or with too few replicas in sync."""
    return partition.leader_id < 0 or len(partition.isr_nodes) < len(partition.replica_nodes)


def _partition_row(topic: str | None, partition: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition.partition_index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "epoch": partition.leader_epoch,
        "replicas": ",".join(map(str, partition.replica_nodes)),
        "isr": ",".join(map(str, partition.isr_nodes)),
    }


Partitions = list[tuple[str | None, Any]]
"""Topic, and the partition as Metadata shows it."""


def _partitions(cluster: Cluster) -> Partitions:
    return [(topic.name, partition) for topic in cluster.refresh(None).topics for partition in topic.partitions]


def _overview(cluster: Cluster, partitions: Partitions) -> dict[str, Any]:
    """The health of a cluster, from one Metadata response."""
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "broker_count": len(cluster.brokers),
        "topics": len({topic for topic, _ in partitions}),
        "partitions": len(partitions),
        "under_replicated": sum(len(partition.isr_nodes) < len(partition.replica_nodes) for _, partition in partitions),
        "offline": sum(partition.leader_id < 0 for _, partition in partitions),
    }


def _health(args: argparse.Namespace) -> int:
    """Prints healthy, or the reasons why not with exit code 1."""
    output = output_of(args)
    with connect(args) as cluster:
        found = _overview(cluster, _partitions(cluster))
        reasons = failed_directories(cluster)
    if found["controller"] < 0:
        reasons.append("no controller")
    if found["offline"]:
        reasons.append(f"{counted(found['offline'], 'partition')} without a leader")
    if found["under_replicated"]:
        reasons.append(f"{counted(found['under_replicated'], 'partition')} with too few replicas in sync")
    if output.is_structured:
        output.show_object({"healthy": not reasons, "reasons": reasons, **found})
    else:
        write("healthy\n" if not reasons else f"not healthy: {', '.join(reasons)}\n")
    return 1 if reasons else 0


def _cluster_id(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        cluster.refresh([])
    if cluster.cluster_id is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the cluster has no id")
    if output.is_structured:
        output.show_object({"cluster_id": cluster.cluster_id})
    else:
        write(f"Cluster ID: {cluster.cluster_id}\n" if output.form == "table" else f"{cluster.cluster_id}\n")
    return 0


def _api_versions(args: argparse.Namespace) -> int:
    output = output_of(args)
    rows: list[dict[str, Any]] = []
    with connect(args) as cluster:
        cluster.refresh([])
        for broker_id, address in sorted(cluster.brokers.items()):
            offered = cluster.connection(broker_id).api_versions.api_keys
            found = [_api_row(broker_id, api) for api in sorted(offered, key=lambda api: int(api.api_key))]
            rows += found
            if getattr(args, "is_shim", False):
                write(_as_kafka(f"{address} (id: {broker_id} rack: {cluster.racks.get(broker_id) or 'null'} isFenced: false)", found))
    if not getattr(args, "is_shim", False):
        columns = (("BROKER", "broker"), ("KEY", "key"), ("API", "api"), ("MIN", "min"), ("MAX", "max"), ("USABLE", "usable"))
        output.show("api_versions", rows, columns)
    return 0


def _api_row(broker_id: int, api: Any) -> dict[str, Any]:
    """The versions of one API, and the newest one that this program supports too."""
    ours = API_VERSION_RANGES.get(api.api_key)
    usable = None if ours is None else min(ours[1], api.max_version)
    if ours is not None and usable is not None and usable < max(ours[0], api.min_version):
        usable = None
    name = API_NAMES.get(api.api_key, "UNKNOWN")
    return {"broker": broker_id, "key": api.api_key, "api": name, "min": api.min_version, "max": api.max_version, "usable": usable}


def _as_kafka(title: str, rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        versions = f"{row['min']} to {row['max']}" if row["min"] != row["max"] else str(row["min"])
        usable = "unusable" if row["usable"] is None else str(row["usable"])
        lines.append(f"\t{row['api']}({row['key']}): {versions} [usable: {usable}]")
    return f"{title} -> (\n" + ",\n".join(lines) + "\n)\n"


COMMANDS = {
    "info": INFO,
    "status": Command("Brokers, controller, and the number of healthy partitions.", no_arguments, _status, may_watch=True),
    "health": Command("Is the cluster healthy? Exit code 1 if not.", no_arguments, _health, may_watch=True),
    "cluster-id": Command("The cluster's id.", no_arguments, _cluster_id),
    "api-versions": Command("API versions that the brokers support.", no_arguments, _api_versions),
}
