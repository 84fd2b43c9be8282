"""One run of a cluster with a share group: group, partitions and share states are led by different brokers, and all of them move.

Members join by heartbeats, fetch and acknowledge. From time to time operators stop them, and alter or delete the group's offsets
(`share_operator.py`). Partition leaders send share states to share coordinators by the APIs 83 to 87. `share_history.py` judges the run. A
replaced leader that does not know it may still deliver records, as in Kafka. Acknowledgements of these records have no effect, because the
share coordinator knows the new leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.share_state import UNINITIALIZED_START_OFFSET, SharePartitionKey, ShareState
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.groups.modern.group import LEAVING_EPOCH
from ottla.handlers.share_groups import share_group_heartbeat
from ottla.machine.host import HostState
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.sim.clients import OFFSETS
from tests.sim.cluster_broker import ClusterBroker, ClusterNode
from tests.sim.cluster_clients import ClusterPlainProducer
from tests.sim.cluster_world import REST_MS, ClusterWorld
from tests.sim.group_client import PATIENCE_MS, GroupClient
from tests.sim.process import Process, Steps
from tests.sim.share_broker import STATE_SETTINGS, TERMS
from tests.sim.share_history import LOCK_MS, Era, Holder, ShareHistory
from tests.sim.share_judge import ShareJudge
from tests.sim.share_members import GROUP
from tests.sim.share_members import Member as ShareMember
from tests.sim.share_operator import ShareOperator

CHAOS_MS = 6_000
TOPIC = "t"
PARTITIONS = 2
UNKNOWN = -2
"""The epoch of a state that was not seen yet."""
SHARED = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
STATES = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
MEMBERS = 3
BEAT_MS = 250
JOIN_PATIENCE_MS = 2_000
SETTINGS = (
    "share.coordinator.state.topic.num.partitions=1",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
    "group.share.min.session.timeout.ms=300",
    "group.share.session.timeout.ms=400",  # about LOCK_MS: an empty group is altered while leaders still lock records
    "group.share.min.heartbeat.interval.ms=50",
    "group.share.heartbeat.interval.ms=250",
    "group.share.assignment.interval.ms=20",
    "group.share.initialize.retry.interval.ms=200",
)


class Lost(Exception):
    """The member was removed, or has lost its partition."""


class ClusterShareMember(GroupClient, ShareMember):
    """A member that joins its group by heartbeats, and reads one of its assigned partitions at a time."""

    places = SHARED

    def __init__(self, world: ShareClusterWorld, name: str) -> None:
        GroupClient.__init__(self, world, GROUP)
        ShareMember.__init__(self, world, name, 0)  # type: ignore[arg-type]
        self.assigned: list[int] = []
        self._member_epoch = 0
        self._last_beat_ms = 0

    @property
    def topic_id(self) -> bytes:
        topic_id: bytes = self.world.topic_id(TOPIC)  # type: ignore[attr-defined]
        return topic_id

    def run(self) -> Steps:
        while not self.world.is_closing:
            try:
                yield from self._beat()
                if self.assigned:
                    self.partition = self.chance.choice(self.assigned)
                    yield from super().run()
            except Lost:
                pass
            yield self.chance.randint(5, 80)

    def _begin_round(self) -> Steps:
        if self.world.clock.monotonic_ms() - self._last_beat_ms >= BEAT_MS:
            yield from self._beat()
        if self.partition not in self.assigned or self.chance.random() < 0.1:
            raise Lost

    def leave_group(self) -> None:
        """Sends the request to leave once, and does not wait for an answer."""
        body = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=LEAVING_EPOCH)
        farewell = self._to_coordinator(share_group_heartbeat, 1, body)
        if farewell is not None:
            self.connections.send(farewell, lambda _answer: None)

    def _beat(self) -> Steps:
        self._last_beat_ms = self.world.clock.monotonic_ms()
        answers: list[Any] = []

        def code_of(answer: Any) -> int:
            answers.append(answer)
            return int(answer.error_code)

        body = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self._member_epoch, subscribed_topic_names=[TOPIC]
        )
        code = yield from self._ask(share_group_heartbeat, 1, lambda: body, code_of, JOIN_PATIENCE_MS)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._member_epoch, self.assigned = 0, []
            raise Lost
        if code == ErrorCode.NONE:
            answer = answers[-1]
            self._member_epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = sorted(index for topic in answer.assignment.topic_partitions for index in topic.partitions)


class ClusterShareHistory(ShareHistory):
    """A history divided into eras. An era ends when an operator begins to alter the group's offsets, and the next one begins with the
    answer. Only members that were started since then are judged.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.stored: Callable[[int], ShareState | None] = lambda _partition: None
        """What the share coordinator has of a partition; None also when there is none."""
        self.is_coordinated: Callable[[], bool] = lambda: False
        self.made = 0
        self.farthest = [0] * partitions
        """Where an operator may let a partition begin."""
        self.spoiled: set[int] = set()
        """Partitions whose state was deleted by a late request: it has no epoch, so nothing can fence it (in Kafka neither)."""
        self._suspended: dict[int, bool] = {}
        self._former = [0] * partitions
        self.eras = [Era(UNKNOWN, 0) for _ in range(partitions)]

    # Operators

    def suspend(self, partitions: Sequence[int], *, is_deleting: bool) -> None:
        """Ends the era: the offsets are about to be altered or deleted."""
        self._suspended.update(dict.fromkeys(partitions, is_deleting))
        self.spoiled.difference_update(partitions)

    def forgotten(self, partition: int) -> None:
        if not self._suspended.get(partition, False):
            self.spoiled.add(partition)

    def resume(self, partition: int, start: int | None) -> None:
        """Begins an era after the operator's answer: the group begins at an offset, or without one (None)."""
        where, stored = f"{TOPIC}-{partition}", self.stored(partition)
        if self.is_coordinated() and partition not in self.spoiled:
            is_anew = stored is None or (stored.start_offset == UNINITIALIZED_START_OFFSET and not stored.batches)
            is_there = stored is not None and stored.start_offset >= start if start is not None else is_anew
            assert is_there, f"not altered: of {where} there is {stored}, the operator was answered {start}"
        self.begin_era(partition, stored.state_epoch if stored is not None else UNKNOWN, start or 0)
        self._former[partition] = self.made
        del self._suspended[partition]

    def _is_judged(self, partition: int, member: str) -> bool:
        return not {partition} & (self._suspended.keys() | self.spoiled) and int(member[1:]) > self._former[partition]

    # What happens

    def note_acknowledgement(self, partition: int, member: str, offset: int, kind: int, now_ms: int) -> int:
        return super().note_acknowledgement(partition, member, offset, kind, now_ms) if self._is_judged(partition, member) else 0

    def settled(self, partition: int, state_epoch: int, offset: int, kind: int, count: int) -> None:
        if partition not in self._suspended:
            super().settled(partition, state_epoch, offset, kind, count)

    def wrote(self, partition: int, state_epoch: int) -> None:
        """Notes that the share coordinator has accepted a leader's write of this state."""
        known = self.eras[partition].state_epoch
        is_right = partition in self._suspended or partition in self.spoiled or known in (UNKNOWN, state_epoch)
        assert is_right, f"earlier state: a write of epoch {state_epoch} is taken for {TOPIC}-{partition}, whose state is of epoch {known}"

    def acquired(self, partition: int, offset: int, holder: Holder, now_ms: int, leader_epoch: int) -> None:
        self.farthest[partition] = max(self.farthest[partition], offset)
        if not self._is_judged(partition, holder.member):
            return
        if leader_epoch < self.present_epoch(partition):
            # Acknowledgements that it gets are valid until its successor has read the state.
            if holder.share.state_epoch == self.eras[partition].state_epoch and self.leaders[partition] <= leader_epoch:
                self.eras[partition].delivered.setdefault(offset, holder.count)
            return
        era, state_epoch, stored = self.eras[partition], holder.share.state_epoch, self.stored(partition)
        where = f"{TOPIC}-{partition}"
        is_present = stored is None or stored.state_epoch == state_epoch
        assert is_present, f"stale: {where}@{offset} goes to {holder.member} from the state of epoch {state_epoch}, there is {stored}"
        if era.state_epoch == UNKNOWN:
            era.state_epoch = state_epoch
        known = era.state_epoch
        assert state_epoch == known, f"reset: the state of {where} begins anew in epoch {state_epoch} after {known}"
        assert offset >= era.start, f"not altered: {where}@{offset} goes to {holder.member}, the group begins at {era.start}"
        super().acquired(partition, offset, holder, now_ms, leader_epoch)


