"""Delivery of markers to partitions on this broker and on others, until each partition has its marker."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.transactions.markers import PARTITIONS_PER_TURN, RETRY_MS, LocalMarkers, MarkerDelivery
from ottla.transactions.metadata import Marker
from ottla.transactions.remote import NO_LEADER
from tests.fakes.clock import ManualClock
from tests.fakes.peers import HeldPeerTransactions
from tests.fakes.world import World

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MARKER = Marker(7, 3, 5, True, 2)


class FakeLog:
    def __init__(self) -> None:
        self.log_end_offset = 10


class FakePartition:
    """A partition whose replicas catch up when the test lets them."""

    def __init__(self, *, is_instant: bool = True) -> None:
        self.log = FakeLog()
        self.leader_epoch = 0
        self.is_instant = is_instant
        self.high_watermark = 10
        self.written: list[tuple[int, int, bool]] = []
        self.refuses: list[ErrorCode] = []
        self.is_lost = False
        self.waiting: list[tuple[int, Callable[[], None]]] = []

    def require_leading(self) -> FakePartition:
        return self

    def write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, now_ms: int, transaction_version: int
    ) -> int | None:
        if self.refuses:
            raise ApiError(self.refuses.pop(0))
        if (producer_id, producer_epoch, is_commit) in self.written:
            return None
        self.written.append((producer_id, producer_epoch, is_commit))
        self.log.log_end_offset += 1
        if self.is_instant:
            self.commit()
        return self.log.log_end_offset - 1

    def acknowledgement(self, last_offset: int, acks: int) -> ErrorCode | None:
        if self.is_lost:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.high_watermark > last_offset else None

    def call_when_acknowledged(self, last_offset: int, acks: int, function: Callable[[], None]) -> None:
        assert acks == -1
        self.waiting.append((last_offset, function))

    def commit(self) -> None:
        self.high_watermark = self.log.log_end_offset
        self._call(lambda offset: offset < self.high_watermark)

    def lose(self) -> None:
        self.is_lost = True
        self._call(lambda _offset: True)

    def _call(self, is_due: Callable[[int], bool]) -> None:
        """Calls each due waiter once, as a partition does."""
        waiting, self.waiting = self.waiting, []
        for offset, function in waiting:
            if is_due(offset):
                function()
            else:
                self.waiting.append((offset, function))


class MarkersWorld(World):
    """Broker 1 with some partitions, and broker 2, which answers when the test lets it."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, FakePartition] = {T0: FakePartition(), T1: FakePartition()}
        self.leaders: dict[TopicPartition, int] = {T0: 1, T1: 1}
        self.peers = HeldPeerTransactions()
        self.group_markers: list[tuple[int, int, int, int, bool]] = []
        self.is_wanted = True
        self.done = 0
        self.local = LocalMarkers(self.find, lambda *marker: self.group_markers.append(marker), self.clock)
        self.looked_up: list[tuple[TopicPartition, Callable[[bool], None]]] = []
        self.delivery = MarkerDelivery(1, self.local, self, self.peers, self.timers, self.is_deleted)

    def is_deleted(self, partition: TopicPartition, done: Callable[[bool], None]) -> None:
        self.looked_up.append((partition, done))

    def find(self, topic: str, partition: int) -> FakePartition | None:
        return self.partitions.get(TopicPartition(topic, partition))

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self.leaders.get(TopicPartition(topic, partition))

    def send(self, *partitions: TopicPartition) -> None:
        def finished() -> None:
            self.done += 1

        self.delivery.send(Marker(7, 3, 5, True, 2), partitions, lambda: self.is_wanted, finished)


def test_local_markers_are_written_at_once() -> None:
    world = MarkersWorld()
    world.send(T0, T1)
    assert world.done == 1
    assert [partition.written for partition in world.partitions.values()] == [[(7, 3, True)], [(7, 3, True)]]


def test_thousands_of_partitions_get_their_markers_in_turns() -> None:
    """Formerly a transaction with ten thousand partitions blocked the loop for 0.1 s."""
    world = MarkersWorld()
    partitions = [TopicPartition("wide", number) for number in range(3 * PARTITIONS_PER_TURN + 1)]
    world.partitions = {partition: FakePartition() for partition in partitions}
    world.leaders = dict.fromkeys(partitions, 1)
    world.send(*partitions)

    def written() -> int:
        return sum(len(partition.written) for partition in world.partitions.values())

    assert written() == PARTITIONS_PER_TURN and not world.done
    world.timers.run_due()
    assert written() == len(partitions) and world.done == 1


def test_markers_in_turns_end_with_the_coordinator() -> None:
    world = MarkersWorld()
    partitions = [TopicPartition("wide", number) for number in range(PARTITIONS_PER_TURN + 1)]
    world.partitions = {partition: FakePartition() for partition in partitions}
    world.leaders = dict.fromkeys(partitions, 1)
    world.send(*partitions)
    world.is_wanted = False
    world.timers.run_due()
    assert not world.partitions[partitions[-1]].written and not world.done


def test_without_partitions_there_is_nothing_to_wait_for() -> None:
    world = MarkersWorld()
    world.send()
    assert world.done == 1


def test_done_waits_for_the_high_watermark() -> None:
    world = MarkersWorld()
    world.partitions[T0].is_instant = False
    world.send(T0)
    assert world.done == 0
    world.partitions[T0].commit()
    assert world.done == 1 and world.partitions[T0].waiting == []


