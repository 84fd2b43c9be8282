"""One run of a cluster with consumer groups, whose coordinators move between brokers while all kinds of faults occur. Members of both
protocols join, fetch, commit (some of them in transactions), sleep, die and leave. After everything is repaired, each running member must
get its partitions, and then the committed offsets are judged (`group_history.py`). At every answer of a coordinator the world checks that
the coordinator leads its partition and has loaded it (I37), and that no partition has two owners (I34). From time to time it checks that
the coordinator's state equals the replay of its log (I36).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.streams.group import ACTIVE, StreamsGroup
from ottla.handlers.context import Pending, RequestContext
from ottla.handlers.groups import offset_fetch
from ottla.machine.coordinator import reader_of
from ottla.machine.host import HostState
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.fakes.answers import answer_of
from tests.groups.hard_state import hard_state
from tests.sim.base_world import check_replay, persistent
from tests.sim.clients import OFFSETS
from tests.sim.cluster_broker import ClusterBroker, ClusterNode
from tests.sim.cluster_clients import ClusterPlainProducer
from tests.sim.cluster_world import REST_MS, ClusterWorld
from tests.sim.group_client import PATIENCE_MS
from tests.sim.group_history import GroupHistory
from tests.sim.group_members import TOPIC, ClassicMember, ConsumerMember, Member
from tests.sim.process import Process, Steps

CHAOS_MS = 6_000
PARTITIONS = 3
MEMBERS = (2, 2, 3)
REPLAY_EVERY = 512
WATCHED = {
    8: "OffsetCommit", 9: "OffsetFetch", 11: "JoinGroup", 12: "Heartbeat", 14: "SyncGroup", 28: "TxnOffsetCommit", 68: "Heartbeat",
    88: "StreamsGroupHeartbeat",
}  # fmt: skip
"""The requests whose answers are looked at, by key."""
KEPT = (8, 28, 88)
"""Those whose answers may not be taken back by another coordinator."""
TURN_MS = (0, 60)
SETTINGS = (
    "group.min.session.timeout.ms=300",
    "group.initial.rebalance.delay.ms=50",
    "group.consumer.min.session.timeout.ms=300",
    "group.consumer.session.timeout.ms=1500",
    "group.consumer.min.heartbeat.interval.ms=50",
    "group.consumer.heartbeat.interval.ms=250",
    "group.consumer.assignment.interval.ms=20",
)


class Kind(NamedTuple):
    """The members of one group."""

    make: Callable[..., Member]
    is_transactional: bool


KINDS = {
    "classic": Kind(ClassicMember, False),
    "classic in transactions": Kind(ClassicMember, True),
    "new": Kind(ConsumerMember, False),
    "new in transactions": Kind(ConsumerMember, True),
}


class OtherProducer(ClusterPlainProducer):
    """A producer that writes to all partitions of the topic."""

    outputs = tuple(TopicPartition(TOPIC, index) for index in range(PARTITIONS))


class GroupWorld(ClusterWorld):
    """See above."""

    topics = {TOPIC: PARTITIONS, GROUP_METADATA_TOPIC: 1, TRANSACTION_STATE_TOPIC: 1}
    settings = SETTINGS
    kinds = KINDS
    is_swarm = is_operated = False

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS, *, broker_count: int | None = None) -> None:
        super().__init__(seed, chaos_ms, broker_count=broker_count)
        self.offsets = GroupHistory()
        self.readers = []
        self.moved_keys = [OFFSETS, *self.moved_keys]
        self.usurped_keys = [OFFSETS]
        self.is_closing = False
        """Members leave now."""
        self.refusals: dict[int, int] = {}
        """How often a coordinator refused with each code."""
        self._kinds = {name: self.kinds[name] for name in self.chance.sample(sorted(self.kinds), 2)}
        self._members: dict[str, tuple[Member, Process]] = {}
        self._made = 0

    def _check(self) -> None:
        super()._check()
        if self.events % REPLAY_EVERY == 0:
            self._check_replay()

    # Clients

    def _start_clients(self) -> None:
        self._start_client(OtherProducer(self).run())
        self._start_client(self.operator.run())
        for group_id in self._kinds:
            for _ in range(self.chance.choice(MEMBERS)):
                self._join(group_id)

    def _join(self, group_id: str) -> None:
        if self.is_closing:
            return
        self._made += 1
        name, kind = f"m{self._made}", self._kinds[group_id]
        member = kind.make(self, group_id, name, f"tx-{name}" if kind.is_transactional else "")
        process = Process(member.connections, member.run(), lambda _value: None, PATIENCE_MS)
        self._members[name] = member, process
        self.start_process(process)

    def _disturb(self) -> None:
        """Makes a member die, leave or sleep, and starts another one."""
        if self.is_ending:
            return
        self.later(100, 1_000, self._disturb)
        name = self.chance.choice(sorted(self._members))
        member, process = self._members[name]
        kind = self.chance.choice(["die", "leave", "sleep", "join"])
        if kind == "sleep":
            process.sleep(self.chance.randint(50, 4_500))
        elif kind != "join" or len(self._members) >= 8:
            self._remove(name, is_leaving=kind == "leave")
            self.later(1, 300, lambda: self._join(member.group_id))
        else:
            self._join(member.group_id)

    def own(self, member: Member, given: list[TopicPartition]) -> None:
        """Notes the partitions that a coordinator assigns to a member."""
        self.offsets.own(member.group_id, member.generation, member.member_id, given)

    def is_removed(self, member: Member) -> bool:
        """Whether the current coordinator has certainly removed the member."""
        return False

    def _remove(self, name: str, *, is_leaving: bool) -> None:
        member, process = self._members.pop(name)
        process.die()
        farewell = member.leave() if is_leaving else None
        if farewell is not None:
            member.connections.send(farewell, lambda _answer: None)

    def _end_clients(self) -> None:
        """Ends some members; each group keeps at least one member or gets a new one."""
        for name in sorted(self._members):
            if self.chance.random() < 0.3:
                self._remove(name, is_leaving=False)
        for group_id in self._kinds:
            self._join(group_id)

    def _rest(self) -> None:
        self.run_for(1_000)
        self.wait(lambda: not self._why_unassigned(), REST_MS, self._why_unassigned)
        self.is_closing = True
        super()._rest()

    def _why_unassigned(self) -> str:
        """Returns what a group still lacks; empty if each partition belongs to one running member and the assignment is balanced."""
        for group_id in self._kinds:
            members = [member for member, _ in self._members.values() if member.group_id == group_id]
            unsettled = [member.name for member in members if not member.is_settled]
            if unsettled:
                return f"unassigned: {unsettled} of {group_id} are not done with joining"
            places = sorted(place for member in members for place in member.owned)
            if places != self.places_of(group_id):
                return f"unassigned: the members of {group_id} have {places}"
            shares = [len(member.owned) for member in members]
            if max(shares) - min(shares) > 1:
                return f"unassigned: the members of {group_id} have {shares} partitions"
        return ""

    def places_of(self, group_id: str) -> list[TopicPartition]:
        """Returns the partitions that the members of a group read, in order."""
        return list(OtherProducer.outputs)

    # Coordinators

    def prepare(self, broker: ClusterBroker, node: ClusterNode) -> None:
        super().prepare(broker, node)
        node.groups._timers = SlowTurns(self, broker)  # type: ignore[attr-defined]
        dispatcher: Any = node.dispatcher
        make_route, life = dispatcher._route, broker.life

        def watched_route(key: int, version: int) -> Any:
            route = make_route(key, version)
            if key in WATCHED:
                route.handle = watched(
                    route.handle,
                    lambda: end_of(node),
                    lambda answer, end: None if life.is_over else self._check_answer(broker, node, key, answer, end),
                )
            return route

        dispatcher._route = watched_route

    def _check_answer(self, broker: ClusterBroker, node: ClusterNode, key: int, answer: Any, end: int) -> None:
        code = code_of(answer)
        if code:
            self.refusals[code] = self.refusals.get(code, 0) + 1
            return
        partition, host = node.partitions.get(*OFFSETS), node.groups.host_of_partition(OFFSETS.partition)
        where = f"broker {broker.broker_id} answers {WATCHED[key]}"
        assert partition is not None and partition.leader is not None, f"{where} and does not lead {OFFSETS} (I37)"
        assert host is not None and host.state is HostState.ACTIVE, f"{where} before it has loaded {OFFSETS} (I37)"
        high = partition.high_watermark
        assert key not in KEPT or high >= end, f"{where} of a change before {end}, the high watermark is {high}: it may be lost (I14)"
        check_owners(host.machine)

    def _check_replay(self) -> None:
        for broker in self.brokers.values():
            partition = broker.partitions.get(OFFSETS)
            host = broker.node.groups.host_of_partition(OFFSETS.partition) if broker.node is not None else None
            if partition is not None and partition.is_leading and host is not None and host.state is HostState.ACTIVE:
                shard = host.machine.shard
                check_replay(host, partition, GroupMachine(shard.settings, shard.topics, shard.random), hard_state)

    # Judging

    def _judge_clients(self) -> None:
        self._check_replay()
        self._judge_order()
        visible = {place: self.read_all(place) for place in OtherProducer.outputs}  # before time advances and leaders change
        for place, seen in visible.items():
            for group_id in self._kinds:
                self.offsets.judge((group_id, place), self._committed_at(group_id, place), seen)
        self.history.judge({})

    def _judge_order(self) -> None:
        """Checks that committed offsets never decrease in the log."""
        leader = self.leader_of(OFFSETS)
        assert leader is not None
        node = self.brokers[self.checks.store.states[OFFSETS].leader].node
        assert node is not None
        shard = node.groups.host_of_partition(OFFSETS.partition).machine.shard
        fresh = GroupMachine(shard.settings, shard.topics, shard.random)
        reader, offset, ends = reader_of(leader.log, 1), 0, dict[Any, int]()
        while (piece := reader.read_piece(offset)) is not None:
            piece.apply_to(fresh)
            for group_id, committed in fresh.shard.offsets.committed.items():
                for key, found in committed.items():
                    before = ends.get((group_id, key), 0)
                    is_set = found.offset in self.offsets.altered.get((group_id, TopicPartition(*key)), ())
                    went_back = f"went back: {group_id} of {key} from {before} to {found.offset} at {offset} (I35)"
                    assert found.offset >= before or is_set, went_back
                    ends[group_id, key] = found.offset
            for group_id, key in [place for place in ends if place[1] not in fresh.shard.offsets.committed.get(place[0], {})]:
                may_go = 0 in self.offsets.altered.get((group_id, TopicPartition(*key)), ())
                assert may_go, f"went away: {group_id} of {key}, which no operator has deleted (I35)"
                del ends[group_id, key]
            offset = piece.end

    def _committed_at(self, group_id: str, place: TopicPartition) -> int:
        wanted = OffsetFetchRequestTopics(name=place.topic, partition_indexes=[place.partition])
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])], require_stable=True)

        def steps() -> Steps:
            answer = yield from persistent(offset_fetch, 8, lambda: body, code_of)
            return answer.groups[0].topics[0].partitions[0].committed_offset

        return int(self.ask(steps(), f"OffsetFetch of {group_id}"))


class SlowTurns:
    """The timers of group coordinators, with delays between the steps of their work, so that loading a log takes time."""

    def __init__(self, world: GroupWorld, broker: ClusterBroker) -> None:
        self._chance = world.chance
        self.call_later = broker.life.call_later

    def call_soon(self, function: Callable[[], object]) -> None:
        self.call_later(self._chance.randint(*TURN_MS), function)


def end_of(node: ClusterNode) -> int:
    """Returns the end of the group coordinator's log, including all decided records."""
    partition = node.partitions.get(*OFFSETS)
    return -1 if partition is None else partition.log.log_end_offset


