"""A follower's Fetch: the sessions of its connection, which requests are answered at once and which wait, and what the leader concludes
from the follower's progress."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending, RequestContext
from ottla.handlers.records.fetch import handle
from ottla.handlers.records.follower_fetch import WATERMARK_MS
from ottla.replication.partition import Partition, PartitionRead
from ottla.replication.progress import FollowerProgress
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData, ReplicaState
from tests.handlers.records_world import TOPIC_ID, RecordsWorld, batch, request

EPOCH = 1


class Leader:
    """Broker 0 leads all partitions. Their other replica is on broker 1, which sends the requests."""

    def __init__(self, partitions: int = 2, isr: tuple[int, ...] = (0, 1)) -> None:
        self.world = RecordsWorld(partitions=partitions)
        self.isr = isr
        for partition in self.world.partitions:
            partition.become_leader(leader_epoch=EPOCH, partition_epoch=1, replicas=(0, 1), isr=isr, now_ms=0)
        self.connection = self.connect()
        self.broker_epoch = 7
        self.session_id = self.epoch = 0

    def connect(self) -> RequestContext:
        made = request(18)
        made.connection.is_inter_broker = True
        return made

    def send(
        self, *asked: FetchPartition, wait_ms: int = 500, min_bytes: int = 1, max_bytes: int = 10 << 20, forget: tuple[int, ...] = ()
    ) -> FetchResponse | Pending:
        body = FetchRequest(
            replica_state=ReplicaState(replica_id=1, replica_epoch=self.broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=list(asked))] if asked else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forget))] if forget else [],
        )
        self.epoch += 1
        answer = handle(self.world.broker, self.connection, body)
        if isinstance(answer, FetchResponse) and answer.session_id:
            self.session_id = answer.session_id
        return answer

    def open(self) -> None:
        """Opens a session with all partitions, from their log end offsets on."""
        self.epoch = self.session_id = 0
        at = [one(index, partition.log.log_end_offset) for index, partition in enumerate(self.world.partitions)]
        answered(self.send(*at, wait_ms=0))

    def append(self, index: int, *values: bytes) -> None:
        self.world.partitions[index].require_leading().append(batch(*values), acks=1, now_ms=self.world.clock.wall_ms())

    def run(self, ms: int = 0) -> None:
        self.world.timers.advance(ms)

    def progress(self, index: int = 0) -> FollowerProgress:
        return self.world.partitions[index].require_leading().followers[1]


def one(index: int, offset: int, *, epoch: int = EPOCH, last: int = -1, high_watermark: int = 0) -> FetchPartition:
    return FetchPartition(
        partition=index, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last, log_start_offset=0,
        partition_max_bytes=1 << 20, high_watermark=high_watermark,
    )  # fmt: skip


def answered(answer: object) -> dict[int, PartitionData]:
    if isinstance(answer, Pending):
        assert answer.is_done, "the request waits"
        answer = answer.response
    assert isinstance(answer, FetchResponse) and not answer.error_code, answer
    return {result.partition_index: result for topic in answer.responses for result in topic.partitions}


def refusal(answer: object) -> int:
    assert isinstance(answer, FetchResponse)
    return answer.error_code


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    leader.open()
    return leader


def test_a_wait_ends_with_the_first_records_and_names_no_other_partition(leader: Leader) -> None:
    pending = leader.send()
    assert isinstance(pending, Pending) and not pending.is_done
    leader.append(1, b"a")
    leader.run()
    assert list(answered(pending)) == [1]


def test_records_that_were_sent_are_not_sent_again_before_the_follower_names_the_partition(leader: Leader) -> None:
    leader.append(0, b"a")
    assert list(answered(leader.send())) == [0]
    pending = leader.send()
    leader.append(0, b"b")
    leader.run()
    assert isinstance(pending, Pending) and not pending.is_done
    assert answered(leader.send(one(0, 1)))[0].records
    assert answered(pending) == {}, "the next request of the session ends the wait"


def test_what_arrives_late_over_an_earlier_connection_does_not_set_the_follower_back(leader: Leader) -> None:
    leader.append(0, b"a")
    leader.send()
    earlier, session = leader.connection, (leader.session_id, leader.epoch)
    leader.connection = leader.connect()
    leader.open()
    assert leader.progress().log_end_offset == 1
    leader.connection, (leader.session_id, leader.epoch) = earlier, session
    assert refusal(leader.send(one(0, 0))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert leader.progress().log_end_offset == 1


def test_a_moved_watermark_is_an_answer(leader: Leader) -> None:
    """Here the follower's own fetch moves the high watermark."""
    leader.append(0, b"a")
    leader.send()
    waiting = leader.send(one(0, 1))
    leader.run(WATERMARK_MS - 1)
    assert isinstance(waiting, Pending) and not waiting.is_done, "records may come that it can go with"
    leader.run(1)
    found = answered(waiting)
    assert found[0].high_watermark == 1 and not found[0].records
    pending = leader.send()
    leader.run(WATERMARK_MS)
    assert isinstance(pending, Pending) and not pending.is_done, "the follower knows it by now"


