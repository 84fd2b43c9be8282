"""The records in `__consumer_offsets`: Kafka's own, in the versions that Kafka 4.x writes.

A key is an int16 for its kind, then the fields. A value is an int16 version, then the fields; no value is a tombstone. `read_key` and
`read_value` return None for unknown records (streams groups, later versions, damaged bytes). Such records are skipped and are no error,
because a client could have written them.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import TypeVar

from ottla.base.bounded_cache import remembered
from ottla.base.errors import WireError
from ottla.groups.offsets.store import CommittedOffset
from ottla.machine.contract import LogRecord
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.wire.schema import RecordKey, RecordValue

_INT16 = Packer(">h")

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
OFFSET_KEYS_BYTES_MAX = 4 << 20
"""Memory for cached keys of recently committed offsets. 4 MiB: about 6,000 partitions."""

_KEYS: dict[int, type[RecordKey]] = {
    cls.API_KEY: cls
    for cls in (
        LegacyOffsetCommitKey,
        OffsetCommitKey,
        GroupMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
    )
}
_VALUES: dict[int, type[RecordValue]] = {
    cls.API_KEY: cls
    for cls in (
        LegacyOffsetCommitValue,
        OffsetCommitValue,
        GroupMetadataValue,
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionValue,
        ShareGroupMemberMetadataValue,
        ShareGroupMetadataValue,
        ShareGroupTargetAssignmentMetadataValue,
        ShareGroupTargetAssignmentMemberValue,
        ShareGroupCurrentMemberAssignmentValue,
        ShareGroupStatePartitionMetadataValue,
    )
}

KeyT = TypeVar("KeyT", bound=RecordKey)
ValueT = TypeVar("ValueT", bound=RecordValue)


def write_key(key: KeyT) -> bytes:
    return _INT16.pack(key.API_KEY) + encoder(type(key), 0)(key)


def write_value(value: ValueT, version: int) -> bytes:
    return _INT16.pack(version) + encoder(type(value), version)(value)


def read_key(data: bytes) -> RecordKey | None:
    if len(data) < 2:
        return None
    cls = _KEYS.get(_INT16.unpack_from(data)[0])
    if cls is None:
        return None
    try:
        key, end = decoder(cls, 0)(data, 2)
    except WireError:
        return None
    return key if end == len(data) else None


def read_value(key: RecordKey, data: bytes) -> RecordValue | None:
    """Decodes the value of a record with this key."""
    if len(data) < 2:
        return None
    cls = _VALUES[key.API_KEY]
    version: int = _INT16.unpack_from(data)[0]
    if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
        return None
    try:
        return decoder(cls, version)(data, 2)[0]
    except WireError:
        return None


def offset_commit(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> LogRecord:
    """Encodes a commit. An expiry time, which old clients set, needs an older version of the record."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = OFFSET_COMMIT_VERSION if committed.expire_timestamp_ms < 0 else OFFSET_COMMIT_VERSION_WITH_EXPIRY
    return LogRecord(_offset_key(group_id, topic, partition), write_value(value, version))


@remembered(OFFSET_KEYS_BYTES_MAX)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Encodes a key; cached, because consumers commit the same partitions repeatedly."""
    return write_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def offset_tombstone(group_id: str, topic: str, partition: int) -> LogRecord:
    return LogRecord(write_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition)), None)


def group_metadata(group_id: str, value: GroupMetadataValue) -> LogRecord:
    return LogRecord(write_key(GroupMetadataKey(group=group_id)), write_value(value, GROUP_METADATA_VERSION))


def group_tombstone(group_id: str) -> LogRecord:
    return LogRecord(write_key(GroupMetadataKey(group=group_id)), None)


def epoch_record(key: RecordKey, value: RecordValue) -> LogRecord:
    """Makes a record of a consumer or share group; all of them have version 0."""
    return LogRecord(write_key(key), write_value(value, 0))


def tombstone(key: RecordKey) -> LogRecord:
    return LogRecord(write_key(key), None)
