"""Followers converge with their leader by epochs (I3, I10, I11, I16, I17, I18; KIP-101, KIP-279, KIP-320): single cases, and random
histories."""

from __future__ import annotations

from random import Random

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.replication.follower import AskBounds, FetchAt, Follower, FollowerState, FollowerStep, Todo, Wait, divergence_point
from ottla.replication.follower_log import FollowerLog
from ottla.replication.high_watermark import move_high_watermark
from ottla.replication.isr import IsrProposal
from ottla.replication.partition import Partition
from ottla.replication.progress import FollowerFetch
from ottla.replication.state import PartitionState
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.log import Log
from ottla.wire.records import Record, encode_batch
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings

KEY = TopicPartition("flights", 0)
NONE = ErrorCode.NONE


def machine() -> Follower:
    return Follower(leader_id=1, leader_epoch=5)


def test_a_fetch_names_the_epoch_of_the_last_record() -> None:
    epochs = LeaderEpochs([(2, 0), (4, 7)])
    assert machine().next_request(epochs, 9) == FetchAt(offset=9, current_leader_epoch=5, last_fetched_epoch=4)
    assert machine().next_request(epochs, 7) == FetchAt(offset=7, current_leader_epoch=5, last_fetched_epoch=2)
    assert machine().next_request(LeaderEpochs(), 0) == FetchAt(offset=0, current_leader_epoch=5, last_fetched_epoch=-1)


def test_kip_320_a_fenced_follower_sends_no_request() -> None:
    follower = machine()
    assert follower.on_fetched(ErrorCode.FENCED_LEADER_EPOCH, None, epochs=LeaderEpochs(), log_end_offset=0) == Todo(FollowerStep.WAIT)
    assert follower.state is FollowerState.STOPPED
    assert isinstance(follower.next_request(LeaderEpochs(), 0), Wait)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_other_errors_are_tried_again(error: ErrorCode) -> None:
    follower = machine()
    assert follower.on_fetched(error, None, epochs=LeaderEpochs(), log_end_offset=0) == Todo(FollowerStep.WAIT)
    assert isinstance(follower.next_request(LeaderEpochs(), 0), FetchAt)


@pytest.mark.parametrize(
    ("start", "end", "todo"),
    [(20, 30, Todo(FollowerStep.RESTART, 20)), (0, 6, Todo(FollowerStep.TRUNCATE, 6)), (0, 12, Todo(FollowerStep.NOTHING))],
)
def test_out_of_range_asks_for_the_leaders_bounds(start: int, end: int, todo: Todo) -> None:
    follower = machine()
    out = follower.on_fetched(ErrorCode.OFFSET_OUT_OF_RANGE, None, epochs=LeaderEpochs(), log_end_offset=10)
    assert out == Todo(FollowerStep.NOTHING)
    assert follower.next_request(LeaderEpochs(), 10) == AskBounds(current_leader_epoch=5)
    assert follower.on_leader_bounds(ErrorCode.NOT_LEADER_OR_FOLLOWER, start=0, end=0, log_end_offset=10) == Todo(FollowerStep.WAIT)
    assert follower.on_leader_bounds(NONE, start=start, end=end, log_end_offset=10) == todo
    assert isinstance(follower.next_request(LeaderEpochs(), 10), FetchAt)


def test_records_of_an_epoch_above_the_leaders_are_cut_when_the_leader_refuses_their_offset() -> None:
    """The epoch in a batch's header is not covered by the checksum. The leader's bounds would not help: the offset is within them."""
    follower = machine()
    epochs = LeaderEpochs([(2, 0), (5, 6), (2053, 8)])
    out = follower.on_fetched(ErrorCode.OFFSET_OUT_OF_RANGE, None, epochs=epochs, log_end_offset=10)
    assert out == Todo(FollowerStep.TRUNCATE, 8)
    epochs.truncate_end(8)
    assert follower.next_request(epochs, 8) == FetchAt(offset=8, current_leader_epoch=5, last_fetched_epoch=5)


