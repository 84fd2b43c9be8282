"""The records of a consumer group: encodes their values, and applies them to the group.

`modern/records.py` handles the kinds of records that share groups have too.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any

from ottla.base.uuids import Uuid
from ottla.groups.consumer.group import ClassicFacts, ConsumerGroup, MemberFacts, ResolvedRegex
from ottla.groups.modern.reconciling import MemberState, ReconciledAssignment
from ottla.groups.modern.records import EpochChange, EpochSchema, fold_epochs, read_assignment, read_target
from ottla.wire.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)


def _write_facts(facts: MemberFacts) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if facts.classic is not None:
        supported = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in facts.classic.protocols]
        classic = ClassicMemberMetadata(session_timeout_ms=facts.classic.session_timeout_ms, supported_protocols=supported)
    return ConsumerGroupMemberMetadataValue(
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        client_id=facts.client_id,
        client_host=facts.client_host,
        subscribed_topic_names=list(facts.topics),
        subscribed_topic_regex=facts.regex,
        rebalance_timeout_ms=facts.rebalance_timeout_ms,
        server_assignor=facts.assignor,
        classic_member_metadata=classic,
    )


def _read_facts(value: ConsumerGroupMemberMetadataValue) -> MemberFacts:
    metadata = value.classic_member_metadata
    classic = None
    if metadata is not None:
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in metadata.supported_protocols)
        classic = ClassicFacts(metadata.session_timeout_ms, protocols)
    return MemberFacts(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=classic,
    )


def _write_partitions(position: ReconciledAssignment, assignment: Mapping[Uuid, tuple[int, ...]]) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=list(partitions),
            assignment_epochs=[position.epochs[topic_id][partition] for partition in partitions],
        )
        for topic_id, partitions in assignment.items()
    ]


def _read_epochs(value: ConsumerGroupCurrentMemberAssignmentValue) -> dict[Uuid, dict[int, int]]:
    """Returns the assignment epochs. A record from before Kafka 4.3 has none; then, as in Kafka, all partitions get the member's epoch."""
    found: dict[Uuid, dict[int, int]] = {}
    for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
        epochs = found.setdefault(bytes(topic.topic_id), {})
        epochs.update(dict.fromkeys(topic.partitions, max(value.member_epoch, 0)))
        epochs.update(zip(topic.partitions, topic.assignment_epochs or (), strict=False))
    return found


def _read_position(value: ConsumerGroupCurrentMemberAssignmentValue) -> ReconciledAssignment:
    known = {state.value for state in MemberState}
    return ReconciledAssignment(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state if value.state in known else MemberState.UNKNOWN.value),
        assigned=read_assignment(value.assigned_partitions),
        revoking=read_assignment(value.partitions_pending_revocation),
        epochs=_read_epochs(value),
    )


def _write_position(position: ReconciledAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=position.epoch,
        previous_member_epoch=position.previous_epoch,
        state=position.state.value,
        assigned_partitions=_write_partitions(position, position.assigned),
        partitions_pending_revocation=_write_partitions(position, position.revoking),
    )


def _write_target(target: Mapping[Uuid, tuple[int, ...]]) -> ConsumerGroupTargetAssignmentMemberValue:
    topics = [TopicPartition(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)


CONSUMER_SCHEMA = EpochSchema(
    group_key=ConsumerGroupMetadataKey,
    group_value=ConsumerGroupMetadataValue,
    member_key=ConsumerGroupMemberMetadataKey,
    target_key=ConsumerGroupTargetAssignmentMetadataKey,
    target_value=ConsumerGroupTargetAssignmentMetadataValue,
    target_member_key=ConsumerGroupTargetAssignmentMemberKey,
    position_key=ConsumerGroupCurrentMemberAssignmentKey,
    write_facts=_write_facts,
    read_facts=_read_facts,
    write_target=_write_target,
    read_target=read_target,
    write_position=_write_position,
    read_position=_read_position,
)
CONSUMER_KEYS = (*CONSUMER_SCHEMA.keys(), ConsumerGroupRegularExpressionKey)


def fold_consumer(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Applies one record, a tombstone if `value` is None; the caller handles the tombstone of the group itself."""
    if fold_epochs(CONSUMER_SCHEMA, group, key, value):
        return
    if value is None:
        group.remove_regex(key.regular_expression)
    else:
        group.set_regex(key.regular_expression, ResolvedRegex(tuple(map(intern, value.topics)), value.version, value.timestamp))


class ConsumerChange(EpochChange[ConsumerGroup, MemberFacts, ReconciledAssignment]):
    """Collects the records of a change of a consumer group, and applies them to a copy."""

    __slots__ = ()

    schema = CONSUMER_SCHEMA

    def put_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        value = ConsumerGroupRegularExpressionValue(topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms)
        self.log(self._regex_key(regex), value).set_regex(regex, resolved)

    def remove_regex(self, regex: str) -> None:
        self.log(self._regex_key(regex), None).remove_regex(regex)

    def remove_rest(self) -> None:
        for regex in list(self.group.regexes):
            self.remove_regex(regex)

    def _regex_key(self, regex: str) -> ConsumerGroupRegularExpressionKey:
        return ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
