"""Changes of modern groups: the changed copy equals the group that the records of the change give."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups import records
from ottla.groups.consumer.group import ConsumerGroup, MemberFacts
from ottla.groups.consumer.records import CONSUMER_SCHEMA, ConsumerChange
from ottla.groups.modern.group import EpochGroup
from ottla.groups.modern.reconciling import ReconciledAssignment
from ottla.groups.modern.records import EpochChange, EpochSchema, fold_epochs, read_assignment
from ottla.groups.share.group import ShareFacts, ShareGroup, SharePosition
from ottla.groups.share.records import SHARE_SCHEMA, ShareChange
from ottla.machine.contract import LogRecord
from ottla.wire.messages.group_records import ConsumerGroupCurrentMemberAssignmentValue, GroupMetadataKey, TopicPartitions
from ottla.wire.messages.share_group_records import TopicPartition

T, U = b"t" * 16, b"u" * 16
KINDS: list[tuple[Any, Any, Any, Any, EpochSchema]] = [
    (ConsumerGroup, ConsumerChange, MemberFacts, ReconciledAssignment.settled, CONSUMER_SCHEMA),
    (ShareGroup, ShareChange, ShareFacts, SharePosition, SHARE_SCHEMA),
]
of_each_kind = pytest.mark.parametrize(("group", "change", "facts", "position", "schema"), KINDS, ids=["consumer", "share"])


def folded(schema: EpochSchema, group: EpochGroup[Any, Any], logged: list[LogRecord]) -> EpochGroup[Any, Any]:
    """Returns the group after these records, which are decoded from their bytes."""
    for record in logged:
        key = records.read_key(record.key)
        assert key is not None
        value = None if record.value is None else records.read_value(key, record.value)
        assert fold_epochs(schema, group, key, value), f"{key} is folded here"
    return group


def parts(group: EpochGroup[Any, Any]) -> dict[str, Any]:
    return {name: getattr(group, name) for name in EpochGroup.fields}


def one_member(change: EpochChange[Any, Any, Any], facts: Any, position: Any) -> None:
    change.put_member("a", facts(rack_id="r", client_id="c", client_host="/h", topics=("t", "u")))
    change.raise_epoch()
    change.put_target_epoch(2, 77)
    change.put_target("a", {T: (0, 2), U: (1,)})
    change.put_position("a", position(epoch=2, previous_epoch=1, assigned={T: (0,)}))


@of_each_kind
def test_the_change_and_its_records_say_the_same(group: Any, change: Any, facts: Any, position: Any, schema: EpochSchema) -> None:
    before = group("g")
    made = change(before)
    assert made.group is before, "nothing is copied before the first step"
    one_member(made, facts, position)
    assert made.group is not before and not before.facts, "the group itself is changed by the log alone"
    after = folded(schema, group("g"), made.records)
    assert parts(after) == parts(made.group)
    assert (after.epoch, after.target_epoch, after.target_timestamp_ms) == (2, 2, 77)
    assert after.facts["a"].topics == ("t", "u") and after.position("a").assigned == {T: (0,)}


@pytest.mark.parametrize(("epoch", "read"), [(5, 5), (-2, 0)])
def test_kip_1251_a_record_of_before_kafka_4_3_has_the_members_epoch_for_each_partition(epoch: int, read: int) -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        assigned_partitions=[TopicPartitions(topic_id=T, partitions=[0, 1])],
        partitions_pending_revocation=[TopicPartitions(topic_id=T, partitions=[2]), TopicPartitions(topic_id=U, partitions=[0])],
    )
    assert CONSUMER_SCHEMA.read_position(value).epochs == {T: {0: read, 1: read, 2: read}, U: {0: read}}
    value.assigned_partitions[0].assignment_epochs = [3, 4]
    assert CONSUMER_SCHEMA.read_position(value).epochs == {T: {0: 3, 1: 4, 2: read}, U: {0: read}}


@of_each_kind
def test_a_member_goes_with_all_that_is_known_of_it(group: Any, change: Any, facts: Any, position: Any, schema: EpochSchema) -> None:
    made = change(group("g"))
    one_member(made, facts, position)
    made.put_member("b", facts(topics=("t",)))
    count = len(made.records)
    made.remove_member("a")
    assert [record.value for record in made.records[count:]] == [None, None, None]
    after = folded(schema, group("g"), made.records)
    assert parts(after) == parts(made.group) and list(after.facts) == ["b"] and not after.target and not after.positions


@of_each_kind
def test_a_group_goes_member_by_member_and_its_own_tombstone_is_the_last(
    group: Any, change: Any, facts: Any, position: Any, schema: EpochSchema
) -> None:
    """After an interrupted removal the group still exists, so it can be removed again."""
    made = change(group("g"))
    one_member(made, facts, position)
    count = len(made.records)
    made.remove_group()
    removal = made.records[count:]
    assert all(record.value is None for record in removal)
    keys = [records.read_key(record.key) for record in removal]
    assert type(keys[-1]) is schema.group_key and len([key for key in keys if type(key) is schema.group_key]) == 1
    assert not made.group.facts and not made.group.target and not made.group.positions


@of_each_kind
def test_records_of_other_kinds_are_left_alone(group: Any, change: Any, facts: Any, position: Any, schema: EpochSchema) -> None:
    found = group("g")
    before = parts(found)
    assert not fold_epochs(schema, found, GroupMetadataKey(group="g"), None) and parts(found) == before


@of_each_kind
def test_a_tombstone_of_the_target_begins_again(group: Any, change: Any, facts: Any, position: Any, schema: EpochSchema) -> None:
    made = change(group("g"))
    made.put_target_epoch(7, 70)
    made.log(schema.target_key(group_id="g"), None)
    after = folded(schema, group("g"), made.records)
    assert (after.target_epoch, after.target_timestamp_ms) == (1, 0)


def test_an_assignment_is_read_by_topic() -> None:
    assert read_assignment([TopicPartition(topic_id=T, partitions=[2, 0]), TopicPartition(topic_id=U, partitions=[])]) == {T: (2, 0), U: ()}
