"""Administration of topics, offsets, records, settings and log directories, as conversations (`conversation.py`) on a `ClusterCore`.

Functions for many items return a result or a `KafkaError` for each item, so one refused item does not hide the others. Functions for one
item raise the error. Groups are in `group_admin.py`, transactions in `transaction_admin.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Ask, Conversation
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition, first_code, topic_list
from ottla.client.errors import RETRIABLE, KafkaError, TransportError, refused
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.core.ports import HasTimeout

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

SET = 0
DELETE = 1


class OffsetAt(NamedTuple):
    """The offset, timestamp and leader epoch of a looked-up record; offset -1 if there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int


def refusal(code: int, message: str | None, about: str) -> KafkaError | None:
    """Returns the exception for an item's error code and message, with `about` in its text; None for code 0."""
    if code == 0:
        return None
    found = error_code(code)
    if not message:
        return refused(found, about if found is not ErrorCode.UNKNOWN_SERVER_ERROR else f"{about} (error {code})")
    return refused(found, message if about in message else f"{about}: {message}")


def check(code: int, message: str | None, about: str) -> None:
    failed = refusal(code, message, about)
    if failed is not None:
        raise failed


def timeout_ms(cluster: HasTimeout) -> int:
    """Returns the timeout in requests, in milliseconds: 90 % of the client's own, so that the broker answers before the client gives up."""
    return max(1, int(cluster.timeout_s * 900))


def checked(asking: Conversation[Any], about: str) -> Conversation[Any]:
    """Returns an answer, or raises its error."""
    answer = yield from asking
    check(answer.error_code, getattr(answer, "error_message", None), about)
    return answer


@operation
def ask_controller(cluster: ClusterCore, request: Request, lost: list[TransportError] | None = None) -> Conversation[Any]:
    """Sends a request to the controller, and sends it again if the controller has moved or the connection broke (`ClusterCore.retrying`).

    `lost` gets the errors of earlier attempts, which may have taken effect.
    """

    def ask() -> Conversation[Any]:
        try:
            answer = yield from cluster.ask_controller(request)
        except TransportError as error:
            if lost is not None:
                lost.append(error)
            raise
        if first_code(answer) == ErrorCode.NOT_CONTROLLER:
            cluster.metadata.controller_id = -1
            raise refused(ErrorCode.NOT_CONTROLLER, "the controller has moved")
        return answer

    return (yield from cluster.retrying(ask, codes=frozenset({ErrorCode.NOT_CONTROLLER})))


# Topics


