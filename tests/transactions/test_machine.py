"""A shard under arbitrary commands, faults and restarts. After every step its state equals the replay of the log, every answer was true,
and no identity belongs to two owners.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machine.contract import Decision, LogRecord
from ottla.transactions.init_producer_id import InitProducerId
from ottla.transactions.metadata import EPOCH_MAX, NO_IDENTITY, ProducerIdAndEpoch, TransactionMetadata
from ottla.transactions.records import read_record, state_record
from ottla.transactions.shard import EndResult, Shard
from ottla.transactions.states import ALLOWED, COMPLETED, DEAD, ONGOING, PREPARE_COMMIT, PREPARED
from tests.fakes.machine_log import MemoryLog
from tests.scenarios.transactions_world import Arguments, World

CLIENTS = st.sampled_from(["A", "B"])
IDS = st.sampled_from(["tx", "ty"])
PARTITIONS = st.sampled_from([TopicPartition("t", 0), TopicPartition("t", 1)])


class TransactionShard(RuleBasedStateMachine):
    """Clients A and B share two transactional ids and remember their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.do_set(_arguments("completion_wait_ms=0"))
        self.held: dict[tuple[str, str], ProducerIdAndEpoch] = {}
        self.owners: dict[tuple[str, ProducerIdAndEpoch], str] = {}
        self.promised: dict[tuple[str, ProducerIdAndEpoch], bool] = {}

    def identity(self, client: str, transactional_id: str) -> ProducerIdAndEpoch:
        return self.held.get((client, transactional_id), NO_IDENTITY)

    @rule(client=CLIENTS, transactional_id=IDS, is_expected=st.booleans())
    def init(self, client: str, transactional_id: str, is_expected: bool) -> None:
        expected = self.identity(client, transactional_id) if is_expected else NO_IDENTITY

        def answered(result: EndResult) -> None:
            if result.code:
                return
            identity = ProducerIdAndEpoch(result.producer_id, result.producer_epoch)
            owner = self.owners.setdefault((transactional_id, identity), client)
            assert owner == client, f"{identity} of {transactional_id} was given to {owner} and to {client} (I26)"
            assert identity.epoch < EPOCH_MAX
            self.held[client, transactional_id] = identity

        self.world.coordinators.init_producer_id(InitProducerId(transactional_id, 60_000, expected), answered)

    @rule(client=CLIENTS, transactional_id=IDS, partition=PARTITIONS, version=st.sampled_from([0, 2]))
    def add(self, client: str, transactional_id: str, partition: TopicPartition, version: int) -> None:
        identity = self.identity(client, transactional_id)
        self.world.coordinators.add_partitions(transactional_id, identity, [partition], version, lambda code: None)

    @rule(client=CLIENTS, transactional_id=IDS, is_commit=st.booleans(), is_retry=st.booleans())
    def end(self, client: str, transactional_id: str, is_commit: bool, is_retry: bool) -> None:
        identity = self.identity(client, transactional_id)
        if is_retry and identity.epoch > 0:
            identity = ProducerIdAndEpoch(identity.producer_id, identity.epoch - 1)

        def answered(result: EndResult) -> None:
            if result.code:
                return
            before = self.promised.setdefault((transactional_id, identity), is_commit)
            assert before == is_commit, f"{identity} was answered as committed and as aborted (I28)"
            following = ProducerIdAndEpoch(result.producer_id, result.producer_epoch)
            assert following != identity, "an end of transactions v2 without a new epoch (I29)"
            if not is_retry:
                self.held[client, transactional_id] = following
                self.owners.setdefault((transactional_id, following), client)

        self.world.coordinators.end(transactional_id, identity, is_commit, 2, answered)

    @rule(transactional_id=IDS)
    def use_up_epochs(self, transactional_id: str) -> None:
        """Writes one record with the last epoch, which a client would reach after years."""
        metadata = self.metadata(transactional_id)
        if metadata is None or metadata.state not in COMPLETED or metadata.producer_epoch > 100:
            return
        worn = metadata._replace(producer_epoch=EPOCH_MAX - 2, previous_producer_id=-1)
        self.world.host.run(lambda _now_ms: Decision(records=(state_record(worn),)))

    @rule(is_holding=st.booleans())
    def markers(self, is_holding: bool) -> None:
        (self.world.do_hold_markers if is_holding else self.world.do_release_markers)(_arguments(""))

    @rule(is_holding=st.booleans())
    def replicas(self, is_holding: bool) -> None:
        (self.world.do_hold if is_holding else self.world.do_release)(_arguments(""))

    @rule()
    def refuse(self) -> None:
        self.world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS

    @rule(ms=st.sampled_from([100, 10_000, 80_000]))
    def wait(self, ms: int) -> None:
        self.world.timers.advance(ms)

    @rule()
    def restart(self) -> None:
        self.world.do_restart(_arguments(""))

    def metadata(self, transactional_id: str) -> TransactionMetadata | None:
        found: TransactionMetadata | None = self.world.host.machine.shard.transactions.get(transactional_id)
        return found

    @invariant()
    def live_state_is_the_replay_of_the_log(self) -> None:
        live, replayed = self.world.host.machine.shard, _replay(self.world.log)
        assert live.transactions == replayed.transactions and list(live.transactions) == list(replayed.transactions)
        assert live.ongoing == replayed.ongoing
        assert {key for key, metadata in live.transactions.items() if metadata.state is ONGOING} == set(live.ongoing)

    @invariant()
    def the_log_holds_a_possible_history(self) -> None:
        """Checks I27 for the whole log, and that every answered outcome is in the log (P5)."""
        current: dict[str, TransactionMetadata] = {}
        outcomes: dict[tuple[str, ProducerIdAndEpoch], bool] = {}
        for metadata in _story(self.world.log):
            last = current.get(metadata.transactional_id)
            assert last is None or metadata.state in ALLOWED[last.state] or metadata.producer_epoch == EPOCH_MAX - 2
            if metadata.state in PREPARED and last is not None:
                key = (metadata.transactional_id, last.identity)
                assert key not in outcomes, "one identity ended twice"
                outcomes[key] = metadata.state is PREPARE_COMMIT
            current[metadata.transactional_id] = metadata
        for key, is_commit in self.promised.items():
            assert outcomes[key] == is_commit


def _story(log: MemoryLog) -> list[TransactionMetadata]:
    decoded = [read_record(entry.what) for entry in log.entries if isinstance(entry.what, LogRecord)]
    return [found.metadata for found in decoded if found is not None and found.metadata is not None]


def _replay(log: MemoryLog) -> Shard:
    machine = World().coordinators.new_machine(0)
    log.replay(machine)
    return machine.shard


def _arguments(text: str) -> Arguments:
    return Arguments(text.split())


TransactionShard.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestTransactionShard = TransactionShard.TestCase


def test_a_marker_in_the_shards_own_log_changes_nothing() -> None:
    machine = World().host.machine
    before = dict(machine.shard.transactions)
    machine.apply_marker(5, 1, 1, True)
    assert machine.shard.transactions == before


def test_dead_ids_are_not_logged() -> None:
    dead = TransactionMetadata("tx", 1, 1, 1, DEAD)
    with pytest.raises(AssertionError, match="tombstone"):
        state_record(dead)