@pytest.mark.parametrize("diverging", [(-1, 5), (2, -1), (-7, -7)])
def test_an_impossible_divergence_changes_nothing(diverging: tuple[int, int]) -> None:
    follower = machine()
    assert follower.on_fetched(NONE, diverging, epochs=LeaderEpochs([(2, 0)]), log_end_offset=10) == Todo(FollowerStep.WAIT)
    assert isinstance(follower.next_request(LeaderEpochs(), 10), FetchAt)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (7, 5), (0, -1)])
def test_impossible_bounds_change_nothing_and_are_asked_for_again(start: int, end: int) -> None:
    follower = machine()
    follower.on_fetched(ErrorCode.OFFSET_OUT_OF_RANGE, None, epochs=LeaderEpochs(), log_end_offset=10)
    assert follower.on_leader_bounds(NONE, start=start, end=end, log_end_offset=10) == Todo(FollowerStep.WAIT)
    assert isinstance(follower.next_request(LeaderEpochs(), 10), AskBounds)


def test_an_answer_out_of_turn_changes_nothing() -> None:
    follower = machine()
    assert follower.on_leader_bounds(NONE, start=0, end=5, log_end_offset=10) == Todo(FollowerStep.WAIT)
    assert follower.state is FollowerState.FETCHING
    for error in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.FENCED_LEADER_EPOCH) * 2:
        follower.on_fetched(error, None, epochs=LeaderEpochs(), log_end_offset=10)
    assert follower.on_leader_bounds(ErrorCode.FENCED_LEADER_EPOCH, start=0, end=5, log_end_offset=10) == Todo(FollowerStep.WAIT)
    assert follower.state is FollowerState.STOPPED


@pytest.mark.parametrize(
    ("leader", "expected"),
    [
        ((4, 8), 8),  # both know epoch 4: it ends at 10 in this log, at 8 in the leader's
        ((4, 15), 10),
        ((3, 6), 5),  # KIP-279: this log lacks epoch 3, and its epoch 2 ended at 5: the follower asks again from there
        ((1, 3), 0),  # this log has no epoch as old as that
        ((6, 9), 9),  # an epoch newer than all in this log
    ],
)
def test_kip_279_where_to_cut(leader: tuple[int, int], expected: int) -> None:
    assert divergence_point(LeaderEpochs([(2, 0), (4, 5)]), 10, *leader) == expected


def replica(broker_id: int) -> Partition:
    disk = MemDisk("/data")
    log = Log.open(disk, f"/data/{KEY}", KEY, log_settings(), now_ms=0, was_clean=False)
    return Partition(log, broker_id=broker_id)


def write(partition: Partition, *values: str) -> int:
    records = [Record(0, 0, None, value.encode()) for value in values]
    return partition.require_leading().append(encode_batch(records), acks=1, now_ms=0).base_offset


def step(leader: Partition, replica: Partition, follower: Follower) -> FollowerStep:
    """Executes one request of the follower, and applies the answer. Returns the change of the log."""
    log = replica.log
    request = follower.next_request(log.epochs, log.log_end_offset)
    if isinstance(request, Wait):
        return FollowerStep.WAIT
    if isinstance(request, AskBounds):
        start, end = leader.log.log_start_offset, leader.log.log_end_offset
        todo = follower.on_leader_bounds(NONE, start=start, end=end, log_end_offset=log.log_end_offset)
        carry_out(todo, replica)
        return todo.step
    error, data, diverging, bounds = NONE, b"", None, (0, 0)
    try:
        read = leader.read_as_follower(
            FollowerFetch(replica.broker_id, 1, request.offset, log.log_start_offset, 0),
            1,  # one batch at a time, so that followers lag
            current_leader_epoch=request.current_leader_epoch,
            last_fetched_epoch=request.last_fetched_epoch,
        )
        data, diverging = b"" if read.slice is None else read.slice.read(), read.diverging_epoch
        bounds = read.high_watermark, read.log_start_offset
    except ApiError as refused:
        error = refused.code
    todo = follower.on_fetched(error, diverging, epochs=log.epochs, log_end_offset=log.log_end_offset)
    if todo.step is FollowerStep.APPEND:
        following(replica).append(memoryview(data), high_watermark=bounds[0], leader_log_start=bounds[1])
    carry_out(todo, replica)
    return todo.step


