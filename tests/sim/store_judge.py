"""Judges every write in the metadata store of a simulated cluster. Each partition state is compared with the previous one, and each
controller epoch with the broker that was elected to it. The judge also keeps data for later checks: the states by version, the
registrations that they include, and the reports of failed replicas.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.ports import Check, Delete, Operation, Outcome, StoreNode, StoreResult
from ottla.base.types import TopicPartition
from ottla.controller.reassignment import is_moving, origin_of, target_of
from ottla.metadata_store import znodes
from ottla.metadata_store.log_dir_nodes import LogDirEvent, read_log_dir_event
from tests.fakes.memory_store import ZooKeeperModel
from tests.sim.cluster_store import ClusterStore


class StoreJudge:
    """Judges every write that the metadata store accepts."""

    def __init__(self, model: ZooKeeperModel) -> None:
        self._model = model
        self._works = model.apply
        model.apply = self._apply  # type: ignore[method-assign]
        self.controller_epoch = 0
        self.elected: dict[int, int] = {}
        self.noted_epochs: dict[int, int] = {}
        """The registrations that the states of partitions take into account."""
        self.writers: dict[int, int] = {}
        self.states: dict[TopicPartition, PartitionMetadata] = {}
        self.leaders: dict[TopicPartition, dict[int, int]] = {}
        self.ids: dict[str, bytes] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.versions: dict[TopicPartition, dict[int, PartitionMetadata]] = {}
        """All states of a partition, by their version: leaders act on states that are no longer the newest."""
        self._assigned: dict[TopicPartition, PartitionMetadata] = {}
        self.writes = 0
        self.digest = 0
        self.isr_changes = 0
        self.on_joined: Callable[[TopicPartition, PartitionMetadata, list[int], int], None] = lambda *_: None
        """Called with the state of a partition, the followers that are new in its ISR, and the controller that writes it."""
        self.is_failed: Callable[[LogDirEvent], bool] = lambda _event: False
        """Whether the directory of the broker that sent this report is still offline, in the registration that the report names."""

    def is_deleted(self, topic: str) -> bool:
        """Whether the topic is deleted or about to be deleted, so that brokers may have removed its replicas."""
        return topic not in self.ids or self._model.tree.get(znodes.delete_topic_path(topic)) is not None

    def _apply(self, operations: list[Operation], session_id: int) -> Outcome:
        store = self._model.sessions.get(session_id)
        decided = [operation.path for operation in operations if isinstance(operation, Delete)]
        reports = [self._model.tree.get(path) for path in decided if path.startswith(f"{znodes.LOG_DIR_EVENTS}/")]
        outcome = self._works(operations, session_id)
        if outcome.result is StoreResult.OK:
            self.writes += 1
            is_changing = any(not isinstance(operation, Check) for operation in operations)
            for operation in operations:
                if is_changing and isinstance(store, ClusterStore) and operation.path == znodes.CONTROLLER_EPOCH:
                    self._note_writer(operation, store.broker_id)
                self._note(operation.path, store)
            for report in reports:
                self._check_decided(read_log_dir_event(report.data) if report is not None else None)
        return outcome

    def _check_decided(self, report: LogDirEvent | None) -> None:
        """I44: checks that failed replicas lead no partition after the controller has processed the broker's newest report. The controller
        elects no leaders for a topic that is being deleted.
        """
        if report is None or self.noted_epochs.get(report.broker_id) != report.broker_epoch or not self.is_failed(report):
            return
        if any(f'"broker":{report.broker_id}' in node.data.decode().replace(" ", "") for node in self._reports()):
            return
        names = {topic_id: name for name, topic_id in self.ids.items()}
        for topic_id, index in report.replicas:
            name = names.get(topic_id, "")
            state = None if self.is_deleted(name) else self.states.get(TopicPartition(name, index))
            where = f"{name}-{index} in the store: broker {report.broker_id} leads it"
            assert state is None or state.leader != report.broker_id, f"{where}, and has reported that its log has failed (I44)"

    def _reports(self) -> Iterable[StoreNode]:
        return [node for path, node in self._model.tree.nodes().items() if path.startswith(f"{znodes.LOG_DIR_EVENTS}/")]

    def _note_writer(self, operation: Operation, broker_id: int) -> None:
        """I38: checks that only the controller that was elected to an epoch writes with it."""
        if isinstance(operation, Check):
            epoch = self.controller_epoch
            elected = self.elected.get(epoch, broker_id)
            assert elected == broker_id, f"broker {broker_id} writes in controller epoch {epoch}, to which {elected} was elected (I38)"
        else:
            self.elected[self.controller_epoch + 1] = broker_id

    def _note(self, path: str, store: Any) -> None:
        node = self._model.tree.get(path)
        self.digest = zlib.crc32(path.encode() + (node.data if node is not None else b"-"), self.digest)
        if path == znodes.CONTROLLER_EPOCH and node is not None:
            epoch = znodes.read_controller_epoch(node.data)
            assert epoch >= self.controller_epoch, f"the controller epoch falls from {self.controller_epoch} to {epoch} (I38)"
            self.controller_epoch = epoch
        elif path == znodes.BROKER_EPOCHS and node is not None:
            self.noted_epochs = znodes.read_broker_epochs(node.data)[0]
        elif path.startswith("/brokers/topics/") and path.endswith("/state"):
            _, _, _, topic, _, index, _ = path.split("/")
            self._note_state(TopicPartition(topic, int(index)), node, store)
        elif path.startswith("/brokers/topics/") and path.count("/") == 3:
            self._note_topic(path.rpartition("/")[2], node)

    def _note_topic(self, name: str, node: Any) -> None:
        if node is None:
            self.ids.pop(name, None)
            return
        topic = znodes.read_topic(name, node.data, node.version, {})
        self.ids[name] = topic.topic_id
        for partition in topic.partitions:
            key = TopicPartition(name, partition.index)
            old, self._assigned[key] = self._assigned.get(key), partition
            self.replicas[key] = partition.replicas
            if old is not None:
                self._check_moved(key, old, partition)

    def _check_moved(self, key: TopicPartition, old: PartitionMetadata, new: PartitionMetadata) -> None:
        """Checks the end of a reassignment: every target replica is in sync; or it was cancelled, and the replicas are the earlier ones."""
        has_ended = is_moving(old) and not is_moving(new) and new.replicas == target_of(old) != origin_of(old)
        if has_ended and key in self.states:
            isr = self.states[key].isr
            assert set(new.replicas) <= set(isr), f"{key} in the store: the move to {new.replicas} ends with the ISR {isr} (I9)"

    def _note_state(self, key: TopicPartition, node: Any, store: Any) -> None:
        if node is None:
            for known in (self.states, self.leaders, self.versions, self._assigned):
                known.pop(key, None)  # type: ignore[attr-defined]
            return
        new, old = znodes.read_partition(key.partition, node.data, node.version), self.states.get(key)
        where = f"{key} in the store"
        known = self.controller_epoch
        assert new.controller_epoch == known, f"{where}: written under controller epoch {new.controller_epoch}, it is {known} (I39)"
        if isinstance(store, ClusterStore):
            writer = self.writers.setdefault(new.controller_epoch, store.broker_id)
            assert writer == store.broker_id, f"{where}: {store.broker_id} writes in the controller epoch of {writer} (I38)"
        assert new.leader == -1 or new.leader in new.isr, f"{where}: leader {new.leader} outside of the ISR {new.isr} (I9)"
        is_empty = new.leader == -1 and new.emptied
        assert new.isr or is_empty, f"{where}: no replica is in sync"
        if old is not None:
            assert new.leader_epoch >= old.leader_epoch, f"{where}: leader epoch {new.leader_epoch} after {old.leader_epoch} (I15)"
            is_same = new.leader_epoch == old.leader_epoch
            assert not is_same or new.leader == old.leader, f"{where}: two leaders of epoch {new.leader_epoch} (I15)"
            self.isr_changes += new.isr != old.isr
            joined = [member for member in new.isr if member not in old.isr and member != new.leader]
            if joined and isinstance(store, ClusterStore):
                self.on_joined(key, new, joined, store.broker_id)
        self.states[key] = new
        self.versions.setdefault(key, {})[new.partition_epoch] = new
        self.leaders.setdefault(key, {})[new.leader_epoch] = new.leader
