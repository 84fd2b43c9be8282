"""Settings of the group and transaction coordinators and of their internal topics.

The defaults are Kafka's for a cluster, except for `GROUP_MEMBERS_MAX`. `deployments.py` has the defaults of a single broker (one replica,
no rebalance delay).
"""

from __future__ import annotations

from collections.abc import Container

from ottla.base.settings.setting import (
    Between,
    Distinct,
    OneOf,
    Setting,
    SomeOf,
    Type,
    UpdateMode,
    at_least,
    boolean,
    integer,
    long,
    short,
    string,
    words,
)  # fmt: skip

WIDE = UpdateMode.CLUSTER_WIDE
GROUP_MEMBERS_MAX = 5000
"""Members of a group, at most. The join of the 5,000th member takes about 50 ms; the time of a join is proportional to the size of the
group. Kafka's default is no limit.
"""
NO_OFFLOAD = "Accepted without effect: assignments are computed by the core of the coordinator, and not by another thread."
MIGRATIONS = ("disabled", "downgrade", "upgrade", "bidirectional")


class GroupSettings:
    """Consumer groups: members, timeouts, committed offsets."""

    group_coordinator_rebalance_protocols = words(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        "Without consumer, groups of the consumer protocol are refused, and without streams, streams groups. Classic groups are "
        "always served, and share groups depend on the feature share.version.",
        valid=SomeOf("classic", "consumer", "share", "streams"),
    )
    group_min_session_timeout_ms = integer("group.min.session.timeout.ms", 6000, "Shortest session timeout of a member of a classic group.")
    group_max_session_timeout_ms = integer(
        "group.max.session.timeout.ms", 1800000, "Longest session timeout of a member of a classic group."
    )
    group_initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms", 3000, "Time that the first rebalance of an empty group waits for further members."
    )
    group_max_size = integer("group.max.size", GROUP_MEMBERS_MAX, "Maximum number of members of a classic group.", valid=at_least(1))
    group_consumer_assignors = words(
        "group.consumer.assignors",
        ("uniform", "range"),
        "Assignors of the broker for consumer groups; the first one is the default.",
        valid=SomeOf("uniform", "range"),
    )
    group_consumer_heartbeat_interval_ms = integer(
        "group.consumer.heartbeat.interval.ms", 5000, "Interval of the heartbeats of members of consumer groups.", valid=at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        "group.consumer.min.heartbeat.interval.ms", 5000, "Smallest consumer.heartbeat.interval.ms that a group may set.", valid=at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        "group.consumer.max.heartbeat.interval.ms", 15000, "Largest consumer.heartbeat.interval.ms that a group may set.", valid=at_least(1)
    )
    group_consumer_session_timeout_ms = integer(
        "group.consumer.session.timeout.ms",
        45000,
        "A member of a consumer group without a heartbeat for this long is removed.",
        valid=at_least(1),
    )
    group_consumer_min_session_timeout_ms = integer(
        "group.consumer.min.session.timeout.ms", 45000, "Smallest consumer.session.timeout.ms that a group may set.", valid=at_least(1)
    )
    group_consumer_max_session_timeout_ms = integer(
        "group.consumer.max.session.timeout.ms", 60000, "Largest consumer.session.timeout.ms that a group may set.", valid=at_least(1)
    )
    group_consumer_assignment_interval_ms = integer(
        "group.consumer.assignment.interval.ms",
        1000,
        "Minimum time between two assignments of a consumer group.",
        valid=at_least(0),
        update=WIDE,
    )
    group_consumer_min_assignment_interval_ms = integer(
        "group.consumer.min.assignment.interval.ms", 0, "Smallest consumer.assignment.interval.ms that a group may set.", valid=at_least(0)
    )
    group_consumer_max_assignment_interval_ms = integer(
        "group.consumer.max.assignment.interval.ms",
        15000,
        "Largest consumer.assignment.interval.ms that a group may set.",
        valid=at_least(0),
    )
    group_consumer_assignor_offload_enable = boolean("group.consumer.assignor.offload.enable", True, NO_OFFLOAD, update=WIDE)
    group_consumer_max_size = integer(
        "group.consumer.max.size", GROUP_MEMBERS_MAX, "Maximum number of members of a consumer group.", valid=at_least(1)
    )
    group_consumer_migration_policy = string(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a group with members may change between the classic and the consumer protocol.",
        valid=OneOf(*MIGRATIONS, any_case=True),
    )
    group_consumer_regex_refresh_interval_ms = integer(
        "group.consumer.regex.refresh.interval.ms",
        600000,
        "How often subscribed patterns are matched with the topics again.",
        valid=at_least(10000),
        is_internal=True,
    )
    group_share_assignors = words(
        "group.share.assignors", ("simple",), "Assignors of the broker for share groups; the first one is used.", valid=SomeOf("simple")
    )
    group_share_assignment_interval_ms = integer(
        "group.share.assignment.interval.ms",
        1000,
        "Minimum time between two assignments of a share group.",
        valid=at_least(0),
        update=WIDE,
    )
    group_share_min_assignment_interval_ms = integer(
        "group.share.min.assignment.interval.ms", 0, "Smallest share.assignment.interval.ms that a group may set.", valid=at_least(0)
    )
    group_share_max_assignment_interval_ms = integer(
        "group.share.max.assignment.interval.ms", 15000, "Largest share.assignment.interval.ms that a group may set.", valid=at_least(0)
    )
    group_share_assignor_offload_enable = boolean("group.share.assignor.offload.enable", True, NO_OFFLOAD, update=WIDE)
    group_share_heartbeat_interval_ms = integer(
        "group.share.heartbeat.interval.ms", 5000, "Interval of the heartbeats of members of share groups.", valid=at_least(1)
    )
    group_share_min_heartbeat_interval_ms = integer(
        "group.share.min.heartbeat.interval.ms", 5000, "Smallest share.heartbeat.interval.ms that a group may set.", valid=at_least(1)
    )
    group_share_max_heartbeat_interval_ms = integer(
        "group.share.max.heartbeat.interval.ms", 15000, "Largest share.heartbeat.interval.ms that a group may set.", valid=at_least(1)
    )
    group_share_session_timeout_ms = integer(
        "group.share.session.timeout.ms",
        45000,
        "A member of a share group without a heartbeat for this long is removed.",
        valid=at_least(1),
    )
    group_share_min_session_timeout_ms = integer(
        "group.share.min.session.timeout.ms", 45000, "Smallest share.session.timeout.ms that a group may set.", valid=at_least(1)
    )
    group_share_max_session_timeout_ms = integer(
        "group.share.max.session.timeout.ms", 60000, "Largest share.session.timeout.ms that a group may set.", valid=at_least(1)
    )
    group_share_max_size = integer("group.share.max.size", 200, "Maximum number of members of a share group.", valid=Between(1, 1000))
    group_share_initialize_retry_interval_ms = integer(
        "group.share.initialize.retry.interval.ms",
        30000,
        "Pause before a failed request to initialize or delete the state of a share partition is repeated, at least "
        "offsets.commit.timeout.ms.",
        valid=at_least(1),
        is_internal=True,
    )
    group_streams_assignment_interval_ms = integer(
        "group.streams.assignment.interval.ms",
        1000,
        "Minimum time between two assignments of a streams group.",
        valid=at_least(0),
        update=WIDE,
    )
    group_streams_min_assignment_interval_ms = integer(
        "group.streams.min.assignment.interval.ms", 0, "Smallest streams.assignment.interval.ms that a group may set.", valid=at_least(0)
    )
    group_streams_max_assignment_interval_ms = integer(
        "group.streams.max.assignment.interval.ms", 15000, "Largest streams.assignment.interval.ms that a group may set.", valid=at_least(0)
    )
    group_streams_assignor_offload_enable = boolean("group.streams.assignor.offload.enable", True, NO_OFFLOAD, update=WIDE)
    group_streams_heartbeat_interval_ms = integer(
        "group.streams.heartbeat.interval.ms", 5000, "Interval of the heartbeats of members of streams groups.", valid=at_least(1)
    )
    group_streams_min_heartbeat_interval_ms = integer(
        "group.streams.min.heartbeat.interval.ms", 5000, "Smallest streams.heartbeat.interval.ms that a group may set.", valid=at_least(1)
    )
    group_streams_max_heartbeat_interval_ms = integer(
        "group.streams.max.heartbeat.interval.ms", 15000, "Largest streams.heartbeat.interval.ms that a group may set.", valid=at_least(1)
    )
    group_streams_session_timeout_ms = integer(
        "group.streams.session.timeout.ms",
        45000,
        "A member of a streams group without a heartbeat for this long is removed.",
        valid=at_least(1),
    )
    group_streams_min_session_timeout_ms = integer(
        "group.streams.min.session.timeout.ms", 45000, "Smallest streams.session.timeout.ms that a group may set.", valid=at_least(1)
    )
    group_streams_max_session_timeout_ms = integer(
        "group.streams.max.session.timeout.ms", 60000, "Largest streams.session.timeout.ms that a group may set.", valid=at_least(1)
    )
    group_streams_max_size = integer(
        "group.streams.max.size", GROUP_MEMBERS_MAX, "Maximum number of members of a streams group.", valid=at_least(1)
    )
    group_streams_num_standby_replicas = integer(
        "group.streams.num.standby.replicas", 0, "Standby tasks of each task with a state.", valid=at_least(0)
    )
    group_streams_max_standby_replicas = integer(
        "group.streams.max.standby.replicas", 2, "Largest streams.num.standby.replicas that a group may set.", valid=at_least(0)
    )
    group_streams_initial_rebalance_delay_ms = integer(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        "Time that the first assignment of an empty streams group waits for further members.",
        valid=at_least(0),
    )
    group_streams_assignors = words(
        "group.streams.assignors",
        ("sticky",),
        "Accepted without effect: `sticky` is the only assignor of streams groups (KIP-1357).",
        valid=SomeOf("sticky"),
    )
    group_streams_task_offset_interval_ms = integer(
        "group.streams.task.offset.interval.ms",
        60000,
        "Interval at which members of streams groups report the offsets of their tasks.",
        valid=at_least(1),
    )
    group_streams_min_task_offset_interval_ms = integer(
        "group.streams.min.task.offset.interval.ms",
        15000,
        "Smallest streams.task.offset.interval.ms that a group may set.",
        valid=at_least(1),
    )
    group_streams_acceptable_recovery_lag = long(
        "group.streams.acceptable.recovery.lag",
        10000,
        "A member with a copy of a task's state that is at most this number of records behind counts as caught up.",
        valid=at_least(0),
    )
    group_streams_rack_aware_assignment_tags = words(
        "group.streams.rack.aware.assignment.tags",
        (),
        "Keys of client tags. A member of a streams group without one of them gets the status MISSING_CLIENT_TAGS. Tasks are not placed by "
        "tags; the assignor of Kafka 4.4 does not either.",
        valid=Distinct(),
    )
    group_streams_num_warmup_replicas = integer(
        "group.streams.num.warmup.replicas",
        2,
        "Accepted without effect: no warm-up tasks are assigned. Kafka 4.4 assigns none either.",
        valid=at_least(0),
    )
    group_streams_max_warmup_replicas = integer(
        "group.streams.max.warmup.replicas", 20, "Largest streams.num.warmup.replicas that a group may set.", valid=at_least(0)
    )
    group_streams_topology_description_plugin_class: Setting[str | None] = Setting(
        "group.streams.topology.description.plugin.class", Type.CLASS, None,
        "Accepted without effect: descriptions of topologies are always kept in memory, as Kafka's plugin does. Other plugins are refused.",
        valid=OneOf("org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"),
    )  # fmt: skip
    offset_metadata_max_bytes = integer("offset.metadata.max.bytes", 4096, "Maximum size of the metadata of a committed offset.")
    offsets_topic_num_partitions = integer(
        "offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets when it is created.", valid=at_least(1)
    )
    offsets_topic_replication_factor = short("offsets.topic.replication.factor", 3, "Replicas of __consumer_offsets.", valid=at_least(1))
    offsets_topic_segment_bytes = integer(
        "offsets.topic.segment.bytes", 104857600, "Segment size of __consumer_offsets.", valid=at_least(1)
    )
    offsets_topic_compression_codec = integer(
        "offsets.topic.compression.codec", 0, "Accepted without effect: records of coordinators are not compressed."
    )
    offsets_retention_minutes = integer(
        "offsets.retention.minutes", 10080, "Time that committed offsets are kept after their group has become empty.", valid=at_least(1)
    )
    offsets_retention_check_interval_ms = long(
        "offsets.retention.check.interval.ms", 600000, "How often expired offsets are removed.", valid=at_least(1)
    )
    offsets_commit_timeout_ms = integer(
        "offsets.commit.timeout.ms", 5000, "Time that a commit waits for the replicas of __consumer_offsets.", valid=at_least(1)
    )
    offsets_load_buffer_size = integer(
        "offsets.load.buffer.size",
        5242880,
        "Bytes of __consumer_offsets that a coordinator reads at a time when it loads.",
        valid=at_least(1),
    )
    ottla_group_metadata_max_bytes = integer(
        "ottla.group.metadata.max.bytes", 64 << 20, "Maximum bytes of member metadata and assignments of one group.", valid=at_least(1024)
    )
    ottla_group_offsets_max = integer(
        "ottla.group.offsets.max", 1000000, "Maximum number of committed offsets of one group.", valid=at_least(1)
    )