def test_a_moved_watermark_goes_with_the_records_that_come_soon(leader: Leader) -> None:
    """One watermark had moved when the request came; the other moves while the request waits."""
    leader.append(0, b"a")
    leader.send()
    first = leader.send(one(0, 1))
    leader.append(0, b"b")
    leader.run()
    assert answered(first)[0].high_watermark == 1 and answered(first)[0].records
    leader.append(1, b"c")
    leader.send()
    second = leader.send(one(1, 1))
    leader.run(1)
    leader.append(1, b"d")
    leader.run()
    assert list(answered(second)) == [1]
    leader.run(10 * WATERMARK_MS)
    assert not leader.world.waiters.deadlines.waits(), "the pause of an answered request is over"


def test_a_follower_behind_the_end_has_not_caught_up_because_its_fetch_moves_the_watermark(leader: Leader) -> None:
    opened_ms = leader.progress().last_caught_up_ms
    for value in (b"a", b"b"):
        leader.append(0, value)
    leader.run(1000)
    answered(leader.send(max_bytes=1))
    leader.run(1000)
    answered(leader.send(one(0, 1), max_bytes=1))
    assert leader.world.partitions[0].high_watermark == 1
    assert leader.progress().last_caught_up_ms == opened_ms


def test_kip_1166_a_follower_that_knows_the_watermark_waits(leader: Leader) -> None:
    leader.append(0, b"a")
    leader.send()
    leader.send(one(0, 1))
    leader.connection = leader.connect()
    leader.session_id = leader.epoch = 0
    assert isinstance(leader.send(one(0, 1, high_watermark=1)), Pending)
    leader.connection = leader.connect()
    leader.session_id = leader.epoch = 0
    assert answered(leader.send(one(0, 1, high_watermark=0)))[0].high_watermark == 1


def test_what_has_no_room_in_an_answer_comes_in_the_next(leader: Leader) -> None:
    leader.append(0, b"a" * 700_000)
    leader.append(1, b"b" * 700_000)
    first = answered(leader.send(max_bytes=1 << 20))
    assert list(first) == [0]
    assert list(answered(leader.send(one(0, 1), max_bytes=1 << 20))) == [1, 0], "of the other its watermark"


def test_a_wait_for_more_bytes_goes_on(leader: Leader) -> None:
    pending = leader.send(min_bytes=1000)
    leader.append(0, b"a")
    leader.run()
    assert isinstance(pending, Pending) and not pending.is_done
    leader.append(0, b"b" * 1000)
    leader.run()
    assert len(answered(pending)[0].records) > 1000


def test_the_end_of_the_time_is_an_empty_answer(leader: Leader) -> None:
    pending = leader.send()
    leader.run(500)
    assert answered(pending) == {}


