"""`ottla cluster`: brokers, topics, health and API versions. `info` shows brokers and topics, as `kcat -L` and `rpk cluster info` do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, OttlaError
from ottla.cli.cluster.logdirs import failed_directories
from ottla.cli.cluster.partitions import MoveRow
from ottla.cli.command import Args, command
from ottla.cli.options import connect
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, column, json_only, spaced, unshown
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin
from ottla.wire.apis import API_NAMES, API_VERSION_RANGES
from ottla.wire.messages.describe_cluster import UNKNOWN


class AddressRow(Row):
    """A broker in `info`."""

    id: int
    host: str
    port: int
    rack: str | None
    controller: bool


class TopicHealthRow(Row):
    """A topic in `info`. A partition is out of sync if one of its replicas is not in the ISR."""

    topic: str | None
    internal: bool = json_only()
    partitions: int
    replication_factor: int = column("REPLICATION")
    leaderless: int
    out_of_sync: int


@command("cluster info", "Brokers and topics in one look.", may_watch=True)
def _info(args: Args, cluster: Cluster, output: Output) -> None:
    answer, known = cluster.refresh(None), cluster.metadata
    brokers = [
        AddressRow(broker_id, address.host, address.port, known.racks.get(broker_id), broker_id == known.controller_id)
        for broker_id, address in sorted(known.brokers.items())
    ]
    cluster_id = cluster.metadata.cluster_id
    topics = [
        TopicHealthRow(
            topic.name,
            topic.is_internal,
            len(topic.partitions),
            max((len(one.replica_nodes) for one in topic.partitions), default=0),
            sum(one.leader_id < 0 for one in topic.partitions),
            sum(len(one.isr_nodes) < len(one.replica_nodes) for one in topic.partitions),
        )
        for topic in sorted(answer.topics, key=lambda found: found.name or "")
    ]
    if output.is_structured:
        found: dict[str, Sequence[Row]] = {"brokers": brokers, "topics": topics}
        output.show_object({"cluster_id": cluster_id, **{name: [row.as_json() for row in rows] for name, rows in found.items()}})
        return
    if output.form == "table":
        write(f"cluster {cluster_id}\n\n")
        output.rows("brokers", AddressRow, brokers)
        write("\n")
    output.rows("topics", TopicHealthRow, topics)


class ApiRow(Row):
    """An API of a broker. `usable` is the newest version that this program supports too, or None."""

    broker: int
    key: int
    api: str
    min: int
    max: int
    usable: int | None
    node: str = unshown()


class BrokerRow(Row, titles=spaced):
    """A broker in `status`. The address is missing for a broker that has replicas but is not registered."""

    id: int
    host: str | None
    port: int | None
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    controller_epoch: int | None = json_only()
    isr_expansions: int | None
    isr_shrinks: int | None


class TroubledRow(Row):
    """A partition that has no leader, or a replica that is not in the ISR."""

    topic: str | None
    partition: int
    leader: int | None
    epoch: int
    replicas: str
    isr: str


@command("cluster status", "Brokers, controller, and the number of healthy partitions.", may_watch=True)
def _status(args: Args, output: Output) -> None:
    with connect(args, with_extensions=True) as cluster:
        partitions = _partitions(cluster)
        found = _overview(cluster, partitions)
        hosts = {broker_id for _, partition in partitions for broker_id in partition.replica_nodes}
        brokers = [_broker_row(cluster, broker_id, partitions) for broker_id in sorted(hosts | set(cluster.metadata.brokers))]
        moves = _moves(cluster)
    is_short = [(topic, one) for topic, one in partitions if one.leader_id < 0 or len(one.isr_nodes) < len(one.replica_nodes)]
    troubled = [_partition_row(topic, one) for topic, one in is_short]
    found["controller_epoch"] = max((row.controller_epoch for row in brokers if row.controller_epoch is not None), default=None)
    if output.is_structured:
        lists = {"reassignments": moves, "brokers": brokers, "troubled_partitions": troubled}
        shown = {name: None if rows is None else [row.as_json() for row in rows] for name, rows in lists.items()}
        output.show_object({**found, **shown})
        return
    found["reassignments"] = None if moves is None else len(moves)
    for key in ("cluster_id", "controller", "controller_epoch", "topics", "partitions", "under_replicated", "offline", "reassignments"):
        write(f"{key.replace('_', ' ')}: {'unknown' if found[key] is None else found[key]}\n")
    output.rows("brokers", BrokerRow, brokers)
    if moves:
        output.rows("reassignments", MoveRow, moves)
    if troubled:
        output.rows("troubled_partitions", TroubledRow, troubled)


def _broker_row(cluster: Cluster, broker_id: int, partitions: Partitions) -> BrokerRow:
    address = cluster.metadata.brokers.get(broker_id)
    hosted = [one for _, one in partitions if broker_id in one.replica_nodes]
    return BrokerRow(
        broker_id,
        address and address.host,
        address and address.port,
        cluster.metadata.racks.get(broker_id),
        broker_id == cluster.metadata.controller_id,
        sum(one.leader_id == broker_id for one in hosted),
        len(hosted),
        sum(broker_id not in one.isr_nodes for one in hosted),
        *_view_of(cluster, broker_id),
    )


def _view_of(cluster: Cluster, broker_id: int) -> tuple[int | None, int | None, int | None]:
    """Returns the controller epoch that the broker knows, and its counts of ISR expansions and shrinks since its start. A value is None if
    the broker does not answer or is not an Ottla broker."""
    try:
        seen = admin.describe_cluster(cluster, broker_id) if broker_id in cluster.metadata.brokers else None
    except OttlaError:
        seen = None
    if seen is None:
        return None, None, None
    numbers = (seen.ottla_controller_epoch, seen.ottla_isr_expansions, seen.ottla_isr_shrinks)
    epoch, expansions, shrinks = (None if number == UNKNOWN else number for number in numbers)
    return epoch, expansions, shrinks


def _moves(cluster: Cluster) -> list[MoveRow] | None:
    """Returns the pending reassignments; None if the request fails, for example for lack of a permission."""
    try:
        moves = replica_admin.moves_under_way(cluster)
    except OttlaError:
        return None
    return [MoveRow(*found, *move) for found, move in sorted(moves.items())]


def _partition_row(topic: str | None, partition: Any) -> TroubledRow:
    leader = partition.leader_id if partition.leader_id >= 0 else None
    replicas, isr = (",".join(map(str, brokers)) for brokers in (partition.replica_nodes, partition.isr_nodes))
    return TroubledRow(topic, partition.partition_index, leader, partition.leader_epoch, replicas, isr)


Partitions = list[tuple[str | None, Any]]
"""Pairs of a topic name and a partition of the Metadata response."""


def _partitions(cluster: Cluster) -> Partitions:
    return [(topic.name, partition) for topic in cluster.refresh(None).topics for partition in topic.partitions]


def _overview(cluster: Cluster, partitions: Partitions) -> dict[str, Any]:
    """Returns the counts of brokers, topics and unhealthy partitions, from one Metadata response."""
    return {
        "cluster_id": cluster.metadata.cluster_id,
        "controller": cluster.metadata.controller_id,
        "broker_count": len(cluster.metadata.brokers),
        "topics": len({topic for topic, _ in partitions}),
        "partitions": len(partitions),
        "under_replicated": sum(len(partition.isr_nodes) < len(partition.replica_nodes) for _, partition in partitions),
        "offline": sum(partition.leader_id < 0 for _, partition in partitions),
    }


@command("cluster health", "Is the cluster healthy? Exit code 1 if not.", may_watch=True)
def _health(args: Args, cluster: Cluster, output: Output) -> int:
    """Prints `healthy` and returns 0, or prints the problems and returns 1."""
    found = _overview(cluster, _partitions(cluster))
    reasons = failed_directories(cluster)
    if found["controller"] < 0:
        reasons.append("no controller")
    if found["offline"]:
        reasons.append(f"{counted(found['offline'], 'partition')} without a leader")
    if found["under_replicated"]:
        reasons.append(f"{counted(found['under_replicated'], 'partition')} with a replica that is not in sync")
    if output.is_structured:
        output.show_object({"healthy": not reasons, "reasons": reasons, **found})
    else:
        write("healthy\n" if not reasons else f"not healthy: {', '.join(reasons)}\n")
    return 1 if reasons else 0


@command("cluster cluster-id", "The cluster's id.")
def _cluster_id(args: Args, cluster: Cluster, output: Output) -> None:
    cluster.refresh([])
    if cluster.metadata.cluster_id is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the cluster has no id")
    if output.is_structured:
        output.show_object({"cluster_id": cluster.metadata.cluster_id})
    else:
        write(f"Cluster ID: {cluster.metadata.cluster_id}\n" if output.form == "table" else f"{cluster.metadata.cluster_id}\n")


@command("cluster api-versions", "API versions that the brokers support.")
def _api_versions(args: Args, cluster: Cluster, output: Output) -> None:
    rows: list[ApiRow] = []
    cluster.refresh([])
    for broker_id, address in sorted(cluster.metadata.brokers.items()):
        offered = cluster.connection(broker_id).api_versions.api_keys
        node = f"{address} (id: {broker_id} rack: {cluster.metadata.racks.get(broker_id) or 'null'} isFenced: false)"
        rows += [_api_row(broker_id, node, api) for api in sorted(offered, key=lambda api: int(api.api_key))]
    output.rows("api_versions", ApiRow, rows)


def _api_row(broker_id: int, node: str, api: Any) -> ApiRow:
    ours = API_VERSION_RANGES.get(api.api_key)
    usable = None if ours is None else min(ours[1], api.max_version)
    if ours is not None and usable is not None and usable < max(ours[0], api.min_version):
        usable = None
    return ApiRow(broker_id, api.api_key, API_NAMES.get(api.api_key, "UNKNOWN"), api.min_version, api.max_version, usable, node)
