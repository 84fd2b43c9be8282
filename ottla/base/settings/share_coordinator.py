"""Settings of the share coordinator and of its internal topic, `__share_group_state`.

The defaults are Kafka's for a cluster. `deployments.py` has the defaults of a single broker (one replica).
"""

from __future__ import annotations

from ottla.base.settings.setting import Between, at_least, integer, short


class ShareCoordinatorSettings:
    """The state of share partitions, and its topic."""

    share_coordinator_state_topic_num_partitions = integer(
        "share.coordinator.state.topic.num.partitions", 50, "Partitions of __share_group_state when it is created.", valid=at_least(1)
    )
    share_coordinator_state_topic_replication_factor = short(
        "share.coordinator.state.topic.replication.factor", 3, "Replicas of __share_group_state.", valid=at_least(1)
    )
    share_coordinator_state_topic_min_isr = short(
        "share.coordinator.state.topic.min.isr", 2, "min.insync.replicas of __share_group_state.", valid=at_least(1)
    )
    share_coordinator_state_topic_segment_bytes = integer(
        "share.coordinator.state.topic.segment.bytes", 104857600, "Segment size of __share_group_state.", valid=at_least(1)
    )
    share_coordinator_load_buffer_size = integer(
        "share.coordinator.load.buffer.size",
        5242880,
        "Bytes of __share_group_state that a coordinator reads at a time when it loads.",
        valid=at_least(1),
    )
    share_coordinator_snapshot_update_records_per_snapshot = integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "Updates of a share partition's state between two snapshots.",
        valid=Between(0, 500),
    )
    share_coordinator_cold_partition_snapshot_interval_ms = integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300000,
        "A snapshot of this age is written again, so that older records can be removed.",
        valid=at_least(1),
        is_internal=True,
    )
    share_coordinator_state_topic_prune_interval_ms = integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300000,
        "How often records of __share_group_state that are no longer needed are removed.",
        valid=at_least(1),
        is_internal=True,
    )