def following(partition: Partition) -> FollowerLog:
    assert partition.follower_log is not None
    return partition.follower_log


def carry_out(todo: Todo, replica: Partition) -> None:
    if todo.step is FollowerStep.TRUNCATE:
        following(replica).truncate(todo.offset)
    elif todo.step is FollowerStep.RESTART:
        following(replica).restart(todo.offset)


def lead(leader: Partition, *others: Partition, epoch: int) -> list[Follower]:
    ids = sorted(partition.broker_id for partition in (leader, *others))
    leader.become_leader(leader_epoch=epoch, partition_epoch=epoch, replicas=ids, isr=ids, now_ms=0)
    for other in others:
        other.become_follower(leader_id=leader.broker_id, leader_epoch=epoch, partition_epoch=epoch, replicas=ids, isr=ids)
    return [Follower(leader_id=leader.broker_id, leader_epoch=epoch) for _ in others]


def catch_up(leader: Partition, replica: Partition, follower: Follower) -> list[FollowerStep]:
    steps = []
    for _ in range(400):
        before = replica.log.log_end_offset, replica.high_watermark
        steps.append(step(leader, replica, follower))
        if steps[-1] is FollowerStep.APPEND and before == (replica.log.log_end_offset, replica.high_watermark):
            return steps
    raise AssertionError("no end in 400 steps")


def content(partition: Partition) -> bytes:
    log = partition.log
    return b"".join(segment.file().pread(segment.size, 0) for segment in log.segments)


def test_kip_101_case_1_a_follower_behind_in_its_high_watermark_keeps_acknowledged_records() -> None:
    a, b = replica(1), replica(2)
    (follower,) = lead(a, b, epoch=0)
    write(a, "m1")
    catch_up(a, b, follower)
    write(a, "m2")
    step(a, b, follower)
    step(a, b, follower)
    move_high_watermark(b.state, 1, may_fall=True)  # restarted from an older checkpoint
    assert a.high_watermark == 2
    (follower,) = lead(a, b, epoch=1)
    assert step(a, b, follower) is FollowerStep.APPEND, "nothing was cut"
    lead(b, a, epoch=2)
    assert b.log.log_end_offset == 2


def test_kip_101_case_2_other_records_at_the_same_offset_are_replaced() -> None:
    a, b = replica(1), replica(2)
    lead(a, b, epoch=0)
    write(a, "m1")
    write(a, "lost")
    lead(b, a, epoch=1)
    write(b, "kept")
    (follower,) = lead(b, a, epoch=2)
    assert FollowerStep.TRUNCATE in catch_up(b, a, follower)
    assert content(a) == content(b)


def test_kip_279_two_fast_leader_changes() -> None:
    """Each log has records of an epoch that the other does not know. The follower truncates to the largest epoch that both know."""
    a, b = replica(1), replica(2)
    (follower,) = lead(a, b, epoch=0)
    write(a, "m1")
    catch_up(a, b, follower)
    lead(b, a, epoch=1)
    write(b, "b1")
    write(b, "b2")
    lead(a, b, epoch=2)
    write(a, "a1")
    (follower,) = lead(a, b, epoch=3)
    catch_up(a, b, follower)
    assert content(a) == content(b) and b.log.epochs.entries() == [(0, 0), (2, 1)]


