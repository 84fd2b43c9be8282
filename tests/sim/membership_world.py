"""One run of a cluster with consumer groups whose members are replaced by other processes, change protocols, or are stopped for operators.
The groups are: - static: classic members with instance ids. A process dies and another one replaces it, or both run for a while. The former
process is fenced, and the assignment does not change within a generation (I34). - static new: the same with KIP-848, where a process
announces that another one will follow. - changing: members of both protocols; one of the two groups has static members. The protocol of new
processes changes with time, so the groups are upgraded and downgraded while they have members, as far as `group.consumer.migration.policy`
allows, which depends on the seed. - operated: operators stop the members, and set offsets, delete offsets or delete the group. They also
try it while there are members, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.core.group_admin import read_assignment
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.states import STABLE
from ottla.machine.host import HostState
from tests.sim.clients import OFFSETS
from tests.sim.cluster_broker import ClusterBroker, ClusterNode
from tests.sim.group_client import PATIENCE_MS
from tests.sim.group_members import ClassicMember, ConsumerMember, Member
from tests.sim.group_operator import GroupOperator
from tests.sim.group_world import SETTINGS, GroupWorld, Kind, OtherProducer, code_of
from tests.sim.process import Process

POLICIES = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
PREFERRED = 0.8
PREFERENCE_MS = (700, 2_500)
MEMBERS_MAX = 8
DISTURBED_MS = (80, 800)
PAUSED_MS = (1, 200)


class MembershipWorld(GroupWorld):
    """See above."""

    kinds = {
        "static": Kind(ClassicMember, False),
        "static new": Kind(ConsumerMember, False),
        "changing": Kind(ClassicMember, False),
        "changing static": Kind(ClassicMember, False),
        "operated": Kind(ClassicMember, False),
        "operated new": Kind(ConsumerMember, False),
    }

    more_settings: tuple[str, ...] = SETTINGS

    def __init__(self, seed: int, chaos_ms: int = 6_000, *, broker_count: int | None = None) -> None:
        self.policy = POLICIES[seed % len(POLICIES)]
        self.settings = (*self.more_settings, f"group.consumer.migration.policy={self.policy}")
        super().__init__(seed, chaos_ms, broker_count=broker_count)
        self.conversions = {"upgrade": 0, "downgrade": 0}
        self.altered = self.refused = self.replaced = 0
        self.stopped: dict[str, None] = {}
        """Groups whose members an operator has stopped."""
        self._preferred: Callable[..., Member] = ClassicMember
        self._seen: dict[str, Sight] = {}
        self._seen_epoch = 0

    # Members

    def _start_clients(self) -> None:
        super()._start_clients()
        self.later(*PREFERENCE_MS, self._change_preference)
        for group_id in self._kinds:
            if "operated" in group_id:
                operator = GroupOperator(self, group_id)
                process = Process(operator.connections, operator.run(), lambda _value: None, PATIENCE_MS)
                self.start_process(process)

    def _change_preference(self) -> None:
        self._preferred = ConsumerMember if self._preferred is ClassicMember else ClassicMember
        if not self.is_ending:
            self.later(*PREFERENCE_MS, self._change_preference)

    def _join(self, group_id: str, instance_id: str | None = None) -> None:
        is_late = self.is_ending and "changing" in group_id  # the policy decides which members remain to the end
        if self.is_closing or is_late or group_id in self.stopped:
            return
        self._made += 1
        name, make, transactional = f"m{self._made}", *self._kinds[group_id]
        if "changing" in group_id:
            other = ConsumerMember if self._preferred is ClassicMember else ClassicMember
            make = self._preferred if self.chance.random() < PREFERRED else other
        member = make(self, group_id, name, f"tx-{name}" if transactional else "")
        self._start_member(member, instance_id or f"i{self._made}")

    def _start_member(self, member: Member, instance_id: str) -> None:
        if "static" in member.group_id:
            member.instance_id = instance_id
        name = member.name
        process = Process(member.connections, member.run(), lambda _value: self._members.pop(name, None), PATIENCE_MS)
        self._members[name] = member, process
        self.start_process(process)

    def _disturb(self) -> None:
        """Makes a member die, leave or sleep, starts a second process of the same instance, or starts a new member."""
        if self.is_ending:
            return
        self.later(*DISTURBED_MS, self._disturb)
        if not self._members:
            return
        name = self.chance.choice(sorted(self._members))
        member, process = self._members[name]
        kind = self.chance.choice(["die", "leave", "sleep", "join", "restart", "restart", "twin", "twin"])
        if kind == "sleep":
            process.sleep(self.chance.randint(50, 4_500))
        elif kind == "join" and len(self._members) < MEMBERS_MAX:
            self._join(member.group_id)
        elif kind == "twin" and member.instance_id is not None:
            self.replaced += 1
            self._join(member.group_id, member.instance_id)
        else:
            is_leaving = kind == "leave" or (kind == "restart" and self._pause(member))
            self._remove(name, is_leaving=is_leaving and kind == "leave")
            follower = member.instance_id if kind == "restart" else None
            self.replaced += follower is not None
            self.later(*PAUSED_MS, lambda: self._join(member.group_id, None if self.is_ending else follower))

    def _pause(self, member: Member) -> bool:
        """Makes a static member announce, in most cases, that another process will follow, if the protocol supports that."""
        if member.instance_id is None or not isinstance(member, ConsumerMember) or self.chance.random() < 0.3:
            return False
        farewell = member.pause()
        if farewell is not None:
            member.connections.send(farewell, lambda _answer: None)
        return farewell is not None

    def own(self, member: Member, given: list[TopicPartition]) -> None:
        """Notes the partitions of a member. The generations of a changing group restart after it was empty; for such groups only the
        coordinator's state is judged.
        """
        if "changing" in member.group_id:
            return
        self.offsets.own(member.group_id, member.generation, member.instance_id or member.member_id, given)
        if isinstance(member, ClassicMember) and member.instance_id is not None:
            self.offsets.keep((member.group_id, member.generation, member.instance_id), given)

    def _end_clients(self) -> None:
        """Ends some members. Each group keeps at least one member or gets a new one, each instance keeps one process, and the policy
        decides which protocols remain.
        """
        kept: dict[tuple[str, str], str] = {}
        for name, (member, _) in sorted(self._members.items()):
            if "changing" in member.group_id or self.chance.random() < 0.3:
                self._remove(name, is_leaving=False)
            elif member.instance_id is not None:
                former = kept.get((member.group_id, member.instance_id))
                kept[member.group_id, member.instance_id] = name
                if former is not None:
                    self._remove(former, is_leaving=False)
        for group_id in self._kinds:
            if "changing" not in group_id:
                self._join(group_id)
                continue
            first, second = self.chance.choice(self._last_protocols())
            for make in (first, second):
                self._made += 1
                self._start_member(make(self, group_id, f"m{self._made}"), f"i{self._made}")

    def _last_protocols(self) -> list[tuple[Callable[..., Member], Callable[..., Member]]]:
        pure: list[tuple[Callable[..., Member], Callable[..., Member]]] = [(ClassicMember, ClassicMember), (ConsumerMember, ConsumerMember)]
        return [*pure, (ClassicMember, ConsumerMember)] if self.policy in ("bidirectional", "upgrade") else pure

    def _why_unassigned(self) -> str:
        return f"unassigned: {sorted(self.stopped)} are stopped" if self.stopped else super()._why_unassigned()

    # Operators

    def stop_members(self, group_id: str) -> None:
        """Ends all processes of the group; some of them leave the group before."""
        self.stopped[group_id] = None
        for name in [name for name, (member, _) in sorted(self._members.items()) if member.group_id == group_id]:
            self._remove(name, is_leaving=self.chance.random() < 0.6)

    def restart_members(self, group_id: str) -> None:
        self.stopped.pop(group_id, None)
        for _ in range(2):
            self._join(group_id)

    def members_of(self, group_id: str) -> set[tuple[int, str]]:
        """Returns the members that the current coordinator knows, each with its leader epoch."""
        leader = self.leader_of(OFFSETS)
        node = None if leader is None else self.brokers[self.checks.store.states[OFFSETS].leader].node
        host = None if node is None else node.groups.host_of_partition(OFFSETS.partition)
        if leader is None or host is None or host.state is not HostState.ACTIVE:
            return set()
        group = host.machine.shard.groups.get(group_id)
        return set() if group is None else {(leader.leader_epoch, member_id) for member_id in group.members}

    @property
    def places(self) -> tuple[TopicPartition, ...]:
        return OtherProducer.outputs

    # Coordinators

    def _check_answer(self, broker: ClusterBroker, node: ClusterNode, key: int, answer: Any, end: int) -> None:
        super()._check_answer(broker, node, key, answer, end)
        partition, host = node.partitions.get(*OFFSETS), node.groups.host_of_partition(OFFSETS.partition)
        if code_of(answer) or partition is None or partition.leader_epoch < self._seen_epoch:
            return
        self._seen_epoch = partition.leader_epoch
        for group in host.machine.shard.groups.values():
            self._note_group(group)

    def _note_group(self, group: Any) -> None:
        """Compares a group with its last sighting. If its type changed while it had members, it was converted, and no member may have lost
        partitions by that.
        """
        group_id, now = group.group_id, Sight(group)
        before = self._seen.get(group_id, now)
        self._seen[group_id] = now
        if before.is_new == now.is_new or not before.members & now.members:
            return
        way = "upgrade" if now.is_new else "downgrade"
        assert self.policy in ("bidirectional", way), f"converted: {way} of {group_id}, the policy is {self.policy}"
        self.conversions[way] += 1
        for member_id, (generation, had) in before.assigned.items() if now.is_new else ():
            is_same, has = now.assigned.get(member_id, (0, had))
            taken = f"taken away: {member_id} of {group_id} had {had} in generation {generation}, and after the upgrade {has} (I34)"
            assert is_same != generation or has == had, taken


class Sight:
    """The state of a group at one moment: its type, its members, and the partitions of each by generation, if the group is stable."""

    def __init__(self, group: Any) -> None:
        self.is_new = isinstance(group, ConsumerGroup)
        self.members = frozenset(group.members)
        self.assigned: dict[str, tuple[int, list[int]]] = {}
        for member_id in group.members if self.is_new else ():
            position = group.position(member_id)
            held = [index for indexes in position.assigned.values() for index in indexes]
            self.assigned[member_id] = position.epoch, sorted(held)
        for member_id, member in group.members.items() if not self.is_new and group.state is STABLE else ():
            given = read_assignment(bytes(member.assignment)) if member.assignment else ()
            self.assigned[member_id] = group.generation, sorted(place.partition for place in given)
