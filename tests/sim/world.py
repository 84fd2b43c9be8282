"""One run: one or two brokers, clients and readers under one clock, with faults drawn from a seed, judged after every event and at the end.

For `CHAOS_MS` of virtual time the network loses and delays, the power is cut (between two events, or within one at any operation on a
disk), processes die or sleep, and the wall clock is set. Then everything heals, open transactions time out, and the verdicts are spoken.
The same seed gives the same run, event by event.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.base.types import GROUP_METADATA_TOPIC, READ_COMMITTED, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.groups.machine import GroupMachine
from ottla.machine.host import HostState, MachineHost
from ottla.replication.partition import Partition
from ottla.server.coordinator_hosts import reader_of
from ottla.transactions.markers import Marker
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers
from tests.groups.hard_state import hard_state
from tests.sim import logs, readers
from tests.sim.broker import KEYS, LAYOUTS, SimBroker, host_of, store_model
from tests.sim.clients import OFFSETS, TIMEOUT_MS, TRANSACTIONS, PlainProducer, Producer, committed_offset
from tests.sim.history import History
from tests.sim.machine import PowerCut, failures_raised
from tests.sim.network import LATE_MS, Call, SimNetwork
from tests.sim.process import PATIENCE_MS, Process, Steps
from tests.sim.readers import Reader, Seen

CHAOS_MS = 15_000
HEALING_MS = LATE_MS[1] + TIMEOUT_MS + 4_000
"""The latest request before the healing may still begin a transaction, which only its timeout ends."""
READ_BYTES = 1 << 20
REPLAY_EVERY = 512
STABLE_EVERY = 32
EVENTS_MAX = 60_000
WITHIN = 0.5
"""How many power cuts come in the middle of an event."""
FUSE_MAX = 40
AGAIN = 0.2
"""How many restarts come with the next power cut."""
CLOCK_JUMPS_MS = (-3_600_000, -30_000, 30_000, 3_600_000)
GROUPS = {"a": (("a",), True), "b": (("b",), True), "c": (("c",), False), "p": (("p1", "p2"), False)}
"""Each group with the transactional ids of its workers, and whether they speak transactions v2. Where there are two ids, the next worker
takes the other one: no worker ends what the last has left open, and only stable offsets keep the next from reading past it (KIP-447)."""


class World:
    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS) -> None:
        self.seed = seed
        self.chaos_ms = chaos_ms
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.history = History()
        self.layout = dict(zip(KEYS, self.chance.choice(LAYOUTS), strict=True))
        self.store = store_model(self.layout)
        self.brokers = {number: SimBroker(self, number) for number in sorted(set(self.layout.values()))}
        self.network = SimNetwork(self.chance, self.timers)
        self.is_ending = False
        self.events = 0
        self.crashes = 0
        self.readers = [Reader(self, key) for key in KEYS if key.topic == "t"]
        self._processes: dict[str, Process] = {}
        self._turns: dict[str, int] = {}
        self._floors: dict[TopicPartition, int] = {}

    def run(self) -> None:
        with failures_raised():
            self._run()

    def _run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        for name in GROUPS:
            self._start_producer(name)
        for steps in (PlainProducer(self).run(), *(reader.run() for reader in self.readers)):
            Process(self, steps, lambda _value: None).start()
        self._later(500, 2_500, self._cut_power)
        self._later(300, 1_500, self._disturb)
        self._later(1_000, 8_000, self._set_clock)
        self._run_until(self.clock.monotonic_ms() + self.chaos_ms)
        self._heal()
        self._run_until(self.clock.monotonic_ms() + HEALING_MS)
        self._judge()

    def send(self, call: Call, answered: Callable[[Any], None]) -> None:
        """To the leader of the place of the call."""
        self.network.send(call, host_of(self.layout[call.place]), answered)

    # Time

    def _run_until(self, end_ms: int) -> None:
        while (deadline_ms := self.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            try:
                self.timers.advance_to_next()
            except PowerCut as cut:
                self._crash(cut.owner)
            self.events += 1
            assert self.events < EVENTS_MAX, "the world does not come to rest"
            self._check()
        self.clock.advance(max(0, end_ms - self.clock.monotonic_ms()))

    def _later(self, low_ms: int, high_ms: int, function: Callable[[], None]) -> None:
        self.timers.call_later(self.chance.randint(low_ms, high_ms), function)

    # Faults

    def _start_producer(self, name: str) -> None:
        if self.is_ending:
            return
        ids, is_v2 = GROUPS[name]
        self._turns[name] = turn = self._turns.get(name, -1) + 1
        process = self._processes[name] = Process(
            self,
            self.make_producer(ids[turn % len(ids)], name, is_v2).run(),
            lambda _value: self._later(1, 300, lambda: self._replace(process, name)),
        )
        process.start()

    def make_producer(self, transactional_id: str, group_id: str, is_v2: bool) -> Producer:
        return Producer(self, transactional_id, group_id, is_v2)

    def _replace(self, process: Process, name: str) -> None:
        """A process that was fenced by its successor stays away; one that has ended otherwise is started again."""
        if self._processes[name] is process:
            self._start_producer(name)

    def _cut_power(self) -> None:
        """At once, or after some more operations on the disk, which is in the middle of whatever comes then."""
        if self.is_ending:
            return
        broker = self.chance.choice(list(self.brokers.values()))
        if broker.is_up and self.chance.random() < WITHIN:
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        elif broker.is_up:
            self._crash(broker)
        self._later(500, 4_000, self._cut_power)

    def strike(self, broker: SimBroker, delay_ms: int) -> None:
        """Cuts the power in a moment, if it is still the same life and the world does not heal yet."""
        life = broker.life
        self.timers.call_later(delay_ms, lambda: None if life.is_over or self.is_ending else self._crash(broker))

    def _crash(self, broker: SimBroker) -> None:
        self.crashes += 1
        broker.crash()
        for key, number in self.layout.items():
            if number == broker.broker_id:
                self._floors.pop(key, None)
        self._later(5, 800, lambda: self._restart(broker))

    def _restart(self, broker: SimBroker) -> None:
        """Sometimes the power does not hold until the logs are recovered."""
        if not self.is_ending and self.chance.random() < AGAIN:
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        broker.start()

    def _disturb(self) -> None:
        """A process dies, sleeps, or gets a twin with the same transactional id; one whose successor has another id can only die."""
        if self.is_ending:
            return
        name = self.chance.choice(sorted(self._processes))
        process = self._processes[name]
        kind = self.chance.choice(["die", "sleep", "twin"]) if len(GROUPS[name][0]) == 1 else "die"
        if kind == "sleep":
            process.sleep(self.chance.randint(100, 6_000))
        elif kind == "twin":
            self._later(1, 400, lambda: self._start_producer(name))
        elif not process.is_dead:  # one that has ended by itself has its successor on the way
            process.die()
            self._later(1, 400, lambda: self._start_producer(name))
        self._later(300, 1_500, self._disturb)

    def _set_clock(self) -> None:
        """Somebody sets the wall clock, by half a minute or an hour, forward or back; intervals must not notice."""
        if self.is_ending:
            return
        self.clock.jump_wall(self.chance.choice(CLOCK_JUMPS_MS))
        self._later(1_000, 8_000, self._set_clock)

    def _heal(self) -> None:
        """Power and network hold from here on. Some clients are gone for good: what they left open is for the timeouts to end."""
        self.is_ending = True
        self.network.is_kind = True
        for broker in self.brokers.values():
            broker.disk.fuse = None
        for name in sorted(self._processes):
            if self.chance.random() < 0.5:
                self._processes[name].die()

    # Judging

    def _check(self) -> None:
        """What must hold after every event."""
        for broker in self.brokers.values():
            for key, partition in broker.partitions.items():
                stable, high, end = partition.last_stable_offset, partition.high_watermark, partition.log.log_end_offset
                assert partition.log.log_start_offset <= stable <= high <= end, f"{key}: {stable}, {high}, {end} (I2)"
                assert high >= self._floors.get(key, 0), f"{key}: the high watermark fell to {high} (I11)"
                self._floors[key] = high
        if self.events % STABLE_EVERY == 0:
            for broker in self.brokers.values():
                for partition in broker.partitions.values():
                    logs.judge_stable(partition)
        if self.events % REPLAY_EVERY == 0:
            self._check_replay()

    def judge_marker(self, marker: Marker) -> None:
        """I27: the outcome of a marker is durable at the coordinator."""
        broker = self.brokers[self.layout[TRANSACTIONS]]
        partition = broker.partitions.get(TRANSACTIONS)
        if partition is None:
            return
        # What was there when the broker started has survived, although the high watermark is still on its way up to it.
        durable_end = max(partition.high_watermark, broker.recovered_ends[TRANSACTIONS])
        if durable_end < partition.log.log_end_offset:
            logs.judge_decision(partition, durable_end, marker)

    def _check_replay(self) -> None:
        """Live state is what loading the log would make of it (I36): transactions, and the offsets of groups, pending ones among them."""
        for broker in self.brokers.values():
            partition = broker.partitions.get(TRANSACTIONS)
            node = broker.node
            if node is None:
                continue
            for host in node.transactions.all_hosts() if partition is not None else ():
                _compare(host, partition, node.transactions.new_machine(0), lambda machine: machine.shard.transactions)
            partition = broker.partitions.get(OFFSETS)
            host = node.groups.host_of_partition(OFFSETS.partition) if partition is not None else None
            if host is not None:
                shard = host.machine.shard
                _compare(host, partition, GroupMachine(shard.settings, shard.topics, shard.random), hard_state)

    def _judge(self) -> None:
        """All faults have healed, all timeouts have passed."""
        self._check_replay()
        partitions = {key: partition for broker in self.brokers.values() for key, partition in broker.partitions.items()}
        for key, partition in partitions.items():
            is_decided = partition.last_stable_offset == partition.log.log_end_offset
            assert is_decided, logs.why_open(partition, partitions[TRANSACTIONS])
            if key.topic in ("t", GROUP_METADATA_TOPIC):
                logs.judge_markers(partition)
            elif key.topic == TRANSACTION_STATE_TOPIC:
                logs.judge_moves(partition)
        for reader in self.readers:
            everything = self._read_all(partitions[reader.place])
            for offset, value in everything:
                self.history.read(reader.place, offset, value)
            readers.judge(reader, everything)
        self.history.judge({name: self._committed(name) for name in GROUPS})

    def _read_all(self, partition: Partition) -> list[Seen]:
        """What a consumer gets that begins now, from the first offset to the last."""
        found: list[Seen] = []
        position = 0
        while position < partition.last_stable_offset:
            read = partition.read(position, READ_BYTES, isolation=READ_COMMITTED)
            assert read.slice is not None, f"{partition.topic_partition}: nothing at {position}"
            data = memoryview(read.slice.read())
            found += readers.visible(data, read.aborted or (), position)
            position = readers.end_of(data, position)
        return found

    def _committed(self, group_id: str) -> int:
        found: list[int] = []

        def ask(handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int]) -> Steps:
            answer = yield Call(handler, version, body, OFFSETS)
            assert answer is not None and not code_of(answer), f"OffsetFetch of {group_id} has no answer"
            return answer

        Process(self, committed_offset(ask, group_id), found.append).start()
        self._run_until(self.clock.monotonic_ms() + PATIENCE_MS)
        assert found, f"OffsetFetch of {group_id} failed"
        return found[0]


def _compare(host: MachineHost, partition: Any, fresh: Any, state_of: Callable[[Any], Any]) -> None:
    if host.state is not HostState.ACTIVE:
        return
    reader, offset = reader_of(partition, 1 << 20), 0
    while (piece := reader.read_piece(offset)) is not None:
        piece.apply_to(fresh)
        offset = piece.end
    assert state_of(fresh) == state_of(host.machine), f"live state is not the replay of {partition.topic_partition} (I36)"
