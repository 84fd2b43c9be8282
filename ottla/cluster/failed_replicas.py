"""Reports failed replicas of this broker to the controller (`controller/log_dir_events.py`).

A report is a node in the metadata store, so it is kept while there is no controller. It names all failed replicas, up to `REPLICAS_MAX`.
Reports are written one at a time, so the last one is the newest. A report is repeated for each new controller and registration, because
neither the new controller nor the new registration has the earlier reports. A report names replicas by topic id. So a replica whose topic
is not in this broker's metadata yet is reported when the metadata has the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from ottla.base.loop.store_retries import TRANSIENT, StoreRetries
from ottla.base.ports import Create, MetadataStore, Outcome, StoreResult
from ottla.base.types import TopicPartition
from ottla.cluster.metadata_cache import MetadataCache
from ottla.metadata_store import znodes
from ottla.metadata_store.log_dir_nodes import LogDirEvent, ShortLeader, log_dir_event_bytes
from ottla.replication.state import PartitionState

log = logging.getLogger("ottla.cluster")

REPLICAS_MAX = 10_000
"""Maximum number of replicas in one report, so that it fits into a node."""
SHORT_MAX = 2_000
"""Maximum number of leaders in one report: each takes about 100 bytes of the node, and a node at most 1 MiB."""


class FailedReplicas:
    """Writes the reports of one broker. A single broker writes none."""

    def __init__(
        self, store: MetadataStore, retries: StoreRetries, metadata: MetadataCache, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._store = store
        self._retries = retries
        self._metadata = metadata
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._reported_to = (-1, -1)
        self._is_writing = False
        self._is_due = False
        self._reopened: dict[TopicPartition, None] = {}
        self._unknown: list[TopicPartition] = []
        """The replicas that the last report lacks, because their topics were not in the metadata."""
        self._short: dict[ShortLeader, None] = {}

    def review(self, controller_epoch: int) -> None:
        """Reports again if replicas are offline and the controller or the registration has changed, or if the metadata has the topic of a
        replica that the last report lacks. Called after each change of the metadata."""
        broker_epoch = self._broker_epoch()
        if (controller_epoch, broker_epoch) != self._reported_to:
            if broker_epoch != self._reported_to[1]:
                self._is_writing = False  # Retries ended with the former session.
            self._reported_to = (controller_epoch, broker_epoch)
            if self._metadata.offline_here():
                self.report()
        if any(map(self._is_known, self._unknown)):
            self.report()

    def report(self, reopened: Sequence[TopicPartition] = ()) -> None:
        """Reports a change of the failed replicas. Replicas in `reopened` work again."""
        self._reopened.update(dict.fromkeys(reopened))
        self._is_due = True
        if not self._is_writing:
            self._write()

    def report_short_leader(self, state: PartitionState) -> None:
        """Reports that the leader of this replica lacks records below the replica's high watermark."""
        short = ShortLeader(
            topic_id=state.log.topic_id or bytes(16),
            partition=state.topic_partition.partition,
            leader=state.leader_id,
            leader_epoch=state.leader_epoch,
        )
        self._short[short] = None
        self.report()

    def _write(self) -> None:
        self._is_writing, self._is_due = True, False
        offline, reopened = self._metadata.offline_here(), [key for key in self._reopened if self._is_known(key)][:REPLICAS_MAX]
        self._unknown = [key for key in (*offline, *self._reopened) if not self._is_known(key)]
        short = tuple(self._short)[:SHORT_MAX]
        event = LogDirEvent(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            replicas=tuple(self._ids(offline)[:REPLICAS_MAX]),
            reopened=tuple(self._ids(reopened)),
            short=short,
        )

        def written(outcome: Outcome) -> None:
            if outcome.result in TRANSIENT:
                self._retries.again(self._write)
                return
            if outcome.result not in (StoreResult.OK, StoreResult.SESSION_EXPIRED):
                log.error("failed replicas cannot be reported to the controller: %s", outcome.result.name)
            for key in reopened:
                self._reopened.pop(key, None)
            for one in short:
                self._short.pop(one, None)
            self._is_writing = False
            if self._is_due or self._short or any(map(self._is_known, self._reopened)):
                self._write()

        path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        self._store.multi([Create(path, log_dir_event_bytes(event), is_sequential=True)], written)

    def _is_known(self, key: TopicPartition) -> bool:
        return self._metadata.topic(key.topic) is not None

    def _ids(self, replicas: Iterable[TopicPartition]) -> list[tuple[bytes, int]]:
        named = []
        for key in replicas:
            topic = self._metadata.topic(key.topic)
            if topic is not None:
                named.append((topic.topic_id, key.partition))
        return named
