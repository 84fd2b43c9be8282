"""One run: a broker, clients and readers under one clock, with faults drawn from a seed, judged after every event and at the end.

For `CHAOS_MS` of virtual time the network loses and delays, the power is cut and processes die or sleep. Then everything heals, open
transactions time out, and the verdicts are spoken. The same seed gives the same run, event by event.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.base.types import GROUP_METADATA_TOPIC, READ_COMMITTED, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.machine.host import HostState
from ottla.replication.partition import Partition
from ottla.server.hosts import reader_of
from ottla.transactions.machine import TransactionMachine
from ottla.wire.batch_header import read_batch_header
from ottla.wire.records import CONTROL_ABORT, iter_batches, read_control_record, read_records
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers
from tests.sim.broker import TOPICS, SimBroker
from tests.sim.clients import Producer, Steps, committed_offset
from tests.sim.history import History
from tests.sim.network import Call, Network

CHAOS_MS = 15_000
HEALING_MS = 12_000
PATIENCE_MS = 250
READ_BYTES = 1 << 20
REPLAY_EVERY = 64
EVENTS_MAX = 60_000
TRANSACTIONAL_IDS = {"a": True, "b": True, "c": False}
"""Each with whether its clients speak transactions v2."""


class Process:
    """A generator that is driven by answers, pauses and patience."""

    def __init__(self, world: World, steps: Steps, ended: Callable[[Any], None]) -> None:
        self._world = world
        self._steps = steps
        self._ended = ended
        self._turn = 0
        self.is_dead = False

    def start(self) -> None:
        self._go(self._turn, None)

    def die(self) -> None:
        """What it has sent may still arrive."""
        self.is_dead = True
        self._steps.close()

    def sleep(self, ms: int) -> None:
        """Stopped and continued: answers of meanwhile are lost to it."""
        self._turn += 1
        turn = self._turn
        self._world.timers.call_later(ms, lambda: self._go(turn, None))

    def _go(self, turn: int, answer: Any) -> None:
        if self.is_dead or turn != self._turn:
            return
        self._turn += 1
        try:
            step = self._steps.send(answer)
        except StopIteration as stop:
            self.is_dead = True
            self._ended(stop.value)
            return
        turn, timers = self._turn, self._world.timers
        if isinstance(step, Call):
            self._world.network.send(step, lambda answer: self._go(turn, answer))
            timers.call_later(PATIENCE_MS, lambda: self._go(turn, None))
        else:
            timers.call_later(step, lambda: self._go(turn, None))


class World:
    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS) -> None:
        self.seed = seed
        self.chaos_ms = chaos_ms
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.history = History()
        self.broker = SimBroker(self)
        self.network = Network(self.chance, self.timers, self.broker)
        self.is_ending = False
        self.events = 0
        self.crashes = 0
        self._processes: dict[str, Process] = {}
        self._positions = {TopicPartition("t", index): 0 for index in range(TOPICS["t"])}
        self._floors: dict[TopicPartition, int] = {}

    def run(self) -> None:
        self.broker.start()
        for name in TRANSACTIONAL_IDS:
            self._start_producer(name)
        self._later(20, 60, self._read)
        self._later(500, 2_500, self._cut_power)
        self._later(300, 1_500, self._disturb)
        self._run_until(self.clock.monotonic_ms() + self.chaos_ms)
        self._heal()
        self._run_until(self.clock.monotonic_ms() + HEALING_MS)
        self._judge()

    # Time

    def _run_until(self, end_ms: int) -> None:
        while (deadline_ms := self.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.timers.advance_to_next()
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
        process = self._processes[name] = Process(
            self,
            Producer(self, name, TRANSACTIONAL_IDS[name]).run(),
            lambda _value: self._later(1, 300, lambda: self._replace(process, name)),
        )
        process.start()

    def _replace(self, process: Process, name: str) -> None:
        """A process that was fenced by its successor stays away; one that has ended otherwise is started again."""
        if self._processes[name] is process:
            self._start_producer(name)

    def _cut_power(self) -> None:
        if self.is_ending:
            return
        self.crashes += 1
        self.broker.crash()
        self._later(5, 800, self._restart)

    def _restart(self) -> None:
        self._floors.clear()
        self.broker.start()
        self._later(300, 4_000, self._cut_power)

    def _disturb(self) -> None:
        """A process dies, sleeps, or gets a twin with the same transactional id."""
        if self.is_ending:
            return
        name = self.chance.choice(sorted(self._processes))
        process = self._processes[name]
        kind = self.chance.choice(["die", "sleep", "twin"])
        if kind == "sleep":
            process.sleep(self.chance.randint(100, 6_000))
        else:
            if kind == "die":
                process.die()
            self._later(1, 400, lambda: self._start_producer(name))
        self._later(300, 1_500, self._disturb)

    def _heal(self) -> None:
        """Power and network hold from here on. Some clients are gone for good: what they left open is for the timeouts to end."""
        self.is_ending = True
        self.network.is_kind = True
        for name in sorted(self._processes):
            if self.chance.random() < 0.5:
                self._processes[name].die()

    # Reading

    def _read(self) -> None:
        self._read_all()
        if not self.is_ending:
            self._later(20, 120, self._read)

    def _read_all(self) -> None:
        for key, position in self._positions.items():
            partition = self.broker.partitions.get(key)
            if partition is not None:
                self._positions[key] = self._read_from(partition, position)

    def _read_from(self, partition: Partition, position: int) -> int:
        """As a consumer does with `read_committed`: drops what the list of aborted transactions names."""
        while position < partition.last_stable_offset:
            read = partition.read(position, READ_BYTES, isolation=READ_COMMITTED)
            if read.slice is None:
                break
            aborted = sorted(read.aborted or [], key=lambda entry: entry[1])
            hidden: set[int] = set()
            data = memoryview(read.slice.read())
            for start, header in iter_batches(data):
                batch = data[start : start + header.size_bytes]
                while aborted and aborted[0][1] <= header.last_offset:
                    hidden.add(aborted.pop(0)[0])
                if header.is_control:
                    control = read_control_record(batch)
                    if control is not None and control.kind == CONTROL_ABORT:
                        hidden.discard(header.producer_id)
                elif header.producer_id not in hidden:
                    self._saw(partition, batch, position)
                position = max(position, header.next_offset)
        return position

    def _saw(self, partition: Partition, batch: memoryview, position: int) -> None:
        for record in read_records(batch):
            if record.offset >= position:
                assert record.offset < partition.last_stable_offset, "a record above the last stable offset (I24)"
                self.history.read(partition.topic_partition, record.offset, bytes(record.value or b"").decode())

    # Judging

    def _check(self) -> None:
        """What must hold after every event."""
        for key, partition in self.broker.partitions.items():
            stable, high, end = partition.last_stable_offset, partition.high_watermark, partition.log.log_end_offset
            assert partition.log.log_start_offset <= stable <= high <= end, f"{key}: {stable}, {high}, {end} (I2)"
            assert high >= self._floors.get(key, 0), f"{key}: the high watermark fell to {high} (I11)"
            self._floors[key] = high
        if self.events % REPLAY_EVERY == 0 and self.broker.is_up:
            self._check_replay()

    def _check_replay(self) -> None:
        """Live state is what loading the log would make of it (I36 for transactions)."""
        host = next(iter(self.broker.transactions.all_hosts()))
        if host.state is not HostState.ACTIVE:
            return
        fresh: TransactionMachine = self.broker.transactions.new_machine(0)
        reader, offset = reader_of(self.broker.partitions[TopicPartition(TRANSACTION_STATE_TOPIC, 0)], 1 << 20), 0
        while (piece := reader.read_piece(offset)) is not None:
            piece.apply_to(fresh)
            offset = piece.end
        assert fresh.shard.transactions == host.machine.shard.transactions, "live state is not the replay of the log"

    def _judge(self) -> None:
        """All faults have healed, all timeouts have passed."""
        for key, partition in self.broker.partitions.items():
            assert partition.last_stable_offset == partition.log.log_end_offset, f"{key}: a transaction hangs (I31)"
            if key.topic in ("t", GROUP_METADATA_TOPIC):
                self._judge_markers(partition)
        for index in self._positions:
            self._positions[index] = 0
        self._read_all()
        self.history.judge({name: self._committed(name) for name in TRANSACTIONAL_IDS})

    def _judge_markers(self, partition: Partition) -> None:
        """I25: no data of an epoch that a marker has ended."""
        found = partition.log.read(0, 1 << 30, end_offset=partition.log.log_end_offset)
        epochs: dict[int, int] = {}
        data = memoryview(found.read()) if found is not None else memoryview(b"")
        for start, _ in iter_batches(data):
            header = read_batch_header(data, start)
            if header.producer_id < 0:
                continue
            last = epochs.get(header.producer_id, -1)
            where = f"{partition.topic_partition}@{header.base_offset}"
            assert header.producer_epoch >= last, f"{where}: epoch {header.producer_epoch} after {last}"
            epochs[header.producer_id] = header.producer_epoch

    def _committed(self, group_id: str) -> int:
        found: list[int] = []

        def ask(handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int]) -> Steps:
            answer = yield Call(handler, version, body)
            assert answer is not None and not code_of(answer), f"OffsetFetch of {group_id} has no answer"
            return answer

        Process(self, committed_offset(ask, group_id), found.append).start()
        self._run_until(self.clock.monotonic_ms() + PATIENCE_MS)
        assert found, f"OffsetFetch of {group_id} failed"
        return found[0]
