"""Executes the orders of the controller: opens replicas, makes them leaders or followers, stops and deletes them, applies new settings.

The controller sends an order after its write to the metadata store is committed. Opening thousands of logs takes seconds, so they are
opened in time slices, in the order of the orders. Until a replica is open, requests for it get NOT_LEADER_OR_FOLLOWER, which clients retry.
A replica in an offline directory, or with a damaged log, is not opened. Requests for it get NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR
until `reopen`, `open_again` or a later order opens it.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ottla.base.cluster_metadata import CONFIG_TOPIC, NO_LEADER
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import ReplicaRole, StoppedReplica
from ottla.base.errors import ApiError, DamagedLogError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Timers
from ottla.base.types import TopicPartition
from ottla.base.uuids import uuid_to_text
from ottla.cluster.metadata_cache import MetadataCache
from ottla.groups.coordinator import GroupCoordinator
from ottla.replication.partition import Partition
from ottla.server.coordinators import Coordinators
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.directories.moves import DirectoryMoves
from ottla.server.partition_table import PartitionTable
from ottla.sharing.registry import SharePartitions
from ottla.sharing.state_coordinators import ShareStateCoordinators

log = logging.getLogger("ottla.replicas")

OPENED_PER_FREEZE = 500
"""Number of opened partitions after which their objects are frozen for the garbage collector. They have no cycles, and a walk over 10,000
partitions takes 0.1 s."""

NO_EPOCH = -1
RESOLVED_MAX = 1000
"""Maximum number of cached `LogConfig` objects."""


class Fetchers(Protocol):
    """Starts and stops fetching from leaders (`cluster/replica_fetchers.py`)."""

    def follow(self, partition: Partition) -> None: ...

    def stop(self, topic_partition: TopicPartition) -> None: ...


class NoFetchers:
    """`Fetchers` of a single broker, which leads all its replicas."""

    def follow(self, partition: Partition) -> None:
        """Does nothing."""

    def stop(self, topic_partition: TopicPartition) -> None:
        """Does nothing."""


class ReplicaChanges:
    """Implements `control_messages.ReplicaListener`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        partitions: PartitionTable,
        metadata: MetadataCache,
        hosts: Coordinators,
        groups: GroupCoordinator,
        share_states: ShareStateCoordinators,
        share_partitions: SharePartitions,
        fetchers: Fetchers,
        moves: DirectoryMoves,
        remove_later: Callable[[str, int], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._partitions = partitions
        self._metadata = metadata
        self._hosts = hosts
        self._groups = groups
        self._share_states = share_states
        self._share_partitions = share_partitions
        self._fetchers = fetchers
        self._moves = moves
        self._remove_later = remove_later
        self._broker_id = config.this_broker_id
        self._missing: dict[TopicPartition, ReplicaRole] = {}
        self._ended_terms: dict[tuple[bytes, int], int] = {}
        """The leader epochs, by topic id and partition, in which replicas were dropped to be opened again. In a cluster they do not lead in
        these epochs, even if a role says so that the controller has sent before it knew."""
        self._resolved: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self.turns = Turns(clock, timers)
        self.on_metadata: Callable[[], object] = lambda: None
        self.on_replicas: Callable[[Sequence[TopicPartition]], object] = lambda _reopened: None
        """Called with the reopened replicas when the set of offline replicas in the metadata has changed."""

    def on_assignment(self, assigned: Collection[tuple[bytes, int]]) -> None:
        """Removes logs that are not in `assigned`, because they were deleted or moved while this broker was offline (KIP-516). Without
        other brokers they are kept, because an operator probably needs them."""
        if len(self._metadata.brokers) > 1:
            self.turns.add(self._remove_strays(assigned))

    def _remove_strays(self, assigned: Collection[tuple[bytes, int]]) -> Iterator[None]:
        for key, topic_id in self._partitions.strays(assigned):
            log.warning("%s of topic id %s is not assigned to this broker any more; its log is removed", key, uuid_to_text(topic_id))
            self._stop(
                StoppedReplica(topic=key.topic, topic_id=topic_id, partition=key.partition, leader_epoch=NO_EPOCH, is_deleted=True)
            )
            yield

    def on_leader_and_isr(self, states: Sequence[ReplicaRole]) -> None:
        for state in states:
            self._partitions.await_opening(TopicPartition(state.topic, state.partition.index), state.topic_id)
        self.turns.add(self._take_each(states))

    def on_stop_replica(self, stopped: Sequence[StoppedReplica]) -> None:
        self.turns.add(self._stop_each(stopped))

    def call_when_settled(self, function: Callable[[], object]) -> None:
        self.turns.call_when_idle(function)

    def on_update_metadata(self, topics: Sequence[str], removed: Sequence[str]) -> None:
        self.on_metadata()
        self._groups.topics_changed()
        if removed:
            self._groups.forget_topics(removed)
            self._share_states.forget_topics()
            self._share_partitions.close_where(lambda share: self._metadata.topic_by_id(share.key.topic_id) is None)

    def on_session_expired(self) -> None:
        for partition in self._partitions.all():
            if partition.is_leading:
                partition.become_follower(
                    leader_id=NO_LEADER,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    replicas=partition.state.replicas,
                    isr=partition.isr,
                )
                self._hosts.resign(*partition.topic_partition)

    def on_configs(self, resource_type: int, name: str) -> None:
        if resource_type == CONFIG_TOPIC:
            self.configure_topic(name)

    def configure_all(self) -> None:
        """Applies a changed broker-wide default to all logs."""
        self._resolved.clear()
        for topic in list(self._metadata.topics()):
            self.configure_topic(topic.name)

    def configure_topic(self, name: str) -> None:
        topic = self._metadata.topic(name)
        if topic is not None:
            config = self._log_config(topic.configs)
            for partition in self._partitions.of_topic(name):
                partition.configure(config)
                partition.set_flush_on_ack(self._config.is_flush_on_ack(config))

    def reopen(self, directory: LogDirectoryState) -> None:
        """Recovers the logs of an offline directory that can be written again. In a cluster a replica can lead again only in a new leader
        epoch; on a single broker it leads immediately."""
        try:
            directory.come_online()
            undeleted = self._partitions.scan(directory)
        except StorageError as error:
            directory.go_offline(str(error))
            log.error("%s", error)
            return
        for path in undeleted:
            self._remove_later(path, self._config.log_config({}).file_delete_delay_ms)
        stopped = [partition for partition in self._partitions.all() if self._partitions.directory_of(partition) is directory]
        self._mark_online([*(partition.topic_partition for partition in stopped), *self._missing])
        states = [self._state_again(partition) for partition in stopped]
        self._drop(stopped)
        waiting = [self._not_leading(role) for role in self._missing.values()]
        self._missing.clear()
        self.on_leader_and_isr([state for state in (*states, *waiting) if state is not None])
        self._moves.resume_into(directory)

    def open_again(self, directory: LogDirectoryState) -> None:
        """Tries again to open logs of an online directory, for example after the disk was full."""
        keys = self._partitions.unopened_in(directory)
        self._mark_online(keys)
        self.on_leader_and_isr([self._missing.pop(key) for key in keys if key in self._missing])

    def stop_fetching(self, topic_partition: TopicPartition) -> None:
        self._fetchers.stop(topic_partition)

    def mark_offline(self, replicas: Sequence[TopicPartition]) -> None:
        """Shows these replicas as offline in this broker's metadata, and reports them."""
        self._metadata.mark_offline(self._broker_id, replicas)
        self.on_replicas(())

    def works_again(self, key: TopicPartition) -> None:
        """Ends `mark_offline` of a replica that serves all of its log again without being reopened."""
        self._mark_online([key])

    def _mark_online(self, replicas: Sequence[TopicPartition]) -> None:
        self._metadata.mark_online(replicas)
        self.on_replicas(replicas)

    def _state_of(self, key: TopicPartition) -> ReplicaRole | None:
        topic = self._metadata.topic(key.topic)
        if topic is None or key.partition >= len(topic.partitions):
            return None
        return ReplicaRole(topic=topic.name, topic_id=topic.topic_id, partition=topic.partitions[key.partition])

    def _state_again(self, partition: Partition) -> ReplicaRole | None:
        """Returns the newest known role of a replica that is opened again. The partition may have a newer one than the metadata."""
        role, state = self._state_of(partition.topic_partition), partition.state
        if role is None:
            return None
        newest = role.partition
        if (state.leader_epoch, state.partition_epoch) > (newest.leader_epoch, newest.partition_epoch):
            newest = replace(
                newest,
                leader=state.leader_id,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr_state.members,
                loss_epoch=max(state.loss_epoch, newest.loss_epoch),
            )
        return self._not_leading(replace(role, partition=newest))

    def _not_leading(self, role: ReplicaRole) -> ReplicaRole:
        """Returns the role without leadership, because the log may have lost its tail when its directory failed. The controller elects a
        leader after the report of the reopened log. A single broker continues to lead."""
        if role.partition.leader != self._broker_id or not self._metadata.is_of_cluster:
            return role
        return replace(role, partition=replace(role.partition, leader=NO_LEADER))

    def _take_each(self, states: Sequence[ReplicaRole]) -> Iterator[None]:
        for number, state in enumerate(states, 1):
            self._take(state)
            if number % OPENED_PER_FREEZE == 0:
                gc.freeze()
            yield

    def _stop_each(self, stopped: Sequence[StoppedReplica]) -> Iterator[None]:
        for replica in stopped:
            self._stop(replica)
            yield

    def _stop(self, replica: StoppedReplica) -> None:
        key = TopicPartition(replica.topic, replica.partition)
        self._missing.pop(key, None)
        self._hosts.resign(*key)
        self._fetchers.stop(key)
        if replica.is_deleted:
            self._ended_terms.pop((replica.topic_id, key.partition), None)
            self._moves.give_up(key)
        partition = self._partitions.get(*key)
        if partition is not None:
            # Waiting requests get Kafka's errors for a moved or deleted replica, because no disk has failed.
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if replica.is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
            partition.go_offline("the replica was stopped", gone, may_revive=not replica.is_deleted)
        try:
            path = self._partitions.delete(key, replica.topic_id) if replica.is_deleted else None
        except StorageError as error:
            log.error("cannot delete %s: %s", key, error)
            return
        if path is not None:
            config = partition.log.config if partition is not None else self._config.log_config({})
            self._remove_later(path, config.file_delete_delay_ms)

    def _log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """Returns the settings of a log. Logs with equal settings share one object."""
        key = tuple(configs.items())
        found = self._resolved.get(key)
        if found is None:
            if len(self._resolved) >= RESOLVED_MAX:
                self._resolved.clear()
            found = self._resolved[key] = self._config.log_config(configs)
        return found

    def _take(self, state: ReplicaRole) -> None:
        key = TopicPartition(state.topic, state.partition.index)
        topic = self._metadata.topic(state.topic)
        configs = topic.configs if topic is not None and topic.topic_id == state.topic_id else state.configs
        self._drop_failed(key)
        if state.partition.leader_epoch <= self._ended_terms.get((state.topic_id, key.partition), NO_EPOCH):
            state = self._not_leading(state)
        try:
            partition = self._partitions.open(
                key, state.topic_id, self._log_config(configs), is_new=state.is_new, is_replaceable=self._is_replaceable(state)
            )
        except ApiError as error:
            log.error("%s is not available: %s%s", key, error.message, self._way_on(key, error))
            self._missing[key] = state
            self.mark_offline([key])
            return
        if self._missing.pop(key, None) is not None:
            self._mark_online([key])  # The log could not be opened before.
        partition.revive()
        self._moves.resume(partition)
        try:
            if state.partition.leader == self._broker_id:
                self._lead(partition, state)
            else:
                self._follow(partition, state)
        except ApiError as error:
            log.error("%s keeps its role: %s", key, error.message)
            return
        if partition.is_online and self._metadata.is_offline_here(key):
            self._mark_online([key])

    def _way_on(self, key: TopicPartition, error: ApiError) -> str:
        """Returns a hint for the operator, if the log is damaged."""
        if not isinstance(error.__cause__, DamagedLogError):
            return ""
        command = f"ottla partitions elect --accept-loss --topic {key.topic} --partition {key.partition}"
        if self._config.is_single_broker:
            return f". Restore the files from a copy, or give up what is damaged: {command}"
        return f". If no other replica can lead, this gives up what is damaged: {command}"

    def _drop_failed(self, key: TopicPartition) -> None:
        """Drops a log that was found damaged after it was opened, so that it is opened and checked again."""
        known = self._partitions.get(*key)
        if known is not None and known.has_failed and self._partitions.directory_of(known).is_online:
            self._drop([known])

    def _drop(self, partitions: Sequence[Partition]) -> None:
        self._ended_terms.update({(found.topic_id, found.topic_partition.partition): found.leader_epoch for found in partitions})
        self._partitions.drop(partitions)

    def _is_replaceable(self, state: ReplicaRole) -> bool:
        """Whether this replica may give up damaged or missing records. It may if another replica leads, and this broker's replica is
        neither in sync nor eligible. It also may if this broker's replica was elected although records may be lost."""
        wanted, own = state.partition, self._broker_id
        if wanted.leader == own:
            return wanted.loss_epoch == wanted.leader_epoch
        return wanted.leader not in (NO_LEADER, own) and own not in wanted.isr and own not in wanted.eligible

    def _follow(self, partition: Partition, state: ReplicaRole) -> None:
        wanted = state.partition
        partition.become_follower(
            leader_id=wanted.leader,
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
            loss_epoch=wanted.loss_epoch,
        )
        self._hosts.resign(state.topic, wanted.index)
        self._fetchers.follow(partition)

    def _lead(self, partition: Partition, state: ReplicaRole) -> None:
        wanted = state.partition
        is_new_term = not partition.is_leading or wanted.leader_epoch > partition.leader_epoch
        self._fetchers.stop(partition.topic_partition)
        partition.become_leader(
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
            eligible=wanted.eligible,
            now_ms=self._clock.monotonic_ms(),
        )
        if is_new_term:
            self._hosts.lead(partition)
