"""Reports to the controller which replicas on this broker have failed, or work again (`controller/log_dir_events.py`).

A report is a node in the metadata store, so it waits for a controller if there is none. All failed replicas are reported anew to each
controller and under each registration, since neither knows what the one before was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.base.ports import Create, MetadataStore, Outcome, StoreResult
from ottla.base.store_retries import TRANSIENT, StoreRetries
from ottla.base.types import TopicPartition
from ottla.cluster.metadata_cache import MetadataCache
from ottla.controller import znodes
from ottla.controller.znodes import LogDirEvent

log = logging.getLogger("ottla.cluster")

REPLICAS_PER_REPORT = 5_000


class FailedReplicas:
    """The reports of one broker; a broker that is alone makes none."""

    def __init__(
        self, store: MetadataStore, retries: StoreRetries, metadata: MetadataCache, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._store = store
        self._retries = retries
        self._metadata = metadata
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._reported_to = (-1, -1)

    def review(self, controller_epoch: int) -> None:
        """Reports all anew if the controller or the registration is another one than before."""
        if (controller_epoch, self._broker_epoch()) != self._reported_to:
            self._reported_to = (controller_epoch, self._broker_epoch())
            self.report(self._metadata.offline_here(), is_online=False)

    def report(self, replicas: Sequence[TopicPartition], *, is_online: bool) -> None:
        if len(self._metadata.brokers) < 2:
            return
        named = []
        for key in replicas:
            topic = self._metadata.topic(key.topic)
            if topic is not None:
                named.append((topic.topic_id, key.partition))
        for start in range(0, len(named), REPLICAS_PER_REPORT):
            self._write(tuple(named[start : start + REPLICAS_PER_REPORT]), self._broker_epoch(), is_online)

    def _write(self, replicas: tuple[tuple[bytes, int], ...], broker_epoch: int, is_online: bool) -> None:
        """A report that may have been written already is written again: twice the same does no harm."""
        event = LogDirEvent(broker_id=self._broker_id, broker_epoch=broker_epoch, is_online=is_online, replicas=replicas)

        def written(outcome: Outcome) -> None:
            if outcome.result in TRANSIENT:
                self._retries.again(lambda: self._write(replicas, broker_epoch, is_online))
            elif outcome.result is not StoreResult.OK:
                log.error("failed replicas cannot be reported to the controller: %s", outcome.result.name)

        path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        self._store.multi([Create(path, znodes.log_dir_event_bytes(event), is_sequential=True)], written)