@operation
def create_topic(
    cluster: ClusterCore,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Conversation[Any]:
    """Creates a topic, or only checks the request with `validate_only`. Returns the broker's result."""
    from ottla.wire.messages import create_topics as wire

    placed = [wire.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids)) for p, ids in (assignments or {}).items()]
    topic = wire.CreatableTopic(
        name=name,
        num_partitions=-1 if placed else partitions,
        replication_factor=-1 if placed else replication_factor,
        assignments=placed,
        configs=[wire.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = wire.CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms(cluster), validate_only=validate_only)
    lost = list[TransportError]()
    answer = yield from ask_controller(cluster, request, lost)
    result = answer.topics[0]
    if lost and not validate_only and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        made = yield from cluster.refresh([name])
        counts = [len(topic.partitions) for topic in made.topics if topic.name == name]
        if counts and partitions in (-1, *counts) and not placed:  # an earlier request without an answer has made it
            result.error_code, result.error_message, result.num_partitions = 0, None, counts[0]
    check(result.error_code, result.error_message, f"topic {name!r}")
    return result


@operation
def delete_topics(cluster: ClusterCore, names: Sequence[str]) -> Conversation[dict[str, KafkaError | None]]:
    """Deletes topics. Returns None or the error for each."""
    from ottla.wire.messages import delete_topics as wire

    request = wire.DeleteTopicsRequest(timeout_ms=timeout_ms(cluster))
    if (yield from cluster.any_link()).version_of(request.API_KEY) >= 6:
        request.topics = [wire.DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = list(names)
    lost = list[TransportError]()
    answer = yield from ask_controller(cluster, request, lost)
    for name in names:
        cluster.metadata.topics.pop(name, None)
    for result in answer.responses:
        if lost and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # an earlier request without an answer did it
            result.error_code = 0
    return {result.name: refusal(result.error_code, result.error_message, f"topic {result.name!r}") for result in answer.responses}


@operation
def describe_topics(cluster: ClusterCore, names: Sequence[str]) -> Conversation[dict[str, Any]]:
    """Returns topics with their partitions and eligible leader replicas (KIP-966), and asks for them page by page. Omits unknown topics.
    Raises `KafkaError` for another error of a topic, and `UnsupportedVersionError` if the broker does not offer DescribeTopicPartitions.
    """
    from ottla.wire.messages import describe_topic_partitions as wire

    link = yield from cluster.any_link()
    link.version_of(wire.DescribeTopicPartitionsRequest.API_KEY)
    found: dict[str, Any] = {}
    wanted, cursor = sorted(names), None
    while wanted:
        answer = yield Ask(
            link, wire.DescribeTopicPartitionsRequest(topics=[wire.TopicRequest(name=name) for name in wanted], cursor=cursor)
        )
        for topic in answer.topics:
            if topic.name in found:
                found[topic.name].partitions += topic.partitions
            elif topic.error_code == ErrorCode.NONE:
                found[topic.name] = topic
            elif topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(topic.error_code, None, f"topic {topic.name!r}")
        previous, cursor = cursor, answer.next_cursor
        if cursor is None:
            break
        if previous is not None and _place(cursor) <= _place(previous):
            raise refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker at {link.address} repeats a page of topics")
        wanted = [name for name in wanted if name >= cursor.topic_name]
    return found


def _place(cursor: Any) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


@operation
def create_partitions(
    cluster: ClusterCore, name: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
) -> Conversation[None]:
    """Increases the partition count of a topic to `total`, or only checks the request with `validate_only`."""
    from ottla.wire.messages import create_partitions as wire

    placed = None if assignments is None else [wire.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]
    topic = wire.CreatePartitionsTopic(name=name, count=total, assignments=placed)
    request = wire.CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms(cluster), validate_only=validate_only)
    lost = list[TransportError]()
    answer = yield from ask_controller(cluster, request, lost)
    result = answer.results[0]
    cluster.metadata.topics.pop(name, None)
    is_repeated = lost and not validate_only and result.error_code == ErrorCode.INVALID_PARTITIONS
    if is_repeated and len((yield from cluster.partitions(name))) == total:
        return  # an earlier request without an answer has added the partitions
    check(result.error_code, result.error_message, f"topic {name!r}")


# Offsets and records


@operation
def list_offsets(
    cluster: ClusterCore, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
) -> Conversation[dict[TopicPartition, OffsetAt | KafkaError]]:
    """Returns the offset of a timestamp, `EARLIEST`, `LATEST` and so on, or the error, for each partition. Looks up moved leaders for at
    most 5 s. Raises the error if a leader cannot be reached.
    """
    results: dict[TopicPartition, OffsetAt | KafkaError] = {}
    waiting = dict(wanted)

    def ask() -> Conversation[None]:
        moved: KafkaError | None = None
        leaders: dict[int, list[TopicPartition]] = {}
        for partition in list(waiting):
            try:
                leader = cluster.metadata.leader_of(partition)
                leaders.setdefault(leader if leader >= 0 else (yield from cluster.leader(partition)), []).append(partition)
            except KafkaError as error:
                results[partition] = error
                if error.code not in RETRIABLE or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    del waiting[partition]
                else:
                    moved = error
        for broker_id, partitions in leaders.items():
            some = {partition: waiting[partition] for partition in partitions}
            for partition, found in (yield from _list_offsets_of(cluster, broker_id, some, isolation_level)):
                results[partition] = found
                if isinstance(found, KafkaError) and found.code in RETRIABLE:
                    cluster.metadata.forget([partition])
                    moved = found
                else:
                    del waiting[partition]
        if moved is not None:
            raise moved

    try:
        yield from cluster.retrying(ask, timeout_s=min(5.0, cluster.timeout_s))
    except KafkaError as error:
        if any(partition not in results for partition in waiting):
            raise error
    return results


def _list_offsets_of(
    cluster: ClusterCore, broker_id: int, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> Conversation[list[tuple[TopicPartition, OffsetAt | KafkaError]]]:
    from ottla.wire.messages import list_offsets as wire

    asked = {one: wire.ListOffsetsPartition(partition_index=one.partition, timestamp=at) for one, at in sorted(wanted.items())}
    topics = topic_list(wire.ListOffsetsTopic, asked)
    request = wire.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms(cluster))
    answer = yield from cluster.ask_broker(broker_id, request)
    found: list[tuple[TopicPartition, OffsetAt | KafkaError]] = []
    for partition, result in each_partition(answer.topics):
        failed = refusal(result.error_code, None, f"offsets of {partition}") if result.error_code else None
        found.append((partition, failed or OffsetAt(result.offset, result.timestamp, result.leader_epoch)))
    return found


@operation
def delete_records(cluster: ClusterCore, before: Mapping[TopicPartition, int]) -> Conversation[dict[TopicPartition, int | KafkaError]]:
    """Deletes the records before an offset (-1: the high watermark). Returns the new low watermark or the error of each partition."""
    from ottla.wire.messages import delete_records as wire

    results: dict[TopicPartition, int | KafkaError] = {}
    leaders: dict[int, list[TopicPartition]] = {}
    for partition in before:
        try:
            leaders.setdefault((yield from cluster.leader(partition)), []).append(partition)
        except KafkaError as error:
            results[partition] = error
    for broker_id, partitions in leaders.items():
        asked = {one: wire.DeleteRecordsPartition(partition_index=one.partition, offset=before[one]) for one in sorted(partitions)}
        topics = topic_list(wire.DeleteRecordsTopic, asked)
        answer = yield from cluster.ask_broker(broker_id, wire.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms(cluster)))
        for partition, result in each_partition(answer.topics):
            results[partition] = refusal(result.error_code, None, f"records of {partition}") or result.low_watermark
    return results


