"""The broker's settings of topics and logs: placement, size, retention, compaction, flushing, replication. Topic settings (`topics.py`)
fall back on them.
"""

from __future__ import annotations

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
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class LogSettings:
    """Log directories, segments, retention, compaction and syncs."""

    log_dir = words("log.dir", ("ottla-data",), "Directory of the data when log.dirs is not set.")
    log_dirs = words("log.dirs", (), "Directories of the data, separated by commas; new partitions go to the one with the fewest.")
    num_partitions = integer("num.partitions", 1, "Partitions of a new topic when its creator does not say.", valid=at_least(1))
    default_replication_factor = integer("default.replication.factor", 1, "Replicas of a new topic when its creator does not say.")
    min_insync_replicas = integer(
        "min.insync.replicas", 1, "In-sync replicas that an acks=all produce needs.", valid=at_least(1), update=WIDE
    )
    delete_topic_enable = boolean("delete.topic.enable", True, "Topics may be deleted.")
    message_max_bytes = integer("message.max.bytes", 1048588, "Largest record batch, as sent.", valid=at_least(0), update=WIDE)
    compression_type = string(
        "compression.type",
        "producer",
        "Codec in which batches are kept; producer keeps what was sent.",
        valid=OneOf(*COMPRESSIONS),
        update=WIDE,
    )
    compression_gzip_level = integer(
        "compression.gzip.level", -1, "Level when the broker compresses by gzip.", valid=Between(1, 9, also=(-1,)), update=WIDE
    )
    compression_lz4_level = integer(
        "compression.lz4.level", 9, "Level when the broker compresses by lz4.", valid=Between(1, 17), update=WIDE
    )
    compression_zstd_level = integer(
        "compression.zstd.level", 3, "Level when the broker compresses by zstd.", valid=Between(-131072, 22), update=WIDE
    )
    log_segment_bytes = integer("log.segment.bytes", 1 << 30, "Size at which a segment is full.", valid=at_least(1 << 20), update=WIDE)
    log_roll_ms = maybe_long("log.roll.ms", "Age at which a segment is full; not set: log.roll.hours.", update=WIDE)
    log_roll_hours = integer("log.roll.hours", 168, "Age at which a segment is full.", valid=at_least(1))
    log_roll_jitter_ms = maybe_long("log.roll.jitter.ms", "Random part taken off the age; not set: log.roll.jitter.hours.", update=WIDE)
    log_roll_jitter_hours = integer("log.roll.jitter.hours", 0, "Random part taken off the age.", valid=at_least(0))
    log_retention_ms = maybe_long(
        "log.retention.ms", "How long records are kept; -1 for ever; not set: log.retention.minutes.", update=WIDE
    )
    log_retention_minutes = maybe_integer("log.retention.minutes", "How long records are kept; not set: log.retention.hours.")
    log_retention_hours = integer("log.retention.hours", 168, "How long records are kept; -1 for ever.")
    log_retention_bytes = long("log.retention.bytes", -1, "Bytes kept of each partition; -1 is no limit.", update=WIDE)
    log_retention_check_interval_ms = long(
        "log.retention.check.interval.ms", 300000, "How often logs are searched for what may be deleted.", valid=at_least(1)
    )
    log_cleanup_policy = words(
        "log.cleanup.policy", ("delete",), "What happens to old records: delete, compact, both, or (empty) nothing.",
        valid=SomeOf("compact", "delete", may_be_empty=True), update=WIDE,
    )  # fmt: skip
    log_local_retention_ms = long(
        "log.local.retention.ms", -2, "Of tiered storage, which this broker has not.", valid=at_least(-2), update=WIDE
    )
    log_local_retention_bytes = long(
        "log.local.retention.bytes", -2, "Of tiered storage, which this broker has not.", valid=at_least(-2), update=WIDE
    )
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes", 10 << 20, "Size at which an index, and so its segment, is full.", valid=at_least(4), update=WIDE
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes", 4096, "Bytes of log between two entries of an index.", valid=at_least(0), update=WIDE
    )
    log_segment_delete_delay_ms = long(
        "log.segment.delete.delay.ms", 60000, "How long a deleted file stays on the disk for readers.", valid=at_least(0), update=WIDE
    )
    log_preallocate = boolean("log.preallocate", False, "Accepted; files grow as they are written.", update=WIDE)
    log_message_timestamp_type = string(
        "log.message.timestamp.type", "CreateTime", "Whose clock stamps a record: its producer's or this broker's.",
        valid=OneOf("CreateTime", "LogAppendTime"), update=WIDE,
    )  # fmt: skip
    log_message_timestamp_before_max_ms = long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "A record may be this much older than the broker's clock.",
        valid=at_least(0),
        update=WIDE,
    )
    log_message_timestamp_after_max_ms = long(
        "log.message.timestamp.after.max.ms",
        3600000,
        "A record may be this much newer than the broker's clock.",
        valid=at_least(0),
        update=WIDE,
    )
    log_flush_interval_messages = long(
        "log.flush.interval.messages", LONG_MAX, "Records after which a log is flushed to the disk.", valid=at_least(1), update=WIDE
    )
    log_flush_interval_ms = maybe_long(
        "log.flush.interval.ms", "Time after which a log is flushed; not set: log.flush.scheduler.interval.ms.", update=WIDE
    )
    log_flush_scheduler_interval_ms = long(
        "log.flush.scheduler.interval.ms", LONG_MAX, "How often logs are searched for what should be flushed."
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "How often recovery points and first offsets are written down.",
        valid=at_least(0),
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms", 60000, "Accepted; written with the recovery points.", valid=at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often high watermarks are written down that have changed.",
        valid=at_least(1),
    )
    ottla_scrub_interval_ms = long(
        "ottla.scrub.interval.ms",
        604800000,
        "How often all segments are read and their CRCs checked, in the background; 0 never.",
        valid=at_least(0),
        update=WIDE,
    )
    ottla_scrub_io_max_bytes_per_second = integer(
        "ottla.scrub.io.max.bytes.per.second", 20 << 20, "Bytes a second that the scrub reads.", valid=at_least(1 << 16), update=WIDE
    )
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Logs with the policy compact are compacted.")
    log_cleaner_threads = integer(
        "log.cleaner.threads", 1, "0 stops compaction; more is as 1: one worker process does it all.", valid=at_least(0), update=WIDE
    )
    log_cleaner_backoff_ms = long(
        "log.cleaner.backoff.ms", 15000, "Pause when there is nothing to compact.", valid=at_least(0), update=WIDE
    )
    log_cleaner_dedupe_buffer_size = long(
        "log.cleaner.dedupe.buffer.size", 134217728, "Bytes for the keys of one compaction, 150 for each key.", update=WIDE
    )
    log_cleaner_io_max_bytes_per_second = double(
        "log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308, "Bytes a second that compaction may read and write.", update=WIDE
    )
    log_cleaner_min_cleanable_ratio = double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Share of a log that must be dirty before it is compacted.",
        valid=Between(0, 1),
        update=WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        "log.cleaner.min.compaction.lag.ms", 0, "Records younger than this are not compacted.", valid=at_least(0), update=WIDE
    )
    log_cleaner_max_compaction_lag_ms = long(
        "log.cleaner.max.compaction.lag.ms", LONG_MAX, "A record this old makes its log due for compaction.", valid=at_least(1), update=WIDE
    )
    log_cleaner_delete_retention_ms = long(
        "log.cleaner.delete.retention.ms", 86400000, "How long tombstones and markers outlive compaction.", valid=at_least(0), update=WIDE
    )
    num_recovery_threads_per_data_dir = integer(
        "num.recovery.threads.per.data.dir", 2, "Accepted; logs are recovered one after the other.", valid=at_least(1), update=WIDE
    )
    producer_id_expiration_ms = integer(
        "producer.id.expiration.ms", 86400000, "A producer id unused for this long is forgotten.", valid=at_least(1), update=WIDE
    )
    producer_id_expiration_check_interval_ms = integer(
        "producer.id.expiration.check.interval.ms",
        600000,
        "How often unused producer ids are looked for.",
        valid=at_least(1),
        is_internal=True,
    )
    ottla_producers_max = integer(
        "ottla.producers.max",
        100_000,
        "Producers that the partitions of this broker remember together, some 600 bytes each; another one replaces an old one.",
        valid=at_least(1),
        update=WIDE,
    )
    ottla_flush_on_ack = boolean(
        "ottla.flush.on.ack", False, "No acknowledgement before the bytes are on the disk; one fsync serves all waiting requests."
    )
    ottla_batch_decompressed_max_bytes = integer(
        "ottla.batch.decompressed.max.bytes",
        32 << 20,
        "Most bytes a batch may have once decompressed, where the broker must look into it; max.message.bytes if that is more.",
        valid=Between(1 << 20, INT_MAX),
    )
    ottla_validate_records = boolean(
        "ottla.validate.records", False, "Every record inside a produced batch is checked, not just the batch."
    )


