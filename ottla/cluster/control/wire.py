"""Encodes the controller's messages as requests of keys 4, 5 and 6 in their newest versions, and decodes them.

Tagged fields of our own (20000 and above) contain values that Kafka's requests lack. A message about thousands of partitions is split into
parts, which limits the size of frames and the time of one iteration of the event loop on both sides. All parts of a message have its
`sequence`, and `MessageParts` joins them. Requests are validated: topics have valid names, partitions are numbered from 0, and ids are not
negative. Otherwise `ApiError` INVALID_REQUEST is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from ottla.base.cluster_metadata import NO_LEADER, BrokerMetadata, PartitionMetadata, TopicMetadata
from ottla.base.control_messages import ControlMessage, LeaderAndIsr, ReplicaRole, StoppedReplica, StopReplica, UpdateMetadata
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import INTERNAL_TOPICS
from ottla.base.uuids import ZERO_UUID
from ottla.controller.topic_names import why_invalid
from ottla.wire.messages import leader_and_isr, stop_replica, update_metadata
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

PART_BYTES_MAX = 256 * 1024
"""Estimated maximum size of a part, in bytes: about 2,000 partitions, which take some milliseconds on each side."""
PARTITION_BYTES = 40
TOPIC_BYTES = 64
PORT_MAX = 0xFFFF
INCREMENTAL, COMPLETE = 1, 2
"""The types of LeaderAndIsr: some replicas of a broker, or all of them."""

ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
T = TypeVar("T")


# To the wire


def control_requests(message: ControlMessage, sequence: int, part_bytes_max: int = PART_BYTES_MAX) -> Iterator[ControlRequest]:
    """Yields the parts of a message; each is encoded when it is requested."""
    if isinstance(message, LeaderAndIsr):
        kind = COMPLETE if message.is_complete else INCREMENTAL
        parts: Iterator[ControlRequest] = (_leader_and_isr(roles, kind) for roles in _cut(message.states, _role_bytes, part_bytes_max))
    elif isinstance(message, StopReplica):
        parts = map(_stop_replica, _cut(message.stopped, lambda one: PARTITION_BYTES + len(one.topic), part_bytes_max))
    else:
        assert isinstance(message, UpdateMetadata), f"{type(message).__name__} does not travel"
        parts = _update_metadata(message, part_bytes_max)
    number, part = 0, next(parts)
    while True:
        following = next(parts, None)
        part.controller_id, part.controller_epoch, part.broker_epoch = message.controller_id, message.controller_epoch, message.broker_epoch
        part.sequence, part.part, part.has_more_parts = sequence, number, following is not None
        yield part
        if following is None:
            return
        number, part = number + 1, following


def _cut(items: Iterable[T], size_of: Callable[[T], int], bytes_max: int) -> Iterator[list[T]]:
    """Yields lists of items of up to about `bytes_max`. Yields one empty list if there are no items; a larger item is a list of its own."""
    found: list[T] = []
    size = 0
    for item in items:
        size += size_of(item)
        if found and size > bytes_max:
            yield found
            found, size = [], size_of(item)
        found.append(item)
    yield found


def _state_bytes(state: PartitionMetadata) -> int:
    lists = len(state.replicas) + len(state.isr) + len(state.offline_replicas) + len(state.adding_replicas) + len(state.removing_replicas)
    return PARTITION_BYTES + 4 * (lists + len(state.eligible))


def _settings_bytes(configs: Mapping[str, str]) -> int:
    return sum(len(name) + 3 * len(value) + 8 for name, value in configs.items())


def _role_bytes(role: ReplicaRole) -> int:
    return _state_bytes(role.partition) + len(role.topic) + _settings_bytes(role.configs)


def _leader_and_isr(roles: Sequence[ReplicaRole], kind: int) -> LeaderAndIsrRequest:
    topics = []
    for (name, topic_id, configs), of_topic in groupby(roles, lambda role: (role.topic, role.topic_id, role.configs)):
        settings = [leader_and_isr.LeaderAndIsrConfig(name=key, value=value) for key, value in configs.items()]
        states = [_role_state(role) for role in of_topic]
        topics.append(leader_and_isr.LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=states, configs=settings))
    return LeaderAndIsrRequest(topic_states=topics, type=kind)


def _role_state(role: ReplicaRole) -> leader_and_isr.LeaderAndIsrPartitionState:
    state = role.partition
    return leader_and_isr.LeaderAndIsrPartitionState(
        partition_index=state.index, controller_epoch=state.controller_epoch, leader=state.leader, leader_epoch=state.leader_epoch,
        isr=list(state.isr), partition_epoch=state.partition_epoch, replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas), removing_replicas=list(state.removing_replicas), is_new=role.is_new,
        offline_replicas=list(state.offline_replicas), eligible_replicas=list(state.eligible), last_leader=state.last_leader,
        loss_epoch=state.loss_epoch,
    )  # fmt: skip


def _stop_replica(stopped: Sequence[StoppedReplica]) -> StopReplicaRequest:
    topics = []
    for (name, topic_id), of_topic in groupby(stopped, lambda one: (one.topic, one.topic_id)):
        states = [
            stop_replica.StopReplicaPartitionState(
                partition_index=one.partition, leader_epoch=one.leader_epoch, delete_partition=one.is_deleted
            )
            for one in of_topic
        ]
        topics.append(stop_replica.StopReplicaTopicState(topic_name=name, topic_id=topic_id, partition_states=states))
    return StopReplicaRequest(topic_states=topics)


def _update_metadata(message: UpdateMetadata, part_bytes_max: int) -> Iterator[UpdateMetadataRequest]:
    """Yields the parts of an UpdateMetadata. The first part has the brokers. Partitions of one topic may be in several parts."""
    rows = ((topic, partition) for topic in message.topics for partition in topic.partitions or (None,))
    brokers = [_live_broker(broker) for broker in message.brokers]
    removals = _cut(message.removed, lambda one: TOPIC_BYTES + len(one[0]), part_bytes_max)
    for of_part in _cut(rows, _row_bytes, part_bytes_max):
        gone = next(removals, [])
        yield _metadata_part(message, of_part, gone, brokers)
        brokers = []
    for gone in removals:
        yield _metadata_part(message, [], gone, brokers)


def _row_bytes(row: tuple[TopicMetadata, PartitionMetadata | None]) -> int:
    topic, partition = row
    if partition is not None and partition.index > 0:
        return _state_bytes(partition)
    head = TOPIC_BYTES + len(topic.name) + _settings_bytes(topic.configs)
    return head + (_state_bytes(partition) if partition is not None else 0)


def _metadata_part(
    message: UpdateMetadata,
    rows: Sequence[tuple[TopicMetadata, PartitionMetadata | None]],
    removed: Sequence[tuple[str, bytes]],
    brokers: list[update_metadata.UpdateMetadataBroker],
) -> UpdateMetadataRequest:
    topics = []
    for _, of_topic in groupby(rows, lambda row: row[0].topic_id):
        topic_rows = list(of_topic)
        topic = topic_rows[0][0]
        settings = [update_metadata.UpdateMetadataConfig(name=key, value=value) for key, value in topic.configs.items()]
        states = [_metadata_state(partition) for _, partition in topic_rows if partition is not None]
        topics.append(
            update_metadata.UpdateMetadataTopicState(
                topic_name=topic.name, topic_id=topic.topic_id, partition_states=states, configs=settings, version=topic.version
            )
        )
    gone = [update_metadata.UpdateMetadataRemovedTopic(name=name, topic_id=topic_id) for name, topic_id in removed]
    return UpdateMetadataRequest(topic_states=topics, live_brokers=brokers, removed=gone, is_complete=message.is_complete)


def _metadata_state(state: PartitionMetadata) -> update_metadata.UpdateMetadataPartitionState:
    return update_metadata.UpdateMetadataPartitionState(
        partition_index=state.index, controller_epoch=state.controller_epoch, leader=state.leader, leader_epoch=state.leader_epoch,
        isr=list(state.isr), zk_version=state.partition_epoch, replicas=list(state.replicas),
        offline_replicas=list(state.offline_replicas), adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas), eligible_replicas=list(state.eligible), last_leader=state.last_leader,
        loss_epoch=state.loss_epoch,
    )  # fmt: skip


def _live_broker(broker: BrokerMetadata) -> update_metadata.UpdateMetadataBroker:
    endpoints = [
        update_metadata.UpdateMetadataEndpoint(listener=name, host=host, port=port) for name, (host, port) in broker.endpoints.items()
    ]
    return update_metadata.UpdateMetadataBroker(
        id=broker.broker_id, endpoints=endpoints, rack=broker.rack, epoch=broker.epoch, is_clean=broker.is_clean
    )


# From the wire


class MessageParts:
    """Joins the received parts of one message."""

    def __init__(self) -> None:
        self._roles: list[ReplicaRole] = []
        self._stopped: list[StoppedReplica] = []
        self._topics: dict[bytes, tuple[update_metadata.UpdateMetadataTopicState, list[PartitionMetadata]]] = {}
        self._ids: dict[str, bytes] = {}
        self._brokers: list[BrokerMetadata] = []
        self._removed: list[tuple[str, bytes]] = []

    def add(self, request: ControlRequest) -> None:
        """Adds a part. Raises `ApiError` INVALID_REQUEST for an invalid one."""
        if request.controller_id < 0 or request.controller_epoch < 0:
            raise _refused(f"controller {request.controller_id} of epoch {request.controller_epoch}")
        if isinstance(request, LeaderAndIsrRequest):
            self._add_roles(request)
        elif isinstance(request, StopReplicaRequest):
            self._add_stopped(request)
        else:
            self._add_metadata(request)

    def message(self, last: ControlRequest) -> ControlMessage:
        sender: dict[str, Any] = {
            "controller_id": last.controller_id, "controller_epoch": last.controller_epoch, "broker_epoch": last.broker_epoch,
        }  # fmt: skip
        if isinstance(last, LeaderAndIsrRequest):
            return LeaderAndIsr(states=self._roles, is_complete=last.type == COMPLETE, **sender)
        if isinstance(last, StopReplicaRequest):
            return StopReplica(stopped=self._stopped, **sender)
        topics = [_topic(head, partitions) for head, partitions in self._topics.values()]
        return UpdateMetadata(topics=topics, brokers=self._brokers, removed=self._removed, is_complete=last.is_complete, **sender)

    def _add_roles(self, request: LeaderAndIsrRequest) -> None:
        for topic in request.topic_states:
            _check_topic(topic.topic_name, topic.topic_id)
            configs = {config.name: config.value for config in topic.configs}
            for state in topic.partition_states:
                self._roles.append(
                    ReplicaRole(
                        topic=topic.topic_name, topic_id=topic.topic_id, partition=_partition(state, state.partition_epoch),
                        is_new=state.is_new, configs=configs,
                    )
                )  # fmt: skip

    def _add_stopped(self, request: StopReplicaRequest) -> None:
        for topic in request.topic_states:
            _check_topic(topic.topic_name, topic.topic_id)
            for state in topic.partition_states:
                if state.partition_index < 0:
                    raise _refused(f"partition {state.partition_index} of {topic.topic_name}")
                self._stopped.append(
                    StoppedReplica(
                        topic=topic.topic_name, topic_id=topic.topic_id, partition=state.partition_index,
                        leader_epoch=state.leader_epoch, is_deleted=state.delete_partition,
                    )
                )  # fmt: skip

    def _add_metadata(self, request: UpdateMetadataRequest) -> None:
        for topic in request.topic_states:
            _check_topic(topic.topic_name, topic.topic_id)
            if self._ids.setdefault(topic.topic_name, topic.topic_id) != topic.topic_id:
                raise _refused(f"two topics named {topic.topic_name}")
            head, partitions = self._topics.setdefault(topic.topic_id, (topic, []))
            if head.topic_name != topic.topic_name:
                raise _refused(f"{head.topic_name} and {topic.topic_name} of one id")
            for state in topic.partition_states:
                if state.partition_index != len(partitions):
                    raise _refused(f"partition {state.partition_index} of {topic.topic_name} in place of {len(partitions)}")
                partitions.append(_partition(state, state.zk_version))
        self._brokers += map(_broker, request.live_brokers)
        if len({broker.broker_id for broker in self._brokers}) < len(self._brokers):
            raise _refused("a broker that is named twice")
        self._removed += [(one.name, one.topic_id) for one in request.removed]


def _refused(what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"a message from a controller is refused: {what}")


def _check_topic(name: str, topic_id: bytes) -> None:
    """Raises `ApiError` for invalid topic names, because names become directories, and for topics without an id."""
    reason = why_invalid(name)
    if reason or topic_id == ZERO_UUID:
        raise _refused(reason or f"{name} has no id")


def _partition(
    state: leader_and_isr.LeaderAndIsrPartitionState | update_metadata.UpdateMetadataPartitionState, partition_epoch: int
) -> PartitionMetadata:
    if state.partition_index < 0 or state.leader < NO_LEADER or min(state.replicas, default=0) < 0:
        raise _refused(f"partition {state.partition_index}, leader {state.leader}, replicas {state.replicas}")
    return PartitionMetadata(
        index=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        offline_replicas=tuple(state.offline_replicas),
        partition_epoch=partition_epoch,
        controller_epoch=state.controller_epoch,
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        eligible=tuple(state.eligible_replicas),
        last_leader=state.last_leader,
        loss_epoch=state.loss_epoch,
    )


def _topic(head: update_metadata.UpdateMetadataTopicState, partitions: Sequence[PartitionMetadata]) -> TopicMetadata:
    return TopicMetadata(
        name=head.topic_name,
        topic_id=head.topic_id,
        partitions=tuple(partitions),
        configs={config.name: config.value for config in head.configs},
        is_internal=head.topic_name in INTERNAL_TOPICS,
        version=head.version,
    )


def _broker(broker: update_metadata.UpdateMetadataBroker) -> BrokerMetadata:
    if broker.id < 0 or any(not 0 <= endpoint.port <= PORT_MAX for endpoint in broker.endpoints):
        raise _refused(f"broker {broker.id}")
    return BrokerMetadata(
        broker_id=broker.id,
        endpoints={endpoint.listener: (endpoint.host, endpoint.port) for endpoint in broker.endpoints},
        rack=broker.rack,
        epoch=broker.epoch,
        is_clean=broker.is_clean,
    )
