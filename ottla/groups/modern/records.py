"""The records of modern groups: encodes values and applies them.

An `EpochChange` is a decision in progress. Each step appends its record and immediately applies it to a copy of the group, so that the next
step sees it. `fold_epochs` applies records from the log. Both use the group's `set_*` and `remove_*`. An `EpochSchema` has the differences
of the protocols: the record classes, and the contents of a member's description and current assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic

from ottla.base.immutable import immutable
from ottla.groups import records
from ottla.groups.modern.group import FIRST_EPOCH, Assignment, FactsT, GroupT, PartitionsByTopic, PlaceT
from ottla.machine.contract import LogRecord
from ottla.wire.schema import RecordKey, RecordValue


@immutable(kw_only=True)
class EpochSchema:
    """The record classes of one protocol, and the conversions of member descriptions and current assignments."""

    group_key: type[Any]
    group_value: type[Any]
    member_key: type[Any]
    target_key: type[Any]
    target_value: type[Any]
    target_member_key: type[Any]
    position_key: type[Any]
    write_facts: Callable[[Any], RecordValue]
    read_facts: Callable[[Any], Any]
    write_target: Callable[[Any], RecordValue]
    read_target: Callable[[Any], Assignment]
    write_position: Callable[[Any], RecordValue]
    read_position: Callable[[Any], Any]

    def keys(self) -> tuple[type[Any], ...]:
        return self.group_key, self.member_key, self.target_key, self.target_member_key, self.position_key


def read_assignment(topics: Iterable[Any]) -> PartitionsByTopic:
    return {bytes(topic.topic_id): tuple(topic.partitions) for topic in topics}


def read_target(value: Any) -> PartitionsByTopic:
    return read_assignment(value.topic_partitions)


def fold_epochs(schema: EpochSchema, group: Any, key: Any, value: Any) -> bool:
    """Applies one record, a tombstone if `value` is None; returns False for a record of another kind. The caller handles the group's own
    tombstone."""
    kind = type(key)
    if kind is schema.group_key:
        group.set_epoch(value.epoch, value.metadata_hash)
    elif kind is schema.member_key:
        group.remove_member(key.member_id) if value is None else group.set_member(key.member_id, schema.read_facts(value))
    elif kind is schema.target_key:
        group.set_target_epoch(*((FIRST_EPOCH, 0) if value is None else (value.assignment_epoch, value.assignment_timestamp)))
    elif kind is schema.target_member_key:
        group.remove_target(key.member_id) if value is None else group.set_target(key.member_id, schema.read_target(value))
    elif kind is schema.position_key:
        group.remove_position(key.member_id) if value is None else group.set_position(key.member_id, schema.read_position(value))
    else:
        return False
    return True


class EpochChange(Generic[GroupT, FactsT, PlaceT]):
    """The records of a decision, and `group` with these records applied. Without records `group` is the live group, otherwise a copy."""

    __slots__ = ("group", "group_id", "records")

    schema: ClassVar[EpochSchema]

    def __init__(self, group: GroupT) -> None:
        self.group = group
        self.records: list[LogRecord] = []
        self.group_id = group.group_id

    def log(self, key: RecordKey, value: RecordValue | None) -> GroupT:
        """Appends a record (a tombstone if `value` is None); returns the copy of the group to apply it to."""
        if not self.records:
            self.group = self.group.copy()
        self.records.append(records.tombstone(key) if value is None else records.epoch_record(key, value))
        return self.group

    def put_member(self, member_id: str, facts: FactsT) -> None:
        key = self.schema.member_key(group_id=self.group_id, member_id=member_id)
        self.log(key, self.schema.write_facts(facts)).set_member(member_id, facts)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        value = self.schema.group_value(epoch=epoch, metadata_hash=metadata_hash)
        self.log(self.schema.group_key(group_id=self.group_id), value).set_epoch(epoch, metadata_hash)

    def raise_epoch(self) -> None:
        """Raises the epoch, so that a later heartbeat of any member makes a new target."""
        self.put_epoch(self.group.epoch + 1, self.group.metadata_hash)

    def put_target_epoch(self, epoch: int, now_ms: int) -> None:
        value = self.schema.target_value(assignment_epoch=epoch, assignment_timestamp=now_ms)
        self.log(self.schema.target_key(group_id=self.group_id), value).set_target_epoch(epoch, now_ms)

    def put_target(self, member_id: str, target: Assignment) -> None:
        key = self.schema.target_member_key(group_id=self.group_id, member_id=member_id)
        self.log(key, self.schema.write_target(target)).set_target(member_id, target)

    def put_position(self, member_id: str, position: PlaceT) -> None:
        key = self.schema.position_key(group_id=self.group_id, member_id=member_id)
        self.log(key, self.schema.write_position(position)).set_position(member_id, position)

    def remove_member(self, member_id: str) -> None:
        for key_class in (self.schema.position_key, self.schema.target_member_key, self.schema.member_key):
            self.log(key_class(group_id=self.group_id, member_id=member_id), None)
        self.group.remove_position(member_id)
        self.group.remove_target(member_id)
        self.group.remove_member(member_id)

    def remove_group(self) -> None:
        """Removes all records of the group. The tombstone of the group record is the last."""
        for member_id in list(self.group.facts):
            self.remove_member(member_id)
        self.remove_rest()
        self.log(self.schema.target_key(group_id=self.group_id), None)
        self.log(self.schema.group_key(group_id=self.group_id), None)

    def remove_rest(self) -> None:
        """Removes the group's records of kinds that other protocols lack."""
