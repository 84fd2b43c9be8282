"""Views for coordinators: their settings from the broker's configuration, topics and leaders from the cluster's metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.base.cluster_metadata import CONFIG_GROUP, ClusterMetadata
from ottla.base.config import GROUP_SETTINGS, BrokerConfig
from ottla.groups.settings import GroupCoordinatorSettings, OwnSettings
from ottla.handlers.advertised_levels import has_dead_letter_topics
from ottla.sharing.share_partition import GroupTerms
from ottla.sharing.state_settings import ShareStateSettings
from ottla.transactions.settings import TransactionCoordinatorSettings

LATE_METADATA_WAIT_MS = 200
"""Wait of a first rebalance for clients that ask for the metadata of new topics late, in milliseconds: twice the pause of kafka-python. It
applies if `group.initial.rebalance.delay.ms` is 0."""

SHARE_GATHERING_MS = 200
"""Wait before the first assignment of a share group, in milliseconds, so that members that start together share the records. Otherwise the
first member could lock all of them. Apache Kafka assigns nothing before the second heartbeat, 5 s after the first."""


def group_settings(config: BrokerConfig) -> GroupCoordinatorSettings:
    return GroupCoordinatorSettings(
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        late_metadata_wait_ms=LATE_METADATA_WAIT_MS,
        members_max=config.group_max_size,
        offset_metadata_bytes_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        consumer_members_max=config.group_consumer_max_size,
        consumer_assignors=tuple(config.group_consumer_assignors),
        consumer_migration_policy=config.group_consumer_migration_policy.lower(),
        share_session_timeout_ms=config.group_share_session_timeout_ms,
        share_heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
        share_assignment_interval_ms=config.group_share_assignment_interval_ms,
        share_gathering_ms=SHARE_GATHERING_MS,
        share_members_max=config.group_share_max_size,
        share_assignors=tuple(config.group_share_assignors),
        share_initialize_retry_interval_ms=max(config.group_share_initialize_retry_interval_ms, config.offsets_commit_timeout_ms),
        streams_session_timeout_ms=config.group_streams_session_timeout_ms,
        streams_heartbeat_interval_ms=config.group_streams_heartbeat_interval_ms,
        streams_assignment_interval_ms=config.group_streams_assignment_interval_ms,
        streams_initial_rebalance_delay_ms=config.group_streams_initial_rebalance_delay_ms,
        streams_num_standby_replicas=config.group_streams_num_standby_replicas,
        streams_rack_aware_assignment_tags=tuple(config.group_streams_rack_aware_assignment_tags),
        streams_task_offset_interval_ms=config.group_streams_task_offset_interval_ms,
        streams_acceptable_recovery_lag=config.group_streams_acceptable_recovery_lag,
        streams_members_max=config.group_streams_max_size,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        group_metadata_bytes_max=config.ottla_group_metadata_max_bytes,
        offsets_per_group_max=config.ottla_group_offsets_max,
    )


def own_group_settings(config: BrokerConfig, metadata: ClusterMetadata) -> OwnSettings:
    """Returns a function from a group id to the group's own settings, within the broker's limits."""

    def of_group(group_id: str) -> Mapping[str, Any]:
        overrides = metadata.configs(CONFIG_GROUP, group_id)
        return {name: config.group_value(name, overrides) for name in overrides if name in GROUP_SETTINGS}

    return of_group


GROUPS_CACHED_MAX = 1000


def share_terms(config: BrokerConfig, metadata: ClusterMetadata) -> Callable[[str], GroupTerms]:
    """Returns a function from a group id to its settings for records. They are cached, because every share fetch needs them."""
    known: dict[str, tuple[Mapping[str, str], GroupTerms]] = {}
    may_have_dead_letters = has_dead_letter_topics(config.ottla_advertise_level)

    def of_group(group_id: str) -> GroupTerms:
        overrides = metadata.configs(CONFIG_GROUP, group_id)
        found = known.get(group_id)
        if found is not None and found[0] == overrides:
            return found[1]
        value = config.group_value
        terms = GroupTerms(
            lock_duration_ms=value("share.record.lock.duration.ms", overrides),
            delivery_count_max=value("share.delivery.count.limit", overrides),
            in_flight_max=value("share.partition.max.record.locks", overrides),
            offset_reset=value("share.auto.offset.reset", overrides),
            is_read_committed=value("share.isolation.level", overrides) == "read_committed",
            may_renew=value("share.renew.acknowledge.enable", overrides),
            has_dead_letters=may_have_dead_letters and bool(value("errors.deadletterqueue.topic.name", overrides)),
        )
        if len(known) >= GROUPS_CACHED_MAX:
            known.clear()
        known[group_id] = (dict(overrides), terms)
        return terms

    return of_group


def transaction_settings(config: BrokerConfig) -> TransactionCoordinatorSettings:
    return TransactionCoordinatorSettings(
        timeout_max_ms=config.transaction_max_timeout_ms,
        timeout_scan_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiry_scan_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        is_two_phase_enabled=config.transaction_two_phase_commit_enable,
        is_verification_enabled=config.transaction_partition_verification_enable,
        transactions_max=config.ottla_transactions_max,
    )


def share_state_settings(config: BrokerConfig) -> ShareStateSettings:
    return ShareStateSettings(
        updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
        prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
    )


class MetadataLeaders:
    """Implements `transactions.remote.Leaders` over the cluster's metadata."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def leader_of(self, topic: str, partition: int) -> int | None:
        known = self._metadata.topic(topic)
        if known is None or partition >= len(known.partitions):
            return None
        return known.partitions[partition].leader


class MetadataTopics:
    """Implements `groups.settings.TopicsView` and `sharing.state_settings.StateTopicsView` over the cluster's metadata."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def topic_names(self) -> Iterable[str]:
        return [topic.name for topic in self._metadata.topics()]

    def topic_id(self, name: str) -> bytes | None:
        topic = self._metadata.topic(name)
        return topic.topic_id if topic is not None else None

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self._metadata.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def partition_count(self, name: str) -> int:
        topic = self._metadata.topic(name)
        return len(topic.partitions) if topic is not None else 0

    def has_partition(self, topic_id: bytes, partition: int) -> bool:
        topic = self._metadata.topic_by_id(topic_id)
        return topic is not None and 0 <= partition < len(topic.partitions)

    def is_deleted(self, topic_id: bytes) -> bool:
        return self._metadata.is_deleted(topic_id)
