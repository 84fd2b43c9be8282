"""The records in `__consumer_offsets`: Kafka's own, in the versions that Kafka 4.x writes."""

from __future__ import annotations

from ottla.base.bounded_cache import remembered
from ottla.base.immutable import immutable
from ottla.groups.offsets.store import CommittedOffset
from ottla.machine.contract import LogRecord
from ottla.machine.record_format import RecordFormat, write_key, write_value
from ottla.wire.messages import group_records, share_group_records, streams_group_records
from ottla.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from ottla.wire.schema import RecordKey, RecordValue

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
OFFSET_KEYS_BYTES_MAX = 4 << 20
"""Memory for cached keys of recently committed offsets. 4 MiB: about 6,000 partitions."""

_FORMAT = RecordFormat(group_records, share_group_records, streams_group_records)
read_key, read_value = _FORMAT.read_key, _FORMAT.read_value


@immutable
class OffsetCommitRecord(LogRecord):
    """An encoded record with its decoded key and value, so that the coordinator that wrote it need not decode it again."""

    decoded_key: OffsetCommitKey
    decoded_value: OffsetCommitValue


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
    encoded_key = _offset_key(group_id, topic, partition)
    if committed.expire_timestamp_ms >= 0:
        return LogRecord(encoded_key, write_value(value, OFFSET_COMMIT_VERSION_WITH_EXPIRY))
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return OffsetCommitRecord(encoded_key, write_value(value, OFFSET_COMMIT_VERSION), key, value)


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
    """Makes a record of a modern group; all of them have version 0."""
    return LogRecord(write_key(key), write_value(value, 0))


def tombstone(key: RecordKey) -> LogRecord:
    return LogRecord(write_key(key), None)
