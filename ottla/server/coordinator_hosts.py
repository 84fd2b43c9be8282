"""The coordinators on this broker: a group coordinator over each led partition of `__consumer_offsets`, a transaction coordinator over
each of `__transaction_state`, a share coordinator over each of `__share_group_state`.

Leading a partition makes its machine and loads it from the log; losing the partition throws the machine away. Requests find their host by
Kafka's formula, also while it loads (COORDINATOR_LOAD_IN_PROGRESS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX, is_too_long
from ottla.base.java_hash import java_partition
from ottla.base.ports import Clock, Random, Timers
from ottla.base.share_state import Persister
from ottla.base.turns import Turns
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupCoordinatorSettings, OwnSettings, no_overrides
from ottla.groups.share.no_states import NO_SHARE_STATES
from ottla.machine.host import HostState, MachineHost
from ottla.machine.loading import BatchReader
from ottla.machine.memory import CoordinatorMemory
from ottla.replication.partition import Partition
from ottla.server.coordinator_views import MetadataTopics
from ottla.sharing.partition_memory import PartitionMemory
from ottla.sharing.pruning import Pruner
from ottla.sharing.routing import ShareStateCoordinators
from ottla.sharing.state_machine import ShareStateMachine
from ottla.sharing.state_settings import ShareStateSettings
from ottla.transactions.routing import TransactionCoordinators


def reader_of(partition: Partition, bytes_max: int) -> BatchReader:
    """Reads a coordinator's log piece by piece."""
    log = partition.log

    def read(offset: int) -> bytes | None:
        if offset >= log.log_end_offset:
            return None
        found = log.read(offset, bytes_max, end_offset=log.log_end_offset)
        return found.read() if found is not None else None

    return BatchReader(read)


MEMORY_PARTS = 4
"""Each of `CoordinatorMemories` may take this part of `ottla.memory.max.bytes`."""