class TransactionSettings:
    """Transactional producers and __transaction_state."""

    transaction_state_log_num_partitions = integer(
        "transaction.state.log.num.partitions", 50, "Partitions of __transaction_state when it is created.", valid=at_least(1)
    )
    transaction_state_log_replication_factor = short(
        "transaction.state.log.replication.factor", 3, "Replicas of __transaction_state.", valid=at_least(1)
    )
    transaction_state_log_min_isr = integer(
        "transaction.state.log.min.isr", 2, "min.insync.replicas of __transaction_state.", valid=at_least(1)
    )
    transaction_state_log_segment_bytes = integer(
        "transaction.state.log.segment.bytes", 104857600, "Segment size of __transaction_state.", valid=at_least(1)
    )
    transaction_state_log_load_buffer_size = integer(
        "transaction.state.log.load.buffer.size",
        5242880,
        "Bytes of __transaction_state that a coordinator reads at a time when it loads.",
        valid=at_least(1),
    )
    transaction_max_timeout_ms = integer(
        "transaction.max.timeout.ms", 900000, "Maximum transaction timeout that a producer may request.", valid=at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10000,
        "How often timed-out transactions are aborted.",
        valid=at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3600000,
        "How often expired transactional ids are removed.",
        valid=at_least(1),
    )
    transactional_id_expiration_ms = integer(
        "transactional.id.expiration.ms", 604800000, "A transactional id that is unused for this long is removed.", valid=at_least(1)
    )
    transaction_two_phase_commit_enable = boolean(
        "transaction.two.phase.commit.enable", False, "Whether producers may use two-phase commit, with transactions that never time out."
    )
    transaction_partition_verification_enable = boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a transactional produce is appended only if the coordinator knows that the transaction has the partition.",
        update=WIDE,
    )
    ottla_transactions_max = integer(
        "ottla.transactions.max", 1000000, "Maximum number of transactional ids that this broker coordinates.", valid=at_least(1)
    )


def bound_names(broker_name: str, known: Container[str]) -> tuple[str, str]:
    """Returns the names of the settings that contain the minimum and the maximum of a broker's `group.*` setting. A name is empty if it is
    not in `known`, so there is no such limit."""
    _, kind, rest = broker_name.split(".", 2)
    lowest, highest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
    return lowest if lowest in known else "", highest if highest in known else ""