def test_each_partition_has_its_error_and_is_left_alone_until_it_is_named_again(leader: Leader) -> None:
    found = answered(leader.send(one(0, 9), one(1, 0, epoch=5), one(2, 0)))
    codes = {index: result.error_code for index, result in found.items()}
    assert codes == {0: ErrorCode.OFFSET_OUT_OF_RANGE, 1: ErrorCode.UNKNOWN_LEADER_EPOCH, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    leader.append(0, b"a")
    assert isinstance(leader.send(), Pending)
    assert answered(leader.send(one(0, 0)))[0].records


def test_a_diverging_log_is_no_progress(leader: Leader) -> None:
    leader.append(0, b"a", b"b")
    found = answered(leader.send(one(0, 2, last=0)))[0]
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or found.diverging_epoch.epoch >= 0
    assert leader.progress().log_end_offset == 0


def test_a_lost_leadership_ends_a_wait_with_its_error(leader: Leader) -> None:
    pending = leader.send()
    leader.world.partitions[0].become_follower(leader_id=1, leader_epoch=2, partition_epoch=2, replicas=[0, 1], isr=[0, 1])
    leader.run()
    assert answered(pending)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_forgotten_partition_is_watched_no_more(leader: Leader) -> None:
    pending = leader.send(forget=(0,))
    leader.append(0, b"a")
    leader.run()
    assert isinstance(pending, Pending) and not pending.is_done
    assert not leader.world.partitions[0].notifier.watchers and leader.world.partitions[1].notifier.watchers


def test_a_session_ends_with_its_connection_and_leaves_nothing(leader: Leader) -> None:
    pending = leader.send()
    assert isinstance(pending, Pending) and pending.abandon is not None
    pending.abandon()
    leader.connection.connection.closed()
    assert len(leader.world.broker.follower_sessions) == 0
    assert not any(partition.notifier.watchers for partition in leader.world.partitions)
    assert not leader.world.waiters.deadlines.waits()
    leader.connection = leader.connect()
    assert refusal(leader.send()) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_out_of_turn_or_of_another_life_is_refused(leader: Leader) -> None:
    leader.epoch += 1
    assert refusal(leader.send()) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    leader.epoch -= 2
    leader.broker_epoch = 8
    assert refusal(leader.send()) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_kip_903_a_broker_of_an_earlier_registration_is_refused(leader: Leader) -> None:
    leader.world.broker.metadata.brokers[1] = BrokerMetadata(broker_id=1, endpoints={}, epoch=8)
    assert refusal(leader.send(one(0, 0))) == ErrorCode.STALE_BROKER_EPOCH


def test_sessions_of_clients_evict_none_of_followers() -> None:
    leader = Leader()
    leader.open()
    for _ in range(50):
        handle(leader.world.broker, request(18), FetchRequest(max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic_id=TOPIC_ID)]))
    assert isinstance(leader.send(), Pending)


def test_a_follower_at_the_end_of_an_idle_log_is_in_sync_when_the_log_moves_at_last(leader: Leader) -> None:
    """The follower no longer names the partition in its requests, and had all records at its last request."""
    for _ in range(200):
        leader.send()
        leader.run(500)
    lag_max_ms = 30_000
    leader.append(0, b"a")
    partition = leader.world.partitions[0]
    partition.require_leading().maybe_shrink_isr(leader.world.clock.monotonic_ms(), lag_max_ms)
    assert partition.isr_state.moving == ()
    leader.run(lag_max_ms + 1_000)
    partition.require_leading().maybe_shrink_isr(leader.world.clock.monotonic_ms(), lag_max_ms)
    assert partition.isr_state.moving == (1,), "it has not fetched since"


def test_a_follower_that_could_not_join_is_proposed_at_a_later_request_that_names_nothing() -> None:
    leader = Leader(partitions=1, isr=(0,))
    known: dict[int, int] = {}
    partition = leader.world.partitions[0]
    partition.state.broker_epoch_of = known.get
    leader.open()
    leader.send()
    assert partition.isr_state.moving == (), "no controller has named this life of the broker yet"
    known[1] = leader.broker_epoch
    leader.send()
    assert partition.isr_state.moving == (1,)


def test_a_partition_that_has_not_moved_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thus the cost of a request without news does not depend on the number of partitions."""
    leader = Leader(partitions=50)
    leader.open()
    looked: list[Partition] = []
    real = Partition.read_beyond

    def read(self: Partition, *arguments: Any, **options: Any) -> PartitionRead:
        looked.append(self)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Partition, "read_beyond", read)
    leader.send()
    leader.run(500)
    assert looked == []
    leader.append(33, b"a")
    leader.send(one(7, 0))
    assert looked == [leader.world.partitions[33]]


def test_a_report_counts_and_does_not_bring_records_twice(leader: Leader) -> None:
    leader.world.partitions[0].set_flush_on_ack(True)
    leader.append(0, b"a")
    leader.world.flush()
    assert answered(leader.send())[0].records
    leader.append(0, b"b")
    reported = one(0, 1)
    reported.durable_end, reported.partition_max_bytes = 1, 0
    assert isinstance(leader.send(reported), Pending), "it has not been named since it was sent something"
    assert leader.world.partitions[0].high_watermark == 1


def test_a_new_log_start_is_an_answer_while_the_request_waits_and_when_it_arrives(leader: Leader) -> None:
    for number, name in enumerate((b"a", b"b")):
        leader.append(0, name)
        leader.send()
        leader.send(one(0, number + 1))
        leader.run(10 * WATERMARK_MS)
    partition = leader.world.partitions[0]
    waiting = leader.send()
    assert partition.leader is not None and partition.leader.delete_records(1) == 1
    leader.run()
    assert answered(waiting)[0].log_start_offset == 1
    partition.leader.delete_records(2)
    assert answered(leader.send(one(0, 2)))[0].log_start_offset == 2
