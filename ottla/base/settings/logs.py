"""The broker's settings of topics and logs: placement, size, retention, compaction, flushing, replication. Topic settings (`topics.py`)
fall back on them.
"""

from __future__ import annotations

from ottla.base.settings.cordons import CORDONED
from ottla.base.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Between,
    OneOf,
    SomeOf,
    UpdateMode,
    at_least,
    boolean,
    double,
    integer,
    long,
    maybe_integer,
    maybe_long,
    maybe_string,
    string,
    words,
)

WIDE = UpdateMode.CLUSTER_WIDE
UNLIMITED_RECORD = 2_147_483_639
"""Kafka's default of max.decompressed.message.bytes: the longest array of Java."""
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class LogSettings:
    """Log directories, segments, retention, compaction and syncs."""

    log_dir = words("log.dir", ("ottla-data",), "Data directory, used if log.dirs is not set.")
    log_dirs = words(
        "log.dirs", (), "Data directories, separated by commas. A new partition is created in the directory with the fewest partitions."
    )
    cordoned_log_dirs = words(
        CORDONED, (),
        "Log directories that get no new replicas, or `*` for all of them. Replicas in them stay. The controller reads a value in the "
        "configuration file when the broker starts.", update=UpdateMode.PER_BROKER,
    )  # fmt: skip
    num_partitions = integer("num.partitions", 1, "Partitions of a new topic, unless its creator sets their number.", valid=at_least(1))
    default_replication_factor = integer("default.replication.factor", 1, "Replicas of a new topic, unless its creator sets their number.")
    min_insync_replicas = integer(
        "min.insync.replicas", 1, "In-sync replicas that a produce with acks=all needs.", valid=at_least(1), update=WIDE
    )
    delete_topic_enable = boolean("delete.topic.enable", True, "Whether topics can be deleted.")
    max_decompressed_message_bytes = integer(
        "max.decompressed.message.bytes",
        UNLIMITED_RECORD,
        f"Maximum size of a record in a compressed batch, decompressed. {UNLIMITED_RECORD}: no limit.",
        valid=at_least(0),
        update=WIDE,
    )
    message_max_bytes = integer("message.max.bytes", 1048588, "Maximum size of a record batch, compressed.", valid=at_least(0), update=WIDE)
    compression_type = string(
        "compression.type",
        "producer",
        "Codec of stored batches; producer: batches stay as they were sent.",
        valid=OneOf(*COMPRESSIONS),
        update=WIDE,
    )
    compression_gzip_level = integer(
        "compression.gzip.level", -1, "Level of gzip, where the broker compresses.", valid=Between(1, 9, also=(-1,)), update=WIDE
    )
    compression_lz4_level = integer(
        "compression.lz4.level", 9, "Level of lz4, where the broker compresses.", valid=Between(1, 17), update=WIDE
    )
    compression_zstd_level = integer(
        "compression.zstd.level", 3, "Level of zstd, where the broker compresses.", valid=Between(-131072, 22), update=WIDE
    )
    log_segment_bytes = integer("log.segment.bytes", 1 << 30, "A segment is rolled at this size.", valid=at_least(1 << 20), update=WIDE)
    log_roll_ms = maybe_long("log.roll.ms", "A segment is rolled at this age; not set: log.roll.hours.", update=WIDE)
    log_roll_hours = integer("log.roll.hours", 168, "A segment is rolled at this age.", valid=at_least(1))
    log_roll_jitter_ms = maybe_long(
        "log.roll.jitter.ms",
        "Maximum of a random time that is subtracted from the age at which a segment is rolled; not set: log.roll.jitter.hours.",
        update=WIDE,
    )
    log_roll_jitter_hours = integer(
        "log.roll.jitter.hours",
        0,
        "Maximum of a random time that is subtracted from the age at which a segment is rolled.",
        valid=at_least(0),
    )
    log_retention_ms = maybe_long(
        "log.retention.ms", "Time that records are kept; -1: forever; not set: log.retention.minutes.", update=WIDE
    )
    log_retention_minutes = maybe_integer("log.retention.minutes", "Time that records are kept; not set: log.retention.hours.")
    log_retention_hours = integer("log.retention.hours", 168, "Time that records are kept; -1: forever.")
    log_retention_bytes = long(
        "log.retention.bytes", -1, "Maximum size of a partition; older segments are deleted. -1: no limit.", update=WIDE
    )
    log_retention_check_interval_ms = long(
        "log.retention.check.interval.ms", 300000, "How often segments are checked for retention.", valid=at_least(1)
    )
    log_cleanup_policy = words(
        "log.cleanup.policy",
        ("delete",),
        "delete: retention removes old segments. compact: the last record of each key is kept. Both, or (empty) neither, are possible.",
        valid=SomeOf("compact", "delete", may_be_empty=True),
        update=WIDE,
    )
    log_local_retention_ms = long(
        "log.local.retention.ms", -2, "Accepted without effect: this broker has no tiered storage.", valid=at_least(-2), update=WIDE
    )
    log_local_retention_bytes = long(
        "log.local.retention.bytes", -2, "Accepted without effect: this broker has no tiered storage.", valid=at_least(-2), update=WIDE
    )
    log_remote_copy_lag_ms = long(
        "log.remote.copy.lag.ms", 0, "Accepted without effect: this broker has no tiered storage.", valid=at_least(-1), update=WIDE
    )
    log_remote_copy_lag_bytes = long(
        "log.remote.copy.lag.bytes", -1, "Accepted without effect: this broker has no tiered storage.", valid=at_least(-1), update=WIDE
    )
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes", 10 << 20, "A segment is rolled when one of its indexes has this size.", valid=at_least(4), update=WIDE
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes", 4096, "Bytes of log between two entries of an index.", valid=at_least(0), update=WIDE
    )
    log_segment_delete_delay_ms = long(
        "log.segment.delete.delay.ms", 60000, "Time that a deleted file stays on the disk for readers.", valid=at_least(0), update=WIDE
    )
    log_preallocate = boolean("log.preallocate", False, "Accepted without effect: files grow as they are written.", update=WIDE)
    log_message_timestamp_type = string(
        "log.message.timestamp.type",
        "CreateTime",
        "CreateTime: records have the producer's timestamp. LogAppendTime: the time of the append.",
        valid=OneOf("CreateTime", "LogAppendTime"),
        update=WIDE,
    )
    log_message_timestamp_before_max_ms = long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "A record whose timestamp is further in the past is refused.",
        valid=at_least(0),
        update=WIDE,
    )
    log_message_timestamp_after_max_ms = long(
        "log.message.timestamp.after.max.ms",
        3600000,
        "A record whose timestamp is further in the future is refused.",
        valid=at_least(0),
        update=WIDE,
    )
    log_flush_interval_messages = long(
        "log.flush.interval.messages", LONG_MAX, "A log is synced to the disk after this number of records.", valid=at_least(1), update=WIDE
    )
    log_flush_interval_ms = maybe_long(
        "log.flush.interval.ms", "A log is synced to the disk after this time; not set: log.flush.scheduler.interval.ms.", update=WIDE
    )
    log_flush_scheduler_interval_ms = long("log.flush.scheduler.interval.ms", LONG_MAX, "Default of log.flush.interval.ms.")
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "How often recovery points and log start offsets are written.",
        valid=at_least(0),
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60000,
        "Accepted without effect: log start offsets are written with the recovery points.",
        valid=at_least(0),
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often changed high watermarks are written.",
        valid=at_least(1),
    )
    ottla_scrub_interval_ms = long(
        "ottla.scrub.interval.ms",
        604800000,
        "How often the CRCs of all segments are checked in the background; 0: never.",
        valid=at_least(0),
        update=WIDE,
    )
    ottla_scrub_io_max_bytes_per_second = integer(
        "ottla.scrub.io.max.bytes.per.second",
        20 << 20,
        "Maximum bytes per second that the scrub reads.",
        valid=at_least(1 << 16),
        update=WIDE,
    )
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Whether logs with the policy compact are compacted.")
    log_cleaner_threads = integer(
        "log.cleaner.threads", 1, "0 stops compaction. Any other number means one worker process.", valid=at_least(0), update=WIDE
    )
    log_cleaner_backoff_ms = long(
        "log.cleaner.backoff.ms", 15000, "Pause between two rounds of compaction.", valid=at_least(0), update=WIDE
    )
    log_cleaner_dedupe_buffer_size = long(
        "log.cleaner.dedupe.buffer.size", 134217728, "Memory for the keys of one compaction, in bytes: 150 for each key.", update=WIDE
    )
    log_cleaner_io_max_bytes_per_second = double(
        "log.cleaner.io.max.bytes.per.second",
        1.7976931348623157e308,
        "Maximum bytes per second that compaction reads and writes.",
        update=WIDE,
    )
    log_cleaner_min_cleanable_ratio = double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "A log is due for compaction if this part of it has not been compacted.",
        valid=Between(0, 1),
        update=WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        "log.cleaner.min.compaction.lag.ms", 0, "Younger records are not compacted.", valid=at_least(0), update=WIDE
    )
    log_cleaner_max_compaction_lag_ms = long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "A log with an uncompacted record that is older is due for compaction.",
        valid=at_least(1),
        update=WIDE,
    )
    log_cleaner_delete_retention_ms = long(
        "log.cleaner.delete.retention.ms",
        86400000,
        "Time that tombstones and transaction markers are kept after compaction.",
        valid=at_least(0),
        update=WIDE,
    )
    num_recovery_threads_per_data_dir = integer(
        "num.recovery.threads.per.data.dir",
        2,
        "Accepted without effect: logs are recovered one after another.",
        valid=at_least(1),
        update=WIDE,
    )
    producer_id_expiration_ms = integer(
        "producer.id.expiration.ms", 86400000, "A producer id that is unused for this long is removed.", valid=at_least(1), update=WIDE
    )
    producer_id_expiration_check_interval_ms = integer(
        "producer.id.expiration.check.interval.ms",
        600000,
        "How often unused producer ids are removed.",
        valid=at_least(1),
        is_internal=True,
    )
    ottla_producers_max = integer(
        "ottla.producers.max",
        100_000,
        "Maximum number of producers that the partitions of this broker remember, about 600 bytes each. A new one then evicts an old one.",
        valid=at_least(1),
        update=WIDE,
    )
    ottla_flush_on_ack = boolean(
        "ottla.flush.on.ack",
        False,
        "Whether every acknowledgement waits until the records are on the disk. One fsync serves all waiting requests.",
    )
    ottla_batch_decompressed_max_bytes = integer(
        "ottla.batch.decompressed.max.bytes",
        32 << 20,
        "Maximum decompressed size of a batch that the broker must decode; max.message.bytes if that is larger.",
        valid=Between(1 << 20, INT_MAX),
    )
    ottla_validate_records = boolean(
        "ottla.validate.records", False, "Whether the broker checks each record of a produced batch, not only the batch."
    )