class ReplicationSettings:
    """Replicas, in-sync sets, elections and the controller."""

    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms", 30000, "A follower that has not caught up for this long leaves the in-sync set."
    )
    replica_fetch_max_bytes = integer("replica.fetch.max.bytes", 1 << 20, "Bytes a follower asks of a partition.", valid=at_least(0))
    replica_fetch_min_bytes = integer("replica.fetch.min.bytes", 1, "Bytes a follower waits for.")
    replica_fetch_wait_max_ms = integer("replica.fetch.wait.max.ms", 500, "How long a follower's fetch waits.")
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes", 10 << 20, "Bytes a follower asks for in all.", valid=at_least(0)
    )
    replica_fetch_backoff_ms = integer("replica.fetch.backoff.ms", 1000, "A follower's pause after an error.", valid=at_least(0))
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "Connections by which a follower fetches from one leader; partitions are spread over them by their hash.",
        valid=at_least(1),
        update=WIDE,
    )
    leader_replication_throttled_rate = long(
        "leader.replication.throttled.rate", LONG_MAX, "Bytes a second that throttled replicas are served.", valid=at_least(0), update=WIDE
    )
    follower_replication_throttled_rate = long(
        "follower.replication.throttled.rate", LONG_MAX, "Bytes a second that throttled replicas fetch.", valid=at_least(0), update=WIDE
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, "Bytes a second that are copied from one directory to another.",
        valid=at_least(1), update=WIDE,
    )  # fmt: skip
    num_replica_alter_log_dirs_threads = maybe_integer(
        "num.replica.alter.log.dirs.threads", "Replicas copied from one directory to another at a time, three at most; unset: as many as "
        "there are directories.",
    )  # fmt: skip
    replica_selector_class = maybe_string(
        "replica.selector.class", "Set to Kafka's RackAwareReplicaSelector: consumers of a rack are sent to a replica there."
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "A replica out of sync may lead when no other is left; acknowledged records may be lost.",
        update=WIDE,
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable", True, "Leadership goes back to the preferred replicas by itself."
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds", 300, "How often leadership is compared with the preferred replicas.", valid=at_least(1)
    )
    leader_imbalance_per_broker_percentage = integer(
        "leader.imbalance.per.broker.percentage", 10, "So much of a broker's leadership may be elsewhere.", valid=at_least(0)
    )
    controlled_shutdown_enable = boolean("controlled.shutdown.enable", True, "A stopping broker hands over its partitions first.")
    controlled_shutdown_max_retries = integer(
        "controlled.shutdown.max.retries", 3, "With the pause: how long a stopping broker tries to hand over.", valid=at_least(0)
    )
    controlled_shutdown_retry_backoff_ms = long(
        "controlled.shutdown.retry.backoff.ms", 5000, "With the retries: how long a stopping broker tries to hand over.", valid=at_least(0)
    )
    ottla_topics_partitions_max = integer("ottla.topics.partitions.max", 200000, "Partitions of all topics together.", valid=at_least(1))
    ottla_create_topics_partitions_max = integer(
        "ottla.create.topics.partitions.max", 10000, "New partitions in one CreateTopics or CreatePartitions request.", valid=at_least(1)
    )
