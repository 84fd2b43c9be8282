"""`ottla cluster` and `ottla features`: brokers, health, and served versions."""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Command, no_arguments
from ottla.cli.options import connect, output_of
from ottla.cli.output import write
from ottla.client.cluster import Cluster
from ottla.wire.apis import API_NAMES, API_VERSION_RANGES
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


def _status(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        found = _overview(cluster)
        found["brokers"] = [
            {
                "id": broker_id,
                "host": address.host,
                "port": address.port,
                "rack": cluster.racks.get(broker_id),
                "controller": broker_id == cluster.controller_id,
            }
            for broker_id, address in sorted(cluster.brokers.items())
        ]
    if output.is_structured:
        output.show_object(found)
        return 0
    for key in ("cluster_id", "controller", "topics", "partitions", "under_replicated", "offline"):
        write(f"{key.replace('_', ' ')}: {found[key]}\n")
    columns = (("ID", "id"), ("HOST", "host"), ("PORT", "port"), ("RACK", "rack"), ("CONTROLLER", "controller"))
    output.show("brokers", found["brokers"], columns)
    return 0


def _overview(cluster: Cluster) -> dict[str, Any]:
    """The health of a cluster, from one Metadata response."""
    answer = cluster.refresh(None)
    partitions = [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "broker_count": len(cluster.brokers),
        "topics": len(answer.topics),
        "partitions": len(partitions),
        "under_replicated": sum(len(partition.isr_nodes) < len(partition.replica_nodes) for _, partition in partitions),
        "offline": sum(partition.leader_id < 0 for _, partition in partitions),
    }


def _health(args: argparse.Namespace) -> int:
    """Prints healthy, or the reasons why not with exit code 1."""
    output = output_of(args)
    with connect(args) as cluster:
        found = _overview(cluster)
    reasons = []
    if found["controller"] < 0:
        reasons.append("no controller")
    if found["offline"]:
        reasons.append(f"{found['offline']} partitions without a leader")
    if found["under_replicated"]:
        reasons.append(f"{found['under_replicated']} partitions with too few replicas in sync")
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


METADATA_LEVELS = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3"),
    *("3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
    "4.4-IV0",
)
"""Names of the levels of metadata.version, from 7 on."""


def _level(feature: str, level: int) -> str:
    """A level as kafka-features prints it."""
    is_named = feature == "metadata.version" and 0 <= level - 7 < len(METADATA_LEVELS)
    return METADATA_LEVELS[level - 7] if is_named else str(level)


def request_versions(cluster: Cluster) -> ApiVersionsResponse:
    """The broker's answer to ApiVersions, by version 4: the first that includes features whose lowest level is 0."""
    from ottla._version import __version__

    connection = cluster.any_connection()
    version = 4 if connection.offers(ApiVersionsRequest.API_KEY, 4) else 3
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    answer: ApiVersionsResponse = connection.request(request, version=version)
    return answer


def _features(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        answer = request_versions(cluster)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    rows: list[dict[str, Any]] = [
        {
            "feature": feature.name,
            "supported_min": feature.min_version,
            "supported_max": feature.max_version,
            "finalized": levels.get(feature.name, 0),
            "epoch": answer.finalized_features_epoch,
        }
        for feature in sorted(answer.supported_features, key=lambda found: str(found.name))
    ]
    if getattr(args, "is_shim", False):
        for row in rows:
            low, high, level = (_level(row["feature"], row[key]) for key in ("supported_min", "supported_max", "finalized"))
            write(
                f"Feature: {row['feature']:<41} SupportedMinVersion: {low:<16} SupportedMaxVersion: {high:<16} "
                f"FinalizedVersionLevel: {level:<16} Epoch: {row['epoch']}\n"
            )
        return 0
    columns = (
        ("FEATURE", "feature"),
        ("SUPPORTED-MIN", "supported_min"),
        ("SUPPORTED-MAX", "supported_max"),
        ("FINALIZED", "finalized"),
        ("EPOCH", "epoch"),
    )
    output.show("features", rows, columns)
    return 0


COMMANDS = {
    "status": Command("Brokers, controller, and the number of healthy partitions.", no_arguments, _status, may_watch=True),
    "health": Command("Is the cluster healthy? Exit code 1 if not.", no_arguments, _health, may_watch=True),
    "cluster-id": Command("The cluster's id.", no_arguments, _cluster_id),
    "api-versions": Command("API versions that the brokers support.", no_arguments, _api_versions),
}

FEATURE_COMMANDS = {"describe": Command("Feature levels of the cluster.", no_arguments, _features, may_watch=True)}
