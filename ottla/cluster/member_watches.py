"""The watches and reports of a broker in the metadata store, besides its registration. A broker that is alone needs none of them."""

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
    """Settings and quotas, the mark of a broker that is taken for dead, and the replicas here that do not work."""

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
        """`removal_of(path)`: the controller's write that removes a node; empty on other brokers."""
        self._configs = config_watch(store, retries, timers, on_settings, removal_of, damage)
        self._death_mark = DeathMark(store, retries, config.this_broker_id, on_marked_dead)
        self._failed_replicas = FailedReplicas(store, retries, metadata, config.this_broker_id, broker_epoch)

    def watch_mark(self, broker_epoch: int) -> None:
        """Before anything else of a new registration."""
        self._death_mark.watch(broker_epoch)

    def watch_configs(self) -> None:
        """Reads all settings, and watches them from then on."""
        self._configs.start()

    def stop(self) -> None:
        """The registration has ended, or is about to."""
        self._death_mark.stop()
        self._configs.stop()

    def report_replicas(self, reopened: Sequence[TopicPartition]) -> None:
        """Other replicas than before do not work; `reopened` do again."""
        self._failed_replicas.report(reopened)

    def report_short_leader(self, state: PartitionState) -> None:
        """The leader of this replica lacks records that the replica holds."""
        self._failed_replicas.report_short_leader(state)

    def review_reports(self, controller_epoch: int) -> None:
        """Reports again if the controller or the registration has changed."""
        self._failed_replicas.review(controller_epoch)
