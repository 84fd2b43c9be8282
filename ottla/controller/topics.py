"""Decides creations and deletions of topics, and new partitions: checks the requests and writes the nodes.

A topic is created in one multi with its assignment, its configuration and every partition's first state. So after a crash it exists whole
or not at all. Only a topic that is too large for one multi is written in several; after a crash the next controller completes this topic.

A deletion has two steps, because replicas are removed before the name is free. First a node under `/admin/delete_topics` makes the topic
invisible. The topic's own nodes are removed when the brokers have answered StopReplica; brokers that do not answer are not waited for
longer than `announcements.SILENT_MS`. After a failure between the two steps, the next controller finds the mark and continues (I41).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import (
    CONFIG_BROKER,
    CONFIG_TOPIC,
    NO_LEADER,
    BrokerMetadata,
    Change,
    ConfigPut,
    PartitionMetadata,
    PartitionPut,
    TopicDeleted,
    TopicMetadata,
    TopicPut,
    TopicRemoved,
)
from ottla.base.config import BROKER_SETTINGS, BrokerConfig
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Create, Delete, Operation, Random, Set, operation_bytes
from ottla.base.settings.cordons import ALL, CORDONED, cordoned
from ottla.base.settings.topics import LEADER_EPOCH_MIN, MIRROR_SOURCE, TOPIC_SETTINGS
from ottla.base.types import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from ottla.base.uuids import fresh_uuid
from ottla.controller.api import NewPartitions, NewTopic, TopicResult
from ottla.controller.placement import place
from ottla.controller.plans import UNIT_BYTES_MAX, Plan, Unit, check_size, in_units, planned
from ottla.controller.reassignment import check_target
from ottla.controller.settings_memory import SettingsRoom
from ottla.controller.state import ClusterState
from ottla.controller.topic_names import check_topic_name, metric_name
from ottla.metadata_store import znodes

NODES_PER_PARTITION = 2
PARTITION_BYTES = 10 << 10
"""Memory of a partition in a broker with a replica of it, in bytes: log, indexes, replica state and metadata. Measured: 9.6 kB for a topic
with one partition, 6.1 kB for each partition of a large topic."""


class _Batch:
    """The topics and partitions that one request creates, so that a later item is checked against earlier ones."""

    def __init__(self, partition_count: int = 0, room: SettingsRoom | None = None) -> None:
        """`room` limits the memory of the topics' settings. It is None if the request creates no topics."""
        self.units: list[Unit] = []
        self.results: list[TopicResult] = []
        self.names: dict[str, None] = {}
        self.names_by_metric: dict[str, str] = {}
        self.partition_count = partition_count  # new partitions of the request, including earlier groups
        self.partitions_before = partition_count
        self.room = room

    def add_name(self, name: str) -> None:
        self.names[name] = None
        self.names_by_metric.setdefault(metric_name(name), name)

    def refuse(self, name: str, refusal: ApiError) -> None:
        self.results.append(TopicResult(name=name, error=refusal.code, message=refusal.message))


def in_groups(requests: Sequence[NewTopic], config: BrokerConfig, partitions_max: int) -> list[Sequence[NewTopic]]:
    """Splits the requests, in their order, into groups of at most `partitions_max` partitions. A larger topic is a group of its own."""
    groups: list[Sequence[NewTopic]] = []
    first, count = 0, 0
    for index, request in enumerate(requests):
        own = len(request.assignments) if request.assignments is not None else request.num_partitions
        own = config.num_partitions if own < 0 else own
        if count and count + own > partitions_max:
            groups.append(requests[first:index])
            first, count = index, 0
        count += own
    return [*groups, requests[first:]]


def decide_create_topics(
    state: ClusterState, config: BrokerConfig, random: Random, requests: Sequence[NewTopic], *, validate_only: bool,
    partitions_before: int = 0, names_before: Iterable[str] = (),
) -> Plan:  # fmt: skip
    """Decides creations. A large request is decided in several groups of topics (`in_groups`). `partitions_before` is the number of
    partitions in the earlier groups of the request. `names_before` has the valid names in the earlier groups if `validate_only` is set,
    because their topics are then not in `state`."""
    batch = _Batch(partitions_before, SettingsRoom(state, config))
    for name in names_before:
        batch.add_name(name)
    for request in requests:
        try:
            _create(state, config, random, request, batch)
        except ApiError as refusal:
            batch.refuse(request.name, refusal)
    if validate_only:
        return Plan(answer=batch.results)
    return planned(state, batch.units, answer=batch.results)


