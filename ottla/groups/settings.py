"""The settings of a group coordinator, and its view of the topics.

The comments beside the fields are configuration keys, except for constants. Defaults of keys are in `base/settings/`. A change of a dynamic
setting replaces `GroupCoordinatorSettings`. A field marked "ours" is a constant that Kafka does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ottla.base.immutable import immutable
from ottla.base.uuids import Uuid

MEMBER_BYTES = 1500
"""Memory of a member, or of a member id given out, in addition to names and metadata, in bytes."""
OFFSET_BYTES = 600
"""Memory of an offset in addition to its metadata and the names of its group and topic, in bytes."""


@immutable(kw_only=True)
class GroupCoordinatorSettings:
    session_timeout_min_ms: int  # group.min.session.timeout.ms
    session_timeout_max_ms: int  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int  # group.initial.rebalance.delay.ms
    late_metadata_wait_ms: int  # ours: the delay for clients that join before they have asked for their topics' metadata
    new_member_join_timeout_ms: int = 300_000  # a constant in Kafka
    members_max: int  # group.max.size
    offset_metadata_bytes_max: int  # offset.metadata.max.bytes
    offsets_retention_ms: int  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int  # offsets.retention.check.interval.ms
    consumer_session_timeout_ms: int  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int  # group.consumer.heartbeat.interval.ms
    consumer_assignment_interval_ms: int  # group.consumer.assignment.interval.ms
    consumer_members_max: int  # group.consumer.max.size
    consumer_assignors: tuple[str, ...]  # group.consumer.assignors
    consumer_migration_policy: str  # group.consumer.migration.policy
    share_session_timeout_ms: int  # group.share.session.timeout.ms
    share_heartbeat_interval_ms: int  # group.share.heartbeat.interval.ms
    share_assignment_interval_ms: int  # group.share.assignment.interval.ms
    share_gathering_ms: int  # ours: how long the first member of a share group waits for others before partitions are assigned
    share_members_max: int  # group.share.max.size
    share_assignors: tuple[str, ...]  # group.share.assignors
    share_initialize_retry_interval_ms: int  # group.share.initialize.retry.interval.ms
    streams_session_timeout_ms: int  # group.streams.session.timeout.ms
    streams_heartbeat_interval_ms: int  # group.streams.heartbeat.interval.ms
    streams_assignment_interval_ms: int  # group.streams.assignment.interval.ms
    streams_initial_rebalance_delay_ms: int  # group.streams.initial.rebalance.delay.ms
    streams_num_standby_replicas: int  # group.streams.num.standby.replicas
    streams_rack_aware_assignment_tags: tuple[str, ...]  # group.streams.rack.aware.assignment.tags
    streams_task_offset_interval_ms: int  # group.streams.task.offset.interval.ms
    streams_acceptable_recovery_lag: int  # group.streams.acceptable.recovery.lag, in records
    streams_members_max: int  # group.streams.max.size
    regex_refresh_interval_ms: int  # group.consumer.regex.refresh.interval.ms
    offsets_per_group_max: int  # ottla.group.offsets.max
    member_metadata_bytes_max: int = 512 * 1024  # ours: limit of a member's protocols, of its assignment, and of its topics' names
    group_metadata_bytes_max: int  # ottla.group.metadata.max.bytes
    protocols_per_member_max: int = 100  # ours
    pending_members_max: int = 10_000  # ours: ids of one group given out by MEMBER_ID_REQUIRED and not used yet


OwnSettings = Callable[[str], Mapping[str, Any]]
"""Returns the settings that a group overrides: values by Kafka's names, limited to the broker's minimum and maximum."""


def no_overrides(_group_id: str) -> Mapping[str, Any]:
    return {}


class TopicsView(Protocol):
    """The topics of the cluster as group coordinators see them."""

    def topic_names(self) -> Iterable[str]:
        """Returns all topics, for subscriptions by regular expression."""

    def topic_id(self, name: str) -> Uuid | None:
        """Returns the topic id; None if the topic does not exist."""

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """Returns the number of partitions; 0 if the topic does not exist."""
