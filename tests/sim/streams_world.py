"""One run of a cluster with streams groups (KIP-1071), whose coordinators move between brokers while all kinds of faults occur. Members
join, die, leave, sleep and lose answers; static ones are replaced by other processes, a group loses all of its members for a while, and
operators set offsets or delete a group. The broker creates the internal topics meanwhile, and assigns active and standby tasks. In addition
to the checks for consumer groups, the world checks the coordinator's answers: a task is active at only one member and a process has it only
once (I34), no epoch decreases, and a member keeps the tasks that it got in an epoch until it gives them up, whichever broker leads (I36).
After everything is repaired each group must be Stable, with every task active and every standby task assigned.
"""

from __future__ import annotations

from typing import Any

from ottla.base.types import TopicPartition
from ottla.groups.states import STABLE
from ottla.groups.streams.group import ACTIVE, STANDBY, StreamsGroup, TaskRole
from ottla.machine.host import HostState
from tests.sim.clients import OFFSETS
from tests.sim.cluster_broker import ClusterBroker, ClusterNode
from tests.sim.group_members import Member
from tests.sim.group_world import PARTITIONS, SETTINGS, Kind, OtherProducer
from tests.sim.membership_world import MembershipWorld
from tests.sim.streams_members import COUNT, SOURCE, StreamsMember, repartition_topic

STREAMS_HEARTBEAT = 88
STREAMS_SETTINGS = (
    *SETTINGS,
    "group.streams.min.session.timeout.ms=300",
    "group.streams.session.timeout.ms=1500",
    "group.streams.min.heartbeat.interval.ms=50",
    "group.streams.heartbeat.interval.ms=250",
    "group.streams.assignment.interval.ms=200",
    "group.streams.initial.rebalance.delay.ms=50",
    "group.streams.num.standby.replicas=1",
)


LATE_MS = ((500, 3_000), (4_500, 5_800))
LOOK_MS = (20, 100)
LULLED_MS = (300, 1_200)
ASLEEP_MS = (2_000, 3_500)
SCALED_MS = (1_500, 4_500)
AWAY_MS = (200, 2_500)