def _create(state: ClusterState, config: BrokerConfig, random: Random, request: NewTopic, batch: _Batch) -> None:
    _check_name(state, request.name, batch)
    assignment = _assignment(state, config, random, request)
    _check_room(state, config, request.name, len(assignment), batch)
    config.check_topic(request.configs)
    configs = {name: text for name, text in request.configs.items() if text is not None}
    check_mirror_settings(request.name, configs)
    partitions = tuple(new_partition(state, index, replicas, configs) for index, replicas in enumerate(assignment))
    topic = TopicMetadata(name=request.name, topic_id=fresh_uuid(random.token_bytes(16)), partitions=partitions, configs=configs)
    config_data, topic_data = znodes.config_bytes(configs), znodes.topic_bytes(topic)
    check_size(config_data + topic_data, f"Topic '{topic.name}'")
    if batch.room is not None and topic.name not in INTERNAL_TOPICS:
        batch.room.take((CONFIG_TOPIC, topic.name), configs)
    of_topic: list[Operation] = [
        Create(znodes.config_path(CONFIG_TOPIC, topic.name), config_data),
        Create(znodes.topic_path(topic.name), topic_data),
        Create(znodes.partitions_path(topic.name)),
    ]
    changes: list[Change] = [TopicPut(topic), ConfigPut(CONFIG_TOPIC, topic.name, configs)]
    batch.units += _topic_units(of_topic, _partition_nodes(topic.name, partitions), changes)
    batch.add_name(topic.name)
    batch.partition_count += len(partitions)
    batch.results.append(
        TopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=configs,
        )
    )


def check_mirror_settings(topic: str, configs: Mapping[str, str]) -> None:
    """Raises `ApiError` INVALID_CONFIG if the settings make an internal topic a mirror (a copy of a topic of another cluster). Only `ottla
    mirror` may write to a mirror, so the topic's coordinator could not."""
    if topic in INTERNAL_TOPICS and configs.get(MIRROR_SOURCE):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"The internal topic '{topic}' cannot be a mirror.")


def least_epoch(configs: Mapping[str, str]) -> int:
    """Returns the smallest leader epoch that the settings of a topic allow (`ottla.leader.epoch.min`, which `ottla mirror` sets)."""
    return TOPIC_SETTINGS[LEADER_EPOCH_MIN].parse(configs.get(LEADER_EPOCH_MIN, "0"))  # type: ignore[no-any-return]


def new_partition(state: ClusterState, index: int, replicas: Sequence[int], configs: Mapping[str, str]) -> PartitionMetadata:
    """Returns a partition's first state; `configs` are its topic's settings. The logs of all replicas are empty, so each replica is in sync
    if its broker is live and not about to stop. The first of these replicas leads. If there is none, all replicas are in sync and none
    leads."""
    live = tuple(replica for replica in replicas if replica in state.brokers and replica not in state.leaving)
    return PartitionMetadata(
        index=index,
        leader=live[0] if live else NO_LEADER,
        leader_epoch=least_epoch(configs),
        replicas=tuple(replicas),
        isr=live or tuple(replicas),
        partition_epoch=0,
        controller_epoch=state.controller_epoch,
    )


def _topic_units(of_topic: Sequence[Operation], of_partitions: Sequence[Operation], changes: Sequence[Change]) -> list[Unit]:
    """Returns the writes of a new topic in units. Each unit is one multi, so its size is limited. If everything fits into one multi, there
    is one unit. Otherwise the first unit has the topic, and the other units have its partitions; the last unit makes the topic visible.
    After a failure in between, the next controller creates the missing states (`decide_missing_states`)."""
    if sum(map(operation_bytes, [*of_topic, *of_partitions])) <= UNIT_BYTES_MAX:
        return [Unit([*of_topic, *of_partitions], changes)]
    units = [Unit(of_topic), *in_units(of_partitions, pieces_of=NODES_PER_PARTITION)]
    return [*units[:-1], Unit(units[-1].operations, changes)]