def watched(handle: Callable[..., Any], decided: Callable[[], int], look: Callable[[Any, int], None]) -> Callable[..., Any]:
    """Wraps a handler so that each answer is checked when it is sent, together with the result of `decided` at the time of the decision."""

    def handle_watched(broker: Any, request: RequestContext, body: Any) -> Any:
        answer = answer_of(handle(broker, request, body))
        end = decided()
        if not isinstance(answer, Pending):
            look(answer, end)
            return answer
        outer = Pending()
        outer.abandon = answer.abandon

        def complete(response: Any) -> None:
            look(response, end)
            outer.complete(response)

        answer.then(complete, outer.fail)
        return outer

    return handle_watched


def code_of(answer: Any) -> int:
    """Returns the first error in an answer about a group."""
    for found in (answer, *getattr(answer, "groups", ())[:1]):
        topics = getattr(found, "topics", None)
        code = getattr(found, "error_code", 0) or (topics[0].partitions[0].error_code if topics else 0)
        if code:
            return int(code)
    return 0


def check_owners(machine: GroupMachine) -> None:
    """I34: checks that no two members have the same partition, including partitions that a member is giving up."""
    for group in machine.shard.groups.values():
        if isinstance(group, StreamsGroup):
            check_tasks(group)
        elif isinstance(group, ConsumerGroup):
            owners: dict[Any, str] = {}
            for member_id in group.facts:
                position = group.position(member_id)
                for held in (position.assigned, position.revoking):
                    for place in ((topic_id, index) for topic_id, indexes in held.items() for index in indexes):
                        owner = owners.setdefault(place, member_id)
                        assert owner == member_id, f"two owners: {place[1]} of {group.group_id} belongs to {owner} and {member_id} (I34)"


def check_tasks(group: StreamsGroup) -> None:
    """I34: checks that a task is active at only one member, and that a process has each task only once, also while a member gives it up."""
    owners: dict[tuple[str, int], str] = {}
    holders: dict[tuple[str, str, int], str] = {}
    for member_id, facts in group.facts.items():
        position = group.position(member_id)
        for held in (position.assigned, position.revoking):
            for key, index in ((key, index) for key, indexes in held.items() for index in indexes):
                task = f"{key.subtopology}_{index} of {group.group_id}"
                owner = owners.setdefault((key.subtopology, index), member_id) if key.role is ACTIVE else member_id
                assert owner == member_id, f"two owners: task {task} is active at {owner} and {member_id} (I34)"
                holder = holders.setdefault((facts.process_id, key.subtopology, index), member_id)
                assert holder == member_id, f"twice in a process: {holder} and {member_id} have task {task} (I34)"
