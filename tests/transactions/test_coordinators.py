"""Finding the shard of a transactional id, and the answers if this broker does not lead it.

Waiting for a completing transaction is shown in the transcripts `patience` and `completing`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import run_steps
from ottla.base.types import TopicPartition
from ottla.machine.host import MachineHost
from ottla.transactions.coordinators import TransactionCoordinators, produce_error
from ottla.transactions.init_producer_id import InitProducerId
from ottla.transactions.markers import LocalMarkers
from ottla.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata
from ottla.transactions.producer_ids import ProducerIds
from ottla.transactions.queries import ListFilter
from ottla.transactions.remote import OtherCoordinators
from ottla.transactions.shard import EndResult
from tests.fakes.coordinator_settings import transaction_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.peers import HeldPeerTransactions
from tests.fakes.world import World
from tests.scenarios.transactions_world import HeldMarkers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = ProducerIdAndEpoch(1, 1)


class Leaders:
    """All partitions have the same leader."""

    def __init__(self, leader: int | None) -> None:
        self.leader = leader

    def leader_of(self, topic: str, partition: int) -> int | None:
        assert topic == "__transaction_state"
        return self.leader


class Broker(World):
    def __init__(self, *, shards: int = 4, led: Sequence[int] = (0, 1, 2, 3), leader: int | None = 1) -> None:
        self.peers = HeldPeerTransactions()
        self.shards = shards
        self.lines: list[str] = []
        self.coordinators = TransactionCoordinators(
            partition_count=lambda: self.shards,
            group_partition=len,
            settings=transaction_settings(),
            producer_ids=ProducerIds(self.store, 1),
            markers=HeldMarkers(self.lines.append),
            local_markers=LocalMarkers(lambda topic, partition: None, lambda *marker: None, self.clock),
            clock=self.clock,
            timers=self.timers,
            load_bytes=lambda: 1 << 20,
            elsewhere=OtherCoordinators(1, Leaders(leader), self.peers),
        )
        self.logs = {index: MemoryLog() for index in led}
        self.hosts = {index: self._attach(index) for index in led}

    def _attach(self, index: int) -> MachineHost:
        host = MachineHost(self.coordinators.new_machine(0), self.logs[index], self.clock, self.timers)
        self.coordinators.attach(index, host)
        return host

    def activate(self) -> None:
        for host in self.hosts.values():
            host.activate()

    def init(self, transactional_id: str) -> EndResult:
        results: list[EndResult] = []
        self.coordinators.init_producer_id(InitProducerId(transactional_id, 60_000), results.append)
        [result] = results
        return result

    def admit(self, transactional_id: str, is_v2: bool) -> ErrorCode:
        results: list[dict[TopicPartition, ErrorCode]] = []
        self.coordinators.admit(transactional_id, 1, 1, [T0], is_v2, results.append)
        return results[0][T0]


def test_ids_are_spread_over_the_shards_by_javas_hash() -> None:
    broker = Broker()
    broker.activate()
    for number in range(20):
        assert broker.init(f"tx-{number}").code is ErrorCode.NONE
    sizes = [len(host.machine.shard.transactions) for host in broker.hosts.values()]
    assert sum(sizes) == 20 and all(sizes)
    assert broker.coordinators.partition_for("a") == 97 % 4


def test_a_shard_that_loads_answers_so() -> None:
    """I37: the answer is COORDINATOR_LOAD_IN_PROGRESS."""
    broker = Broker()
    assert broker.init("tx").code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed: list[ErrorCode] = []
    run_steps(broker.coordinators.list_transactions(ListFilter(), lambda found, code: listed.append(code)))
    assert listed == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_a_shard_that_is_led_elsewhere_while_ids_are_listed_is_left_out() -> None:
    broker = Broker()
    broker.activate()
    for number in range(20):
        broker.init(f"tx-{number}")
    listed: list[list[TransactionMetadata]] = []
    steps = broker.coordinators.list_transactions(ListFilter(), lambda found, _code: listed.append(found))
    next(steps)
    first = len(broker.hosts[0].machine.shard.transactions)
    for host in broker.hosts.values():
        host.close()
    run_steps(steps)
    assert [len(found) for found in listed] == [first] and first < 20


def test_a_shard_that_is_elsewhere_or_closed_is_not_coordinator() -> None:
    broker = Broker(led=())
    assert broker.init("tx").code is ErrorCode.NOT_COORDINATOR
    broker = Broker()
    broker.activate()
    broker.coordinators.resign(broker.coordinators.partition_for("tx"))
    broker.coordinators.resign(99)
    assert broker.init("tx").code is ErrorCode.NOT_COORDINATOR


def test_a_question_about_what_is_not_committed_is_refused_when_the_shard_moves() -> None:
    """I30: the verification may be based on an uncommitted record. If that record were lost, the partition would keep a transaction open
    that no coordinator knows."""
    broker = Broker(shards=1, led=(0,))
    broker.activate()
    begun = broker.init("tx")
    identity = ProducerIdAndEpoch(begun.producer_id, begun.producer_epoch)
    broker.logs[0].is_instant = False
    added: list[ErrorCode] = []
    verified: list[dict[TopicPartition, ErrorCode]] = []
    described: list[TransactionMetadata | ErrorCode | None] = []
    listed: list[tuple[list[TransactionMetadata], ErrorCode]] = []
    broker.coordinators.add_partitions("tx", identity, [T0], 0, added.append)
    broker.coordinators.verify_partitions("tx", identity, [T0, T1], verified.append)
    broker.coordinators.describe("tx", described.append)
    run_steps(broker.coordinators.list_transactions(ListFilter(), lambda found, code: listed.append((found, code))))
    assert not (added or verified or described or listed)
    broker.coordinators.resign(0)
    assert added == described == [ErrorCode.NOT_COORDINATOR]
    assert verified == [dict.fromkeys([T0, T1], ErrorCode.NOT_COORDINATOR)]
    assert listed == [([], ErrorCode.NONE)]


def test_without_the_topic_there_is_no_coordinator() -> None:
    broker = Broker(shards=0, led=())
    assert broker.init("tx").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError, match="does not exist yet"):
        broker.coordinators.host_of("tx")


def test_a_produce_is_answered_while_there_is_no_transaction_log() -> None:
    broker = Broker(shards=0, led=())
    results: list[object] = []
    for is_v2 in (True, False):
        broker.coordinators.admit("tx", *IDENTITY, [T0], is_v2, results.append)
    assert [list(codes) for codes in results] == [[T0], [T0]]  # type: ignore[call-overload]
    assert all(codes[T0] for codes in results)  # type: ignore[index]


def test_every_command_is_answered_without_a_coordinator() -> None:
    broker = Broker(led=())
    results: list[object] = []
    coordinators = broker.coordinators
    coordinators.add_partitions("tx", IDENTITY, [T0], 0, results.append)
    coordinators.verify_partitions("tx", IDENTITY, [T0, T1], results.append)
    coordinators.end("tx", IDENTITY, True, 2, results.append)
    coordinators.describe("tx", results.append)
    no = ErrorCode.NOT_COORDINATOR
    assert results == [no, {T0: no, T1: no}, EndResult(no), no]


def test_the_offsets_of_a_group_are_a_partition_like_any_other() -> None:
    broker = Broker()
    broker.activate()
    identity = ProducerIdAndEpoch(*broker.init("tx")[1:3])
    offsets = TopicPartition("__consumer_offsets", 3)
    verified: list[dict[TopicPartition, ErrorCode]] = []
    added: list[ErrorCode] = []
    broker.coordinators.verify_partitions("tx", identity, [offsets], verified.append)
    broker.coordinators.add_offsets("tx", identity, "ggg", 0, added.append)
    broker.coordinators.verify_partitions("tx", identity, [offsets], verified.append)
    assert verified == [{offsets: ErrorCode.TRANSACTION_ABORTABLE}, {offsets: ErrorCode.NONE}]
    assert added == [ErrorCode.NONE]
    metadata = broker.coordinators.host_of("tx").machine.shard.transactions["tx"]
    assert metadata.partitions == {offsets}


def test_another_broker_is_asked_for_what_it_coordinates() -> None:
    broker = Broker(led=(), leader=2)
    results: list[dict[TopicPartition, ErrorCode]] = []
    broker.coordinators.admit("tx", *IDENTITY, [T0, T1], True, results.append)
    broker.coordinators.admit("tx", *IDENTITY, [T0, T1], False, results.append)
    added, verified = broker.peers.added
    assert added[:5] == (2, "tx", IDENTITY, [T0, T1], False) and verified[:5] == (2, "tx", IDENTITY, [T0, T1], True)
    added.done(dict.fromkeys((T0, T1), ErrorCode.NONE))
    verified.done({T0: ErrorCode.TRANSACTION_ABORTABLE, T1: ErrorCode.NONE})
    assert results == [dict.fromkeys((T0, T1), ErrorCode.NONE), {T0: ErrorCode.TRANSACTION_ABORTABLE, T1: ErrorCode.NONE}]


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE])
def test_the_producer_tries_again_when_another_broker_cannot_be_asked(code: ErrorCode) -> None:
    broker = Broker(led=(), leader=2)
    results: list[dict[TopicPartition, ErrorCode]] = []
    broker.coordinators.admit("tx", *IDENTITY, [T0], True, results.append)
    broker.peers.added[0].done({T0: code})
    assert results == [{T0: ErrorCode.NOT_ENOUGH_REPLICAS}]


@pytest.mark.parametrize("leader", [1, -1, None])
def test_a_shard_that_no_other_broker_leads_is_asked_for_again_by_the_producer(leader: int | None) -> None:
    broker = Broker(led=(), leader=leader)
    assert broker.admit("tx", True) is ErrorCode.NOT_ENOUGH_REPLICAS and not broker.peers.added


def test_verification_can_be_switched_off_for_old_clients_only() -> None:
    broker = Broker()
    broker.activate()
    assert broker.admit("tx", False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    broker.coordinators.configure(transaction_settings(is_verification_enabled=False))
    assert broker.admit("tx", False) is ErrorCode.NONE
    assert broker.admit("tx", True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("code", "v1", "v2"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
    ],
)
def test_codes_that_a_producer_gets(code: ErrorCode, v1: ErrorCode, v2: ErrorCode) -> None:
    assert (produce_error(code, False), produce_error(code, True)) == (v1, v2)


def test_producer_ids_that_must_be_fetched_are_waited_for() -> None:
    broker = Broker()
    broker.activate()
    broker.store.hold()
    results: list[EndResult] = []
    for number in range(3):
        broker.coordinators.init_producer_id(InitProducerId(f"tx-{number}", 60_000), results.append)
    assert results == []
    broker.store.release()
    assert sorted(result.producer_id for result in results) == [0, 1, 2]


def test_who_waits_for_producer_ids_is_answered_when_the_shard_moves() -> None:
    broker = Broker()
    broker.activate()
    broker.store.hold()
    results: list[EndResult] = []
    broker.coordinators.init_producer_id(InitProducerId("tx", 60_000), results.append)
    broker.coordinators.resign(broker.coordinators.partition_for("tx"))
    broker.store.release()
    assert [result.code for result in results] == [ErrorCode.NOT_COORDINATOR]


def test_the_list_gathers_every_shard() -> None:
    broker = Broker()
    broker.activate()
    for number in range(9):
        broker.init(f"tx-{number}")
    results: list[list[TransactionMetadata]] = []
    later = ListFilter(matches=lambda text: text > "tx-5")
    run_steps(broker.coordinators.list_transactions(later, lambda found, code: results.append(found)))
    run_steps(broker.coordinators.list_transactions(ListFilter(producer_ids=frozenset({4})), lambda found, code: results.append(found)))
    assert [sorted(metadata.transactional_id for metadata in found) for found in results] == [["tx-6", "tx-7", "tx-8"], ["tx-4"]]


def test_a_shard_that_is_coordinated_elsewhere_leaves_nothing_to_the_garbage_collector() -> None:
    """Formerly the host and its log remained in a cycle of references."""
    broker = Broker()
    partition = broker.coordinators.partition_for("tx")
    seen = weakref.ref(broker.hosts[partition].machine.shard)
    gc.disable()
    try:
        broker.coordinators.resign(partition)
        broker.hosts.clear()
        assert seen() is None
    finally:
        gc.enable()
