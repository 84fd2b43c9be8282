"""One run with share groups: members on an unreliable network, brokers that lose power, locks that expire, offsets that are reset. As in
`world.py`, a seed decides the faults for `CHAOS_MS` of virtual time. Then everything is repaired, members without faults read the remaining
records, and the run is judged (`share_history.py`). Records are appended directly at the brokers; `world.py` simulates producers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.base.types import TopicPartition
from ottla.server.coordinator_views import MetadataTopics
from ottla.sharing.state_machine import ShareStateMachine
from ottla.wire.records import Record, encode_batch
from tests.sharing.state_world import hard_state
from tests.sim.base_world import Timeline, check_replay
from tests.sim.broker import host_of, store_model
from tests.sim.machine import LifeTimers, failures_raised
from tests.sim.network import LATE_MS, Call, Caller, SimNetwork
from tests.sim.process import PATIENCE_MS, Process
from tests.sim.share_broker import PARTITIONS, SHARE_KEYS, SHARED, STATES, TOPIC_ID, ShareBroker
from tests.sim.share_history import LOCK_MS, ShareHistory
from tests.sim.share_members import GROUP, Member

CHAOS_MS = 4_000
HEALING_MS = LATE_MS[1] + 3_000
"""The latest request before the healing may still arrive and lock records."""
LAYOUTS = ((1, 1, 1), (1, 1, 2), (2, 1, 2), (1, 2, 2))
MEMBERS = 4
WITHIN = 0.5
FUSE_MAX = 30
REPLAY_EVERY = 256
RESET_RETRY_MS = 300
DELETED_MAX = 20


class ShareWorld(Timeline):
    """See above."""

    keys: Sequence[TopicPartition] = SHARE_KEYS
    layouts: Sequence[Sequence[int]] = LAYOUTS
    """Which broker leads each of `keys`."""
    broker_type: type[ShareBroker] = ShareBroker
    member_type: type[Member] = Member

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS) -> None:
        super().__init__(seed, chaos_ms)
        self.history = ShareHistory(PARTITIONS)
        self.layout = dict(zip(self.keys, self.chance.choice(self.layouts), strict=True))
        self.store = store_model(self.layout)
        self.brokers = {number: self.broker_type(self, number) for number in sorted(set(self.layout.values()))}
        self.network = SimNetwork(self.chance, self.timers)
        self.resets = 0
        self._members: dict[str, tuple[Member, Process]] = {}
        self._callers: dict[str, Caller] = {}
        self._made = 0
        self._state_epochs = [0] * PARTITIONS
        self._is_resetting = False

    @property
    def is_closing(self) -> bool:
        """Whether the run is in its last phase, in which members finish."""
        return self.is_over

    def counts(self) -> dict[str, int]:
        return {"deliveries": self.history.deliveries, "resets": self.resets, **super().counts()}

    def run(self) -> None:
        with failures_raised():
            self._run()

    def _run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        for partition in range(PARTITIONS):
            self._reset(partition, 0)
        self.run_for(200)
        for index in range(MEMBERS):
            self._join(index % PARTITIONS)
        self.later(0, 100, self._append)
        self.later(300, 1_500, self._cut_power)
        self.later(500, 2_000, self._delete_records)
        self.later(100, 500, self._disturb)
        self.later(1_500, 4_000, self._reset_all)
        self.run_for(self.chaos_ms)
        self._heal()
        self.run_for(HEALING_MS)
        self._judge()

    def send(self, call: Call, answered: Callable[[Any], None]) -> None:
        """Sends a member's request, on the member's connection."""
        name = call.body().member_id
        if name not in self._callers:
            self._callers[name] = self.network.caller(name)
        self._callers[name].send(call, host_of(self.layout[call.place]), answered)

    def _check(self) -> None:
        if self.events % REPLAY_EVERY == 0:
            self._check_replay()

    # What happens

    def _append(self) -> None:
        """Appends records, unless the broker is down or refuses them."""
        if self.is_ending:
            return
        self.later(5, 150, self._append)
        key = self.chance.choice(SHARED)
        partition = self.brokers[self.layout[key]].partitions.get(key)
        if partition is not None:
            now_ms = self.clock.wall_ms()
            records = [Record(0, now_ms, None, b"v") for _ in range(self.chance.randint(1, 8))]
            try:
                partition.require_leading().append(memoryview(bytearray(encode_batch(records))), acks=-1, now_ms=now_ms)
            except ApiError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, error

    def _delete_records(self) -> None:
        """Deletes the beginning of a log, even if members have acquired records there."""
        if self.is_ending:
            return
        self.later(500, 3_000, self._delete_records)
        key = self.chance.choice(SHARED)
        partition = self.brokers[self.layout[key]].partitions.get(key)
        if partition is not None:
            offset = self.chance.randint(partition.log.log_start_offset, partition.high_watermark)
            self.history.deleted(key.partition, min(offset, partition.log.log_start_offset + DELETED_MAX))
            partition.require_leading().delete_records(min(offset, partition.log.log_start_offset + DELETED_MAX))

    def _join(self, partition: int) -> None:
        if self.is_over or self._is_resetting:
            return
        self._made += 1
        member = self.member_type(self, f"m{self._made}", partition)
        process = Process(self, member.run(), lambda _value: None)
        self._members[member.name] = member, process
        process.start()

    def _disturb(self) -> None:
        """Makes a member die, with or without closing its connection, leave or sleep."""
        if self.is_ending:
            return
        self.later(100, 500, self._disturb)
        if not self._members:
            return
        name = self.chance.choice(sorted(self._members))
        member, process = self._members[name]
        kind = self.chance.choice(["die", "vanish", "leave", "sleep"])
        if kind == "sleep":
            process.sleep(self.chance.randint(50, 1_000))
            return
        self._remove(name, kind)
        self.later(1, 300, lambda: self._join(member.partition))

    def _remove(self, name: str, kind: str) -> None:
        member, process = self._members.pop(name)
        process.die()
        if kind == "leave":
            self.send(member.leave(), lambda _answer: None)
        elif kind == "die":
            self.later(0, 100, self._callers[name].close) if name in self._callers else None

    def _cut_power(self) -> None:
        if self.is_ending:
            return
        broker = self.chance.choice(list(self.brokers.values()))
        if broker.is_up and self.chance.random() < WITHIN:
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        elif broker.is_up:
            self._crash(broker)
        self.later(300, 1_500, self._cut_power)

    def strike(self, broker: ShareBroker, delay_ms: int) -> None:
        """Cuts the power after a short delay, unless the process has ended or the faults are over by then."""
        life = broker.life
        self.timers.call_later(delay_ms, lambda: None if life.is_over or self.is_ending else self._crash(broker))

    def _power_cut(self, owner: ShareBroker) -> None:
        self._crash(owner)

    def _crash(self, broker: ShareBroker) -> None:
        self.crashes += 1
        broker.crash()
        self.later(5, 400, broker.start)

    # Resets

    def _reset_all(self) -> None:
        """Resets the group as an operator. The group has no members then, but requests of former members may still arrive."""
        if self.is_ending or self._is_resetting:
            return
        self._is_resetting = True
        self.later(1_500, 4_000, self._reset_all)
        for name in sorted(self._members):
            self._remove(name, "die")
        for partition in range(PARTITIONS):
            # The partitions are reset one by one, each in a separate event, because the power may be cut during any of them.
            start = self.chance.randint(0, max(self.history.eras[partition].delivered, default=0))
            self.later(0, 150, lambda partition=partition, start=start: self._reset(partition, start))  # type: ignore[misc]

    def _reset(self, partition: int, start: int) -> None:
        """Resets a partition as a group coordinator on the broker of the share coordinator would. It repeats the request until it succeeds,
        each time with another epoch. A late copy with the same epoch could undo what was read in between, because the protocol cannot
        recognise it (as in Kafka).
        """
        key = SharePartitionKey(GROUP, TOPIC_ID, partition)
        broker = self.brokers[self.layout[STATES]]

        def attempt() -> None:
            if broker.node is None:
                self.timers.call_later(RESET_RETRY_MS, attempt)
                return
            life = broker.life
            self._state_epochs[partition] += 1
            epoch = self._state_epochs[partition]
            look(epoch, life)
            broker.node.share_persister.initialize(key, epoch, start, lambda code: None if life.is_over else initialized(epoch, code))

        def look(epoch: int, life: LifeTimers) -> None:
            if self.history.eras[partition].state_epoch < epoch:
                self.timers.call_later(RESET_RETRY_MS, lambda: attempt() if life.is_over else look(epoch, life))

        def initialized(epoch: int, code: ErrorCode) -> None:
            if code:
                self.timers.call_later(RESET_RETRY_MS, attempt)
            else:
                self._begin_era(partition, epoch, start)

        attempt()

    def _begin_era(self, partition: int, state_epoch: int, start: int) -> None:
        self.resets += 1
        for broker in self.brokers.values():
            if broker.node is not None:
                for share in broker.node.share_partitions.of_group(GROUP):  # an alteration is answered after all of them are closed
                    share.close()
        self.history.begin_era(partition, state_epoch, start)
        if self._is_resetting and [era.state_epoch for era in self.history.eras] == self._state_epochs:
            self._is_resetting = False
            for index in range(MEMBERS):
                self._join(index % PARTITIONS)

    # Judging

    def _heal(self) -> None:
        self.is_ending = True
        self.network.is_kind = True
        for broker in self.brokers.values():
            broker.disk.fuse = None

    def _check_replay(self) -> None:
        """Checks that the coordinator's state equals the state that loading its log gives."""
        broker = self.brokers[self.layout[STATES]]
        if broker.node is None:
            return
        [host] = broker.node.share_states.all_hosts()
        fresh = ShareStateMachine(host.machine.settings, MetadataTopics(broker.node.metadata), lambda _end: None)
        check_replay(host, broker.partitions[STATES], fresh, hard_state, broker.partitions[STATES].log.log_start_offset)

    def _judge(self) -> None:
        self.is_over = True
        self.run_for(2 * PATIENCE_MS + LOCK_MS)
        self._check_replay()
        [host] = self.brokers[self.layout[STATES]].node.share_states.all_hosts()
        for key in SHARED:
            partition = self.brokers[self.layout[key]].partitions[key]
            assert self.history.eras[key.partition].state_epoch == self._state_epochs[key.partition], "a reset has no answer"
            known = host.machine.shard.partitions.get(SharePartitionKey(GROUP, TOPIC_ID, key.partition))
            assert known is not None, f"forgotten: nothing is remembered of {key}"
            state = known.state
            self.history.judge(key.partition, partition.high_watermark, state.start_offset, state.batches)
