"""How do the values of a consumer group look as records, and how are they folded back?

`Change` is a decision under way: each step appends its record and is folded into a copy of the group at once, so the next step sees it.
`fold` does the same with records that come from the log. Both end in the same `set_*` and `remove_*` of `ConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.uuids import Uuid
from ottla.groups import records
from ottla.groups.consumer.assignors import Assignment
from ottla.groups.consumer.group import ClassicFacts, ConsumerGroup, MemberFacts, MemberState, Position, ResolvedRegex
from ottla.machine.contract import LogRecord
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

CONSUMER_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


def fold(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Folds one record, a tombstone if `value` is None; the tombstone of the group itself is the caller's."""
    if isinstance(key, ConsumerGroupMetadataKey):
        group.set_epoch(value.epoch, value.metadata_hash)
    elif isinstance(key, ConsumerGroupMemberMetadataKey):
        group.remove_member(key.member_id) if value is None else group.set_member(key.member_id, _read_facts(value))
    elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
        group.set_target_epoch(-1 if value is None else value.assignment_epoch, 0 if value is None else value.assignment_timestamp)
    elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
        if value is None:
            group.remove_target(key.member_id)
        else:
            group.set_target(key.member_id, _read_assignment(value.topic_partitions))
    elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
        group.remove_position(key.member_id) if value is None else group.set_position(key.member_id, _read_position(value))
    elif isinstance(key, ConsumerGroupRegularExpressionKey):
        if value is None:
            group.remove_regex(key.regular_expression)
        else:
            group.set_regex(key.regular_expression, ResolvedRegex(tuple(value.topics), value.version, value.timestamp))


class Change:
    """Records in the making, and the group as it will be when they are logged: the group itself until the first step, then a copy."""

    __slots__ = ("_id", "group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[LogRecord] = []
        self._id = group.group_id

    def _log(self, record: LogRecord) -> ConsumerGroup:
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        return self.group

    def put_member(self, member_id: str, facts: MemberFacts) -> None:
        key = ConsumerGroupMemberMetadataKey(group_id=self._id, member_id=member_id)
        self._log(records.consumer_record(key, _write_facts(facts))).set_member(member_id, facts)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        self._log(records.consumer_record(ConsumerGroupMetadataKey(group_id=self._id), value)).set_epoch(epoch, metadata_hash)

    def put_target_epoch(self, epoch: int, now_ms: int) -> None:
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        self._log(records.consumer_record(ConsumerGroupTargetAssignmentMetadataKey(group_id=self._id), value)).set_target_epoch(
            epoch, now_ms
        )

    def put_target(self, member_id: str, target: Assignment) -> None:
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TopicPartition(topic_id=topic_id, partitions=list(target[topic_id])) for topic_id in target]
        )
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=self._id, member_id=member_id)
        self._log(records.consumer_record(key, value)).set_target(member_id, target)

    def put_position(self, member_id: str, position: Position) -> None:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=position.epoch,
            previous_member_epoch=position.previous_epoch,
            state=position.state.value,
            assigned_partitions=_write_partitions(position.assigned),
            partitions_pending_revocation=_write_partitions(position.revoking),
        )
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=self._id, member_id=member_id)
        self._log(records.consumer_record(key, value)).set_position(member_id, position)

    def put_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        value = ConsumerGroupRegularExpressionValue(topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms)
        key = ConsumerGroupRegularExpressionKey(group_id=self._id, regular_expression=regex)
        self._log(records.consumer_record(key, value)).set_regex(regex, resolved)

    def remove_regex(self, regex: str) -> None:
        key = ConsumerGroupRegularExpressionKey(group_id=self._id, regular_expression=regex)
        self._log(records.tombstone(key)).remove_regex(regex)

    def remove_member(self, member_id: str) -> None:
        """All that is known of a member."""
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=self._id, member_id=member_id),
            ConsumerGroupTargetAssignmentMemberKey(group_id=self._id, member_id=member_id),
            ConsumerGroupMemberMetadataKey(group_id=self._id, member_id=member_id),
        ):
            self._log(records.tombstone(key)).remove_position(member_id)
        self.group.remove_target(member_id)
        self.group.remove_member(member_id)

    def remove_group(self) -> None:
        """All that is known of the group; its own tombstone comes last."""
        for member_id in list(self.group.facts):
            self.remove_member(member_id)
        for regex in list(self.group.regexes):
            self.remove_regex(regex)
        self._log(records.tombstone(ConsumerGroupTargetAssignmentMetadataKey(group_id=self._id)))
        self._log(records.tombstone(ConsumerGroupMetadataKey(group_id=self._id)))


# Values


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


def _write_partitions(assignment: Mapping[Uuid, tuple[int, ...]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in assignment.items()]


def _read_assignment(topics: list[Any]) -> Assignment:
    return {bytes(topic.topic_id): tuple(topic.partitions) for topic in topics}


def _read_position(value: ConsumerGroupCurrentMemberAssignmentValue) -> Position:
    known = {state.value for state in MemberState}
    return Position(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state if value.state in known else MemberState.UNKNOWN.value),
        assigned=_read_assignment(value.assigned_partitions),
        revoking=_read_assignment(value.partitions_pending_revocation),
    )
