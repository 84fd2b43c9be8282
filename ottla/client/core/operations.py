"""The operations of the public clients as conversations, and `Operations`, which makes them methods of `Client` and `AsyncClient`.

Partitions are `TopicPartition(topic, partition)`. An offset is the offset of the next record to read. A timestamp is in milliseconds since
1970. Every operation raises a `KafkaError` if the broker refuses it, and a `TransportError` if no broker can be reached or answers in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.base.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from ottla.base.uuids import uuid_to_text
from ottla.client.core import admin, group_admin, staging, transaction_admin
from ottla.client.core.admin import OffsetAt
from ottla.client.core.backoff import Deadline
from ottla.client.core.cluster import ClusterCore, decisive
from ottla.client.core.conversation import Conversation
from ottla.client.core.fetch_once import fetch_once
from ottla.client.core.fetching import FETCH_BYTES_MAX, MAX_WAIT_MS, PARTITION_BYTES_MAX, Fetched, FetchLimits
from ottla.client.core.group_admin import Committed, GroupDescription, ListedGroup
from ottla.client.core.operation import ClientOperation
from ottla.client.core.raw_produce import produce_batches
from ottla.client.core.transaction_admin import ListedTransaction, TransactionDescription
from ottla.client.errors import ClientError, KafkaError, UsageError
from ottla.wire.messages.metadata import MetadataResponseTopic

K = TypeVar("K")
V = TypeVar("V")

_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class BrokerInfo(NamedTuple):
    """A broker that is alive."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class PartitionInfo(NamedTuple):
    """A partition in the cluster's metadata; `leader` is -1 while it has no leader."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic with its partitions, sorted by number."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def topic_id_text(self) -> str:
        """The topic id as Kafka's tools print it."""
        return uuid_to_text(self.topic_id)


def isolation_level(name: str) -> int:
    """Returns the protocol's number for `read_committed` or `read_uncommitted`. Raises `UsageError` for another name."""
    if name not in _ISOLATION:
        raise UsageError(f"isolation must be {' or '.join(_ISOLATION)}, not {name!r}")
    return _ISOLATION[name]


# The cluster and its topics


def brokers(cluster: ClusterCore) -> Conversation[list[BrokerInfo]]:
    """Returns the brokers that are alive, sorted by id."""
    yield from cluster.refresh([])
    found = cluster.metadata
    return [BrokerInfo(number, *found.brokers[number], found.racks.get(number)) for number in sorted(found.brokers)]


def topics(cluster: ClusterCore) -> Conversation[list[str]]:
    """Returns the sorted names of all topics that the caller may see, internal topics too."""
    return (yield from cluster.topic_names())


def describe_topic(cluster: ClusterCore, topic: str) -> Conversation[TopicInfo]:
    """Asks for a topic and returns it with leaders, leader epochs and replicas. Raises `UnknownTopicError` if there is no such topic."""
    cluster.metadata.topics.pop(topic, None)
    found = yield from cluster.topic(topic)
    return _topic_info(topic, found)


def _topic_info(name: str, found: MetadataResponseTopic) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
        )
        for one in sorted(found.partitions, key=lambda one: one.partition_index)
    )
    return TopicInfo(name, bytes(found.topic_id), found.is_internal, partitions)


def create_topic(
    cluster: ClusterCore, topic: str, *, partitions: int = -1, replication_factor: int = -1, configs: Mapping[str, str] | None = None
) -> Conversation[None]:
    """Creates a topic. -1 means the broker's default."""
    yield from admin.create_topic(cluster, topic, partitions=partitions, replication_factor=replication_factor, configs=configs)


def add_partitions(cluster: ClusterCore, topic: str, total: int) -> Conversation[None]:
    """Increases the number of a topic's partitions to `total`."""
    yield from admin.create_partitions(cluster, topic, total)


def delete_topic(cluster: ClusterCore, topic: str) -> Conversation[None]:
    """Deletes a topic with its records."""
    _all_found((yield from admin.delete_topics(cluster, [topic])))


def topic_configs(cluster: ClusterCore, topic: str) -> Conversation[dict[str, str | None]]:
    """Returns the settings of a topic, defaults included. A secret value is None."""
    found = _all_found((yield from admin.describe_configs(cluster, admin.TOPIC_RESOURCE, [topic])))
    return {one.name: one.value for one in found[topic]}


def alter_topic_configs(
    cluster: ClusterCore, topic: str, changes: Mapping[str, str], *, deletions: Sequence[str] = ()
) -> Conversation[None]:
    """Sets the settings in `changes` and resets the settings in `deletions` to their defaults, all or nothing."""
    yield from admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, changes=changes, deletions=deletions)


# Offsets and records


def list_offsets(
    cluster: ClusterCore, wanted: Mapping[TopicPartition, int], *, isolation: str = "read_committed"
) -> Conversation[dict[TopicPartition, OffsetAt]]:
    """Looks up one offset in each partition: of the first record at or after a timestamp, or of `EARLIEST`, `LATEST` or `MAX_TIMESTAMP`.

    Under read_committed, `LATEST` is the last stable offset: every transaction before this offset has ended. The offset is -1 if there is
    no such record. Raises the first error of a partition.
    """
    return _all_found((yield from admin.list_offsets(cluster, wanted, isolation_level=isolation_level(isolation))))


def delete_records(cluster: ClusterCore, before: Mapping[TopicPartition, int]) -> Conversation[dict[TopicPartition, int]]:
    """Deletes the records before an offset (-1: all up to the high watermark). Returns each partition's new first offset."""
    return _all_found((yield from admin.delete_records(cluster, before)))


