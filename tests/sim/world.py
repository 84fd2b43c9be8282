"""One run with one or two brokers, clients and readers under one clock. A seed decides the faults. The run is judged after every event and
at the end. For `CHAOS_MS` of virtual time the network loses and delays messages, the power is cut (between two events, or during one at any
operation on a disk), processes die or sleep, and the wall clock is set. Then everything is repaired, open transactions time out, and the
run is judged. The same seed gives the same run, event by event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.types import TopicPartition
from ottla.groups.machine import GroupMachine
from ottla.transactions.metadata import Marker
from tests.groups.hard_state import hard_state
from tests.sim import logs, readers
from tests.sim.base_world import ProducerWorld, check_replay
from tests.sim.broker import KEYS, LAYOUTS, SimBroker, host_of, store_model
from tests.sim.clients import OFFSETS, TIMEOUT_MS, TRANSACTIONS, PlainProducer
from tests.sim.machine import failures_raised
from tests.sim.network import LATE_MS, Call, SimNetwork
from tests.sim.process import Process
from tests.sim.readers import Reader

CHAOS_MS = 15_000
HEALING_MS = LATE_MS[1] + TIMEOUT_MS + 4_000
"""The latest request before the healing may still begin a transaction, which only its timeout ends."""
REPLAY_EVERY = 512
STABLE_EVERY = 32
WITHIN = 0.5
"""How many power cuts come in the middle of an event."""
FUSE_MAX = 40
AGAIN = 0.2
"""How many restarts come with the next power cut."""
CLOCK_JUMPS_MS = (-3_600_000, -30_000, 30_000, 3_600_000)
GROUPS = {"a": (("a",), True), "b": (("b",), True), "c": (("c",), False), "p": (("p1", "p2"), False)}


class World(ProducerWorld):
    """See above."""

    groups = GROUPS

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS) -> None:
        super().__init__(seed, chaos_ms)
        self.layout = dict(zip(KEYS, self.chance.choice(LAYOUTS), strict=True))
        self.store = store_model(self.layout)
        self.brokers = {number: SimBroker(self, number) for number in sorted(set(self.layout.values()))}
        self.network = SimNetwork(self.chance, self.timers)
        self.readers = [Reader(self, key) for key in KEYS if key.topic == "t"]
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
        self.later(500, 2_500, self._cut_power)
        self.later(300, 1_500, self._disturb)
        self.later(1_000, 8_000, self._set_clock)
        self.run_for(self.chaos_ms)
        self._heal()
        self.run_for(HEALING_MS)
        self._judge()

    def send(self, call: Call, answered: Callable[[Any], None]) -> None:
        """Sends a call to the leader of its partition."""
        self.network.send(call, host_of(self.layout[call.place]), answered)

    # Faults

    def _cut_power(self) -> None:
        """Cuts the power now, or after some more operations on the disk, in the middle of the event that does them."""
        if self.is_ending:
            return
        broker = self.chance.choice(list(self.brokers.values()))
        if broker.is_up and self.chance.random() < WITHIN:
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        elif broker.is_up:
            self._crash(broker)
        self.later(500, 4_000, self._cut_power)

    def strike(self, broker: SimBroker, delay_ms: int) -> None:
        """Cuts the power after a short delay, unless the process has ended or the faults are over by then."""
        life = broker.life
        self.timers.call_later(delay_ms, lambda: None if life.is_over or self.is_ending else self._crash(broker))

    def _power_cut(self, owner: SimBroker) -> None:
        self._crash(owner)

    def _crash(self, broker: SimBroker) -> None:
        self.crashes += 1
        broker.crash()
        for key, number in self.layout.items():
            if number == broker.broker_id:
                self._floors.pop(key, None)
        self.later(5, 800, lambda: self._restart(broker))

    def _restart(self, broker: SimBroker) -> None:
        """Starts the broker again. Sometimes the power fails before the logs are recovered."""
        if not self.is_ending and self.chance.random() < AGAIN:
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        broker.start()

    def _set_clock(self) -> None:
        """Sets the wall clock forward or back by half a minute or an hour; this must not affect intervals."""
        if self.is_ending:
            return
        self.clock.jump_wall(self.chance.choice(CLOCK_JUMPS_MS))
        self.later(1_000, 8_000, self._set_clock)

    def _heal(self) -> None:
        """Ends the faults: power and network work from now on."""
        self.is_ending = True
        self.network.is_kind = True
        for broker in self.brokers.values():
            broker.disk.fuse = None
        self._end_clients()

    # Judging

    def _check(self) -> None:
        """Checks the invariants that must hold after every event."""
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
        """I27: checks that the outcome of a marker is durable at the coordinator."""
        broker = self.brokers[self.layout[TRANSACTIONS]]
        partition = broker.partitions.get(TRANSACTIONS)
        if partition is None:
            return
        # Records that existed when the broker started have survived, although the high watermark has not reached them again yet.
        durable_end = max(partition.high_watermark, broker.recovered_ends[TRANSACTIONS])
        if durable_end < partition.log.log_end_offset:
            logs.judge_decision(partition, durable_end, marker)

    def _check_replay(self) -> None:
        """I36: checks that the state of the coordinators equals the state that loading their logs gives: transactions, and offsets of
        groups including pending ones.
        """
        for broker in self.brokers.values():
            partition = broker.partitions.get(TRANSACTIONS)
            node = broker.node
            if node is None:
                continue
            for host in node.transactions.all_hosts() if partition is not None else ():
                check_replay(host, partition, node.transactions.new_machine(0), lambda machine: machine.shard.transactions)
            partition = broker.partitions.get(OFFSETS)
            host = node.groups.host_of_partition(OFFSETS.partition) if partition is not None else None
            if host is not None:
                shard = host.machine.shard
                check_replay(host, partition, GroupMachine(shard.settings, shard.topics, shard.random), hard_state)

    def _judge(self) -> None:
        """Judges the run after the faults have ended and all timeouts have passed."""
        self._check_replay()
        partitions = {key: partition for broker in self.brokers.values() for key, partition in broker.partitions.items()}
        for partition in partitions.values():
            is_decided = partition.last_stable_offset == partition.log.log_end_offset
            assert is_decided, logs.why_open(partition, partitions[TRANSACTIONS])
            logs.judge(partition)
        for reader in self.readers:
            readers.judge(reader, readers.read_all(partitions[reader.place], self.history))
        self.history.judge({name: self.committed(name) for name in GROUPS})
