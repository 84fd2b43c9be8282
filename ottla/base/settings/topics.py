"""Settings of topics.

A topic setting without its own value has the broker's value, or its default if the broker has no such setting. `broker_names` lists the
broker settings, each with the factor to the topic setting's unit. The first broker setting with a value is used (log.retention.ms before
.minutes before .hours).
"""

from __future__ import annotations

from typing import Any

from ottla.base.settings.logs import COMPRESSIONS, UNLIMITED_RECORD
from ottla.base.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Between,
    OneOf,
    Scope,
    Setting,
    SomeOf,
    Type,
    at_least,
    settings_of,
)

HOUR_MS = 3_600_000


def _topic(name: str, type_: Type, default: Any, doc: str, *broker_names: str | tuple[str, int], valid: Any = None) -> Setting[Any]:
    names = tuple((entry, 1) if isinstance(entry, str) else entry for entry in broker_names)
    return Setting(name, type_, default, doc, valid=valid, scope=Scope.TOPIC, broker_names=names)


class ThrottledReplicas:
    """`partition:broker` pairs, or `*` alone for all replicas."""

    description = "[partition]:[broker],[partition]:[broker],... or *"

    def __call__(self, value: Any) -> str:
        if set(value) == {"*"} or all(self._is_pair(part) for part in value):
            return ""
        return "Must be * or a list of partition:broker"

    @staticmethod
    def _is_pair(text: str) -> bool:
        partition, _, broker = text.partition(":")
        return partition.isdecimal() and broker.isdecimal()