def test_a_marker_that_is_there_already_counts_once_it_is_committed() -> None:
    """KAFKA-19999: a marker that is sent again after a failover succeeds, and is not refused forever. I25: it is not written twice."""
    world = MarkersWorld()
    partition = world.partitions[T0]
    partition.is_instant = False
    world.send(T0)
    world.send(T0)
    assert world.done == 0
    partition.commit()
    assert world.done == 2 and partition.written == [(7, 3, True)]


def test_markers_for_offsets_are_passed_on_to_the_group_coordinator() -> None:
    world = MarkersWorld()
    offsets = TopicPartition(GROUP_METADATA_TOPIC, 4)
    world.partitions[offsets], world.leaders[offsets] = FakePartition(), 1
    world.send(offsets)
    world.send(offsets)
    assert world.group_markers == [(4, 10, 7, 3, True)]


def test_other_brokers_are_asked_once_each() -> None:
    world = MarkersWorld()
    world.leaders |= {T1: 2, U0: 2}
    world.send(T0, T1, U0)
    [asked] = world.peers.marked
    assert asked[:3] == (2, MARKER, [T1, U0]) and world.done == 0
    asked.done({T1: ErrorCode.NONE, U0: ErrorCode.NONE})
    assert world.done == 1


def test_only_what_failed_is_sent_again_and_to_the_new_leader() -> None:
    world = MarkersWorld()
    world.leaders |= {T1: 2, U0: 2}
    world.send(T0, T1, U0)
    world.peers.marked[0].done({T1: ErrorCode.NONE, U0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    world.leaders[U0] = 3
    world.timers.advance(RETRY_MS)
    [_, asked] = world.peers.marked
    assert asked[:3] == (3, MARKER, [U0])
    asked.done({U0: ErrorCode.NONE})
    assert world.done == 1


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_refusal_is_tried_again(refusal: ErrorCode) -> None:
    world = MarkersWorld()
    world.partitions[T0].refuses = [refusal, refusal]
    world.send(T0)
    world.timers.advance(RETRY_MS)
    assert world.done == 0
    world.timers.advance(RETRY_MS)
    assert world.done == 1


def test_leadership_lost_while_waiting_is_tried_again() -> None:
    world = MarkersWorld()
    world.partitions[T0].is_instant = False
    world.send(T0)
    world.partitions[T0].lose()
    world.leaders[T0] = NO_LEADER
    world.timers.advance(RETRY_MS)
    assert world.peers.marked == [] and world.done == 0
    world.leaders[T0] = 2
    world.timers.advance(RETRY_MS)
    world.peers.marked[0].done({T0: ErrorCode.NONE})
    assert world.done == 1


def test_a_deleted_partition_needs_no_marker() -> None:
    world = MarkersWorld()
    del world.leaders[T1]
    world.send(T0, T1)
    assert world.done == 0, "that it is not known here proves nothing"
    (partition, done), *others = world.looked_up
    done(True)
    assert partition == T1 and not others and world.done == 1


def test_a_partition_that_is_newer_than_the_metadata_gets_its_marker() -> None:
    """A partition that is missing in outdated metadata is not treated as deleted."""
    world = MarkersWorld()
    world.leaders = {T0: 1}
    world.send(T0, T1)
    world.looked_up.pop()[1](False)
    world.timers.advance(RETRY_MS)
    assert world.done == 0
    world.leaders[T1] = 1
    world.looked_up.pop()[1](False)
    world.timers.advance(RETRY_MS)
    assert world.done == 1 and len(world.partitions[T1].written) == 1 and not world.looked_up


def test_a_partition_that_has_moved_on_has_its_marker() -> None:
    world = MarkersWorld()
    world.partitions[T0].refuses = [ErrorCode.INVALID_PRODUCER_EPOCH]
    world.send(T0)
    assert world.done == 1


def test_a_fenced_coordinator_stops() -> None:
    world = MarkersWorld()
    world.partitions[T0].refuses = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    world.send(T0, T1)
    world.timers.advance(10 * RETRY_MS)
    assert world.done == 0 and world.partitions[T1].written != []


def test_a_coordinator_that_is_thrown_away_stops() -> None:
    world = MarkersWorld()
    world.leaders[T0] = NO_LEADER
    world.send(T0)
    world.is_wanted = False
    world.timers.advance(RETRY_MS)
    assert world.timers.pending() == 0 and world.done == 0


def test_a_partition_that_is_not_here_is_unknown() -> None:
    codes: list[ErrorCode] = []
    MarkersWorld().local.write(U0, MARKER, codes.append)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE])
def test_a_broker_that_cannot_be_asked_is_asked_again(code: ErrorCode) -> None:
    world = MarkersWorld()
    world.leaders[T1] = 2
    world.send(T1)
    world.peers.marked.pop().done({T1: code})
    world.timers.advance(RETRY_MS)
    world.peers.marked[0].done({T1: ErrorCode.NONE})
    assert world.done == 1


class Answer:
    """Records the codes of an answer."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def __call__(self, code: ErrorCode) -> None:
        self.codes.append(code)


@pytest.mark.parametrize("is_instant", [True, False])
def test_a_written_marker_leaves_nothing_to_the_garbage_collector(is_instant: bool) -> None:
    """Formerly each transaction left a cycle of references for each of its partitions."""
    partition = FakePartition(is_instant=is_instant)
    answer = Answer()
    seen, codes = weakref.ref(answer), answer.codes
    gc.disable()
    try:
        LocalMarkers(lambda _topic, _number: partition, lambda *_: None, ManualClock()).write(T0, MARKER, answer)  # type: ignore[arg-type,return-value]
        partition.commit()
        del answer
        assert seen() is None and codes == [ErrorCode.NONE]
    finally:
        gc.enable()