class StreamsWorld(MembershipWorld):
    """See above."""

    kinds = {
        "streams": Kind(StreamsMember, False),
        "streams-transactions": Kind(StreamsMember, True),
        "static-streams": Kind(StreamsMember, False),
        "operated-streams": Kind(StreamsMember, False),
    }
    more_settings = STREAMS_SETTINGS

    def __init__(self, seed: int, chaos_ms: int = 6_000, *, broker_count: int | None = None) -> None:
        super().__init__(seed, chaos_ms, broker_count=broker_count)
        self.moved = 0
        """Answers of a coordinator about a member that another one had answered before."""
        self._reached: dict[tuple[str, str], int] = {}
        self._answered_in: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, tuple[int, int]] = {}

    def _start_clients(self) -> None:
        """Starts the clients. One group starts late, while a broker is down, so that the first creation of its internal topics may fail."""
        late = self.chance.choice(sorted(self._kinds))
        self.stopped[late] = None
        super()._start_clients()
        self.later(*self.chance.choice(LATE_MS), lambda: self._begin_late(late))
        self.later(*SCALED_MS, self._scale_to_nothing)
        self.later(*LULLED_MS, self._lull)

    def _lull(self) -> None:
        """Makes a member sleep for longer than its session timeout, so that it does not know that it was removed."""
        if self._members and not self.is_ending:
            self._members[self.chance.choice(sorted(self._members))][1].sleep(self.chance.randint(*ASLEEP_MS))
            self.later(*LULLED_MS, self._lull)

    def _begin_late(self, group_id: str) -> None:
        if self.is_ending or not all(broker.is_up for broker in self.brokers.values()):
            self.restart_members(group_id)
        else:
            self.later(*LOOK_MS, lambda: self._begin_late(group_id))

    def _scale_to_nothing(self) -> None:
        """Ends all members of a group, and starts others after a while."""
        group_id = self.chance.choice(sorted(self._kinds))
        if not self.is_ending and group_id not in self.stopped and "operated" not in group_id:
            self.stop_members(group_id)
            self.later(*AWAY_MS, lambda: self.restart_members(group_id))

    def is_removed(self, member: Member) -> bool:
        group = self._group(member.group_id)
        return group is not None and self._is_committed() and member.member_id not in group.facts

    def places_of(self, group_id: str) -> list[TopicPartition]:
        words = repartition_topic(group_id)
        return sorted([*OtherProducer.outputs, *(TopicPartition(words, index) for index in range(PARTITIONS))])

    def _why_unassigned(self) -> str:
        return super()._why_unassigned() or next(filter(None, map(self._why_not_at_rest, self._kinds)), "")

    def _why_not_at_rest(self, group_id: str) -> str:
        group = self._group(group_id)
        if group is None or group.state is not STABLE:
            return f"unassigned: {group_id} is {None if group is None else group.state} at its coordinator"
        tasks = {role: tasks_of(group, role) for role in (ACTIVE, STANDBY)}
        everything = sorted((subtopology, index) for subtopology in (SOURCE, COUNT) for index in range(PARTITIONS))
        if tasks[ACTIVE] != everything:
            return f"unassigned: {group_id} has the active tasks {tasks[ACTIVE]}"
        has_copies = len({facts.process_id for facts in group.facts.values()}) > 1
        wanted = [task for task in everything if task[0] == COUNT] if has_copies else []
        return "" if tasks[STANDBY] == wanted else f"unassigned: {group_id} has the standby tasks {tasks[STANDBY]}"

    def _group(self, group_id: str) -> StreamsGroup | None:
        """Returns the group at its current coordinator."""
        node = self.brokers[self.checks.store.states[OFFSETS].leader].node
        host = None if node is None else node.groups.host_of_partition(OFFSETS.partition)
        if host is None or host.state is not HostState.ACTIVE:
            return None
        found = host.machine.shard.groups.get(group_id)
        return found if isinstance(found, StreamsGroup) else None

    def _is_committed(self) -> bool:
        """Whether all records that the current coordinator has decided are committed."""
        leader = self.leader_of(OFFSETS)
        return leader is not None and leader.high_watermark == leader.log.log_end_offset

    # Coordinators

    def _check_answer(self, broker: ClusterBroker, node: ClusterNode, key: int, answer: Any, end: int) -> None:
        if key == STREAMS_HEARTBEAT and answer.active_tasks is not None and answer.member_epoch > 0:
            partition = node.partitions.get(*OFFSETS)
            if partition is not None and partition.leader_epoch >= self._seen_epoch:
                self._note_answer(answer, partition.leader_epoch)
        super()._check_answer(broker, node, key, answer, end)

    def _note_answer(self, answer: Any, leader_epoch: int) -> None:
        client = self._members.get(answer.member_id)
        if client is None or "operated" in client[0].group_id:
            return
        where = client[0].group_id, answer.member_id
        self.moved += self._answered_in.setdefault(where, leader_epoch) != leader_epoch
        self._answered_in[where] = leader_epoch
        self._reached[where] = max(answer.member_epoch, self._reached.get(where, 0))

    def _note_group(self, group: Any) -> None:
        """Compares a group with its last known state, if all of its records are committed. An operator may have deleted the group."""
        leader = self.leader_of(OFFSETS)
        is_asked = leader is not None and leader.leader_epoch == self._seen_epoch and self._is_committed()
        if not isinstance(group, StreamsGroup) or not is_asked or "operated" in group.group_id:
            return
        epochs = group.epoch, group.target_epoch
        before = self._epochs.get(group.group_id, epochs)
        went_back = any(now < then for now, then in zip(epochs, before, strict=True))
        assert not went_back, f"epoch went back: {group.group_id} had the epochs {before}, and now {epochs} (I36)"
        self._epochs[group.group_id] = epochs
        for member_id in group.facts:
            self._note_member(group, member_id)

    def _note_member(self, group: StreamsGroup, member_id: str) -> None:
        position, where = group.position(member_id), (group.group_id, member_id)
        client = self._members[member_id][0] if member_id in self._members else None
        if position.epoch <= 0 or (client is not None and client.generation <= 0):  # the member has just left, or joins again
            self._reached.pop(where, None)
            return
        reached = self._reached.get(where, position.epoch)
        assert position.epoch >= reached, f"epoch went back: {member_id} of {group.group_id} from {reached} to {position.epoch} (I36)"
        self._reached[where] = position.epoch
        if isinstance(client, StreamsMember) and client.generation == position.epoch:
            parts = position.assigned, position.revoking
            taken = client.tasks() - {(key, index) for part in parts for key, indexes in part.items() for index in indexes}
            assert not taken, f"taken away: {member_id} of {group.group_id} has {sorted(taken)} in epoch {position.epoch} (I36)"


def tasks_of(group: StreamsGroup, role: TaskRole) -> list[tuple[str, int]]:
    """Returns the tasks that members have in this role."""
    positions = [group.position(member_id) for member_id in group.facts]
    return sorted(
        (key.subtopology, index) for position in positions for key, mine in position.assigned.items() if key.role is role for index in mine
    )
