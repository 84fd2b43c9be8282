"""Moves replicas between brokers and log directories, throttles these moves, and elects leaders, as conversations (`conversation.py`) on a
`ClusterCore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core import admin
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation, Sleep
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition, topic_list
from ottla.client.errors import TransportError, refused

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_RETRY_S = 0.1


class Replica(NamedTuple):
    """A partition on a broker. Its `str` has the format of Kafka's tools."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


class Move(NamedTuple):
    """The reassignment of one partition. `replicas` include `adding` and `removing`."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


@operation
def replicas_of(cluster: ClusterCore, partitions: Iterable[TopicPartition]) -> Conversation[dict[TopicPartition, list[int]]]:
    """Returns the replicas of partitions. Topics in the metadata cache are not asked for again. Raises KafkaError for an unknown
    partition.
    """
    wanted = list(partitions)
    found: dict[TopicPartition, list[int]] = {}
    for topic in dict.fromkeys(partition.topic for partition in wanted):
        for placed in (yield from cluster.topic(topic)).partitions:
            found[TopicPartition(topic, placed.partition_index)] = list(placed.replica_nodes)
    for partition in wanted:
        if partition not in found:
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {partition.topic!r} has no partition {partition.partition}")
    return {partition: found[partition] for partition in wanted}


@operation
def move_replicas(
    cluster: ClusterCore, plan: Mapping[TopicPartition, list[int] | None], *, may_change_factor: bool = True
) -> Conversation[dict[TopicPartition, ErrorCode]]:
    """Requests new replicas (None: cancels a reassignment). Returns the error code of each partition."""
    from ottla.wire.messages import alter_partition_reassignments as wire

    asked = {one: wire.ReassignablePartition(partition_index=one.partition, replicas=ids) for one, ids in sorted(plan.items())}
    request = wire.AlterPartitionReassignmentsRequest(
        timeout_ms=admin.timeout_ms(cluster),
        topics=topic_list(wire.ReassignableTopic, asked),
        allow_replication_factor_change=may_change_factor,
    )
    answer = yield from admin.checked(admin.ask_controller(cluster, request), "reassignment")
    return {partition: error_code(found.error_code) for partition, found in each_partition(answer.responses)}


@operation
def moves_under_way(cluster: ClusterCore) -> Conversation[dict[TopicPartition, Move]]:
    from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(timeout_ms=admin.timeout_ms(cluster))
    answer = yield from admin.checked(admin.ask_controller(cluster, request), "reassignments")
    return {
        partition: Move(list(found.replicas), list(found.adding_replicas), list(found.removing_replicas))
        for partition, found in each_partition(answer.topics)
    }


PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections (KIP-460). PREFERRED elects the first replica of the partition if it is in sync. UNCLEAN elects any live replica of a
partition without a leader, which may lose records.
"""


class Election(NamedTuple):
    """Why a partition got no new leader. `ELECTION_NOT_NEEDED` is no failure: the partition has the wanted leader already."""

    code: ErrorCode
    message: str


@operation
def elect_leaders(
    cluster: ClusterCore, kind: int, wanted: Iterable[TopicPartition] | None
) -> Conversation[dict[TopicPartition, Election | None]]:
    """Elects leaders of the partitions (None: all). Returns None for each partition with a new leader, else the reason. If `wanted` is
    None, brokers omit the partitions that have the wanted leader. Raises `KafkaError` if the cluster refuses the request.
    """
    from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    topics = None if wanted is None else topic_list(TopicPartitions, {one: one.partition for one in sorted(wanted)})
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=admin.timeout_ms(cluster))
    answer = yield from admin.ask_controller(cluster, request)
    admin.check(answer.error_code, None, "election")
    return {
        partition: Election(error_code(found.error_code), found.error_message or "") if found.error_code else None
        for partition, found in each_partition(answer.replica_election_results)
    }


# Log directories


@operation
def log_dirs_of(cluster: ClusterCore, brokers: Iterable[int], topics: Sequence[str]) -> Conversation[dict[Replica, tuple[str, str]]]:
    """Returns the log directory of each replica, and the destination directory of its move ("" for none)."""
    found: dict[Replica, tuple[str, str]] = {}
    for broker in brokers:
        for directory in (yield from admin.describe_log_dirs(cluster, broker, topics)):
            for partition, held in each_partition(directory.topics):
                key = Replica(partition, broker)
                now, then = found.get(key, ("", ""))
                found[key] = (now, directory.log_dir) if held.is_future_key else (directory.log_dir, then)
    return found


