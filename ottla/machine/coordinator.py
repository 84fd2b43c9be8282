"""The base class of the group, transaction and share coordinators of a broker. Each partition of the coordinator's internal topic that the
broker leads is a shard: a state machine (`contract.Machine`), and a host (`host.MachineHost`) that runs it.

Group, transaction and share coordinators are subclasses (`groups/coordinator.py`, `transactions/coordinators.py`,
`sharing/state_coordinators.py`) with the commands of their kind. Kafka's formula assigns each key (a group id, a transactional id, a share
partition) to a partition of the topic.

When the broker begins to lead a partition, `lead` makes a machine and loads it from the partition's log. Meanwhile requests get
COORDINATOR_LOAD_IN_PROGRESS. When the broker stops leading, `resign` closes the host and drops the machine.

`host.py` runs a machine, `loading.py` decodes its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.java_hash import java_partition
from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Timers
from ottla.base.types import TopicPartition
from ottla.machine.contract import Machine, MachineLog, RunDecision
from ottla.machine.host import HostState, MachineHost
from ottla.machine.loading import BatchReader
from ottla.storage.log import Log

CoordinatorKey = TypeVar("CoordinatorKey")

PIECE_MS = 5
"""Time slice of long work of a coordinator in one iteration of the event loop, in milliseconds."""


class ShardMachine(Machine, Protocol):
    """The state machine of one shard."""

    def begin(self, run: RunDecision) -> None:
        """Called before loading. `run` does nothing while the host is not active."""

    def end(self) -> None:
        """Called when the machine is dropped: releases its memory and its reference to the host."""

    def configure(self, settings: Any) -> None:
        """Adopts changed dynamic settings; later decisions use them."""


class LedPartition(Protocol):
    """The part of a partition that a coordinator uses (`replication/partition.py`)."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log(self) -> Log: ...

    @property
    def leader(self) -> MachineLog | None:
        """The current term of leadership; None if the partition is offline by now."""


def reader_of(log: Log, bytes_max: int) -> BatchReader:
    """Returns a reader of a coordinator's log in pieces of up to `bytes_max` bytes. A larger batch is a piece of its own."""

    def read(offset: int) -> bytes | None:
        if offset >= log.log_end_offset:
            return None
        found = log.read(offset, bytes_max, end_offset=log.log_end_offset)
        return found.read() if found is not None else None

    return BatchReader(read)


class Coordinator(Generic[CoordinatorKey]):
    """The shards of one kind of coordinator."""

    def __init__(
        self,
        topic: str,
        *,
        partition_count: Callable[[], int],
        settings: Any,
        clock: Clock,
        timers: Timers,
        load_bytes: Callable[[], int],
    ) -> None:
        """`partition_count` is 0 while the topic does not exist. `load_bytes` returns the limit of one read while a log is loaded, in
        bytes.
        """
        self.topic = topic
        self.settings = settings
        self._partition_count = partition_count
        self._clock = clock
        self._timers = timers
        self._load_bytes = load_bytes
        self.turns = Turns(clock, timers, PIECE_MS, is_fair=True)
        """Runs the long work of the machines."""
        self.turns.begin()
        self._hosts: dict[int, MachineHost] = {}

    def _new_machine(self, partition: Any) -> ShardMachine:
        """Makes the machine for a `LedPartition`."""
        raise AssertionError(f"{type(self).__name__} has no machine")

    # Leadership

    def lead(self, partition: LedPartition) -> None:
        """Begins to coordinate a partition that this broker leads now. A former host of the partition is closed."""
        index, leader = partition.topic_partition.partition, partition.leader
        self.resign(index)
        if leader is not None:
            host = MachineHost(self._new_machine(partition), leader, self._clock, self._timers)
            self.attach(index, host)
            host.load(reader_of(partition.log, self._load_bytes()), partition.log.log_start_offset)

    def attach(self, index: int, host: MachineHost) -> None:
        """Lets requests find a shard before the shard is loaded."""
        self._hosts[index] = host
        host.machine.begin(lambda decide: host.run(decide) if host.state is HostState.ACTIVE else None)

    def resign(self, index: int) -> None:
        """Stops coordinating a partition, if this broker coordinates it; waiting requests are answered with NOT_COORDINATOR."""
        host = self._hosts.pop(index, None)
        if host is not None:
            host.close()
            host.machine.end()

    def close(self) -> None:
        for index in sorted(self._hosts):
            self.resign(index)

    def configure(self, settings: Any) -> None:
        """Applies changed dynamic settings."""
        self.settings = settings
        for host in self._hosts.values():
            host.machine.configure(settings)

    # Look-up

    def partition_for(self, key: CoordinatorKey) -> int:
        """Returns the partition of the topic for a key. Raises ApiError COORDINATOR_NOT_AVAILABLE while there is no topic."""
        count = self._partition_count()
        if count <= 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return self._partition_of(key, count)

    def _partition_of(self, key: Any, partition_count: int) -> int:
        return java_partition(key, partition_count)

    def find(self, key: CoordinatorKey) -> MachineHost | None:
        """Returns the host of a key's shard if the shard is on this broker, even while it loads."""
        count = self._partition_count() if self._hosts else 0
        return self._hosts.get(self._partition_of(key, count)) if count > 0 else None

    def host_of(self, key: CoordinatorKey) -> MachineHost:
        """Returns the active host of a key's shard. Raises ApiError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._active(self.find(key), key)

    def _active(self, host: MachineHost | None, key: CoordinatorKey) -> MachineHost:
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
        if host.state is not HostState.ACTIVE:
            raise ApiError(host.error, f"the coordinator of {key!r} is {host.state.value}")
        return host

    def host_of_partition(self, index: int) -> MachineHost | None:
        return self._hosts.get(index)

    def all_hosts(self) -> list[MachineHost]:
        """Returns all hosts, ordered by partition; some may be loading."""
        return [host for _, host in sorted(self._hosts.items())]
