"""Calls of the persister: the shard is found by Java's hash, and a call is retried while the coordinator loads, moves or does not exist
yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.machine.coordinator import PIECE_MS, LedPartition
from ottla.machine.host import MachineHost
from ottla.sharing.commands import DoneResult, InitializeState, ReadState, ReadSummary, StateCommand, StateResult, WriteState
from ottla.sharing.persister import ATTEMPTS_MAX, RETRY_MS_MAX, OtherShareCoordinators, SharePersister
from ottla.sharing.state_machine import STATES_PER_STEP, ShareStateMachine
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import share_state_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.peers import NO_OTHER_SHARE_COORDINATORS
from tests.fakes.share_coordinators import share_coordinators
from tests.fakes.timers import ManualTimers
from tests.fakes.world import World
from tests.sharing.state_world import KEY, Topics

NONE = ErrorCode.NONE


class Remote(OtherShareCoordinators):
    """A coordinator on another broker. The test gives its answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[StateCommand, DoneResult]] = []

    def ask(self, shard: int, command: StateCommand, done: DoneResult) -> None:
        self.asked.append((command, done))


class Broker(World):
    """The share coordinators of a broker: two shards with logs in memory."""

    def __init__(self, *, remote: Remote | None = None, is_created: bool = True, is_instant: bool = True) -> None:
        self.count = 2 if is_created else 0
        self.ensured: list[Callable[[ErrorCode], None]] = []
        self.is_lease_held = True
        self.coordinators = share_coordinators(self.clock, self.timers, lambda: self.count, lambda: self.is_lease_held)
        others = remote or NO_OTHER_SHARE_COORDINATORS
        self.persister = SharePersister(self.coordinators, lambda topic, done: self.ensured.append(done), self.timers, others)
        self.logs = [MemoryLog(is_instant=is_instant) for _ in range(2)]
        self.hosts: list[MachineHost] = []
        self.answers: list[ErrorCode] = []
        self.found: list[tuple[ErrorCode, ShareState | None]] = []

    def lead(self) -> None:
        """Makes this broker the leader of the internal topic. Its coordinators are still loading."""
        self.hosts = [
            MachineHost(ShareStateMachine(share_state_settings(), Topics(), lambda end: None), log, self.clock, self.timers)
            for log in self.logs
        ]
        for index, host in enumerate(self.hosts):
            self.coordinators.attach(index, host)

    def activate(self) -> None:
        for host, log in zip(self.hosts, self.logs, strict=True):
            host.load(log.reader(), 0)
        self.timers.run_due()

    def initialize(self, key: SharePartitionKey = KEY) -> None:
        self.persister.initialize(key, 1, 0, self.answers.append)

    def write(self, first: int, count: int = 1, start: int = 0) -> None:
        state = ShareState(1, -1, start, 0, (StateBatch(first, first, 2, count),))
        self.persister.write(KEY, state, self.answers.append)

    def read(self) -> None:
        self.persister.read(KEY, 0, lambda code, state: self.found.append((code, state)))


def running(*, is_instant: bool = True) -> Broker:
    broker = Broker(is_instant=is_instant)
    broker.lead()
    broker.activate()
    return broker


def test_each_call_is_answered() -> None:
    broker = running()
    broker.initialize()
    broker.write(3)
    broker.read()
    broker.persister.summary(KEY, 0, lambda code, state: broker.found.append((code, state)))
    broker.persister.delete(KEY, broker.answers.append)
    broker.read()
    assert broker.answers == [NONE] * 3
    assert broker.found == [
        (NONE, ShareState(1, 0, 0, 0, (StateBatch(3, 3, 2, 1),))),
        (NONE, ShareState(1, 0, 0, 0)),
        (ErrorCode.INVALID_REQUEST, None),
    ]


def test_share_partitions_are_spread_by_javas_hash() -> None:
    broker = running()
    keys = [KEY._replace(group_id=f"g{number}") for number in range(20)]
    for key in keys:
        broker.initialize(key)
    sizes = [len(host.machine.shard.partitions) for host in broker.hosts]
    assert sum(sizes) == 20 and all(sizes)
    # "g:" and the id, ":0", by Java's String.hashCode
    assert broker.coordinators.partition_for(KEY) == 0


