"""The group coordinator on this broker: all groups of the partitions of `__consumer_offsets` that the broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX, is_too_long
from ottla.base.ports import Clock, Random, Timers
from ottla.base.share_state import Persister
from ottla.base.types import GROUP_METADATA_TOPIC
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupCoordinatorSettings, OwnSettings, TopicsView, no_overrides
from ottla.groups.share.no_states import NO_SHARE_STATES
from ottla.machine.coordinator import Coordinator, LedPartition
from ottla.machine.host import HostState, MachineHost
from ottla.machine.memory import CoordinatorMemory


class GroupCoordinator(Coordinator[str]):
    """Finds the shard of a group by its group id. A shard is the coordinator of all groups in one partition."""

    settings: GroupCoordinatorSettings

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        random: Random,
        topics: TopicsView,
        settings: GroupCoordinatorSettings,
        load_bytes: Callable[[], int],
        own_settings: OwnSettings = no_overrides,
        persister: Persister = NO_SHARE_STATES,
        memory: CoordinatorMemory | None = None,
        offset_memory: CoordinatorMemory | None = None,
    ) -> None:
        super().__init__(
            GROUP_METADATA_TOPIC,
            partition_count=lambda: topics.partition_count(GROUP_METADATA_TOPIC),
            settings=settings,
            clock=clock,
            timers=timers,
            load_bytes=load_bytes,
        )
        self._random = random
        self._topics = topics
        self._own_settings = own_settings
        self._persister = persister
        self._memory = memory or CoordinatorMemory()
        self._offset_memory = offset_memory or CoordinatorMemory()

    def _new_machine(self, partition: LedPartition) -> GroupMachine:
        machine = GroupMachine(
            self.settings, self._topics, self._random, self._own_settings, self._persister, self._memory, self._offset_memory
        )
        machine.shard.later = self.turns.add_later
        return machine

    def host_of(self, group_id: str) -> MachineHost:
        """Returns the host of the group's shard, like `Coordinator.host_of`. Raises INVALID_GROUP_ID for an id that is too long."""
        if is_too_long(group_id):
            raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group's id has at most {ID_CHARACTERS_MAX} characters")
        return super().host_of(group_id)

    def apply_marker(self, partition: int, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Applies the marker of a transaction that was appended to a partition of `__consumer_offsets`."""
        host = self._hosts.get(partition)
        if host is not None:
            host.apply_marker(offset, producer_id, producer_epoch, is_commit)

    def topics_changed(self) -> None:
        """Lets modern groups look up their topics again, at the next heartbeat of a member."""
        for host in self._hosts.values():
            host.machine.topics_changed()

    def forget_topics(self, names: Iterable[str]) -> None:
        """Deletes committed offsets and share states of deleted topics. A shard that is loading does so when it has loaded."""
        deleted = tuple(names)
        for host in self.all_hosts():
            host.machine.topics_deleted(deleted)
            if host.state is HostState.ACTIVE:
                host.run(host.machine.forget_topics)
