"""The settings of one log for the storage layer, in milliseconds and bytes. `BrokerConfig.log_config` (`base/config.py`) makes them from a
topic's overrides and the broker's defaults; a change of a dynamic setting makes a new object. Names follow Kafka's topic settings. A
retention of -1 is unlimited, as in Kafka.
"""

from __future__ import annotations

from ottla.base.immutable import immutable


@immutable(kw_only=True)
class LogConfig:
    """Kafka's topic-level settings of a log. `base/settings/` declares the defaults; `BrokerConfig.log_config({})` returns a log's settings
    without overrides."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    is_deleted: bool  # cleanup.policy contains "delete"
    is_compacted: bool  # cleanup.policy contains "compact"
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    max_message_bytes: int
    is_log_append_time: bool  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression_type: str  # producer, uncompressed, gzip, snappy, lz4 or zstd
    compression_level: int | None  # level of `compression_type`; None: the codec's default
    min_insync_replicas: int
    is_unclean_election_enabled: bool
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    record_bytes_max: int | None  # max.decompressed.message.bytes; None: no limit
    decompressed_bytes_max: int  # ours: maximum decompressed size of a batch that the broker decodes
    leader_throttled: frozenset[str]  # partition:broker, or "*"
    follower_throttled: frozenset[str]
    mirror_source: str  # ours: the cluster id and topic id of the mirrored topic; empty: clients write
    leader_epoch_min: int  # ours: records of smaller leader epochs were mirrored
    is_strict: bool  # ours: every record of a produced batch is checked
