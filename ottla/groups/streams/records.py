"""The records of a streams group: encodes their values, and applies them to the group.

`modern/records.py` handles the kinds of records that all modern groups have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.groups.modern.group import Assignment
from ottla.groups.modern.reconciling import MemberState, ReconciledAssignment
from ottla.groups.modern.records import EpochChange, EpochSchema, fold_epochs
from ottla.groups.streams.group import ACTIVE, STANDBY, WARMUP, StreamsFacts, StreamsGroup, TaskKey, TaskRole, Validation
from ottla.groups.streams.topology import CopartitionGroup as Copartitioned
from ottla.groups.streams.topology import InternalTopic, Topology
from ottla.groups.streams.topology import Subtopology as Part
from ottla.wire.messages.streams_group_records import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    Subtopology,
    TaskIds,
    TopicConfig,
    TopicInfo,
)

_STATE_NUMBERS = {
    MemberState.STABLE: 1,
    MemberState.UNREVOKED_PARTITIONS: 2,
    MemberState.UNRELEASED_PARTITIONS: 3,
    MemberState.UNKNOWN: 127,
}
_STATES = {number: state for state, number in _STATE_NUMBERS.items()}


def _write_facts(facts: StreamsFacts) -> StreamsGroupMemberMetadataValue:
    return StreamsGroupMemberMetadataValue(
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        client_id=facts.client_id,
        client_host=facts.client_host,
        rebalance_timeout_ms=facts.rebalance_timeout_ms,
        topology_epoch=facts.topology_epoch,
        process_id=facts.process_id,
        user_endpoint=None if facts.endpoint is None else Endpoint(host=facts.endpoint[0], port=facts.endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in facts.tags],
    )


def _read_facts(value: StreamsGroupMemberMetadataValue) -> StreamsFacts:
    endpoint = value.user_endpoint
    return StreamsFacts(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        value.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        tuple((tag.key, tag.value) for tag in value.client_tags),
    )


def _of_role(assignment: Mapping[Any, tuple[int, ...]], role: TaskRole) -> list[tuple[TaskKey, tuple[int, ...]]]:
    return [(key, partitions) for key, partitions in assignment.items() if key.role is role]


def _read_tasks(role: TaskRole, tasks: Iterable[Any]) -> Assignment:
    return {TaskKey(role, task.subtopology_id): tuple(sorted(task.partitions)) for task in tasks}


def _write_target(target: Assignment) -> StreamsGroupTargetAssignmentMemberValue:
    def tasks(role: TaskRole) -> list[TaskIds]:
        return [TaskIds(subtopology_id=key.subtopology, partitions=list(mine)) for key, mine in _of_role(target, role)]

    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=tasks(ACTIVE), standby_tasks=tasks(STANDBY), warmup_tasks=tasks(WARMUP)
    )


def _read_target(value: StreamsGroupTargetAssignmentMemberValue) -> Assignment:
    return {
        **_read_tasks(ACTIVE, value.active_tasks),
        **_read_tasks(STANDBY, value.standby_tasks),
        **_read_tasks(WARMUP, value.warmup_tasks),
    }


def _write_position(position: ReconciledAssignment) -> StreamsGroupCurrentMemberAssignmentValue:
    def tasks(assignment: Mapping[Any, tuple[int, ...]], role: TaskRole) -> list[StreamsGroupCurrentMemberAssignmentTaskIds]:
        return [
            StreamsGroupCurrentMemberAssignmentTaskIds(
                subtopology_id=key.subtopology,
                partitions=list(mine),
                assignment_epochs=[position.epochs[key][partition] for partition in mine] if role is ACTIVE else None,
            )
            for key, mine in _of_role(assignment, role)
        ]

    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=position.epoch,
        previous_member_epoch=position.previous_epoch,
        state=_STATE_NUMBERS[position.state],
        active_tasks=tasks(position.assigned, ACTIVE),
        standby_tasks=tasks(position.assigned, STANDBY),
        warmup_tasks=tasks(position.assigned, WARMUP),
        active_tasks_pending_revocation=tasks(position.revoking, ACTIVE),
        standby_tasks_pending_revocation=tasks(position.revoking, STANDBY),
        warmup_tasks_pending_revocation=tasks(position.revoking, WARMUP),
    )


def _read_position(value: StreamsGroupCurrentMemberAssignmentValue) -> ReconciledAssignment:
    assigned = (value.active_tasks, value.standby_tasks, value.warmup_tasks)
    revoking = (value.active_tasks_pending_revocation, value.standby_tasks_pending_revocation, value.warmup_tasks_pending_revocation)
    epochs: dict[TaskKey, dict[int, int]] = {}
    for parts in (assigned, revoking):
        for role, tasks in zip(TaskRole, parts, strict=True):
            for task in tasks:
                known = epochs.setdefault(TaskKey(role, task.subtopology_id), {})
                known.update(dict.fromkeys(task.partitions, max(value.member_epoch, 0)))
                known.update(zip(task.partitions, task.assignment_epochs or (), strict=False))
    return ReconciledAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        _STATES.get(value.state, MemberState.UNKNOWN),
        {key: mine for role, tasks in zip(TaskRole, assigned, strict=True) for key, mine in _read_tasks(role, tasks).items()},
        {key: mine for role, tasks in zip(TaskRole, revoking, strict=True) for key, mine in _read_tasks(role, tasks).items()},
        epochs,
    )


def _write_internal(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[TopicConfig(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]


def read_internal(topics: Iterable[Any]) -> tuple[InternalTopic, ...]:
    """Reads the internal topics of a record or of a request, which have the same fields."""
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple(sorted((config.key, config.value) for config in topic.topic_configs)),
        )
        for topic in topics
    )


def _write_topology(topology: Topology) -> StreamsGroupTopologyValue:
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.sources),
                source_topic_regex=list(part.regexes),
                state_changelog_topics=_write_internal(part.changelogs),
                repartition_sink_topics=list(part.repartition_sinks),
                repartition_source_topics=_write_internal(part.repartition_sources),
                copartition_groups=[
                    CopartitionGroup(
                        source_topics=list(group.sources),
                        source_topic_regex=list(group.regexes),
                        repartition_source_topics=list(group.repartition_sources),
                    )
                    for group in part.copartition_groups
                ],
            )
            for part in topology.subtopologies
        ],
    )


def read_topology(value: Any) -> Topology:
    """Reads the topology of a record or of a request, which have the same fields. Subtopologies are sorted by id."""
    parts = [
        Part(
            part.subtopology_id,
            tuple(part.source_topics),
            tuple(part.source_topic_regex),
            read_internal(part.state_changelog_topics),
            tuple(part.repartition_sink_topics),
            read_internal(part.repartition_source_topics),
            tuple(
                Copartitioned(tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics))
                for group in part.copartition_groups
            ),
        )
        for part in value.subtopologies
    ]
    return Topology(value.epoch, tuple(sorted(parts, key=lambda part: part.subtopology_id)))


def _read_validation(value: StreamsGroupMetadataValue) -> Validation:
    configs = tuple((config.key, config.value) for config in value.last_assignment_configs or ())
    return Validation(
        value.validated_topology_epoch, configs, value.stored_description_topology_epoch, value.failed_description_topology_epoch
    )


STREAMS_SCHEMA = EpochSchema(
    group_key=StreamsGroupMetadataKey,
    group_value=StreamsGroupMetadataValue,
    member_key=StreamsGroupMemberMetadataKey,
    target_key=StreamsGroupTargetAssignmentMetadataKey,
    target_value=StreamsGroupTargetAssignmentMetadataValue,
    target_member_key=StreamsGroupTargetAssignmentMemberKey,
    position_key=StreamsGroupCurrentMemberAssignmentKey,
    write_facts=_write_facts,
    read_facts=_read_facts,
    write_target=_write_target,
    read_target=_read_target,
    write_position=_write_position,
    read_position=_read_position,
)
STREAMS_KEYS = (*STREAMS_SCHEMA.keys(), StreamsGroupTopologyKey)


def fold_streams(group: StreamsGroup, key: Any, value: Any) -> None:
    """Applies one record, a tombstone if `value` is None; the caller handles the tombstone of the group itself."""
    if type(key) is StreamsGroupMetadataKey:
        group.set_validation(_read_validation(value))
    if not fold_epochs(STREAMS_SCHEMA, group, key, value):
        group.set_topology(None if value is None else read_topology(value))


class StreamsChange(EpochChange[StreamsGroup, StreamsFacts, ReconciledAssignment]):
    """Collects the records of a change of a streams group, and applies them to a copy."""

    __slots__ = ("validation",)

    schema = STREAMS_SCHEMA

    def __init__(self, group: StreamsGroup) -> None:
        super().__init__(group)
        self.validation = group.validation
        """Logged with the next epoch."""

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        validation = self.validation
        value = StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validation.topology_epoch,
            last_assignment_configs=[LastAssignmentConfig(key=key, value=text) for key, text in validation.configs],
            stored_description_topology_epoch=validation.stored_description_epoch,
            failed_description_topology_epoch=validation.failed_description_epoch,
        )
        group = self.log(StreamsGroupMetadataKey(group_id=self.group_id), value)
        group.set_epoch(epoch, metadata_hash)
        group.set_validation(validation)

    def put_topology(self, topology: Topology) -> None:
        self.log(StreamsGroupTopologyKey(group_id=self.group_id), _write_topology(topology)).set_topology(topology)

    def remove_rest(self) -> None:
        self.log(StreamsGroupTopologyKey(group_id=self.group_id), None).set_topology(None)
