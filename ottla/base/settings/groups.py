"""Settings of consumer groups, share groups and streams groups.

A group without its own value has the broker's value (`broker_names`), or the default if the broker has no such setting.
"""

from __future__ import annotations

from ottla.base.settings.coordinators import NO_OFFLOAD
from ottla.base.settings.setting import Distinct, OneOf, Scope, Setting, Type, at_least, settings_of
from ottla.base.settings.sharing import DeadLetterTopicName, OffsetReset


def _group(name: str, default: int, doc: str, broker_name: str, *, low: int) -> Setting[int]:
    return Setting(name, Type.INT, default, doc, valid=at_least(low), scope=Scope.GROUP, broker_names=((broker_name, 1),))


class GroupOverrides:
    """Settings of one consumer group (KIP-848), share group (KIP-932) or streams group (KIP-1071). A number must be within the broker's
    minimum and maximum for the setting, if the broker has them."""

    consumer_assignment_interval_ms = _group(
        "consumer.assignment.interval.ms",
        1000,
        "Minimum time between two assignments of the consumer group.",
        "group.consumer.assignment.interval.ms",
        low=0,
    )
    consumer_assignor_offload_enable = Setting(
        "consumer.assignor.offload.enable", Type.BOOLEAN, True, NO_OFFLOAD,
        scope=Scope.GROUP, broker_names=(("group.consumer.assignor.offload.enable", 1),),
    )  # fmt: skip
    consumer_heartbeat_interval_ms = _group(
        "consumer.heartbeat.interval.ms",
        5000,
        "Interval of the heartbeats of members of the consumer group.",
        "group.consumer.heartbeat.interval.ms",
        low=1,
    )
    consumer_session_timeout_ms = _group(
        "consumer.session.timeout.ms",
        45000,
        "A member of the consumer group without a heartbeat for this long is removed.",
        "group.consumer.session.timeout.ms",
        low=1,
    )
    errors_deadletterqueue_copy_record_enable = Setting(
        "errors.deadletterqueue.copy.record.enable",
        Type.BOOLEAN,
        False,
        "Whether dead letters have the key, value and headers of the record. Without it, they only name the record.",
        scope=Scope.GROUP,
    )
    errors_deadletterqueue_topic_name = Setting(
        "errors.deadletterqueue.topic.name",
        Type.STRING,
        "",
        "The dead-letter topic of the share group, for records that were rejected or delivered too often; empty: none.",
        valid=DeadLetterTopicName(),
        scope=Scope.GROUP,
    )
    share_assignment_interval_ms = _group(
        "share.assignment.interval.ms",
        1000,
        "Minimum time between two assignments of the share group.",
        "group.share.assignment.interval.ms",
        low=0,
    )
    share_assignor_offload_enable = Setting(
        "share.assignor.offload.enable", Type.BOOLEAN, True, NO_OFFLOAD,
        scope=Scope.GROUP, broker_names=(("group.share.assignor.offload.enable", 1),),
    )  # fmt: skip
    share_heartbeat_interval_ms = _group(
        "share.heartbeat.interval.ms",
        5000,
        "Interval of the heartbeats of members of the share group.",
        "group.share.heartbeat.interval.ms",
        low=1,
    )
    share_session_timeout_ms = _group(
        "share.session.timeout.ms",
        45000,
        "A member of the share group without a heartbeat for this long is removed.",
        "group.share.session.timeout.ms",
        low=1,
    )
    share_auto_offset_reset = Setting(
        "share.auto.offset.reset",
        Type.STRING,
        "latest",
        "Where a share group begins to read a new partition.",
        valid=OffsetReset(),
        scope=Scope.GROUP,
    )
    share_delivery_count_limit = _group(
        "share.delivery.count.limit", 5, "Maximum number of deliveries of a record.", "group.share.delivery.count.limit", low=2
    )
    share_isolation_level = Setting(
        "share.isolation.level",
        Type.STRING,
        "read_uncommitted",
        "read_committed: records of aborted and open transactions are not delivered.",
        valid=OneOf("read_committed", "read_uncommitted"),
        scope=Scope.GROUP,
    )
    share_partition_max_record_locks = _group(
        "share.partition.max.record.locks",
        2000,
        "Maximum number of records of a partition in flight.",
        "group.share.partition.max.record.locks",
        low=100,
    )
    share_record_lock_duration_ms = _group(
        "share.record.lock.duration.ms",
        30000,
        "Time that a member has for a record before the record is delivered again.",
        "group.share.record.lock.duration.ms",
        low=1000,
    )
    share_renew_acknowledge_enable = Setting(
        "share.renew.acknowledge.enable",
        Type.BOOLEAN,
        True,
        "Whether members may renew the lock of a record.",
        scope=Scope.GROUP,
    )
    streams_acceptable_recovery_lag = Setting(
        "streams.acceptable.recovery.lag",
        Type.LONG,
        10000,
        "A member with a copy of a task's state that is at most this number of records behind counts as caught up.",
        valid=at_least(0),
        scope=Scope.GROUP,
        broker_names=(("group.streams.acceptable.recovery.lag", 1),),
    )
    streams_assignment_interval_ms = _group(
        "streams.assignment.interval.ms",
        1000,
        "Minimum time between two assignments of the streams group.",
        "group.streams.assignment.interval.ms",
        low=0,
    )
    streams_assignor_name = Setting(
        "streams.assignor.name", Type.STRING, "sticky",
        "Accepted without effect: `sticky` is the only assignor of streams groups (KIP-1357).",
        valid=OneOf("sticky"), scope=Scope.GROUP,
    )  # fmt: skip
    streams_assignor_offload_enable = Setting(
        "streams.assignor.offload.enable", Type.BOOLEAN, True, NO_OFFLOAD,
        scope=Scope.GROUP, broker_names=(("group.streams.assignor.offload.enable", 1),),
    )  # fmt: skip
    streams_heartbeat_interval_ms = _group(
        "streams.heartbeat.interval.ms",
        5000,
        "Interval of the heartbeats of members of the streams group.",
        "group.streams.heartbeat.interval.ms",
        low=1,
    )
    streams_initial_rebalance_delay_ms = _group(
        "streams.initial.rebalance.delay.ms",
        3000,
        "Time that the first assignment of the empty streams group waits for further members.",
        "group.streams.initial.rebalance.delay.ms",
        low=0,
    )
    streams_num_standby_replicas = _group(
        "streams.num.standby.replicas",
        0,
        "Standby tasks of each task with a state.",
        "group.streams.num.standby.replicas",
        low=0,
    )
    streams_num_warmup_replicas = _group(
        "streams.num.warmup.replicas",
        2,
        "Accepted without effect: no warm-up tasks are assigned. Kafka 4.4 assigns none either.",
        "group.streams.num.warmup.replicas",
        low=0,
    )
    streams_rack_aware_assignment_tags = Setting(
        "streams.rack.aware.assignment.tags", Type.LIST, (),
        "Keys of client tags. A member without one of them gets the status MISSING_CLIENT_TAGS. Tasks are not placed by tags.",
        valid=Distinct(), scope=Scope.GROUP, broker_names=(("group.streams.rack.aware.assignment.tags", 1),),
    )  # fmt: skip
    streams_session_timeout_ms = _group(
        "streams.session.timeout.ms",
        45000,
        "A member of the streams group without a heartbeat for this long is removed.",
        "group.streams.session.timeout.ms",
        low=1,
    )
    streams_task_offset_interval_ms = _group(
        "streams.task.offset.interval.ms",
        60000,
        "Interval at which members of the streams group report the offsets of their tasks.",
        "group.streams.task.offset.interval.ms",
        low=1,
    )


GROUP_SETTINGS = {setting.name: setting for setting in settings_of(GroupOverrides)}