def fetch(
    cluster: ClusterCore,
    positions: Mapping[TopicPartition, int],
    *,
    isolation: str = "read_committed",
    max_wait_ms: int = MAX_WAIT_MS,
    min_bytes: int = 1,
    max_bytes: int = FETCH_BYTES_MAX,
    partition_max_bytes: int = PARTITION_BYTES_MAX,
    timeout_s: float | None = None,
) -> Conversation[list[Fetched]]:
    """Reads record batches as they are stored, from these offsets on, with one request to each leader.

    Returns the partitions whose position advances (`next_offset`); an empty list if no records arrived within `max_wait_ms`, or within 90 %
    of `timeout_s` if that is shorter. Errors are raised only if no position advances: `OffsetOutOfRangeError` if an offset is before the
    start of a log or after its end. After a retriable error the leader is looked up again by the next fetch. If only retriable errors
    arrive, the fetch is repeated. The call takes at most `timeout_s`, with all look-ups and connections.
    """
    limits = FetchLimits(max_wait_ms, min_bytes, max_bytes, partition_max_bytes)
    return _fetch(cluster, positions, isolation_level(isolation), limits, cluster.deadline(timeout_s))


def _fetch(
    cluster: ClusterCore, positions: Mapping[TopicPartition, int], level: int, limits: FetchLimits, deadline: Deadline
) -> Conversation[list[Fetched]]:
    found: list[Fetched] = []
    left = list(positions)

    def once() -> Conversation[ClientError | None]:
        wait_ms = min(limits.max_wait_ms, deadline.left_ms())
        some, failures = yield from fetch_once(cluster, positions, level, limits._replace(max_wait_ms=wait_ms))
        found.extend(some)
        failure = decisive(failures.values())
        if found or failure is None:
            left.clear()
        return None if found else failure

    yield from cluster.in_rounds(once, left=lambda: left, size=lambda: 0, deadline=deadline)
    return found


# Groups


def groups(cluster: ClusterCore) -> Conversation[list[ListedGroup]]:
    """Returns the groups of all brokers, sorted by name."""
    return (yield from group_admin.list_groups(cluster))


def describe_group(cluster: ClusterCore, group: str) -> Conversation[GroupDescription]:
    """Returns a group's state and members. The state of an unknown group is `Dead`, as in DescribeGroups before version 6."""
    return (yield from group_admin.describe_group(cluster, group))


def committed(
    cluster: ClusterCore,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = True,
    timeout_s: float | None = None,
) -> Conversation[dict[TopicPartition, Committed]]:
    """Returns the committed offsets of a group, for some partitions or for all. Omits partitions without an offset.

    With `require_stable` it waits for open transactions that commit offsets (KIP-447). If they have not ended after `timeout_s`, it raises
    `KafkaError` UNSTABLE_OFFSET_COMMIT. The call takes at most `timeout_s`.
    """
    asked = group_admin.committed_offsets(cluster, group, partitions, require_stable=require_stable, timeout_s=timeout_s)
    return cluster.in_time(asked, timeout_s)


def commit(cluster: ClusterCore, group: str, offsets: Mapping[TopicPartition, int | Committed]) -> Conversation[None]:
    """Commits offsets of a group without live members. A `Committed` also has the leader epoch and metadata."""
    _all_found((yield from group_admin.commit_offsets(cluster, group, offsets)))


def delete_group(cluster: ClusterCore, group: str) -> Conversation[None]:
    """Deletes a group without members, and its committed offsets."""
    yield from group_admin.delete_group(cluster, group)


# Transactions


def transactions(cluster: ClusterCore) -> Conversation[list[ListedTransaction]]:
    """Returns all transactional ids that the coordinators know, sorted (KIP-664)."""
    return (yield from transaction_admin.list_transactions(cluster))


def describe_transaction(cluster: ClusterCore, transactional_id: str) -> Conversation[TransactionDescription]:
    """Returns the state, producer and partitions of a transactional id (KIP-664)."""
    return (yield from transaction_admin.describe_transaction(cluster, transactional_id))


def fence(cluster: ClusterCore, transactional_id: str) -> Conversation[None]:
    """Takes over a transactional id: aborts its open transaction and fences its producer."""
    yield from transaction_admin.fence_producer(cluster, transactional_id)


def _all_found(results: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """Returns the results if none of them is an error. Raises the first error."""
    found: dict[K, V] = {}
    for key, result in results.items():
        if isinstance(result, KafkaError):
            raise result
        found[key] = result
    return found


class Operations:
    """The operations of the public clients. `Client` and `AsyncClient` inherit them."""

    brokers = ClientOperation(brokers)
    topics = ClientOperation(topics)
    describe_topic = ClientOperation(describe_topic)
    create_topic = ClientOperation(create_topic)
    add_partitions = ClientOperation(add_partitions)
    delete_topic = ClientOperation(delete_topic)
    topic_configs = ClientOperation(topic_configs)
    alter_topic_configs = ClientOperation(alter_topic_configs)
    list_offsets = ClientOperation(list_offsets)
    delete_records = ClientOperation(delete_records)
    fetch = ClientOperation(fetch, has_own_deadline=True)
    produce_batches = ClientOperation(produce_batches, has_own_deadline=True)
    offers_staging = ClientOperation(staging.offers_staging)
    stage = ClientOperation(staging.stage, has_own_deadline=True)
    groups = ClientOperation(groups)
    describe_group = ClientOperation(describe_group)
    committed = ClientOperation(committed, has_own_deadline=True)
    commit = ClientOperation(commit)
    delete_group = ClientOperation(delete_group)
    transactions = ClientOperation(transactions)
    describe_transaction = ClientOperation(describe_transaction)
    fence = ClientOperation(fence)