class ShareClusterWorld(ClusterWorld):
    """See above."""

    topics = {TOPIC: PARTITIONS, GROUP_METADATA_TOPIC: 1, TRANSACTION_STATE_TOPIC: 1, SHARE_GROUP_STATE_TOPIC: 1}
    settings = SETTINGS
    is_swarm = is_operated = False

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS, *, broker_count: int | None = None) -> None:
        super().__init__(seed, chaos_ms, broker_count=broker_count)
        self.shares = ClusterShareHistory(PARTITIONS)
        self.shares.present_epoch = lambda partition: self.checks.store.states[SHARED[partition]].leader_epoch
        self.shares.stored = self._stored
        self.shares.is_coordinated = lambda: self._coordinator() is not None
        self.readers = []
        self.moved_keys = [STATES, OFFSETS, *SHARED]
        self.usurped_keys = [STATES, *SHARED]
        self.is_closing = False
        """Members come to their end."""
        self._members: dict[str, tuple[ClusterShareMember, Process]] = {}
        self.operated: dict[str, int] = {}
        """How often operators have done what."""
        self._is_stopped = False

    def prepare(self, broker: ClusterBroker, node: ClusterNode) -> None:
        super().prepare(broker, node)
        node.share_partitions.terms_of = lambda _group: TERMS
        node.share_states.configure(STATE_SETTINGS)
        judge = ShareJudge(self.shares, self.clock, broker.life, node, TOPIC)
        judge.watch_members()
        judge.watch_coordinator()

    # Clients

    def _start_clients(self) -> None:
        self._start_client(ClusterPlainProducer(self).run())  # type: ignore[arg-type]
        self._start_client(self.operator.run())
        operator = ShareOperator(self, TOPIC, PARTITIONS)
        self.start_process(Process(operator.connections, operator.run(), lambda _value: None, PATIENCE_MS))
        for _ in range(MEMBERS):
            self._join()

    def _join(self) -> None:
        if self.is_closing or self._is_stopped:
            return
        self.shares.made += 1
        member = ClusterShareMember(self, f"m{self.shares.made}")
        process = Process(member.connections, member.run(), lambda _value: None, PATIENCE_MS)
        self._members[member.name] = member, process
        self.start_process(process)

    def _disturb(self) -> None:
        """Makes a member die, with or without closing its connections, or sleep."""
        if self.is_ending:
            return
        self.later(100, 1_000, self._disturb)
        if not self._members:
            return
        name = self.chance.choice(sorted(self._members))
        _, process = self._members[name]
        kind = self.chance.choice(["die", "vanish", "sleep"])
        if kind == "sleep":
            process.sleep(self.chance.randint(50, 1_500))
            return
        self._remove(name, kind)
        self.later(1, 300, self._join)

    def _remove(self, name: str, kind: str) -> None:
        member, process = self._members.pop(name)
        process.die()
        if kind == "leave":
            member.leave_group()
        elif kind == "die":
            member.connections.give_up()

    def stop_members(self) -> None:
        """Ends all members; the sessions of some of them stay open."""
        self._is_stopped = True
        for name in sorted(self._members):
            self._remove(name, self.chance.choice(["die", "vanish", "leave", "leave"]))

    def restart_members(self) -> None:
        self._is_stopped = False
        for _ in range(MEMBERS):
            self._join()

    def _end_clients(self) -> None:
        self._join()

    def _rest(self) -> None:
        self.run_for(1_000)
        self.wait(self._are_others_over, REST_MS, "producers and operators do not come to their end")
        self.wait(lambda: not self._why_unfinished(), REST_MS, self._why_unfinished)
        self.is_closing = True
        self.run_for(LOCK_MS)
        super()._rest()

    def _are_others_over(self) -> bool:
        """Whether appends and alterations have ended; members end last."""
        members = [process for _, process in self._members.values()]
        return all(process.is_dead or process in members for process in self._clients)

    def _states(self) -> dict[SharePartitionKey, Any]:
        """Returns the states of the share coordinator; none while there is no coordinator."""
        host = self._coordinator()
        return {} if host is None else host.machine.shard.partitions

    def _stored(self, partition: int) -> ShareState | None:
        known = self._states().get(self._key_of(SHARED[partition]))
        return known.state if known is not None else None

    def _coordinator(self) -> Any:
        """Returns the current share coordinator, or None."""
        state = self.checks.store.states.get(STATES)
        node = self.brokers[state.leader].node if state is not None and state.leader in self.brokers else None
        host = None if node is None else node.share_states._hosts.get(STATES.partition)
        return None if host is None or host.state is not HostState.ACTIVE else host

    def _why_unfinished(self) -> str:
        """Returns a record that is neither accepted nor archived; empty if there is none."""
        states = self._states()
        for key in self._judged_keys():
            known, leader = states.get(self._key_of(key)), self.leader_of(key)
            if known is None or leader is None:
                return f"{key} has no leader, or no state of the group"
            terminal = {offset for batch in known.state.batches if batch.delivery_state >= 2 for offset in range(batch[0], batch[1] + 1)}
            for offset in range(max(known.state.start_offset, 0), leader.log.log_end_offset):
                if offset not in terminal:
                    return f"stuck: {key}@{offset} is not finished, the state begins at {known.state.start_offset}"
        return ""

    def _judged_keys(self) -> list[TopicPartition]:
        return [key for key in SHARED if key.partition not in self.shares.spoiled]

    def _key_of(self, key: TopicPartition) -> SharePartitionKey:
        return SharePartitionKey(GROUP, self.topic_id(TOPIC), key.partition)

    # Judging

    def _judge_clients(self) -> None:
        states = self._states()
        for key in SHARED:
            self.read_all(key)
        for key in self._judged_keys():
            leader, known = self.leader_of(key), states.get(self._key_of(key))
            assert leader is not None and known is not None, f"forgotten: nothing is remembered of {key}"
            self.shares.judge(key.partition, leader.high_watermark, known.state.start_offset, known.state.batches)
        self.history.judge({})
