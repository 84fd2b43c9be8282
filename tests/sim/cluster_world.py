"""One run of a cluster: three to five brokers, a ZooKeeper, clients and operators under one clock, with faults drawn from a seed.

For `CHAOS_MS` of virtual time random faults strike random brokers every now and then (`cluster_nemesis.py`). Then everything heals, the
cluster must come to rest within `REST_MS`, and the verdicts are spoken. What must hold after every event is in `cluster_checks.py`. The
same seed gives the same run, event by event.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.ports import StoreNode
from ottla.base.types import GROUP_METADATA_TOPIC, READ_COMMITTED, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.controller import znodes
from ottla.controller.api import NewTopic, TopicResult
from ottla.handlers import offset_fetch
from ottla.replication.partition import Partition
from tests.fakes.clock import ManualClock
from tests.fakes.memory_store import ZooKeeperModel
from tests.fakes.timers import ManualTimers
from tests.sim import logs, readers
from tests.sim.clients import OFFSETS, TRANSACTIONS, committed_offset
from tests.sim.cluster_broker import CLUSTER_ID, ClusterBroker, ClusterNode, host_of
from tests.sim.cluster_checks import ClusterChecks, batches_from
from tests.sim.cluster_clients import CONTROLLER, ClusterPlainProducer, ClusterProducer, HastyProducer, Operator, PatientProducer
from tests.sim.cluster_lateness import LateIsrChanges
from tests.sim.cluster_nemesis import Nemesis
from tests.sim.cluster_network import CALM, ClusterNetwork
from tests.sim.history import History
from tests.sim.machine import PowerCut
from tests.sim.network import Call
from tests.sim.process import PATIENCE_MS, Process, Steps
from tests.sim.readers import Reader, Seen

CHAOS_MS = 8_000
SETUP_MS = 20_000
REST_MS = 30_000
LOOK_MS = 250
EVENTS_MAX = 150_000
READ_BYTES = 1 << 20
STABLE_EVERY = 64
TOPICS = {"t": 2, "in": 1, GROUP_METADATA_TOPIC: 1, TRANSACTION_STATE_TOPIC: 1}
GROUPS = {"a": ("a", True), "c": ("c", False)}
REPLICAS = 3
FLUSHED = 0.5
"""How many worlds flush on acknowledgement: there any power may be cut. In the others one at a time, between two full ISRs."""
STALE = 0.3
"""How often a client goes by the leader that it asked last."""


class ClusterWorld:
    """See above. `broker_count` None: drawn from the seed."""

    topics: Mapping[str, int] = TOPICS
    settings: tuple[str, ...] = ()
    """Of all brokers."""

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS, *, broker_count: int | None = None) -> None:
        self.seed = seed
        self.chaos_ms = chaos_ms
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.history = History()
        self.network = ClusterNetwork(self.chance, self.timers)
        self.model = ZooKeeperModel({znodes.CLUSTER_ID: StoreNode(data=znodes.cluster_id_bytes(CLUSTER_ID), version=0, czxid=0)})
        self.is_flushed = self.chance.random() < FLUSHED
        count = broker_count or self.chance.choice((3, 3, 3, 4, 5))
        settings = (f"ottla.flush.on.ack={'true' if self.is_flushed else 'false'}", *self.settings)
        self.brokers = {number: ClusterBroker(self, number, settings) for number in range(1, count + 1)}
        self.checks = ClusterChecks(self.model, self.brokers)
        self.nemesis = Nemesis(self)
        self.operator = Operator(self)
        self.touched: dict[int, None] = {}
        self.is_ending = self.is_over = False
        self.events = self.crashes = 0
        self.keys = [TopicPartition(name, index) for name, count in self.topics.items() for index in range(count)]
        self.moved_keys = [key for key in self.keys if key.topic in ("t", "in")]
        """The partitions that operators reassign."""
        self.usurped_keys = [key for key in self.keys if key.topic == "t"]
        """Those whose leader loses its session while its clients still speak with it."""
        self.readers = [Reader(self, key) for key in self.keys if key.topic == "t"]
        self.notes: list[str] = []
        self._leaders: dict[TopicPartition, int] = {}
        self._processes: dict[str, Process] = {}
        self._clients: list[Process] = []

    @property
    def trace(self) -> tuple[int, ...]:
        """The same for the same seed: all bytes on the network and in the store, and how many events there were."""
        return self.events, self.network.digest, self.checks.store.digest, len(self.history.seen)

    def run(self) -> None:
        with failures_raised():
            self._run()

    def _run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._set_up()
        self._start_clients()
        self.nemesis.start()
        self._run_until(self.clock.monotonic_ms() + self.chaos_ms)
        self._heal()
        self._rest()
        self._judge()
        self.is_over = True

    # Time

    def _run_until(self, end_ms: int) -> None:
        while (deadline_ms := self.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self._step()
        self.clock.advance(max(0, end_ms - self.clock.monotonic_ms()))

    def _step(self) -> None:
        try:
            self.timers.advance_one()
        except PowerCut as cut:
            self.crashes += 1
            self.nemesis.fuse_burnt(cut.owner)
        self.events += 1
        assert self.events < EVENTS_MAX, "the world does not come to rest"
        if self.touched:
            touched, self.touched = self.touched, {}
            for number in touched:
                self.checks.check(self.brokers[number])
        if self.events % STABLE_EVERY == 0:
            self._check_stable()

    def later(self, low_ms: int, high_ms: int, function: Callable[[], None]) -> None:
        self.timers.call_later(self.chance.randint(low_ms, high_ms), function)

    def _check_stable(self) -> None:
        broker = self.brokers[self.chance.choice(sorted(self.brokers))]
        for partition in broker.partitions.values():
            if partition.leader is not None and partition.is_online:
                logs.judge_stable(partition)

    # For brokers

    def prepare(self, broker: ClusterBroker, node: ClusterNode) -> None:
        """Called before a node starts."""
        LateIsrChanges(self, broker, node)

    def note(self, *words: object) -> None:
        self.notes.append(f"{self.clock.monotonic_ms()} {' '.join(map(str, words))}")

    def store_delay_ms(self) -> int:
        return self.chance.randint(1, 4) if self.chance.random() < 0.95 else self.chance.randint(5, 60)

    def is_cut_from_store(self, broker_id: int) -> bool:
        return self.nemesis.is_cut_from_store(broker_id)

    # Clients

    def send(self, call: Call, answered: Callable[[Any], None]) -> None:
        """To whom a client holds to be the leader of the place; that is what some broker serves, and may be out of date. Committed offsets
        are asked of the present coordinator: one that was replaced and is cut off answers with what it has (docs/cluster.md), and what
        keeps the members of a group from asking it, their generation, is not simulated."""
        number = self._leaders.get(call.place)
        if call.handler is offset_fetch and call.place in self.checks.store.states:
            self.network.send(call, host_of(self.checks.store.states[call.place].leader), answered)
            return
        if number is None or self.chance.random() > STALE:
            number = self.find(call.place)
        if number is None:
            return
        self._leaders[call.place] = number
        self.network.send(call, host_of(number), answered)

    def topic_id(self, name: str) -> bytes:
        return self.checks.store.ids[name]

    def find(self, place: TopicPartition) -> int | None:
        """The broker that serves a partition, as one that is asked knows it."""
        asked = [broker for broker in self.brokers.values() if broker.is_ready and broker.is_up and not broker.is_paused]
        if not asked:
            return None
        broker = self.chance.choice(asked)
        if place is CONTROLLER or broker.node is None:
            return broker.broker_id
        known = broker.node.metadata.partition(*place)
        return known.leader if known is not None and known.leader in self.brokers else None

    def _start_clients(self) -> None:
        for name in GROUPS:
            self._start_producer(name)
        plain = [ClusterPlainProducer(self), HastyProducer(self)]
        patient = PatientProducer(self)
        self._start_client(patient.run(), patient.patience_ms)
        for steps in (*(client.run() for client in plain), *(reader.run() for reader in self.readers), self.operator.run()):
            self._start_client(steps)
        self.later(300, 1_500, self._disturb_client)

    def _start_client(self, steps: Steps, patience_ms: int = PATIENCE_MS) -> None:
        process = Process(self, steps, lambda _value: None, patience_ms)
        self._clients.append(process)
        process.start()

    def _start_producer(self, name: str) -> None:
        if self.is_ending:
            return
        transactional_id, is_v2 = GROUPS[name]
        process = self._processes[name] = Process(
            self,
            ClusterProducer(self, transactional_id, name, is_v2).run(),
            lambda _value: self.later(1, 300, lambda: self._replace(process, name)),
        )
        self._clients.append(process)
        process.start()

    def _replace(self, process: Process, name: str) -> None:
        if self._processes[name] is process:
            self._start_producer(name)

    def _disturb_client(self) -> None:
        if self.is_ending:
            return
        name = self.chance.choice(sorted(self._processes))
        process = self._processes[name]
        kind = self.chance.choice(["die", "sleep", "twin"])
        if kind == "sleep":
            process.sleep(self.chance.randint(100, 4_000))
        elif kind == "twin":
            self.later(1, 400, lambda: self._start_producer(name))
        elif not process.is_dead:
            process.die()
            self.later(1, 400, lambda: self._start_producer(name))
        self.later(300, 2_000, self._disturb_client)

    # Beginning and end

    def _set_up(self) -> None:
        """Waits for a controller and makes the topics, before anything fails."""
        self.network.is_kind = True
        wanted = [NewTopic(name=name, num_partitions=count, replication_factor=REPLICAS) for name, count in self.topics.items()]
        self._wait(lambda: all(broker.is_ready for broker in self.brokers.values()), SETUP_MS, "the brokers do not become ready")
        answers: list[TopicResult] = []

        def create() -> None:
            for broker in self.brokers.values():
                if broker.node is not None and broker.node.member.controller.is_active:
                    broker.life.run(lambda node=broker.node: node.member.controller.create_topics(wanted, False, answers.extend))

        self.timers.call_soon(create)
        self._wait(lambda: bool(answers), SETUP_MS, "the topics are not created")
        assert all(answer.error is ErrorCode.NONE for answer in answers), answers
        self._wait(self._is_whole, SETUP_MS, self._why_not_whole)
        self.network.is_kind = False

    def _heal(self) -> None:
        """Everything works from here on. Some clients are gone for good: what they left open is for the timeouts to end."""
        self.is_ending = True
        self.network.is_kind, self.network.weather = True, CALM
        self.nemesis.heal()
        self._end_clients()

    def _end_clients(self) -> None:
        for name in sorted(self._processes):
            if self.chance.random() < 0.5:
                self._processes[name].die()

    def _rest(self) -> None:
        self._run_until(self.clock.monotonic_ms() + 1_000)
        self._wait(lambda: all(process.is_dead for process in self._clients), REST_MS, "clients do not come to their end")
        self._wait(self._is_whole, REST_MS, self._why_not_whole)
        self._wait(lambda: not self._why_undecided(), REST_MS, self._why_undecided)

    def _wait(self, is_done: Callable[[], bool], limit_ms: int, why: str | Callable[[], str]) -> None:
        end_ms = self.clock.monotonic_ms() + limit_ms
        while not is_done():
            assert self.clock.monotonic_ms() < end_ms, why if isinstance(why, str) else why()
            self._run_until(self.clock.monotonic_ms() + LOOK_MS)

    def is_in_sync(self) -> bool:
        """Every replica of every partition is in the ISR and has caught up."""
        return self._is_whole()

    def leader_of(self, key: TopicPartition) -> Partition | None:
        state = self.checks.store.states.get(key)
        partition = self.brokers[state.leader].partitions.get(key) if state is not None and state.leader in self.brokers else None
        return partition if partition is not None and partition.is_leading else None

    def _is_whole(self) -> bool:
        return self._why_not_whole() == ""

    def _why_not_whole(self) -> str:
        """I45: what is still missing; empty if every partition has a leader, a full ISR and equal replicas."""
        for broker in self.brokers.values():
            if not broker.is_ready:
                return f"broker {broker.broker_id} is not ready: {broker.refusals[-1:]} (I45)"
        for key, state in sorted(self.checks.store.states.items()):
            leader = self.leader_of(key)
            if leader is None:
                return f"{key} has no leader: {state} (I45)"
            replicas = self.checks.store.replicas[key]
            if set(state.isr) != set(replicas):
                return f"{key}: ISR {state.isr} of {replicas} (I45)"
            for replica in replicas:
                partition = self.brokers[replica].partitions.get(key)
                end = leader.log.log_end_offset
                if partition is None or not partition.is_online or (partition.log.log_end_offset, partition.high_watermark) != (end, end):
                    return f"{key} on broker {replica} lags behind {end} (I45)"
        return ""

    def _why_undecided(self) -> str:
        """I31: a transaction that is still open; empty if there is none."""
        leaders = {key: self.leader_of(key) for key in self.keys}
        coordinator = leaders[TRANSACTIONS]
        for key, leader in leaders.items():
            if leader is None or coordinator is None:
                return f"{key} has no leader (I45)"
            if leader.last_stable_offset < leader.log.log_end_offset:
                return logs.why_open(leader, coordinator)
        return ""

    # Judging

    def _judge(self) -> None:
        self._judge_logs()
        for reader in self.readers:
            readers.judge(reader, self._read_all(reader.place))
        self._judge_clients()

    def _judge_clients(self) -> None:
        self.history.judge({name: self._committed(name) for name in GROUPS})

    def _judge_logs(self) -> None:
        for key in self.keys:
            leader = self.leader_of(key)
            assert leader is not None
            expected = list(batches_from(leader, 0))
            for replica in self.checks.store.replicas[key]:
                found = list(batches_from(self.brokers[replica].partitions[key], 0))
                assert found == expected, f"{key}: broker {replica} has other bytes than the leader (I3)"
            if key.topic in ("t", GROUP_METADATA_TOPIC):
                logs.judge_markers(leader)
            elif key.topic == TRANSACTION_STATE_TOPIC:
                logs.judge_moves(leader)

    def _read_all(self, place: TopicPartition) -> list[Seen]:
        """What a consumer gets that begins now, from the first offset to the last; the history takes it as read."""
        partition = self.leader_of(place)
        assert partition is not None
        found: list[Seen] = []
        position = 0
        while position < partition.last_stable_offset:
            read = partition.read(position, READ_BYTES, isolation=READ_COMMITTED)
            assert read.slice is not None, f"{place}: nothing at {position}"
            data = memoryview(read.slice.read())
            found += readers.visible(data, read.aborted or (), position)
            position = readers.end_of(data, position)
        for offset, value in found:
            self.history.read(place, offset, value)
        return found

    def _committed(self, group_id: str) -> int:
        found: list[int] = []

        def ask(handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int]) -> Steps:
            while True:
                answer = yield Call(handler, version, body, OFFSETS)
                if answer is not None and not code_of(answer):
                    return answer
                yield 20

        Process(self, committed_offset(ask, group_id), found.append).start()
        self._wait(lambda: bool(found), 5_000, f"OffsetFetch of {group_id} has no answer")
        return found[0]


class FailureHandler(logging.Handler):
    """A broker that logs an exception that is none of a disk, a peer or a store has failed."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OttlaError):
            raise AssertionError(record.getMessage()) from error


@contextmanager
def failures_raised() -> Iterator[None]:
    """Exceptions in the log of a broker fail the run; the lines are not shown."""
    logger, handler = logging.getLogger("ottla"), FailureHandler(logging.ERROR)
    level, is_propagating = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = is_propagating
