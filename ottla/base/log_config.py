"""The settings of one log, as the storage layer wants them: resolved, typed, in milliseconds and bytes.

Made from a topic's overrides and the broker's defaults by `base/config.py`; a new object replaces the old one when a dynamic setting
changes. Names are Kafka's topic settings; -1 means unlimited wherever Kafka says so.
"""

from __future__ import annotations

from ottla.base.immutable import immutable


@immutable(kw_only=True)
class LogConfig:
    """Kafka's topic-level settings of a log; defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    is_deleted: bool = True  # cleanup.policy contains "delete"
    is_compacted: bool = False  # cleanup.policy contains "compact"
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    is_log_append_time: bool = False  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"  # or uncompressed, gzip, snappy, lz4, zstd
    min_insync_replicas: int = 1
    is_unclean_election_enabled: bool = False
    flush_messages: int = (1 << 63) - 1
    flush_ms: int = (1 << 63) - 1
    file_delete_delay_ms: int = 60_000
    decompressed_bytes_max: int = 32 << 20  # ours: cap on one batch when it must be decoded
    is_strict: bool = False  # ours: every record of a produced batch is looked at