def decide_missing_states(state: ClusterState) -> Plan:
    """Creates the first states of partitions with an assignment and no state, because their creation was interrupted."""
    units: list[Unit] = []
    for name, missing in state.missing_nodes.items():
        topic = state.topic(name)
        if topic is None:
            continue
        if missing.is_folder_missing:
            units.append(Unit([Create(znodes.partitions_path(name))]))
        for index, is_node_missing in missing.partitions.items():
            first = new_partition(state, index, topic.partitions[index].replicas, state.configs(CONFIG_TOPIC, name))
            operations: list[Operation] = [Create(znodes.partition_path(name, index))] if is_node_missing else []
            operations.append(Create(znodes.state_path(name, index), znodes.partition_bytes(first)))
            units.append(Unit(operations, [PartitionPut(name, first)]))
    return planned(state, units)


def _partition_nodes(topic: str, partitions: Sequence[PartitionMetadata]) -> list[Operation]:
    """Returns the nodes of new partitions. Equal states are encoded once, because encoding takes most of the time."""
    operations: list[Operation] = []
    states: dict[tuple[int, int, int, tuple[int, ...]], bytes] = {}
    for partition in partitions:
        state = (partition.leader, partition.leader_epoch, partition.controller_epoch, partition.isr)
        data = states.get(state)
        if data is None:  # These four fields determine the state of a new partition.
            data = states[state] = znodes.partition_bytes(partition)
        operations.append(Create(znodes.partition_path(topic, partition.index)))
        operations.append(Create(znodes.state_path(topic, partition.index), data))
    return operations


def _check_name(state: ClusterState, name: str, batch: _Batch) -> None:
    check_topic_name(name)
    if name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if state.topic(name) is not None or name in batch.names:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name in state.deleting:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if name in state.damaged_topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' exists, but its node in the metadata store is damaged.")
    if "." in name or "_" in name:
        alike = metric_name(name)
        other = state.name_like(alike) or batch.names_by_metric.get(alike)
        if other is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def partitions_of_memory(config: BrokerConfig) -> int:
    """Returns the number of partitions that fit into `ottla.memory.max.bytes`."""
    return config.ottla_memory_max_bytes // PARTITION_BYTES


def _check_room(state: ClusterState, config: BrokerConfig, name: str, count: int, batch: _Batch) -> None:
    if batch.partition_count + count > config.ottla_create_topics_partitions_max:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: at most {config.ottla_create_topics_partitions_max} "
            "(ottla.create.topics.partitions.max).",
        )
    if name in INTERNAL_TOPICS:
        return  # Topics of clients must not prevent the coordinators' topics.
    total = state.partition_count + batch.partition_count - batch.partitions_before + count
    if total > config.ottla_topics_partitions_max:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"There would be more than {config.ottla_topics_partitions_max} partitions (ottla.topics.partitions.max).",
        )
    if total > partitions_of_memory(config):
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"There would be more than {partitions_of_memory(config)} partitions, {PARTITION_BYTES} bytes each (ottla.memory.max.bytes).",
        )


def _assignment(state: ClusterState, config: BrokerConfig, random: Random, request: NewTopic) -> list[tuple[int, ...]]:
    if request.assignments is not None:
        return _given_assignment(state, request, request.assignments)
    replicas = config.default_replication_factor if request.replication_factor == -1 else request.replication_factor
    if replicas <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default value.")
    count = config.num_partitions if request.num_partitions == -1 else request.num_partitions
    if count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if count > config.ottla_create_topics_partitions_max:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"More partitions ({count}) than ottla.create.topics.partitions.max allows.")
    try:
        return place(_racks_of_open(state), count, replicas, random)
    except ApiError as refusal:
        raise ApiError(refusal.code, f"Unable to replicate the partition {replicas} time(s): {refusal.message}") from None


def _given_assignment(state: ClusterState, request: NewTopic, given: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
    for what, value in (("replication factor", request.replication_factor), ("numPartitions", request.num_partitions)):
        if value != -1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"A manual partition assignment was specified, but {what} was not set to -1.")
    if sorted(given) != list(range(len(given))) or not given:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
    assignment = [tuple(given[index]) for index in range(len(given))]
    for replicas in assignment:
        _check_replicas(state, replicas, len(assignment[0]))
    return assignment


def _check_replicas(state: ClusterState, replicas: Sequence[int], count: int) -> None:
    """Raises `ApiError` if these are not `count` different registered brokers."""
    check_target(replicas, state.brokers)
    if len(replicas) != count:
        message = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {count} replica(s)."
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _racks_of_open(state: ClusterState) -> dict[int, str | None]:
    """Returns the racks of the brokers that have a log directory for new replicas (KIP-1066)."""
    return {broker_id: broker.rack for broker_id, broker in sorted(state.brokers.items()) if not _is_cordoned(state, broker)}