class ReplicationSettings:
    """Replicas, in-sync sets, elections and the controller."""

    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms", 30000, "A follower that has not caught up for this long is removed from the in-sync replicas."
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes", 1 << 20, "Bytes that a follower requests of each partition.", valid=at_least(0)
    )
    replica_fetch_min_bytes = integer("replica.fetch.min.bytes", 1, "Bytes that a follower's fetch waits for.")
    replica_fetch_wait_max_ms = integer("replica.fetch.wait.max.ms", 500, "Maximum time that a follower's fetch waits for records.")
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes", 10 << 20, "Maximum bytes that a follower requests in one fetch.", valid=at_least(0)
    )
    replica_fetch_backoff_ms = integer("replica.fetch.backoff.ms", 1000, "Pause of a follower after a failed fetch.", valid=at_least(0))
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "Connections on which a follower fetches from one leader. The hash of a partition selects its connection.",
        valid=at_least(1),
        update=WIDE,
    )
    leader_replication_throttled_rate = long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Maximum bytes per second that followers of throttled replicas are sent.",
        valid=at_least(0),
        update=WIDE,
    )
    follower_replication_throttled_rate = long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Maximum bytes per second that throttled replicas fetch.",
        valid=at_least(0),
        update=WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, "Maximum bytes per second that are copied between log directories.",
        valid=at_least(1), update=WIDE,
    )  # fmt: skip
    num_replica_alter_log_dirs_threads = maybe_integer(
        "num.replica.alter.log.dirs.threads",
        "Replicas that are copied to another log directory at a time, three at most; not set: the number of log directories.",
    )
    replica_selector_class = maybe_string(
        "replica.selector.class", "Kafka's RackAwareReplicaSelector lets consumers fetch from a replica in their rack."
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead if no other can; acknowledged records may be lost.",
        update=WIDE,
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable", True, "Whether the controller moves leadership back to the preferred replicas."
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller checks whether preferred replicas lead.",
        valid=at_least(1),
    )
    leader_imbalance_per_broker_percentage = integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "Leadership is moved back to a broker if more than this percentage of the partitions that prefer it have another leader.",
        valid=at_least(0),
    )
    controlled_shutdown_enable = boolean("controlled.shutdown.enable", True, "Whether a stopping broker first hands its leadership over.")
    controlled_shutdown_max_retries = integer(
        "controlled.shutdown.max.retries",
        3,
        "A stopping broker tries to hand over for this number times controlled.shutdown.retry.backoff.ms.",
        valid=at_least(0),
    )
    controlled_shutdown_retry_backoff_ms = long(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        "A stopping broker tries to hand over for this time, multiplied by controlled.shutdown.max.retries.",
        valid=at_least(0),
    )
    ottla_topics_partitions_max = integer(
        "ottla.topics.partitions.max", 200000, "Maximum number of partitions of all topics together.", valid=at_least(1)
    )
    ottla_create_topics_partitions_max = integer(
        "ottla.create.topics.partitions.max",
        10000,
        "Maximum new partitions in a CreateTopics or CreatePartitions request.",
        valid=at_least(1),
    )