class TopicSettings:
    """Kafka's topic settings."""

    cleanup_policy = _topic(
        "cleanup.policy",
        Type.LIST,
        ("delete",),
        "delete: retention removes old segments. compact: the last record of each key is kept. Both, or (empty) neither, are possible.",
        "log.cleanup.policy",
        valid=SomeOf("compact", "delete", may_be_empty=True),
    )
    compression_gzip_level = _topic(
        "compression.gzip.level",
        Type.INT,
        -1,
        "Level of gzip, where the broker compresses.",
        "compression.gzip.level",
        valid=Between(1, 9, also=(-1,)),
    )
    compression_lz4_level = _topic(
        "compression.lz4.level", Type.INT, 9, "Level of lz4, where the broker compresses.", "compression.lz4.level", valid=Between(1, 17)
    )
    compression_type = _topic(
        "compression.type",
        Type.STRING,
        "producer",
        "Codec of stored batches; producer: batches stay as they were sent.",
        "compression.type",
        valid=OneOf(*COMPRESSIONS),
    )
    compression_zstd_level = _topic(
        "compression.zstd.level",
        Type.INT,
        3,
        "Level of zstd, where the broker compresses.",
        "compression.zstd.level",
        valid=Between(-131072, 22),
    )
    delete_retention_ms = _topic(
        "delete.retention.ms",
        Type.LONG,
        86400000,
        "Time that tombstones and transaction markers are kept after compaction.",
        "log.cleaner.delete.retention.ms",
        valid=at_least(0),
    )
    errors_deadletterqueue_group_enable = _topic(
        "errors.deadletterqueue.group.enable",
        Type.BOOLEAN,
        False,
        "Whether share groups may use the topic as their dead-letter topic (KIP-1191).",
    )
    file_delete_delay_ms = _topic(
        "file.delete.delay.ms",
        Type.LONG,
        60000,
        "Time that a deleted file stays on the disk for readers.",
        "log.segment.delete.delay.ms",
        valid=at_least(0),
    )
    flush_messages = _topic(
        "flush.messages",
        Type.LONG,
        LONG_MAX,
        "The log is synced to the disk after this number of records. 1: every acknowledgement waits for the disk.",
        "log.flush.interval.messages",
        valid=at_least(1),
    )
    flush_ms = _topic(
        "flush.ms",
        Type.LONG,
        LONG_MAX,
        "The log is synced to the disk after this time.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        valid=at_least(0),
    )
    follower_replication_throttled_replicas = _topic(
        "follower.replication.throttled.replicas",
        Type.LIST,
        (),
        "Replicas that followers throttle (follower.replication.throttled.rate).",
        valid=ThrottledReplicas(),
    )
    index_interval_bytes = _topic(
        "index.interval.bytes",
        Type.INT,
        4096,
        "Bytes of log between two entries of an index.",
        "log.index.interval.bytes",
        valid=at_least(0),
    )
    internal_segment_bytes = _topic(
        "internal.segment.bytes", Type.INT, None, "For tests: like segment.bytes, without its lower bound.", valid=at_least(1)
    )
    leader_replication_throttled_replicas = _topic(
        "leader.replication.throttled.replicas",
        Type.LIST,
        (),
        "Replicas that the leader throttles (leader.replication.throttled.rate).",
        valid=ThrottledReplicas(),
    )
    ottla_leader_epoch_min = _topic(
        "ottla.leader.epoch.min",
        Type.INT,
        0,
        "Smallest leader epoch of the partitions. `ottla mirror` sets it above the epochs of the source; records of smaller epochs are the "
        "source's. Leave it after the mirroring.",
        valid=Between(0, INT_MAX),
    )
    ottla_mirror_source = _topic(
        "ottla.mirror.source",
        Type.STRING,
        "",
        "The cluster id and topic id of the mirrored topic, set by `ottla mirror`. While it is set only the mirror may write.",
    )
    local_retention_bytes = _topic(
        "local.retention.bytes",
        Type.LONG,
        -2,
        "Accepted without effect: this broker has no tiered storage.",
        "log.local.retention.bytes",
        valid=at_least(-2),
    )
    local_retention_ms = _topic(
        "local.retention.ms",
        Type.LONG,
        -2,
        "Accepted without effect: this broker has no tiered storage.",
        "log.local.retention.ms",
        valid=at_least(-2),
    )
    max_compaction_lag_ms = _topic(
        "max.compaction.lag.ms",
        Type.LONG,
        LONG_MAX,
        "A log with an uncompacted record that is older is due for compaction.",
        "log.cleaner.max.compaction.lag.ms",
        valid=at_least(1),
    )
    max_decompressed_message_bytes = _topic(
        "max.decompressed.message.bytes",
        Type.INT,
        UNLIMITED_RECORD,
        "Maximum size of a record in a compressed batch, decompressed. With a limit the broker decompresses each compressed batch. "
        f"{UNLIMITED_RECORD}: no limit.",
        "max.decompressed.message.bytes",
        valid=at_least(0),
    )
    max_message_bytes = _topic(
        "max.message.bytes", Type.INT, 1048588, "Maximum size of a record batch, compressed.", "message.max.bytes", valid=at_least(0)
    )
    message_timestamp_after_max_ms = _topic(
        "message.timestamp.after.max.ms",
        Type.LONG,
        HOUR_MS,
        "A record whose timestamp is further in the future is refused.",
        "log.message.timestamp.after.max.ms",
        valid=at_least(0),
    )
    message_timestamp_before_max_ms = _topic(
        "message.timestamp.before.max.ms",
        Type.LONG,
        LONG_MAX,
        "A record whose timestamp is further in the past is refused.",
        "log.message.timestamp.before.max.ms",
        valid=at_least(0),
    )
    message_timestamp_type = _topic(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "CreateTime: records have the producer's timestamp. LogAppendTime: the time of the append.",
        "log.message.timestamp.type",
        valid=OneOf("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio = _topic(
        "min.cleanable.dirty.ratio",
        Type.DOUBLE,
        0.5,
        "A log is due for compaction if this part of it has not been compacted.",
        "log.cleaner.min.cleanable.ratio",
        valid=Between(0, 1),
    )
    min_compaction_lag_ms = _topic(
        "min.compaction.lag.ms",
        Type.LONG,
        0,
        "Younger records are not compacted.",
        "log.cleaner.min.compaction.lag.ms",
        valid=at_least(0),
    )
    min_insync_replicas = _topic(
        "min.insync.replicas", Type.INT, 1, "In-sync replicas that a produce with acks=all needs.", "min.insync.replicas", valid=at_least(1)
    )
    preallocate = _topic("preallocate", Type.BOOLEAN, False, "Accepted without effect: files grow as they are written.", "log.preallocate")
    remote_copy_lag_bytes = _topic(
        "remote.copy.lag.bytes",
        Type.LONG,
        -1,
        "Accepted without effect: this broker has no tiered storage.",
        "log.remote.copy.lag.bytes",
        valid=at_least(-1),
    )
    remote_copy_lag_ms = _topic(
        "remote.copy.lag.ms",
        Type.LONG,
        0,
        "Accepted without effect: this broker has no tiered storage.",
        "log.remote.copy.lag.ms",
        valid=at_least(-1),
    )
    remote_log_copy_disable = _topic(
        "remote.log.copy.disable", Type.BOOLEAN, False, "Accepted without effect: this broker has no tiered storage."
    )
    remote_log_delete_on_disable = _topic(
        "remote.log.delete.on.disable", Type.BOOLEAN, False, "Accepted without effect: this broker has no tiered storage."
    )
    remote_storage_enable = _topic("remote.storage.enable", Type.BOOLEAN, False, "true is refused: this broker has no tiered storage.")
    retention_bytes = _topic(
        "retention.bytes", Type.LONG, -1, "Maximum size of a partition; older segments are deleted. -1: no limit.", "log.retention.bytes"
    )
    retention_ms = _topic(
        "retention.ms",
        Type.LONG,
        604800000,
        "Time that records are kept; -1: forever.",
        "log.retention.ms",
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", HOUR_MS),
        valid=at_least(-1),
    )
    segment_bytes = _topic(
        "segment.bytes", Type.INT, 1 << 30, "A segment is rolled at this size.", "log.segment.bytes", valid=at_least(1 << 20)
    )
    segment_index_bytes = _topic(
        "segment.index.bytes",
        Type.INT,
        10 << 20,
        "A segment is rolled when one of its indexes has this size.",
        "log.index.size.max.bytes",
        valid=at_least(4),
    )
    segment_jitter_ms = _topic(
        "segment.jitter.ms",
        Type.LONG,
        0,
        "Maximum of a random time that is subtracted from segment.ms.",
        "log.roll.jitter.ms",
        ("log.roll.jitter.hours", HOUR_MS),
        valid=at_least(0),
    )
    segment_ms = _topic(
        "segment.ms",
        Type.LONG,
        604800000,
        "A segment is rolled at this age.",
        "log.roll.ms",
        ("log.roll.hours", HOUR_MS),
        valid=at_least(1),
    )
    unclean_leader_election_enable = _topic(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead if no other can; acknowledged records may be lost.",
        "unclean.leader.election.enable",
    )


MIRROR_SOURCE, LEADER_EPOCH_MIN = TopicSettings.ottla_mirror_source.name, TopicSettings.ottla_leader_epoch_min.name
TOPIC_SETTINGS = {setting.name: setting for setting in settings_of(TopicSettings)}