def test_deleting_with_a_deleted_topic_is_no_error() -> None:
    broker = running()
    broker.persister.delete(KEY._replace(topic_id=bytes(16)), broker.answers.append)
    assert broker.answers == [NONE]


def test_the_topic_is_created_at_the_first_call() -> None:
    broker = Broker(is_created=False)
    broker.initialize()
    [created] = broker.ensured
    broker.count = 2
    broker.lead()
    created(NONE)
    assert broker.answers == [], "the coordinator loads"
    broker.activate()
    broker.timers.advance(20)
    assert broker.answers == [NONE]


def test_a_topic_that_cannot_be_created_is_tried_again_for_a_while() -> None:
    broker = Broker(is_created=False)
    broker.initialize()
    for _ in range(ATTEMPTS_MAX):
        broker.ensured.pop()(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        broker.timers.advance(1_000)
    assert broker.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert broker.ensured == [] and broker.timers.pending() == 0


def test_calls_keep_their_order_while_they_wait() -> None:
    broker = Broker()
    broker.lead()
    broker.initialize()
    broker.write(1, start=1)
    broker.write(2, start=2)
    broker.activate()
    broker.read()
    assert broker.answers == [] and broker.found == [], "those before wait for their next try"
    broker.timers.advance(20)
    assert broker.answers == [NONE] * 3
    assert broker.found == [(NONE, ShareState(1, 0, 2, 0, (StateBatch(2, 2, 2, 1),)))]
    broker.write(3)
    assert len(broker.answers) == 4, "no call waits any more"


def test_when_the_first_gives_up_those_behind_it_do() -> None:
    broker = Broker()
    broker.lead()
    for _ in range(3):
        broker.initialize()
    broker.timers.advance(20_000)
    assert broker.answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert broker.timers.pending() == 0


def test_a_coordinator_that_closes_answers_and_the_call_goes_to_the_next() -> None:
    broker = running(is_instant=False)
    broker.initialize()
    broker.write(1)
    assert broker.answers == []
    for index in range(2):
        broker.coordinators.resign(index)
    assert broker.answers == [], "both wait for the next coordinator"
    broker.lead()
    broker.activate()
    broker.timers.advance(20)
    for log in broker.logs:
        log.commit()
    assert broker.answers == [NONE] * 2
    assert broker.hosts[broker.coordinators.partition_for(KEY)].machine.shard.partitions[KEY].state.batches == (StateBatch(1, 1, 2, 1),)


def test_closing_answers_each_call_once() -> None:
    broker = Broker()
    broker.lead()
    broker.initialize()
    broker.write(1)
    broker.persister.close()
    assert broker.answers == [ErrorCode.NOT_COORDINATOR] * 2
    broker.initialize()
    broker.activate()
    broker.timers.advance(20_000)
    assert broker.answers == [ErrorCode.NOT_COORDINATOR] * 3


def test_a_coordinator_that_closes_after_the_persister_is_not_waited_for() -> None:
    broker = running(is_instant=False)
    broker.initialize()
    broker.persister.close()
    for index in range(2):
        broker.coordinators.resign(index)
    assert broker.answers == [ErrorCode.NOT_COORDINATOR] and broker.timers.pending() == 0


def test_a_coordinator_elsewhere_is_asked() -> None:
    remote = Remote()
    broker = Broker(remote=remote)
    broker.initialize()
    [(command, done)] = remote.asked
    assert command == InitializeState(KEY, 1, 0)
    done(StateResult(ErrorCode.NETWORK_EXCEPTION))
    assert broker.answers == []
    broker.timers.advance(20)
    remote.asked[1][1](StateResult(NONE))
    assert broker.answers == [NONE]


def test_a_coordinator_elsewhere_is_asked_one_thing_at_a_time() -> None:
    """A read returns all earlier writes, although the requests may use different connections."""
    remote = Remote()
    broker = Broker(remote=remote)
    broker.write(1)
    broker.read()
    broker.persister.summary(KEY._replace(partition=1), 0, lambda code, state: broker.found.append((code, state)))
    assert [type(command) for command, _ in remote.asked] == [WriteState, ReadSummary], "another share partition does not wait"
    remote.asked[0][1](StateResult(ErrorCode.NETWORK_EXCEPTION))
    broker.timers.advance(20)
    assert [type(command) for command, _ in remote.asked[2:]] == [WriteState]
    remote.asked[2][1](StateResult(NONE))
    assert [type(command) for command, _ in remote.asked[3:]] == [ReadState]
    remote.asked[3][1](StateResult(NONE, ShareState(1, 0, 0, 0)))
    assert broker.answers == [NONE] and broker.found == [(NONE, ShareState(1, 0, 0, 0))]


def test_closing_answers_calls_to_a_coordinator_elsewhere() -> None:
    remote = Remote()
    broker = Broker(remote=remote)
    broker.write(1)
    broker.write(2)
    broker.persister.close()
    assert broker.answers == [ErrorCode.NOT_COORDINATOR] * 2
    remote.asked[0][1](StateResult(NONE))
    assert len(broker.answers) == 2, "a later answer has no call to belong to"


def test_a_single_broker_asks_no_other() -> None:
    broker = Broker()
    broker.initialize()
    broker.timers.advance(20_000)
    assert broker.answers == [ErrorCode.NOT_COORDINATOR]


def test_a_call_made_by_an_answer_is_taken_as_well() -> None:
    broker = running()
    broker.persister.initialize(KEY, 1, 0, lambda code: broker.write(4))
    assert broker.answers == [NONE]


def test_a_permanent_refusal_is_answered_at_once() -> None:
    broker = running()
    broker.write(1)
    assert broker.answers == [ErrorCode.INVALID_REQUEST]


def test_a_state_is_not_read_while_the_session_may_be_over() -> None:
    """Another broker may have newer states. Writes continue, because the in-sync replicas must confirm them."""
    broker = running()
    broker.initialize()
    broker.coordinators.run(ReadState(KEY, 0), lambda _result: None)
    broker.is_lease_held = False
    results: list[ErrorCode] = []
    for command in (ReadState(KEY, 0), ReadSummary(KEY, 0), WriteState(KEY, ShareState(1, 0, 0, 0, ()))):
        broker.coordinators.run(command, lambda result: results.append(result.code))
    assert results == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    broker.is_lease_held = True
    broker.coordinators.run(ReadState(KEY, 0), lambda result: results.append(result.code))
    assert results[-1] is ErrorCode.NONE


def test_a_call_of_this_broker_reads_nothing_while_its_lease_is_over() -> None:
    broker = running()
    broker.initialize()
    broker.is_lease_held = False
    broker.read()
    assert broker.found == [], "it asks again"
    broker.is_lease_held = True
    broker.timers.advance(RETRY_MS_MAX)
    assert [code for code, _state in broker.found] == [NONE]


class SlowClock(ManualClock):
    """On a slow machine each step takes a whole time slice."""

    def monotonic_ms(self) -> int:
        self.advance(PIECE_MS)
        return super().monotonic_ms()


def test_a_scan_of_many_states_leaves_the_loop_to_others() -> None:
    timers = ManualTimers(SlowClock())
    coordinators = share_coordinators(timers.clock, timers)
    host = MachineHost(coordinators._new_machine(cast(LedPartition, None)), log := MemoryLog(), timers.clock, timers)
    coordinators.attach(0, host)
    host.load(log.reader(), 0)
    answers: list[StateResult] = []
    while len(answers) < 2 * STATES_PER_STEP + 1:
        timers.run_due()
        coordinators.run(InitializeState(KEY._replace(group_id=f"g{len(answers)}"), 1, 0), answers.append)
    cast(Topics, coordinators._topics).known.clear()
    coordinators.forget_topics()
    left = [len(host.machine.shard.partitions)]
    while left[-1]:
        timers.run_due()
        left.append(len(host.machine.shard.partitions))
    assert left == [2 * STATES_PER_STEP + 1, STATES_PER_STEP + 1, 1, 0]