class CoordinatorMemories:
    """The bounds on members of groups, on offsets, on transactional ids, on stored share states and on share partitions that are led here,
    of a broker that may use so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        part = bytes_max // MEMORY_PARTS
        self.groups = CoordinatorMemory(part, "groups")
        self.offsets = CoordinatorMemory(part, "offsets")
        self.transactional_ids = CoordinatorMemory(part, "transactional ids")
        self.share_states = CoordinatorMemory(part, "states of share groups")
        self.share_partitions = PartitionMemory(CoordinatorMemory(part, "share partitions"))


PIECE_MS = 5
"""Long work of groups takes so much of a turn of the loop."""


class GroupHosts:
    """`requests.context.GroupCoordinators`."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        random: Random,
        metadata: ClusterMetadata,
        settings: GroupCoordinatorSettings,
        own_settings: OwnSettings = no_overrides,
        persister: Persister = NO_SHARE_STATES,
        memory: CoordinatorMemory | None = None,
        offset_memory: CoordinatorMemory | None = None,
    ) -> None:
        self._memory = memory or CoordinatorMemory()
        self._offset_memory = offset_memory or CoordinatorMemory()
        self._clock = clock
        self._timers = timers
        self._random = random
        self._metadata = metadata
        self._topics = MetadataTopics(metadata)
        self._settings = settings
        self._own_settings = own_settings
        self._persister = persister
        self._hosts: dict[int, MachineHost] = {}
        self._turns = Turns(clock, timers, PIECE_MS, is_fair=True)
        self._turns.begin()

    def lead(self, partition: Partition, load_bytes: int) -> None:
        index, leader = partition.topic_partition.partition, partition.leader
        self.resign(index)
        if leader is None:
            return  # it went offline as it began to lead
        machine = GroupMachine(
            self._settings, self._topics, self._random, self._own_settings, self._persister, self._memory, self._offset_memory
        )
        host = self._hosts[index] = MachineHost(machine, leader, self._clock, self._timers)
        machine.shard.later = self._turns.add_later
        machine.shard.run = lambda decide: host.run(decide) if host.state is HostState.ACTIVE else None
        host.load(reader_of(partition, load_bytes), partition.log.log_start_offset)

    def resign(self, index: int) -> None:
        host = self._hosts.pop(index, None)
        if host is not None:
            host.machine.shard.memory.end()
            host.machine.shard.offset_memory.end()
            host.close()
            host.machine.shard.run = lambda _decide: None  # it refers to the host, and the host to it

    def partition_for(self, group_id: str) -> int:
        topic = self._metadata.topic(GROUP_METADATA_TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "__consumer_offsets does not exist yet")
        return java_partition(group_id, len(topic.partitions))

    def host_of(self, group_id: str) -> MachineHost:
        if is_too_long(group_id):
            raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group's id has at most {ID_CHARACTERS_MAX} characters")
        # Without hosts there need not even be the topic, by which a group finds its partition.
        host = self._hosts.get(self.partition_for(group_id)) if self._hosts else None
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{group_id!r} is coordinated elsewhere")
        if host.state is not HostState.ACTIVE:
            raise ApiError(host.error, f"the coordinator of {group_id!r} is {host.state.value}")
        return host

    def all_hosts(self) -> Iterable[MachineHost]:
        hosts = [host for _, host in sorted(self._hosts.items())]
        for host in hosts:
            if host.state is HostState.LOADING:
                raise ApiError(host.error, "a group coordinator is still loading")
        return hosts

    def group_count(self) -> int:
        return sum([len(host.machine.shard.groups) for host in self._hosts.values()])

    def host_of_partition(self, partition: int) -> MachineHost | None:
        return self._hosts.get(partition)

    def apply_marker(self, partition: int, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        host = self._hosts.get(partition)
        if host is not None:
            host.apply_marker(offset, producer_id, producer_epoch, is_commit)

    def configure(self, settings: GroupCoordinatorSettings) -> None:
        self._settings = settings
        for host in self._hosts.values():
            host.machine.configure(settings)

    def topics_changed(self) -> None:
        """Consumer groups look at their topics again, at the next heartbeat of a member."""
        for host in self._hosts.values():
            host.machine.topics_changed()

    def forget_topics(self, names: Iterable[str]) -> None:
        """Deletes committed offsets of deleted topics; those of shards that still load, once they are loaded."""
        gone = tuple(names)
        for _, host in sorted(self._hosts.items()):
            host.machine.topics_deleted(gone)
            if host.state is HostState.ACTIVE:
                host.run(host.machine.forget_topics)

    def close(self) -> None:
        for index in sorted(self._hosts):
            self.resign(index)


class TransactionHosts:
    """Makes and closes the hosts that `TransactionCoordinators` routes to."""

    def __init__(self, clock: Clock, timers: Timers, coordinators: TransactionCoordinators) -> None:
        self._clock = clock
        self._timers = timers
        self._coordinators = coordinators
        self._led: set[int] = set()

    def lead(self, partition: Partition, load_bytes: int) -> None:
        index, leader = partition.topic_partition.partition, partition.leader
        self.resign(index)
        if leader is None:
            return  # it went offline as it began to lead
        host = MachineHost(self._coordinators.new_machine(leader.epoch), leader, self._clock, self._timers)
        self._led.add(index)
        self._coordinators.attach(index, host)
        host.load(reader_of(partition, load_bytes), partition.log.log_start_offset)

    def resign(self, index: int) -> None:
        if index in self._led:
            self._led.discard(index)
            self._coordinators.detach(index)

    def close(self) -> None:
        for index in sorted(self._led):
            self.resign(index)


class ShareStateHosts:
    """Makes and closes the hosts that `ShareStateCoordinators` routes to."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        metadata: ClusterMetadata,
        coordinators: ShareStateCoordinators,
        settings: ShareStateSettings,
        flush: Callable[[Partition], object],
        memory: CoordinatorMemory | None = None,
    ) -> None:
        self._flush = flush
        self._memory = memory or CoordinatorMemory()
        self._clock = clock
        self._timers = timers
        self._topics = MetadataTopics(metadata)
        self._coordinators = coordinators
        self._settings = settings
        self._led: dict[int, MachineHost] = {}

    def lead(self, partition: Partition, load_bytes: int) -> None:
        index, leader = partition.topic_partition.partition, partition.leader
        self.resign(index)
        if leader is None:
            return  # it went offline as it began to lead
        machine = ShareStateMachine(self._settings, self._topics, Pruner(leader, lambda: self._flush(partition)), self._memory)
        host = self._led[index] = MachineHost(machine, leader, self._clock, self._timers)
        self._coordinators.attach(index, host)
        host.load(reader_of(partition, load_bytes), partition.log.log_start_offset)

    def resign(self, index: int) -> None:
        host = self._led.pop(index, None)
        if host is not None:
            host.machine.shard.memory.end()
            self._coordinators.detach(index)

    def configure(self, settings: ShareStateSettings) -> None:
        self._settings = settings
        for host in self._led.values():
            host.machine.configure(settings)

    def forget_topics(self) -> None:
        """Deletes the share states of deleted topics."""
        for _, host in sorted(self._led.items()):
            if host.state is HostState.ACTIVE:
                host.run(host.machine.forget_topics)

    def close(self) -> None:
        for index in sorted(self._led):
            self.resign(index)


class CoordinatorHosts:
    """All kinds, by the topic of a partition."""

    def __init__(
        self,
        groups: GroupHosts,
        transactions: TransactionHosts,
        share_states: ShareStateHosts,
        load_bytes: dict[str, Callable[[], int]],
    ) -> None:
        self._kinds: dict[str, GroupHosts | TransactionHosts | ShareStateHosts] = {
            GROUP_METADATA_TOPIC: groups,
            TRANSACTION_STATE_TOPIC: transactions,
            SHARE_GROUP_STATE_TOPIC: share_states,
        }
        self._load_bytes = load_bytes

    def lead(self, partition: Partition) -> None:
        topic = partition.topic_partition.topic
        kind = self._kinds.get(topic)
        if kind is not None:
            kind.lead(partition, self._load_bytes[topic]())

    def resign(self, topic: str, index: int) -> None:
        kind = self._kinds.get(topic)
        if kind is not None:
            kind.resign(index)

    def close(self) -> None:
        for kind in self._kinds.values():
            kind.close()