def test_an_epoch_led_without_a_record_does_not_refuse_older_ones() -> None:
    a, b = replica(1), replica(2)
    lead(a, b, epoch=0)
    write(a, "m1")
    lead(b, a, epoch=1)
    (follower,) = lead(a, b, epoch=2)
    catch_up(a, b, follower)
    assert content(a) == content(b)


def test_i17_nothing_below_the_high_watermark_is_cut() -> None:
    a, b = replica(1), replica(2)
    (follower,) = lead(a, b, epoch=0)
    write(a, "m1")
    catch_up(a, b, follower)
    assert b.high_watermark == 1
    following(b).truncate(0)
    assert b.log.log_end_offset == 1 and "high watermark" in b.offline_reason


def test_i17_an_unclean_election_may_cut_it_where_that_is_allowed() -> None:
    a, b = replica(1), replica(2)
    (follower,) = lead(a, b, epoch=0)
    write(a, "m1")
    catch_up(a, b, follower)
    b.log.configure(log_settings(is_unclean_election_enabled=True))
    following(b).truncate(0)
    assert b.is_online and (b.log.log_end_offset, b.high_watermark) == (0, 0)


def test_i17_a_follower_reports_a_leader_that_lacks_what_it_has_below_the_high_watermark() -> None:
    a, b = replica(1), replica(2)
    (follower,) = lead(a, b, epoch=0)
    write(a, "m1")
    catch_up(a, b, follower)
    reported: list[tuple[int, int]] = []
    b.state.on_short_leader = lambda state: reported.append((state.leader_id, state.leader_epoch))
    following(b).truncate(0)
    assert reported == [(1, 0)] and not b.is_online


