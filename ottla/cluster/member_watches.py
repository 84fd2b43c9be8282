"""Combines a cluster member's watches and reports in the metadata store. A single broker needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.config import BrokerConfig
from ottla.base.control_messages import UpdateConfigs
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import MetadataStore, Operation, Timers
from ottla.base.types import TopicPartition
from ottla.cluster.config_watch import config_watch
from ottla.cluster.death_mark import DeathMark
from ottla.cluster.failed_replicas import FailedReplicas
from ottla.cluster.metadata_cache import MetadataCache
from ottla.controller.damage_notes import DamageNotes
from ottla.replication.state import PartitionState


class MemberWatches:
    """Watches settings, quotas and this broker's death mark; reports failed replicas."""

    def __init__(
        self,
        store: MetadataStore,
        retries: StoreRetries,
        timers: Timers,
        *,
        config: BrokerConfig,
        metadata: MetadataCache,
        broker_epoch: Callable[[], int],
        on_settings: Callable[[UpdateConfigs], object],
        removal_of: Callable[[str], list[Operation]],
        on_marked_dead: Callable[[], object],
        damage: DamageNotes,
    ) -> None:
        """On the controller, `removal_of(path)` returns the write that removes a node; on other brokers it returns an empty list."""
        self._configs = config_watch(store, retries, timers, on_settings, removal_of, damage)
        self._death_mark = DeathMark(store, retries, config.this_broker_id, on_marked_dead)
        self._failed_replicas = FailedReplicas(store, retries, metadata, config.this_broker_id, broker_epoch)

    def watch_mark(self, broker_epoch: int) -> None:
        """Watches for a death mark on a new registration. Called before any other use of the registration."""
        self._death_mark.watch(broker_epoch)

    def watch_configs(self) -> None:
        self._configs.start()

    def stop(self) -> None:
        """Stops the watches, because the registration has ended or is about to end."""
        self._death_mark.stop()
        self._configs.stop()

    def report_replicas(self, reopened: Sequence[TopicPartition]) -> None:
        self._failed_replicas.report(reopened)

    def report_short_leader(self, state: PartitionState) -> None:
        """Reports that the leader of this replica lacks records that the replica holds."""
        self._failed_replicas.report_short_leader(state)

    def review_reports(self, controller_epoch: int) -> None:
        """Reports again if the controller or the registration has changed."""
        self._failed_replicas.review(controller_epoch)
