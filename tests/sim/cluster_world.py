"""One run of a cluster: three to five brokers, a ZooKeeper, clients and operators under one clock, with faults drawn from a seed.

For `CHAOS_MS` of virtual time random faults hit random brokers (`cluster_nemesis.py`). Then everything is repaired, the cluster must become
healthy within `REST_MS`, and the run is judged. `cluster_checks.py` has the checks after every event. The same seed gives the same run,
event by event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.ports import StoreNode
from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.controller.api import NewTopic, TopicResult
from ottla.handlers.groups import offset_fetch
from ottla.metadata_store import znodes
from ottla.replication.partition import Partition
from tests.fakes.memory_store import ZooKeeperModel
from tests.sim import logs, readers
from tests.sim.base_world import ProducerWorld
from tests.sim.clients import TRANSACTIONS, Producer
from tests.sim.cluster_broker import CLUSTER_ID, ClusterBroker, ClusterNode, host_of
from tests.sim.cluster_checks import ClusterChecks, batches_from
from tests.sim.cluster_clients import CONTROLLER, ClusterPlainProducer, ClusterProducer, HastyProducer, Operator, PatientProducer
from tests.sim.cluster_lateness import LateIsrChanges
from tests.sim.cluster_nemesis import Nemesis
from tests.sim.cluster_network import CALM, ClusterNetwork
from tests.sim.cluster_operations import Operations
from tests.sim.cluster_strands import Strands
from tests.sim.cluster_swarm import Swarm
from tests.sim.lying_disks import LyingDisks
from tests.sim.machine import failures_raised
from tests.sim.network import Call
from tests.sim.process import PATIENCE_MS, Process, Steps
from tests.sim.readers import Reader, Seen

CHAOS_MS = 8_000
SETUP_MS = 20_000
REST_MS = 30_000
EVENTS_MAX = 150_000
STABLE_EVERY = 64
TOPICS = {"t": 2, "in": 1, GROUP_METADATA_TOPIC: 1, TRANSACTION_STATE_TOPIC: 1}
GROUPS = {"a": (("a",), True), "c": (("c",), False)}
REPLICAS = 3
FLUSHED = 0.5
"""How many worlds flush on acknowledgement: there any power may be cut. In the others one at a time, between two full ISRs."""
SEGMENT_BYTES = 1_500
"""Of the logs of some worlds: a segment has a dozen batches, so that cuts, damage and copies meet more than one."""
STALE = 0.3
"""How often a client goes by the leader that it asked last."""


class ClusterWorld(ProducerWorld):
    """See above. `broker_count` None: drawn from the seed."""

    groups = GROUPS
    sleep_ms = (100, 4_000)
    disturbed_ms = (300, 2_000)
    events_max = EVENTS_MAX
    topics: Mapping[str, int] = TOPICS
    settings: tuple[str, ...] = ()
    """Of all brokers."""
    lies: tuple[str, ...] = ()
    """How disks lie, by the names of `lying_disks.py`."""
    is_swarm = True
    """Whether each seed draws its own kinds of faults (`cluster_swarm.py`)."""
    is_rolling = False
    """Whether segments are small in each world, not only in those that draw it."""
    is_operated = True
    """Whether some seeds have coordinators that move, reassignments that are cancelled, and disks that are lost."""

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS, *, broker_count: int | None = None) -> None:
        super().__init__(seed, chaos_ms)
        self.swarm = Swarm(seed, is_plain=not self.is_swarm)
        self.network = ClusterNetwork(self.chance, self.timers)
        self.model = ZooKeeperModel({znodes.CLUSTER_ID: StoreNode(data=znodes.cluster_id_bytes(CLUSTER_ID), version=0, czxid=0)})
        self.is_flushed = self.chance.random() < FLUSHED
        count = broker_count or self.chance.choice((3, 3, 3, 4, 5))
        settings = (f"ottla.flush.on.ack={'true' if self.is_flushed else 'false'}", *self.settings)
        self.brokers = {number: ClusterBroker(self, number, settings) for number in range(1, count + 1)}
        self.checks = ClusterChecks(self.model, self.brokers)
        self.nemesis = Nemesis(self)
        self.operations = Operations(self)
        self.strands = Strands(self)
        self.lying_disks = LyingDisks(self)
        self.operator = Operator(self)
        self.touched: dict[int, None] = {}
        self.keys = [TopicPartition(name, index) for name, count in self.topics.items() for index in range(count)]
        self.moved_keys = [key for key in self.keys if key.topic in ("t", "in")]
        """The partitions that operators reassign."""
        self.usurped_keys = [key for key in self.keys if key.topic == "t"]
        """Those whose leader loses its session while its clients still speak with it."""
        self.readers = [Reader(self, key) for key in self.keys if key.topic == "t"]
        self._leaders: dict[TopicPartition, int] = {}
        self._clients: list[Process] = []

    @property
    def trace(self) -> tuple[int, ...]:
        """Returns a digest that is equal for the same seed: of all bytes on the network and in the store, and the number of events."""
        return self.events, self.network.digest, self.checks.store.digest, len(self.history.seen)

    def counts(self) -> dict[str, int]:
        return {**super().counts(), "changes of in-sync sets": self.checks.store.isr_changes}

    def run(self) -> None:
        with failures_raised(is_of_cluster=True):
            self._run()

    def _run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._set_up()
        self._start_clients()
        self.nemesis.start()
        self.operations.start()
        self.strands.start()
        if self.lies:
            self.lying_disks.start(self.lies)
        self.later(300, 1_500, self._disturb)
        self.run_for(self.chaos_ms)
        self._heal()
        self._rest()
        self._judge()
        self.is_over = True

    # Time

    def _advance(self) -> None:
        self.timers.advance_one()

    def _power_cut(self, owner: ClusterBroker) -> None:
        self.crashes += 1
        self.nemesis.fuse_burnt(owner)

    def _check(self) -> None:
        if self.touched:
            touched, self.touched = self.touched, {}
            for number in touched:
                self.checks.check(self.brokers[number])
        if self.events % STABLE_EVERY == 0:
            self._check_stable()

    def _check_stable(self) -> None:
        broker = self.brokers[self.chance.choice(sorted(self.brokers))]
        for partition in broker.partitions.values() if self._is_readable(broker) else ():
            if partition.leader is not None and partition.is_online:
                logs.judge_stable(partition)

    def _is_readable(self, broker: ClusterBroker) -> bool:
        """Whether the broker's disk returns the bytes that were written."""
        return True

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
        """Sends a request to the broker that a client believes to be the partition's leader, from the metadata of some broker, which may be
        out of date. Requests for committed offsets are sent to the current coordinator. A replaced coordinator that is cut off would answer
        with old offsets (docs/cluster.md); the generation, which prevents group members from reading them, is not simulated here.
        """
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
        """Returns the leader of a partition in the metadata of the broker that is asked."""
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
    def _start_client(self, steps: Steps, patience_ms: int = PATIENCE_MS) -> None:
        self.start_process(Process(self, steps, lambda _value: None, patience_ms))

    def start_process(self, process: Process) -> None:
        self._clients.append(process)
        process.start()

    def make_producer(self, transactional_id: str, group_id: str, is_v2: bool) -> Producer:
        return ClusterProducer(self, transactional_id, group_id, is_v2)

    # Beginning and end

    def _set_up(self) -> None:
        """Waits for a controller and creates the topics, before the faults begin."""
        self.network.is_kind = True
        configs = {"internal.segment.bytes": str(SEGMENT_BYTES)} if self.is_rolling or "roll" in self.swarm else {}
        wanted = [
            NewTopic(name=name, num_partitions=count, replication_factor=REPLICAS, configs={} if name.startswith("__") else configs)
            for name, count in self.topics.items()
        ]
        self.wait(lambda: all(broker.is_ready for broker in self.brokers.values()), SETUP_MS, "the brokers do not become ready")
        answers: list[TopicResult] = []

        def create() -> None:
            for broker in self.brokers.values():
                if broker.node is not None and broker.node.member.controller.is_active:
                    broker.life.run(lambda node=broker.node: node.member.controller.create_topics(wanted, False, answers.extend))

        self.timers.call_soon(create)
        self.wait(lambda: bool(answers), SETUP_MS, "the topics are not created")
        assert all(answer.error is ErrorCode.NONE for answer in answers), answers
        self.wait(self._is_whole, SETUP_MS, self._why_not_whole)
        self.network.is_kind = False

    def _heal(self) -> None:
        """Repairs everything; there are no faults from now on."""
        self.is_ending = True
        self.network.is_kind, self.network.weather = True, CALM
        self.nemesis.heal()
        self._end_clients()

    def _rest(self) -> None:
        self.run_for(1_000)
        self.wait(lambda: all(process.is_dead for process in self._clients), REST_MS, "clients do not come to their end")
        self.wait(self._is_whole, REST_MS, self._why_not_whole)
        self.wait(lambda: not self._why_undecided(), REST_MS, self._why_undecided)

    def is_in_sync(self) -> bool:
        """Whether every replica of every partition is in the ISR and has all records."""
        return self._is_whole()

    def leader_of(self, key: TopicPartition) -> Partition | None:
        state = self.checks.store.states.get(key)
        partition = self.brokers[state.leader].partitions.get(key) if state is not None and state.leader in self.brokers else None
        return partition if partition is not None and partition.is_leading else None

    def _is_whole(self) -> bool:
        return self._why_not_whole() == ""

    def _why_not_whole(self) -> str:
        """I45: returns what is still missing; empty if every partition has a leader, a full ISR and equal replicas."""
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
        """I31: returns a transaction that is still open; empty if there is none."""
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
            readers.judge(reader, self.read_all(reader.place))
        self._judge_clients()

    def _judge_clients(self) -> None:
        self.history.judge({name: self.committed(name) for name in self.groups})

    def _judge_logs(self) -> None:
        for key in self.keys:
            leader = self.leader_of(key)
            assert leader is not None
            replicas = {replica: self.brokers[replica].partitions[key] for replica in self.checks.store.replicas[key]}
            start = max(partition.log.log_start_offset for partition in replicas.values())
            expected = list(batches_from(leader, start))
            for replica, partition in replicas.items():
                found = list(batches_from(partition, start))
                assert found == expected, f"{key}: broker {replica} has other bytes than the leader (I3)"
            logs.judge(leader)

    def read_all(self, place: TopicPartition) -> list[Seen]:
        """Reads everything that a new consumer gets, and notes it in the history."""
        partition = self.leader_of(place)
        assert partition is not None
        return readers.read_all(partition, self.history)