@pytest.mark.parametrize(("loss_epoch", "is_cut"), [(-1, False), (0, False), (1, True)])
def test_i17_only_an_accepted_loss_that_is_newer_than_the_records_cuts_them(
    loss_epoch: int, is_cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = replica(1), replica(2)
    (follower,) = lead(a, b, epoch=0)
    write(a, "m1")
    catch_up(a, b, follower)
    roles = {"leader_id": 3, "leader_epoch": 2, "partition_epoch": 1, "replicas": [1, 2, 3], "isr": [3], "loss_epoch": loss_epoch}
    b.become_follower(**roles)  # type: ignore[arg-type]
    following(b).truncate(0)
    assert (b.is_online, b.log.log_end_offset) == ((True, 0) if is_cut else (False, 1))
    assert ("cuts the offsets 0 to 0" in caplog.text) == is_cut


def test_i18_answers_of_an_earlier_leader_change_nothing() -> None:
    a, b = replica(1), replica(2)
    lead(a, b, epoch=0)
    write(a, "m1")
    data = memoryview(bytearray(content(a)))
    earlier = following(b)
    b.become_follower(leader_id=3, leader_epoch=1, partition_epoch=1, replicas=[1, 2, 3], isr=[3])
    earlier.append(data, high_watermark=1, leader_log_start=0)
    earlier.restart(9)
    assert b.log.log_end_offset == 0 and b.high_watermark == 0
    following(b).append(data, high_watermark=1, leader_log_start=0)
    earlier.truncate(0)
    assert b.log.log_end_offset == 1 and b.high_watermark == 1


def test_a_follower_left_behind_begins_anew_at_the_leaders_start() -> None:
    a, b = replica(1), replica(2)
    a.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    for number in range(5):
        write(a, str(number))
    a.log.roll()
    write(a, "5")
    a.require_leading().delete_records(5)
    a.log.delete_expired(0, 6)
    a.become_leader(leader_epoch=0, partition_epoch=1, replicas=[1, 2], isr=[1], now_ms=0)
    b.become_follower(leader_id=1, leader_epoch=0, partition_epoch=1, replicas=[1, 2], isr=[1])
    steps = catch_up(a, b, Follower(leader_id=1, leader_epoch=0))
    assert FollowerStep.RESTART in steps
    assert (b.log.log_start_offset, b.log.log_end_offset) == (5, 6)


class History:
    """Three replicas with clean elections at any moment: records below the high watermark are kept, and all logs converge."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.replicas = {broker_id: replica(broker_id) for broker_id in (1, 2, 3)}
        for partition in self.replicas.values():
            partition.state.on_isr_proposal = self.on_proposal
        self.followers: dict[int, Follower] = {}
        self.isr = self.random.choice([[1], [1, 2], [1, 2, 3]])
        self.epoch = self.partition_epoch = 0
        self.leader = self.replicas[1]
        self.committed: dict[int, bytes] = {}
        self.elect(1)

    def on_proposal(self, _state: PartitionState, proposal: IsrProposal) -> None:
        """The controller accepts the proposal at once. Its answer reaches the leader in a later step."""
        self.isr = sorted(member for member, _ in proposal.members)
        self.partition_epoch += 1

    def elect(self, broker_id: int) -> None:
        self.epoch += 1
        self.partition_epoch += 1
        self.leader = self.replicas[broker_id]
        ids = [1, 2, 3]
        for partition in self.replicas.values():
            if partition is not self.leader:
                partition.become_follower(
                    leader_id=broker_id, leader_epoch=self.epoch, partition_epoch=self.partition_epoch, replicas=ids, isr=self.isr
                )
        self.leader.become_leader(leader_epoch=self.epoch, partition_epoch=self.partition_epoch, replicas=ids, isr=self.isr, now_ms=0)
        self.followers = {other: Follower(leader_id=broker_id, leader_epoch=self.epoch) for other in ids if other != broker_id}

    def step(self) -> None:
        broker_id = self.random.choice(list(self.followers))
        action = self.random.randrange(20)
        if action < 6:
            write(self.leader, *["x"] * self.random.randint(1, 2))
        elif action < 14:
            for _ in range(self.random.randint(1, 4)):
                step(self.leader, self.replicas[broker_id], self.followers[broker_id])
        elif action == 14 and self.leader.isr_state.moving:
            self.leader.require_leading().on_isr_answer(self.isr, leader_epoch=self.epoch, partition_epoch=self.partition_epoch)
        elif action == 15:
            self.leader.require_leading().maybe_shrink_isr(1_000, 10)
        elif action == 16:
            move_high_watermark(self.replicas[broker_id].state, 0, may_fall=True)  # restarted with the oldest checkpoint
        elif action >= 17:
            self.elect(self.random.choice(self.isr))

    def check(self) -> None:
        for offset in range(len(self.committed), self.leader.high_watermark):
            self.committed[offset] = stamp(self.leader, offset)
        for offset, expected in self.committed.items():
            assert self.leader.log.log_end_offset > offset, f"committed offset {offset} is lost (I10)"
            assert stamp(self.leader, offset) == expected, f"committed offset {offset} was replaced (I3)"
        for partition in self.replicas.values():
            log = partition.log
            assert partition.is_online, partition.offline_reason
            assert log.log_start_offset <= partition.last_stable_offset <= partition.high_watermark <= log.log_end_offset

    def heal(self) -> None:
        for broker_id, follower in self.followers.items():
            catch_up(self.leader, self.replicas[broker_id], follower)
            assert content(self.replicas[broker_id]) == content(self.leader)


@pytest.mark.parametrize("first_seed", [*range(0, 120, 20), 1360])
def test_i3_i10_i11_any_history_of_clean_elections_loses_nothing(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        history = History(seed)
        try:
            for _ in range(60):
                history.step()
                history.check()
            history.heal()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def stamp(partition: Partition, offset: int) -> bytes:
    """Returns the bytes of the batch that holds `offset`."""
    found = partition.log.read(offset, 1, end_offset=partition.log.log_end_offset)
    assert found is not None
    return found.read()
