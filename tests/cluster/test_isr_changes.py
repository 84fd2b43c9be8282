"""A leader's proposals of in-sync sets: one request at a time, the consequence of each answer of the controller, and proposals that are
sent again (KIP-497, KIP-903)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cluster.isr_changes import IsrChanges
from ottla.controller.api import AlterPartitionDone, IsrChangeRequest, PartitionResult
from ottla.replication.partition import Partition
from ottla.replication.progress import FollowerFetch
from ottla.storage.log import Log
from tests.cluster.nodes import Nodes
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.world import World

TOPIC_ID = bytes(range(16))
NONE = ErrorCode.NONE


class Asked(NamedTuple):
    broker_epoch: int
    changes: Sequence[IsrChangeRequest]
    done: AlterPartitionDone


class IsrWorld(World):
    """Broker 1 leads some partitions with replicas on brokers 1 and 2. `asked` has its requests to the controller."""

    def __init__(self, count: int = 1) -> None:
        self.asked: list[Asked] = []
        self.broker_epoch = 60
        self.epochs = {1: 60, 2: 61}
        self.changes = IsrChanges(
            self,
            broker_id=1,
            broker_epoch=lambda: self.broker_epoch,
            leader_of=lambda key: self.partitions[key[1]].leader,
            timers=self.timers,
        )
        self.partitions = [self._lead(index) for index in range(count)]

    def _lead(self, index: int) -> Partition:
        key = TopicPartition("t", index)
        log = Log.open(MemDisk("/data"), f"/data/{key}", key, log_settings(), now_ms=0, was_clean=False, topic_id=TOPIC_ID)
        partition = Partition(log, broker_id=1)
        partition.state.on_isr_proposal = self.changes.propose
        partition.state.broker_epoch_of = self.epochs.get
        partition.become_leader(leader_epoch=4, partition_epoch=10, replicas=[1, 2], isr=[1], now_ms=0)
        return partition

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None:
        assert broker_id == 1
        self.asked.append(Asked(broker_epoch, changes, done))

    def fetch(self, index: int = 0, broker_epoch: int = 61) -> None:
        """Lets replica 2 fetch at the end of the log."""
        partition = self.partitions[index]
        now_ms = self.clock.monotonic_ms()
        partition.read_as_follower(FollowerFetch(2, broker_epoch, partition.log.log_end_offset, 0, now_ms), 1 << 20)

    def result(self, index: int = 0, error: ErrorCode = NONE, isr: Sequence[int] = (1, 2), **fields: int) -> PartitionResult:
        known = {"leader": 1, "leader_epoch": 4, "partition_epoch": 11} | fields
        return PartitionResult(topic="t", topic_id=TOPIC_ID, partition=index, error=error, isr=isr, **known)

    def answer(self, *results: PartitionResult, code: ErrorCode = NONE) -> None:
        self.asked[-1].done(code, list(results))

    def wait(self, ms: int) -> int:
        """Lets time pass, and returns the number of requests by then."""
        self.timers.advance(ms)
        return len(self.asked)


@pytest.fixture
def world() -> IsrWorld:
    world = IsrWorld()
    world.fetch()
    world.timers.run_due()
    return world


def test_what_is_proposed_in_one_turn_goes_into_one_request_and_only_one_is_under_way() -> None:
    world = IsrWorld(3)
    for index in (0, 2):
        world.fetch(index)
    assert world.wait(0) == 1
    [asked] = world.asked
    assert (asked.broker_epoch, [change.partition for change in asked.changes]) == (60, [0, 2])
    assert (asked.changes[0].leader_epoch, asked.changes[0].partition_epoch, asked.changes[0].isr) == (4, 10, ((1, 60), (2, 61)))
    world.fetch(1)
    assert world.wait(5_000) == 1
    world.answer(world.result(0), world.result(2))
    assert world.wait(0) == 2 and [change.partition for change in world.asked[1].changes] == [1]
    assert [partition.isr for partition in world.partitions] == [(1, 2), (1,), (1, 2)]
    assert [partition.isr_state.moving for partition in world.partitions] == [(), (2,), ()]


def test_an_agreed_change_is_taken_over(world: IsrWorld) -> None:
    world.answer(world.result())
    assert (world.partitions[0].isr, world.partitions[0].partition_epoch) == ((1, 2), 11)
    assert world.wait(10_000) == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_an_unknown_outcome_stays_pending_and_is_asked_again_less_and_less_often(world: IsrWorld, code: ErrorCode) -> None:
    for number, rest_ms in enumerate((20, 40, 80, 160, 320, 640, 1_000, 1_000), 2):
        world.answer(code=code)
        assert world.partitions[0].isr_state.moving == (2,)
        assert world.wait(rest_ms - 1) == number - 1
        assert world.wait(1) == number
    assert world.asked[0].changes == world.asked[-1].changes


def test_a_stale_broker_epoch_is_asked_again_with_the_new_one(world: IsrWorld) -> None:
    world.broker_epoch = 70
    world.answer(code=ErrorCode.STALE_BROKER_EPOCH)
    world.wait(20)
    assert [asked.broker_epoch for asked in world.asked] == [60, 70]


def test_kip_497_an_outcome_that_was_unknown_is_found_in_the_newer_state(world: IsrWorld) -> None:
    """The request was executed and its answer was lost. When it is sent again, its version is too old, and the answer has the current
    state."""
    world.answer(code=ErrorCode.NETWORK_EXCEPTION)
    world.wait(20)
    world.answer(world.result(error=ErrorCode.INVALID_UPDATE_VERSION))
    assert (world.partitions[0].isr, world.partitions[0].isr_state.moving, world.partitions[0].partition_epoch) == ((1, 2), (), 11)
    assert world.wait(10_000) == 2


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (ErrorCode.INVALID_UPDATE_VERSION, {"partition_epoch": 10}),
        (ErrorCode.INVALID_UPDATE_VERSION, {"leader_epoch": 5}),
        (ErrorCode.FENCED_LEADER_EPOCH, {"leader_epoch": 5, "leader": 2}),
        (ErrorCode.NEW_LEADER_ELECTED, {}),
        (ErrorCode.UNKNOWN_TOPIC_ID, {"leader": -1, "leader_epoch": -1, "partition_epoch": -1}),
        (NONE, {"leader": 2}),
        (NONE, {"partition_epoch": 9}),
    ],
)
def test_what_is_no_definite_answer_leaves_the_change_pending(world: IsrWorld, code: ErrorCode, fields: dict[str, int]) -> None:
    world.answer(world.result(error=code, **fields))
    assert world.partitions[0].isr_state.moving == (2,) and world.partitions[0].isr == (1,)
    assert world.wait(20) == 2


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_kip_903_a_refused_replica_stays_out_and_is_not_proposed_at_each_fetch(world: IsrWorld, code: ErrorCode) -> None:
    world.answer(world.result(error=code, isr=(1,), partition_epoch=10))
    assert world.partitions[0].isr_state.moving == () and world.partitions[0].isr == (1,)
    for _ in range(9):
        world.fetch()
        assert world.wait(100) == 1
    world.wait(100)
    world.fetch()
    assert world.wait(0) == 2


def test_kip_903_the_next_life_of_a_refused_replica_is_proposed_at_once(world: IsrWorld) -> None:
    world.answer(world.result(error=ErrorCode.INELIGIBLE_REPLICA, isr=(1,), partition_epoch=10))
    world.epochs[2] = 99
    world.fetch(broker_epoch=99)
    assert world.wait(0) == 2 and world.asked[1].changes[0].isr == ((1, 60), (2, 99))


@pytest.mark.parametrize(
    "end",
    [
        lambda one: one.become_leader(leader_epoch=4, partition_epoch=11, replicas=[1, 2], isr=[1], now_ms=0),
        lambda one: one.become_leader(leader_epoch=5, partition_epoch=11, replicas=[1, 2], isr=[1], now_ms=0),
        lambda one: one.become_follower(leader_id=2, leader_epoch=5, partition_epoch=11, replicas=[1, 2], isr=[1, 2]),
        lambda one: one.go_offline("its disk failed"),
    ],
    ids=["newer state", "new term", "follower", "offline"],
)
def test_newer_state_ends_a_proposal_and_its_late_answer_changes_nothing(world: IsrWorld, end: Callable[[Partition], None]) -> None:
    [partition] = world.partitions
    end(partition)
    isr = partition.isr
    world.answer(world.result(isr=(1, 2), partition_epoch=11))
    assert partition.isr == isr and (not partition.is_leading or partition.isr_state.moving == ())
    assert world.wait(10_000) == 1


def test_a_repetition_of_the_controllers_message_keeps_the_proposal(world: IsrWorld) -> None:
    world.partitions[0].become_leader(leader_epoch=4, partition_epoch=10, replicas=[1, 2], isr=[1], now_ms=0)
    assert world.partitions[0].isr_state.moving == (2,)
    world.answer(world.result())
    assert world.partitions[0].isr == (1, 2)


def test_an_isr_that_only_shrinks_raises_no_leader_epoch() -> None:
    nodes = Nodes(3, "replica.lag.time.max.ms=400")
    nodes.create("t", [1, 2, 3])
    nodes.write("a")
    nodes.until(lambda: nodes.leader().high_watermark == 1)
    epoch = nodes.leader().leader_epoch
    nodes.nodes[3].links.fetchers.close()
    nodes.write("b")
    nodes.until(lambda: nodes.leader().isr == (1, 2))
    assert nodes.leader().leader_epoch == epoch
    nodes.until(lambda: nodes.leader().high_watermark == 2)
