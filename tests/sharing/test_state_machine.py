"""The share coordinator: the answer to each command, and that its state always equals the replay of the rest of the log."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ottla.base.errors import ErrorCode
from ottla.base.share_state import DeliveryState, SharePartitionKey, ShareState, StateBatch
from ottla.sharing import state_shard
from ottla.sharing.commands import DeleteState, InitializeState, ReadState, ReadSummary, StateCommand, StateResult, WriteState
from ottla.sharing.state_machine import REPEATED_PER_STEP, STATES_PER_STEP, UNREAD
from ottla.sharing.state_records import Snapshot, StateUpdate, read_record
from ottla.sharing.state_shard import ShareStateShard
from tests.fakes.coordinator_settings import share_state_settings
from tests.sharing.state_world import KEY, ORDERS, PAYMENTS, StateWorld, hard_state

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
NONE, FENCED_LEADER, FENCED_STATE = ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH


def write(
    *batches: StateBatch, state_epoch: int = 1, leader_epoch: int = 0, start: int = 0, complete: int = 0, key: SharePartitionKey = KEY
) -> WriteState:
    return WriteState(key, ShareState(state_epoch, leader_epoch, start, complete, batches))


def initialized(world: StateWorld, state_epoch: int = 1, start: int = 0) -> StateWorld:
    assert world.answer(InitializeState(KEY, state_epoch, start)).code is NONE
    return world


def led(world: StateWorld, state_epoch: int = 1, start: int = 0) -> StateWorld:
    """Returns a world with a state that the leader of epoch 0 has read."""
    assert initialized(world, state_epoch, start).answer(ReadState(KEY, 0)).code is NONE
    return world


def kinds(world: StateWorld) -> list[type]:
    reads = [read_record(entry.what) for entry in world.log.entries]  # type: ignore[arg-type]
    return [type(read.what) for read in reads if read is not None]


# Single answers, as Apache Kafka gives them


def test_an_uninitialized_state_is_neither_read_nor_written() -> None:
    world = StateWorld()
    assert world.answer(ReadState(KEY, 0)).code is ErrorCode.INVALID_REQUEST
    assert world.answer(write()).code is ErrorCode.INVALID_REQUEST
    assert world.answer(ReadSummary(KEY, 0)) == StateResult(NONE, ShareState(0, 0, -1, -1))
    assert world.answer(DeleteState(KEY)).code is NONE
    assert world.log.end == 0


@pytest.mark.parametrize(("start", "complete"), [(-1, -1), (0, 0), (7, 0)])
def test_a_new_state_knows_of_no_delivery(start: int, complete: int) -> None:
    world = initialized(StateWorld(), 4, start)
    assert world.answer(ReadState(KEY, 0)).state == ShareState(4, 0, start, complete)


def test_a_state_epoch_does_not_go_back() -> None:
    world = led(StateWorld(), 4)
    assert world.answer(InitializeState(KEY, 3, 0)).code is FENCED_STATE
    assert world.answer(InitializeState(KEY, 4, 9)).code is NONE
    assert world.answer(write(state_epoch=3)).code is FENCED_STATE
    assert world.answer(write(state_epoch=5)).code is FENCED_STATE, "it is left from a group that was deleted"
    assert world.answer(write(state_epoch=-1, start=9)).code is NONE
    assert world.answer(InitializeState(KEY, -1, 2)).code is NONE
    assert world.answer(ReadSummary(KEY, 0)).state == ShareState(4, 0, 2, 0)


def test_a_new_state_takes_a_write_before_it_was_read() -> None:
    """As in Kafka: no other state exists that a leader could mean."""
    world = initialized(StateWorld())
    assert world.answer(write(start=5)).code is NONE


def test_a_state_that_began_anew_is_not_written_before_it_was_read() -> None:
    """A group was deleted and created again, and its state has the same epoch as before. A leader that knows only the former state cannot
    write into the new one, for example when its locks expire."""
    world = led(StateWorld())
    assert world.answer(write(start=9)).code is NONE
    assert world.answer(DeleteState(KEY)).code is NONE
    initialized(world, start=4)
    world.crash()
    for leader_epoch in (0, 7):
        assert world.answer(write(leader_epoch=leader_epoch, start=9)).code is FENCED_STATE
    assert world.answer(ReadState(KEY, 0)).state == ShareState(1, 0, 4, 0)
    assert world.answer(write(start=5)).code is NONE


def test_deletions_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_shard, "ENDED_BYTES_MAX", 2_000)
    world = StateWorld()
    for number in range(30):
        key = KEY._replace(group_id=f"g{number}")
        world.answer(InitializeState(key, 1, 0))
        world.answer(DeleteState(key))
    assert [key.group_id for key in world.machine.shard.ended][-2:] == ["g28", "g29"]
    assert len(world.machine.shard.ended) < 10


def test_a_new_leader_takes_over_and_fences_the_old_one() -> None:
    world = led(StateWorld())
    end = world.log.end
    assert world.answer(ReadState(KEY, 0)).code is NONE and world.log.end == end, "the same epoch needs no record"
    assert world.answer(ReadState(KEY, 5)).state == ShareState(1, 5, 0, 0)
    assert world.log.end == end + 1
    assert world.answer(ReadState(KEY, 4)).code is FENCED_LEADER
    assert world.answer(ReadState(KEY, -1)).code is FENCED_LEADER
    assert world.answer(write(leader_epoch=4)).code is FENCED_LEADER
    assert world.answer(write(leader_epoch=4, state_epoch=0)).code is FENCED_LEADER, "the leader's epoch is looked at first"
    assert world.answer(write(leader_epoch=9)).code is NONE
    assert world.answer(ReadSummary(KEY, 0)).state == ShareState(1, 5, 0, 0), "only a read takes over"
    world.crash()
    assert world.answer(ReadState(KEY, 4)).code is FENCED_LEADER


def test_a_reset_leaves_the_leader_where_it_is() -> None:
    world = initialized(StateWorld())
    world.answer(ReadState(KEY, 5))
    world.answer(write(StateBatch(0, 3, ACKNOWLEDGED, 1), leader_epoch=5, complete=4))
    initialized(world, 2, 1)
    assert world.answer(ReadState(KEY, 4)).code is FENCED_LEADER
    assert world.answer(ReadState(KEY, 5)).state == ShareState(2, 5, 1, 0)


def test_writes_are_laid_over_one_another() -> None:
    world = led(StateWorld())
    world.answer(write(StateBatch(5, 9, AVAILABLE, 1), start=5, complete=0))
    world.answer(write(StateBatch(7, 7, ACKNOWLEDGED, 1), start=-1, complete=1))
    world.answer(write(StateBatch(9, 9, ARCHIVED, 2), start=6, complete=2))
    assert world.answer(ReadState(KEY, 0)).state == ShareState(
        1,
        0,
        6,
        2,
        (
            StateBatch(6, 6, AVAILABLE, 1),
            StateBatch(7, 7, ACKNOWLEDGED, 1),
            StateBatch(8, 8, AVAILABLE, 1),
            StateBatch(9, 9, ARCHIVED, 2),
        ),
    )


def test_a_late_write_takes_nothing_back() -> None:
    """The late write was sent twice, and later writes have been executed meanwhile."""
    world = led(StateWorld())
    world.answer(write(StateBatch(0, 4, ACKNOWLEDGED, 1), start=0, complete=5))
    world.answer(write(StateBatch(5, 9, AVAILABLE, 2), start=5, complete=0))
    known = world.answer(ReadState(KEY, 0)).state
    world.answer(write(StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, AVAILABLE, 1), start=0, complete=5))
    assert world.answer(ReadState(KEY, 0)).state == known == ShareState(1, 0, 5, 0, (StateBatch(5, 9, AVAILABLE, 2),))


def test_a_snapshot_follows_a_number_of_updates() -> None:
    world = led(StateWorld(share_state_settings(updates_per_snapshot=2)))
    for offset in range(6):
        world.answer(write(StateBatch(offset, offset, ACKNOWLEDGED, 1)))
    assert kinds(world) == [Snapshot, StateUpdate, StateUpdate, Snapshot, StateUpdate, StateUpdate, Snapshot]
    assert world.answer(ReadState(KEY, 0)).state == ShareState(1, 0, 0, 0, (StateBatch(0, 5, ACKNOWLEDGED, 1),))


def test_without_updates_every_write_is_a_snapshot() -> None:
    world = led(StateWorld(share_state_settings(updates_per_snapshot=0)))
    world.answer(write(StateBatch(1, 1, ACKNOWLEDGED, 1)))
    assert kinds(world) == [Snapshot, Snapshot]


def test_a_topic_that_does_not_exist() -> None:
    world = led(StateWorld())
    gone = KEY._replace(partition=2)
    for command in (InitializeState(gone, 0, 0), ReadSummary(gone, 0), DeleteState(gone)):
        assert world.answer(command).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.topics.known.remove(ORDERS)
    for command in (ReadState(KEY, 0), write(), InitializeState(KEY, 1, 0)):
        assert world.answer(command).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_topics_are_forgotten_also_by_the_next_coordinator() -> None:
    world = initialized(StateWorld())
    world.answer(InitializeState(KEY._replace(topic_id=PAYMENTS), 1, 0))
    world.topics.known.remove(ORDERS)
    world.host.run(world.machine.forget_topics)
    assert list(world.machine.shard.partitions) == [KEY._replace(topic_id=PAYMENTS)]
    world.topics.known.remove(PAYMENTS)
    world.crash()
    assert world.machine.shard.partitions == {}


def test_the_state_of_a_topic_that_is_newer_than_the_metadata_is_kept() -> None:
    """A topic that is missing in outdated metadata is not treated as deleted."""
    world = initialized(StateWorld())
    world.topics.known.remove(ORDERS)
    world.topics.not_here_yet.append(ORDERS)
    world.host.run(world.machine.forget_topics)
    world.crash()
    assert list(world.machine.shard.partitions) == [KEY]


def test_forgetting_is_tried_again_when_the_log_refuses() -> None:
    world = initialized(StateWorld())
    world.topics.known.remove(ORDERS)
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.host.run(world.machine.forget_topics)
    assert KEY in world.machine.shard.partitions
    world.timers.advance(1_000)
    assert world.machine.shard.partitions == {}


def test_a_refused_write_changes_nothing_and_is_answered() -> None:
    world = led(StateWorld())
    world.log.refuse_next = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.answer(write(StateBatch(0, 9, ACKNOWLEDGED, 1))).code is ErrorCode.NOT_COORDINATOR
    assert world.answer(ReadState(KEY, 0)).state == ShareState(1, 0, 0, 0)


# The log's head


def test_old_snapshots_are_repeated_so_that_the_log_can_go() -> None:
    world = initialized(StateWorld(share_state_settings(cold_snapshot_interval_ms=1_000, prune_interval_ms=1_000)))
    world.timers.advance(900)
    other = KEY._replace(partition=1)
    world.answer(InitializeState(other, 1, 0))
    world.timers.advance(200)
    assert world.pruned_to == 1, "the old one was repeated behind the new one"
    world.answer(write(StateBatch(3, 3, ACKNOWLEDGED, 1), key=other))
    before = hard_state(world.machine)
    world.crash()
    assert hard_state(world.machine) == before


def test_a_quiet_log_does_not_grow() -> None:
    world = initialized(StateWorld(share_state_settings(cold_snapshot_interval_ms=1_000, prune_interval_ms=1_000)))
    world.timers.advance(2_100)
    end = world.log.end
    world.timers.advance(60_000)
    assert world.log.end == end == 2


STATES = 2 * STATES_PER_STEP + 1


def world_of_many_states(**intervals: int) -> tuple[StateWorld, list[Iterator[object]]]:
    """Returns a world with many states that runs no step of a scan by itself, and the list of scans that have begun."""
    world, begun = StateWorld(share_state_settings(**intervals)), list[Iterator[object]]()
    for number in range(STATES):
        world.answer(InitializeState(KEY._replace(group_id=f"g{number}"), 1, 0))
    world.machine.later = begun.append
    return world, begun


def test_old_snapshots_are_repeated_in_steps_between_which_states_change() -> None:
    world, begun = world_of_many_states(cold_snapshot_interval_ms=1_000)
    world.timers.advance(1_000)
    [scan] = begun
    ends = [world.log.end for _ in scan]
    assert max(after - before for before, after in pairwise(ends)) <= REPEATED_PER_STEP
    assert world.log.end == 2 * STATES
    assert {stored.snapshot_epoch for stored in world.machine.shard.partitions.values()} == {1}


def test_a_state_that_ends_during_a_scan_is_not_repeated() -> None:
    world, begun = world_of_many_states(cold_snapshot_interval_ms=1_000)
    world.timers.advance(1_000)
    [scan] = begun
    next(scan)
    gone = KEY._replace(group_id="g0")
    world.answer(DeleteState(gone))
    assert list(scan) and gone not in world.machine.shard.partitions
    assert world.log.end == 2 * STATES


def test_states_of_deleted_topics_are_deleted_in_steps() -> None:
    world, begun = world_of_many_states()
    world.topics.known.remove(ORDERS)
    world.host.run(world.machine.forget_topics)
    assert [len(world.machine.shard.partitions) for _ in begun[0]] == [STATES_PER_STEP + 1, 1, 0]


def test_the_log_is_pruned_after_steps_below_every_snapshot_that_is_needed() -> None:
    world, begun = world_of_many_states(prune_interval_ms=1_000)
    world.answer(InitializeState(KEY._replace(group_id="g0"), 1, 0))
    world.timers.advance(1_000)
    [scan] = begun
    next(scan)
    world.answer(InitializeState(KEY._replace(group_id="g1"), 1, 0))
    world.answer(InitializeState(KEY._replace(group_id=f"g{STATES - 1}"), 1, 0))
    assert len(list(scan)) == 2 and world.pruned_to == 1
    before = hard_state(world.machine)
    world.crash()
    assert hard_state(world.machine) == before


def test_a_scan_of_a_shard_that_has_ended_logs_nothing() -> None:
    world, begun = world_of_many_states()
    world.topics.known.remove(ORDERS)
    world.host.run(world.machine.forget_topics)
    end = world.log.end
    world.host.close()
    world.machine.end()
    list(begun[0])
    assert world.log.end == end


def test_without_states_the_whole_log_may_be_removed() -> None:
    world = initialized(StateWorld(share_state_settings(prune_interval_ms=1_000)))
    world.answer(DeleteState(KEY))
    world.timers.advance(1_000)
    assert world.pruned_to == 2 and world.log.entries == []


# Any run

keys = st.sampled_from([KEY, KEY._replace(partition=1), KEY._replace(group_id="h", topic_id=PAYMENTS)])
epochs = st.integers(-1, 3)
batches = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 12),
    st.integers(0, 4),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 3),
)


class ModelShare:
    """The expected state of one share partition, stored for each offset."""

    def __init__(self, state_epoch: int, leader_epoch: int, start: int) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start = start
        self.complete = -1 if start < 0 else 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def write(self, state: ShareState) -> None:
        if not 0 <= state.start_offset < self.start:
            self.complete = state.delivery_complete_count
        self.start = max(state.start_offset, self.start)
        for first, last, delivery_state, count in state.batches:
            for offset in range(first, last + 1):
                self.offsets[offset] = max(self.offsets.get(offset, (0, 0)), (count, delivery_state))
        self.offsets = {offset: what for offset, what in self.offsets.items() if offset >= self.start}

    def says(self) -> tuple[int, int, int, int, dict[int, tuple[int, int]]]:
        return self.state_epoch, self.leader_epoch, self.start, self.complete, self.offsets


def said(state: ShareState) -> tuple[int, int, int, int, dict[int, tuple[int, int]]]:
    offsets = {offset: (count, what) for first, last, what, count in state.batches for offset in range(first, last + 1)}
    return state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count, offsets


class ShareStates(RuleBasedStateMachine):
    """Runs commands, commits, time and crashes that lose uncommitted records. The model is stored for each end that the log has had."""

    def __init__(self) -> None:
        super().__init__()
        self.world = StateWorld(
            share_state_settings(updates_per_snapshot=2, cold_snapshot_interval_ms=500, prune_interval_ms=300),
            is_instant=False,
        )
        self.model: dict[SharePartitionKey, ModelShare] = {}
        self.models: dict[int, dict[SharePartitionKey, ModelShare]] = {0: {}}
        self.asked: list[tuple[int, list[StateResult]]] = []
        self.deleted: set[SharePartitionKey] = set()
        self.has_crashed = False

    def ask(self, command: StateCommand) -> StateResult | None:
        """Sends a command. Returns the coordinator's answer if it is given at once. It must not be given before its record is committed."""
        results = self.world.ask(command)
        end = self.world.log.end
        assert not results or end <= self.world.log.high_watermark
        self.asked.append((end, results))
        return results[0] if results else None

    def changed(self) -> None:
        self.models[self.world.log.end] = deepcopy(self.model)

    @rule(key=keys, epoch=epochs, start=st.integers(-1, 9))
    def initialize(self, key: SharePartitionKey, epoch: int, start: int) -> None:
        known = self.model.get(key)
        before = self.world.log.end
        result = self.ask(InitializeState(key, epoch, start))
        if known is not None and -1 != epoch < known.state_epoch:
            assert self.world.log.end == before and (result is None or result.code is FENCED_STATE)
            return
        assert self.world.log.end == before + 1
        leader_epoch = known.leader_epoch if known else self.first_leader_epoch(key)
        self.model[key] = ModelShare(max(epoch, known.state_epoch if known else -1), leader_epoch, start)
        self.changed()

    def first_leader_epoch(self, key: SharePartitionKey) -> int:
        """Returns the leader epoch of a new state: 0, or `UNREAD` after a deletion. The record of the deletion may be lost in a crash, or
        be pruned from the log that was loaded after the crash."""
        leader_epoch = self.world.machine.shard.partitions[key].state.leader_epoch
        if key not in self.deleted:
            assert leader_epoch == 0
        elif not self.has_crashed:
            assert leader_epoch == UNREAD
        return leader_epoch

    @rule(key=keys, epoch=epochs)
    def read(self, key: SharePartitionKey, epoch: int) -> None:
        known = self.model.get(key)
        before = self.world.log.end
        result = self.ask(ReadState(key, epoch))
        if known is None or epoch < known.leader_epoch:
            assert self.world.log.end == before
            assert result is None or result.code in (ErrorCode.INVALID_REQUEST, FENCED_LEADER)
            return
        is_new, known.leader_epoch = epoch > known.leader_epoch, epoch
        assert (self.world.log.end > before) is is_new
        assert result is None or (result.state is not None and said(result.state) == known.says())
        self.changed()

    @rule(key=keys, state_epoch=epochs, leader_epoch=epochs, start=st.integers(-1, 9), changes=st.lists(batches, max_size=3))
    def write(self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, start: int, changes: list[StateBatch]) -> None:
        known = self.model.get(key)
        before = self.world.log.end
        state = ShareState(state_epoch, leader_epoch, start, len(changes), tuple(changes))
        self.ask(WriteState(key, state))
        is_fenced = known is not None and (-1 != leader_epoch < known.leader_epoch or state_epoch not in (-1, known.state_epoch))
        is_fenced = is_fenced or (known is not None and known.leader_epoch == -1 != leader_epoch)
        if known is None or is_fenced:
            assert self.world.log.end == before
            return
        assert self.world.log.end == before + 1
        known.write(state)
        self.changed()

    @rule(key=keys)
    def delete(self, key: SharePartitionKey) -> None:
        self.ask(DeleteState(key))
        if self.model.pop(key, None) is not None:
            self.deleted.add(key)
        self.changed()

    @rule()
    def commit(self) -> None:
        self.world.log.commit()
        assert all(len(results) == 1 for _, results in self.asked), "every command is answered once all is committed"
        self.changed()  # a step of a scan may have begun, and have written records

    @rule(ms=st.sampled_from([100, 400, 700]))
    def wait(self, ms: int) -> None:
        self.world.timers.advance(ms)
        self.changed()

    @rule()
    def crash(self) -> None:
        committed = self.world.log.high_watermark
        for end, results in self.asked:
            assert not results or results[0].code is not NONE or end <= committed, "an answer was given for a record that is lost now"
        self.world.crash()
        self.has_crashed = True
        assert all(len(results) == 1 for _, results in self.asked), "closing answers all waiting commands"
        self.asked.clear()
        self.model = deepcopy(self.models[committed])
        self.changed()

    @invariant()
    def stored_state_is_the_model(self) -> None:
        partitions = self.world.machine.shard.partitions
        assert {key: said(remembered.state) for key, remembered in partitions.items()} == {
            key: known.says() for key, known in self.model.items()
        }

    @invariant()
    def live_state_is_the_replay_of_what_is_left(self) -> None:
        assert hard_state(self.world.replayed()) == hard_state(self.world.machine)


def test_a_start_that_goes_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a fault: a late write moves the start offset back, and the acknowledgements of the records between are lost."""
    take = ShareStateShard._take_update

    def follow(shard: ShareStateShard, key: SharePartitionKey, update: StateUpdate, offset: int) -> None:
        take(shard, key, update, offset)
        known = shard.partitions[key]
        if update.state.start_offset >= 0:
            shard.partitions[key] = known._replace(state=known.state._replace(start_offset=update.state.start_offset))

    monkeypatch.setattr(ShareStateShard, "_take_update", follow)
    tries = settings(max_examples=2_000, stateful_step_count=30, deadline=None, phases=[Phase.generate], database=None, derandomize=True)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ShareStates, settings=tries)  # type: ignore[no-untyped-call]


TestShareStates = ShareStates.TestCase
TestShareStates.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
