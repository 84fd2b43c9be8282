"""Finds the share coordinator of a share partition on this broker, and runs a command on it. Each partition of `__share_group_state` that
this broker leads has a coordinator, called its shard.

The number of the shard is Java's hash of `group:topicId:partition`, as in Kafka. If this broker does not lead the shard, the answer is
NOT_COORDINATOR. While the shard loads, the answer is COORDINATOR_LOAD_IN_PROGRESS. If `__share_group_state` does not exist, or too many
answers of the shard wait for replicas, the answer is COORDINATOR_NOT_AVAILABLE. `persister.py` retries, and asks other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.bounded_cache import remembered
from ottla.base.errors import ErrorCode
from ottla.base.java_hash import java_partition
from ottla.base.ports import Clock, Timers
from ottla.base.share_state import SharePartitionKey
from ottla.base.types import SHARE_GROUP_STATE_TOPIC
from ottla.machine.coordinator import Coordinator, LedPartition
from ottla.machine.host import HostState, MachineHost
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.commands import DoneResult, ReadState, ReadSummary, StateCommand, StateResult
from ottla.sharing.state_machine import ShareStateMachine
from ottla.sharing.state_settings import ShareStateSettings, StateTopicsView


class ShareStateCoordinators(Coordinator[SharePartitionKey]):
    """The share coordinators of this broker. The key of the base class is a share partition."""

    settings: ShareStateSettings

    def __init__(
        self,
        *,
        partition_count: Callable[[], int],
        topics: StateTopicsView,
        settings: ShareStateSettings,
        clock: Clock,
        timers: Timers,
        load_bytes: Callable[[], int],
        prune: Callable[[Any], Callable[[int], None]],
        is_lease_held: Callable[[], bool] = lambda: True,
        memory: CoordinatorMemory | None = None,
    ) -> None:
        """`prune` takes a partition that this broker leads, and returns a function that deletes the records of its log below an offset.
        `is_lease_held` returns whether this broker's session with the metadata store is certainly alive. If not, `run` refuses reads,
        because a successor may have written newer states.
        """
        super().__init__(
            SHARE_GROUP_STATE_TOPIC,
            partition_count=partition_count,
            settings=settings,
            clock=clock,
            timers=timers,
            load_bytes=load_bytes,
        )
        self._topics = topics
        self._prune = prune
        self._is_lease_held = is_lease_held
        self._memory = memory or CoordinatorMemory()
        self._writes_before = 0

    def _new_machine(self, partition: LedPartition) -> ShareStateMachine:
        machine = ShareStateMachine(self.settings, self._topics, self._prune(partition), self._memory)
        machine.later = self.turns.add_later
        return machine

    def resign(self, index: int) -> None:
        host = self.host_of_partition(index)
        if host is not None:
            self._writes_before += host.machine.writes
        super().resign(index)

    @property
    def writes(self) -> int:
        """Returns the number of records that the commands of this broker's share coordinators have made."""
        written: int = sum(host.machine.writes for host in self._hosts.values())
        return self._writes_before + written

    @property
    def is_created(self) -> bool:
        """Whether `__share_group_state` exists in this broker's metadata."""
        return self._partition_count() > 0

    def _partition_of(self, key: SharePartitionKey, partition_count: int) -> int:
        return state_partition(key, partition_count)

    def forget_topics(self) -> None:
        for host in self.all_hosts():
            if host.state is HostState.ACTIVE:
                host.run(host.machine.forget_topics)

    def run(self, command: StateCommand, done: DoneResult) -> None:
        """Runs a command here; `done` is called exactly once."""
        host = self.find(command.key)
        if host is not None:
            self.run_on(host, command, done)
        else:
            done(StateResult(ErrorCode.NOT_COORDINATOR if self.is_created else ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def run_on(self, host: MachineHost, command: StateCommand, done: DoneResult) -> None:
        """Runs a command on the host of its share partition. A read is refused if the lease of this broker's session in the metadata store
        is over, because another broker may then have changed the state."""
        if isinstance(command, ReadState | ReadSummary) and not self._is_lease_held():
            done(StateResult(ErrorCode.NOT_COORDINATOR))
        elif host.state is not HostState.ACTIVE:
            done(StateResult(host.error))
        elif host.is_full:
            done(StateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            decide = host.machine.decide
            host.run(lambda now_ms: decide(now_ms, command, done))


@remembered(1 << 20)
def state_partition(key: SharePartitionKey, partition_count: int) -> int:
    """Returns the partition of `__share_group_state` for a share partition, as in Kafka."""
    return java_partition(key.coordinator_key, partition_count)
