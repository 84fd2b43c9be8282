"""A share consumer against a broker made of a script, for what a real one does not do on demand; tests/clients has the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core.share_session import ACCEPT, RECORD_LIMIT, REJECT, RELEASE, RENEW, AcquiredRecord, Run
from ottla.client.errors import KafkaError
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch import ShareFetchResponse
from ottla.wire.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions
from tests.client.fake_broker import FakeBroker, HangUp
from tests.client.fake_share_group import ACKNOWLEDGE, FETCH, HEARTBEAT, TOPIC_ID, FakeShareGroup, acknowledged, lends

ZERO = TopicPartition("t", 0)
EMPTY = lends(0, 0)


@pytest.fixture
def broker() -> Iterator[FakeShareGroup]:
    with FakeShareGroup() as broker:
        yield broker


@pytest.fixture
def cluster(broker: FakeShareGroup) -> Iterator[Cluster]:
    with Cluster(broker.address, timeout_s=5) as cluster:
        yield cluster


class Reports:
    """The acknowledgements that were reported to a consumer."""

    def __init__(self) -> None:
        self.all: list[tuple[list[Run], ErrorCode | None]] = []

    def __call__(self, partition: TopicPartition, runs: list[Run], error: ApiError | None) -> None:
        assert partition == ZERO
        self.all.append((runs, error.code if error else None))


@pytest.fixture
def reports() -> Reports:
    return Reports()


def consumer_of(cluster: Cluster, reports: Reports, **options: Any) -> ShareConsumer:
    consumer = ShareConsumer(cluster, "g", max_wait_ms=10, on_acknowledged=reports, **options)
    consumer.subscribe(["t"])
    return consumer


def poll(consumer: ShareConsumer) -> list[AcquiredRecord]:
    """The next records."""
    while not (found := consumer.poll(0.05)):
        pass
    return found


def poll_until(consumer: ShareConsumer, is_true: Callable[[], object]) -> None:
    """Polls, without a record, until the condition holds."""
    while not is_true():
        assert consumer.poll(0.02) == []


def acknowledgements_in(request: Any) -> list[tuple[int, int, list[int]]]:
    return [
        (run.first_offset, run.last_offset, run.acknowledge_types)
        for topic in request.topics
        for part in topic.partitions
        for run in part.acknowledgement_batches
    ]


def all_said(broker: FakeShareGroup) -> list[tuple[int, int, list[int]]]:
    """The acknowledgements of all requests of the consumer, in order."""
    return [run for key, _, body in broker.requests if key in (FETCH, ACKNOWLEDGE) for run in acknowledgements_in(body)]


def test_the_next_poll_accepts_the_records_of_the_last(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 3), lends(3, 1, number=2), EMPTY]
    with consumer_of(cluster, reports) as consumer:
        assert [(found.record.offset, found.number) for found in poll(consumer)] == [(0, 1), (1, 1), (2, 1)]
        assert consumer.lock_timeout_ms == 30_000 and consumer.assignment == [ZERO]
        assert all_said(broker) == []
        assert [(found.record.offset, found.number) for found in poll(consumer)] == [(3, 2)]
        assert all_said(broker) == [(0, 2, [ACCEPT])]
        assert reports.all == [([Run(0, 2, [ACCEPT])], None)]
    # The records of the last poll were not acknowledged: closing releases them.
    assert all_said(broker) == [(0, 2, [ACCEPT])]
    assert broker.asked(ACKNOWLEDGE)[-1].share_session_epoch == -1 and broker.asked(HEARTBEAT)[-1].member_epoch == -1


def test_acknowledged_by_hand(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 4), EMPTY]
    with consumer_of(cluster, reports, is_explicit=True) as consumer:
        for delivery, kind in zip(poll(consumer), (ACCEPT, RELEASE, REJECT, ACCEPT), strict=True):
            consumer.acknowledge(delivery, kind)
        poll_until(consumer, lambda: all_said(broker))
        assert all_said(broker) == [(0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT])]
        with pytest.raises(ApiError) as late:
            consumer.acknowledge(delivery)
        assert late.value.code is ErrorCode.INVALID_RECORD_STATE


def test_commit_does_not_wait_for_a_poll(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 2), EMPTY]
    with consumer_of(cluster, reports) as consumer:
        poll(consumer)
        consumer.commit()
        assert [acknowledgements_in(request) for request in broker.asked(ACKNOWLEDGE)] == [[(0, 1, [ACCEPT])]]
        assert reports.all == [([Run(0, 1, [ACCEPT])], None)]
        consumer.commit()
        assert len(broker.asked(ACKNOWLEDGE)) == 1, "nothing was left to acknowledge"


def test_a_renewed_record_can_be_accepted_later(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 1), EMPTY]
    with consumer_of(cluster, reports, is_explicit=True) as consumer:
        (delivery,) = poll(consumer)
        consumer.acknowledge(delivery, RENEW)
        poll_until(consumer, lambda: broker.asked(ACKNOWLEDGE))
        (renewed,) = broker.asked(ACKNOWLEDGE)
        assert renewed.is_renew_ack and acknowledgements_in(renewed) == [(0, 0, [RENEW])]
        consumer.acknowledge(delivery)
        consumer.commit()
    assert all_said(broker) == [(0, 0, [RENEW]), (0, 0, [ACCEPT])]


def test_records_that_arrive_during_a_commit_are_returned_and_not_accepted(
    broker: FakeShareGroup, cluster: Cluster, reports: Reports
) -> None:
    answers = iter([lends(0, 1), lends(1, 1), EMPTY, EMPTY])
    may_answer = threading.Event()

    def fetch(body: Any, _version: int) -> Any:
        if body.share_session_epoch > 0:
            assert may_answer.wait(60)
        return next(answers)

    broker.script[FETCH] = fetch
    with consumer_of(cluster, reports, is_explicit=True) as consumer:
        (first,) = poll(consumer)
        consumer.acknowledge(first, RENEW)
        while len(broker.asked(FETCH)) < 2:
            assert consumer.poll(0) == []
        consumer.acknowledge(first)
        may_answer.set()
        consumer.commit()
        consumer.is_explicit = False
        assert [delivery.record.offset for delivery in consumer.poll(0)] == [1]
        assert all_said(broker) == [(0, 0, [RENEW]), (0, 0, [ACCEPT])]
        consumer.commit()
    assert all_said(broker)[2:] == [(1, 1, [ACCEPT])]


def test_an_acknowledgement_that_comes_too_late_is_reported(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    code = ErrorCode.INVALID_RECORD_STATE
    broker.fetches = [lends(0, 1), lends(1, 1, acknowledge_error_code=code), EMPTY]
    broker.acknowledgements = [acknowledged(code)]
    with consumer_of(cluster, reports) as consumer:
        poll(consumer)
        poll(consumer)
        consumer.commit()
    assert reports.all == [([Run(0, 0, [ACCEPT])], code), ([Run(1, 1, [ACCEPT])], code)]


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_a_session_that_is_lost_begins_anew(broker: FakeShareGroup, cluster: Cluster, reports: Reports, code: ErrorCode) -> None:
    broker.fetches = [lends(0, 1), ShareFetchResponse(error_code=code), lends(0, 1, number=2), EMPTY]
    with consumer_of(cluster, reports) as consumer:
        poll(consumer)
        assert [delivery.number for delivery in poll(consumer)] == [2]
    assert [request.share_session_epoch for request in broker.asked(FETCH)][:3] == [0, 1, 0]
    assert reports.all[0] == ([Run(0, 0, [ACCEPT])], code)


def test_a_lost_connection_loses_the_acquired_records(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 2), HangUp(), lends(0, 2, number=2), EMPTY]
    with consumer_of(cluster, reports, is_explicit=True) as consumer:
        first, second = poll(consumer)
        consumer.acknowledge(first)
        assert [delivery.number for delivery in poll(consumer)] == [2, 2]
    assert reports.all == [([Run(0, 0, [ACCEPT])], ErrorCode.NETWORK_EXCEPTION)]
    assert second.record.offset == 1


def test_a_partition_without_a_leader_is_tried_again(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), lends(0, 1), EMPTY]
    with consumer_of(cluster, reports) as consumer:
        assert len(poll(consumer)) == 1
    epochs = [request.share_session_epoch for request in broker.asked(FETCH)]
    assert epochs == sorted(epochs), "the session goes on"


def test_a_refusal_for_good_is_raised(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="not you")]
    with pytest.raises(ApiError, match="not you"), consumer_of(cluster, reports) as consumer:
        consumer.poll(30)
    broker.fetches = [lends(0, 0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(ApiError) as refused, consumer_of(cluster, reports) as consumer:
        consumer.poll(30)
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_session_that_ended_meanwhile_is_reported_at_close(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 1), EMPTY]
    broker.acknowledgements = [ShareAcknowledgeResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)]
    with consumer_of(cluster, reports, is_explicit=True) as consumer:
        consumer.acknowledge(poll(consumer)[0])
    assert reports.all == [([Run(0, 0, [ACCEPT])], ErrorCode.SHARE_SESSION_NOT_FOUND)]


def test_acknowledgements_that_close_cannot_send_are_reported(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 2), EMPTY]
    with consumer_of(cluster, reports, is_explicit=True) as consumer:
        consumer.acknowledge(poll(consumer)[0])
        broker.hang_up()
    assert reports.all == [([Run(0, 0, [ACCEPT])], ErrorCode.NETWORK_EXCEPTION)]
    assert broker.asked(HEARTBEAT)[-1].member_epoch == -1


def test_abandon_sends_no_acknowledgements_and_leaves(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [lends(0, 2), EMPTY]
    consumer = consumer_of(cluster, reports, is_explicit=True)
    for delivery in poll(consumer):
        consumer.acknowledge(delivery)
    consumer.abandon()
    assert all_said(broker) == [] and broker.asked(HEARTBEAT)[-1].member_epoch == -1


def test_a_removed_member_gives_its_partitions_up(broker: FakeShareGroup, cluster: Cluster, reports: Reports) -> None:
    broker.fetches = [EMPTY]
    with consumer_of(cluster, reports) as consumer:
        poll_until(consumer, lambda: consumer.assignment == [ZERO])
        answers = broker.assigns

        def forgotten(body: Any) -> Any:
            broker.beat = answers
            found = answers(body)
            found.error_code = ErrorCode.UNKNOWN_MEMBER_ID
            return found

        broker.beat = forgotten
        poll_until(consumer, lambda: [beat.member_epoch for beat in broker.asked(HEARTBEAT)].count(0) > 1)
        poll_until(consumer, lambda: consumer.assignment == [ZERO])
        assert [beat.member_epoch for beat in broker.asked(HEARTBEAT)].count(0) == 2


def test_a_commit_whose_answer_is_lost_is_reported_once() -> None:
    reports: list[tuple[TopicPartition, KafkaError | None]] = []
    with FakeShareGroup() as broker, Cluster(broker.address) as cluster:
        consumer = ShareConsumer(cluster, "g", on_acknowledged=lambda partition, _runs, error: reports.append((partition, error)))
        broker.fetches = [lends(0, 2), lends(0, 0)]
        broker.acknowledgements = [HangUp()]
        consumer.subscribe(["t"])
        while not consumer.poll(0.5):
            pass
        consumer.commit()
        assert [(str(partition), error is None) for partition, error in reports] == [("t-0", False)]
        consumer.abandon()


class Leaders:
    """Two brokers, each the leader of one partition of the topic `t`. Each lends two records for each request once `is_filled`."""

    def __init__(self, one: FakeShareGroup, two: FakeBroker) -> None:
        self.is_filled = False
        self.lent = 0
        self.asked: set[int] = set()
        brokers = [MetadataResponseBroker(node_id=number, host="127.0.0.1", port=at.port) for number, at in ((1, one), (2, two))]
        parts = [MetadataResponsePartition(partition_index=number, leader_id=number + 1) for number in range(2)]
        topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=parts)
        for number, broker in enumerate((one, two)):
            broker.script[3] = lambda _body, _version: MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])
            broker.script[FETCH] = lambda body, _version, number=number: self._fetch(body, number)
            broker.script[ACKNOWLEDGE] = lambda _body, _version: ShareAcknowledgeResponse()
        one.beat = self._beat

    def _beat(self, body: Any) -> ShareGroupHeartbeatResponse:
        found = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]) if body.member_epoch == 0 else None
        epoch = max(1, body.member_epoch)
        return ShareGroupHeartbeatResponse(member_id=body.member_id, member_epoch=epoch, heartbeat_interval_ms=50, assignment=found)

    def _fetch(self, body: Any, number: int) -> ShareFetchResponse:
        self.asked.add(number)
        assert (body.max_records, body.share_acquire_mode) == (2, RECORD_LIMIT)
        answer = lends(0, 2 if self.is_filled else 0)
        answer.responses[0].partitions[0].partition_index = number
        self.lent += 2 * self.is_filled
        return answer


def test_with_a_record_limit_one_leader_at_a_time_is_asked(reports: Reports) -> None:
    """Otherwise each leader would acquire as many records as the caller wants in all."""
    with FakeShareGroup() as one, FakeBroker({FETCH: lambda *_: None, ACKNOWLEDGE: lambda *_: None}) as two:
        leaders = Leaders(one, two)
        with Cluster(one.address, timeout_s=5) as cluster:
            consumer = consumer_of(cluster, reports, records_max=2, acquire_mode=RECORD_LIMIT)
            poll_until(consumer, lambda: leaders.asked == {0, 1})
            leaders.is_filled = True
            assert len(poll(consumer)) == 2
            consumer.close()
        assert leaders.lent == 2, "closing has waited for all answers"
