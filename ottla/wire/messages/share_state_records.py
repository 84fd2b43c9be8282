"""Records of `__share_group_state`: snapshots of a share partition's state, and the changes since."""

from __future__ import annotations

from ottla.wire.schema import RecordKey, RecordValue, Struct, Uuid, array, i8, i16, i32, i64, string, uuid


class ShareSnapshotKey(RecordKey, key=0, versions=(0, 0)):
    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = i32()


class StateBatch(Struct):
    first_offset: int = i64()
    last_offset: int = i64()
    delivery_state: int = i8()
    delivery_count: int = i16()


class ShareSnapshotValue(RecordValue, key=0, versions=(0, 0), flexible=0):
    snapshot_epoch: int = i32()
    state_epoch: int = i32()
    leader_epoch: int = i32()
    start_offset: int = i64()
    delivery_complete_count: int = i32(tag=0, default=-1)
    create_timestamp: int = i64()
    write_timestamp: int = i64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(RecordKey, key=1, versions=(0, 0)):
    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = i32()


class ShareUpdateValue(RecordValue, key=1, versions=(0, 0), flexible=0):
    snapshot_epoch: int = i32()
    leader_epoch: int = i32()
    start_offset: int = i64()
    delivery_complete_count: int = i32(tag=0, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