# Settings


@operation
def describe_configs(
    cluster: ClusterCore,
    resource_type: int,
    names: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> Conversation[dict[str, list[Any] | KafkaError]]:
    """Returns the settings of each resource (`name`, `value`, `config_source`, `is_sensitive`, `read_only`, `synonyms`), or the error."""
    from ottla.wire.messages import describe_configs as wire

    results: dict[str, list[Any] | KafkaError] = {}
    for broker_id, some in _by_broker(resource_type, names).items():
        resources = [
            wire.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None if keys is None else list(keys)
            )
            for name in some
        ]
        request = wire.DescribeConfigsRequest(resources=resources, include_synonyms=synonyms, include_documentation=documentation)
        answer = (yield from cluster.ask_any(request)) if broker_id < 0 else (yield from cluster.ask_broker(broker_id, request))
        for result in answer.results:
            failed = refusal(result.error_code, result.error_message, f"settings of {result.resource_name!r}")
            results[result.resource_name] = failed or result.configs
    return results


def _by_broker(resource_type: int, names: Sequence[str]) -> dict[int, list[str]]:
    """Groups resources by the broker to ask. Only a broker itself knows its settings; any broker (-1) knows the others."""
    found: dict[int, list[str]] = {}
    for name in names:
        is_broker = resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE) and name
        found.setdefault(int(name) if is_broker else -1, []).append(name)
    return found


@operation
def alter_configs(
    cluster: ClusterCore,
    resource_type: int,
    name: str,
    *,
    changes: Mapping[str, str] | None = None,
    deletions: Sequence[str] = (),
    validate_only: bool = False,
) -> Conversation[None]:
    """Sets `changes` of one resource and resets `deletions` to their defaults, all or nothing."""
    from ottla.wire.messages import incremental_alter_configs as wire

    configs = [wire.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in (changes or {}).items()]
    configs += [wire.AlterableConfig(name=key, config_operation=DELETE, value=None) for key in deletions]
    resource = wire.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    request = wire.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    is_one_broker = resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE) and name
    answer = (yield from cluster.ask_broker(int(name), request)) if is_one_broker else (yield from cluster.ask_controller(request))
    for result in answer.responses:
        check(result.error_code, result.error_message, f"settings of {name!r}" if name else "default settings")


@operation
def list_config_resources(cluster: ClusterCore, resource_types: Sequence[int]) -> Conversation[list[tuple[int, str]]]:
    """Returns the resources with settings, as sorted (type, name) pairs."""
    from ottla.wire.messages import list_config_resources as wire

    asking = cluster.ask_any(wire.ListConfigResourcesRequest(resource_types=list(resource_types)))
    answer = yield from checked(asking, "the list of resources with settings")
    return sorted((found.resource_type, found.resource_name) for found in answer.config_resources)


# Brokers


@operation
def describe_log_dirs(cluster: ClusterCore, broker_id: int, topics: Sequence[str] | None = None) -> Conversation[list[Any]]:
    """Returns a broker's log directories with their partitions (`log_dir`, `error_code`, `topics`, `total_bytes`, `usable_bytes`,
    `is_cordoned`)."""
    from ottla.wire.messages import describe_log_dirs as wire

    wanted = None
    if topics is not None:
        wanted = []
        for topic in topics:
            wanted.append(wire.DescribableLogDirTopic(topic=topic, partitions=(yield from cluster.partitions(topic))))
    asking = cluster.ask_broker(broker_id, wire.DescribeLogDirsRequest(topics=wanted))
    answer = yield from checked(asking, f"log directories of broker {broker_id}")
    return list(answer.results)


@operation
def describe_cluster(cluster: ClusterCore, broker_id: int | None = None) -> Conversation[Any]:
    """Returns a broker's view of the cluster; with extensions it has the message's `ottla_*` fields."""
    from ottla.wire.messages.describe_cluster import DescribeClusterRequest

    connection = yield from (cluster.any_link() if broker_id is None else cluster.link(broker_id))
    request = DescribeClusterRequest(include_fenced_brokers=connection.offers(DescribeClusterRequest.API_KEY, 2))
    asking = cluster.ask_any(request) if broker_id is None else cluster.ask_broker(broker_id, request)
    return (yield from checked(asking, "the cluster"))


@operation
def unregister_broker(cluster: ClusterCore, broker_id: int) -> Conversation[None]:
    """Removes the registration of a broker that will not return."""
    from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

    yield from checked(cluster.ask_any(UnregisterBrokerRequest(broker_id=broker_id)), f"broker {broker_id}")