@operation
def move_log_dirs(cluster: ClusterCore, wanted: Mapping[Replica, str], *, timeout_s: float) -> Conversation[dict[Replica, ErrorCode]]:
    """Begins to move replicas to other log directories. Returns the error code of each replica. Repeats the request for `timeout_s` while
    some of the replicas do not exist yet.
    """
    codes: dict[Replica, ErrorCode] = {}
    deadline = cluster.now() + timeout_s
    left = dict(wanted)
    while left:
        for broker in sorted({broker for _, broker in left}):
            some = {key: path for key, path in left.items() if key.broker == broker}
            codes.update((yield from _ask_for_log_dirs(cluster, broker, some)))
        left = {key: path for key, path in left.items() if codes.get(key) is ErrorCode.REPLICA_NOT_AVAILABLE}
        if cluster.now() > deadline:
            break
        if left:
            yield Sleep(_RETRY_S)
    return codes


def _ask_for_log_dirs(cluster: ClusterCore, broker: int, wanted: Mapping[Replica, str]) -> Conversation[dict[Replica, ErrorCode]]:
    from ottla.wire.messages import alter_replica_log_dirs as wire

    dirs = []
    for path in sorted(set(wanted.values())):
        partitions = sorted(partition for (partition, _), where in wanted.items() if where == path)
        topics = topic_list(wire.AlterReplicaLogDirTopic, {one: one.partition for one in partitions})
        dirs.append(wire.AlterReplicaLogDir(path=path, topics=topics))
    answer = yield from cluster.ask_broker(broker, wire.AlterReplicaLogDirsRequest(dirs=dirs))
    return {Replica(partition, broker): error_code(found.error_code) for partition, found in each_partition(answer.results)}


# How fast replicas may move


@operation
def throttle_moves(
    cluster: ClusterCore, plan: Mapping[TopicPartition, Sequence[int]], before: Mapping[TopicPartition, Sequence[int]], rate: int
) -> Conversation[None]:
    """Throttles moves between brokers to `rate` bytes per second: old replicas as leaders, new replicas as followers."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    brokers: set[int] = set()
    for partition, replicas in plan.items():
        sources, targets = topics.setdefault(partition.topic, ([], []))
        new = [broker for broker in replicas if broker not in before[partition]]
        sources += [f"{partition.partition}:{broker}" for broker in before[partition]]
        targets += [f"{partition.partition}:{broker}" for broker in new]
        brokers |= {*before[partition], *new}
    for topic, (sources, targets) in topics.items():
        changes = {LEADER_REPLICAS: ",".join(sources), FOLLOWER_REPLICAS: ",".join(targets)}
        yield from admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, changes=changes)
    yield from _limit(cluster, brokers, {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})


@operation
def throttle_log_dirs(cluster: ClusterCore, brokers: Iterable[int], rate: int) -> Conversation[None]:
    yield from _limit(cluster, brokers, {LOG_DIR_RATE: str(rate)})


def _limit(cluster: ClusterCore, brokers: Iterable[int], changes: Mapping[str, str]) -> Conversation[None]:
    for broker in sorted(brokers):
        yield from admin.alter_configs(cluster, admin.BROKER_RESOURCE, str(broker), changes=changes)


@operation
def throttled_topics(cluster: ClusterCore, topics: Sequence[str]) -> Conversation[list[str]]:
    """Returns the topics with throttled replicas."""
    keys = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    found = yield from admin.describe_configs(cluster, admin.TOPIC_RESOURCE, topics, keys=keys)
    return [topic for topic, configs in found.items() if isinstance(configs, list) and any(config.value for config in configs)]


@operation
def clear_throttles(cluster: ClusterCore, topics: Iterable[str]) -> Conversation[list[int]]:
    """Removes all throttles from all live brokers and from these topics. Returns the brokers that could not be reached."""
    rates = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
    unreached = []
    yield from cluster.refresh([])
    for broker in sorted(cluster.metadata.brokers):
        try:
            yield from admin.alter_configs(cluster, admin.BROKER_RESOURCE, str(broker), deletions=rates)
        except TransportError:
            unreached.append(broker)
    for topic in topics:
        yield from admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, deletions=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
    return unreached