def _is_cordoned(state: ClusterState, broker: BrokerMetadata) -> bool:
    """Whether all log directories of the broker are cordoned: by its dynamic settings, otherwise by its configuration file."""
    text = state.configs(CONFIG_BROKER, str(broker.broker_id)).get(CORDONED)
    if text is None:
        return bool(broker.cordons) and all(broker.cordons.values())
    entries = BROKER_SETTINGS[CORDONED].parse(text)
    return ALL in entries or (bool(broker.cordons) and cordoned(entries, broker.cordons) == broker.cordons.keys())


def decide_create_partitions(
    state: ClusterState, config: BrokerConfig, random: Random, requests: Sequence[NewPartitions], *, validate_only: bool
) -> Plan:
    batch = _Batch()
    for request in requests:
        try:
            _add_partitions(state, config, random, request, batch)
        except ApiError as refusal:
            batch.refuse(request.name, refusal)
    if validate_only:
        return Plan(answer=batch.results)
    return planned(state, batch.units, answer=batch.results)


def _add_partitions(state: ClusterState, config: BrokerConfig, random: Random, request: NewPartitions, batch: _Batch) -> None:
    topic = state.topic(request.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    known = len(topic.partitions)
    if request.count == known:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {known} partition(s).")
    if request.count < known:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {known} partition(s); {request.count} would not be an increase.",
        )
    count = request.count - known
    _check_room(state, config, request.name, count, batch)
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is not None:
        if len(request.assignments) != count:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {count} additional partition(s), but only {len(request.assignments)} assignment(s) were specified.",
            )
        assignment = [tuple(replicas) for replicas in request.assignments]
        for replicas in assignment:
            _check_replicas(state, replicas, replication_factor)
    else:
        assignment = place(_racks_of_open(state), count, replication_factor, random, first_partition=known)
    added = tuple(
        new_partition(state, known + offset, replicas, state.configs(CONFIG_TOPIC, topic.name))
        for offset, replicas in enumerate(assignment)
    )
    grown = replace(topic, partitions=topic.partitions + added, version=topic.version + 1)
    data = znodes.topic_bytes(grown)
    check_size(data, f"Topic '{topic.name}'")
    write = Set(znodes.topic_path(topic.name), data, topic.version)
    batch.units += _topic_units([write], _partition_nodes(topic.name, added), [TopicPut(grown)])
    batch.partition_count += count
    batch.results.append(TopicResult(name=topic.name, topic_id=topic.topic_id, num_partitions=len(grown.partitions)))


def decide_delete_topics(state: ClusterState, config: BrokerConfig, names: Sequence[str]) -> Plan:
    """Decides the first step of deletions: writes marks, which make the topics invisible."""
    batch = _Batch()
    for name in names:
        topic = state.topic(name)
        if topic is None:
            batch.refuse(name, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."))
        elif not config.delete_topic_enable:
            batch.refuse(name, ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled (delete.topic.enable)."))
        elif name not in batch.names:
            batch.names[name] = None
            batch.units.append(Unit([Create(znodes.delete_topic_path(name))], [TopicRemoved(name)]))
            batch.results.append(TopicResult(name=name, topic_id=topic.topic_id))
    return planned(state, batch.units, answer=batch.results)


def decide_finish_deletion(state: ClusterState, names: Sequence[str]) -> Plan:
    """Decides the second step of deletions: removes the nodes, children first, so that the names are free."""
    units: list[Unit] = []
    for name in names:
        topic = state.deleting.get(name)
        if topic is None:
            continue
        of_partitions: list[Operation] = []
        for partition in topic.partitions:
            if partition.partition_epoch >= 0:
                of_partitions.append(Delete(znodes.state_path(name, partition.index)))
                of_partitions.append(Delete(znodes.partition_path(name, partition.index)))
        of_topic: list[Operation] = [Delete(znodes.partitions_path(name)), Delete(znodes.topic_path(name))]
        if (CONFIG_TOPIC, name) in state.config_nodes:
            of_topic.append(Delete(znodes.config_path(CONFIG_TOPIC, name)))
        of_topic.append(Delete(znodes.delete_topic_path(name)))
        units += [*in_units(of_partitions, pieces_of=NODES_PER_PARTITION), Unit(of_topic, [TopicDeleted(name)])]
    return planned(state, units)
