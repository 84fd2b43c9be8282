"""The state of one streams group (KIP-1071): members, their processes, the topology, and the holders of tasks.

A task is a partition of a subtopology. A member has it as an active task, which processes records, or as a standby or warm-up task, which
copies the task's state. `modern/reconciliation.py` moves members to their targets; a `TaskKey` replaces the topic id of a consumer group.

Invariants: a task is active at most at one member (I34); a process has a task at most once, since its members share the state directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from ottla.base.uuids import Uuid
from ottla.groups.modern.reconciling import ReconciledAssignment, ReconcilingGroup
from ottla.groups.states import EMPTY, NOT_READY, GroupState, GroupType
from ottla.groups.streams.description import DescriptionState
from ottla.groups.streams.topology import Configured, Topology

STREAMS_PROTOCOL_TYPE = "streams"


class TaskRole(IntEnum):
    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


ACTIVE, STANDBY, WARMUP = TaskRole


class TaskKey(NamedTuple):
    """The key of an assignment: its partitions are the tasks that a member has in this role."""

    role: TaskRole
    subtopology: str


class StreamsFacts(NamedTuple):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    """The host and port of the application's interactive queries."""
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """No topics: the group reads the topics of its topology."""
        return ()


class Validation(NamedTuple):
    """The logged results of checks: the topology epoch whose topics all exist, and the settings that the last epoch was made with."""

    topology_epoch: int = -1
    configs: tuple[tuple[str, str], ...] = ()
    stored_description_epoch: int = -1
    failed_description_epoch: int = -1


class StreamsState:
    """Soft state of a streams group."""

    __slots__ = ("configured", "creating", "described", "endpoint_epoch", "failures", "offsets", "shutdown_by")

    def __init__(self) -> None:
        self.configured: Configured | None = None
        self.creating: set[str] = set()  # internal topics that are being created
        self.failures: dict[str, str] = {}  # why the last creation of an internal topic failed
        self.endpoint_epoch = 0  # counts joins and changed tasks of members with an endpoint
        self.offsets: dict[str, tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]] = {}
        """By member: the offsets that its tasks' states have reached, and the ends of their changelogs."""
        self.shutdown_by = ""  # the member that requested the end of the whole application
        self.described = DescriptionState()


class StreamsGroup(ReconcilingGroup[StreamsFacts]):
    """One group. `set_*` and `remove_*` apply its records."""

    __slots__ = ("holders", "topology", "validation")

    type = GroupType.STREAMS
    protocol_type = STREAMS_PROTOCOL_TYPE
    word = "streams"
    fields = (*ReconcilingGroup.fields, *__slots__)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: Topology | None = None
        self.validation = Validation()
        self.holders: dict[tuple[str, int], tuple[tuple[str, TaskRole], ...]] = {}
        """The members that have, or have to revoke, each task."""

    # Questions

    @property
    def state(self) -> GroupState:
        if not self.facts:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validation.topology_epoch:
            return NOT_READY
        return super().state

    def is_free(self, member_id: str, key: TaskKey, partition: int) -> bool:
        process_id = self.facts[member_id].process_id
        for holder, role in self.holders.get((key.subtopology, partition), ()):
            if holder == member_id:
                continue
            if role is ACTIVE and key.role is ACTIVE:
                return False
            if holder in self.facts and self.facts[holder].process_id == process_id:
                return False
        return True

    def subscriptions(self) -> list[tuple[str, ...]]:
        """Returns the topics of the topology, once, while the group has members."""
        return [self.topology.topics()] if self.topology is not None and self.facts else []

    def subscribed_among(self, topics: Iterable[str]) -> set[str]:
        subscribed = set(self.subscribed_topics())
        return {topic for topic in topics if topic in subscribed}

    def assignment_epoch(self, member_id: str, topic: str, topic_id: Uuid | None, partition: int) -> int | None:
        subtopology = None if self.topology is None else self.topology.reader_of(topic)
        return None if subtopology is None else self.position(member_id).epochs.get(TaskKey(ACTIVE, subtopology), {}).get(partition)

    def held_bytes(self) -> int:
        return super().held_bytes() + (0 if self.topology is None else self.topology.held_bytes())

    # Applying the log

    def set_topology(self, topology: Topology | None) -> None:
        self.topology = topology

    def set_validation(self, validation: Validation) -> None:
        self.validation = validation

    def set_position(self, member_id: str, position: ReconciledAssignment) -> None:
        self.remove_position(member_id)
        self.positions[member_id] = position
        for assignment in (position.assigned, position.revoking):
            for key, partitions in assignment.items():
                for partition in partitions:
                    task = key.subtopology, partition
                    self.holders[task] = (*self.holders.get(task, ()), (member_id, key.role))

    def remove_position(self, member_id: str) -> None:
        before = self.positions.pop(member_id, None)
        if before is None:
            return
        for assignment in (before.assigned, before.revoking):
            for key, partitions in assignment.items():
                for partition in partitions:
                    task = key.subtopology, partition
                    rest = tuple(entry for entry in self.holders.get(task, ()) if entry[0] != member_id)
                    if rest:
                        self.holders[task] = rest
                    else:
                        self.holders.pop(task, None)
