"""`poll(0)` of a consumer and of a share consumer waits for no broker, whatever step of a conversation a broker is silent in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core.fetching import Fetched
from ottla.client.core.share_session import RENEW
from ottla.client.errors import TransportError
from ottla.client.security import Security
from ottla.wire.framing import write_response
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.share_fetch import ShareFetchResponse
from tests.client.blocking.waits import MOMENT_S, SECURITY, deaf_listener, longest_poll_s, silent, slow_names
from tests.client.fake_broker import FakeBroker
from tests.client.fake_group import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC,
    GroupBroker,
)
from tests.client.fake_share_group import ACKNOWLEDGE, FakeShareGroup, lends
from tests.client.fake_share_group import FETCH as SHARE_FETCH
from tests.client.fake_share_group import HEARTBEAT as SHARE_HEARTBEAT

METADATA = 3
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Reading:
    """A consumer that is polled without waiting, and the records that it has returned."""

    def __init__(self, consumer: Consumer | ShareConsumer) -> None:
        self.consumer = consumer
        self.count = 0
        self.errors: list[TransportError] = []
        """Of requests that have timed out."""

    def poll(self) -> None:
        try:
            for found in self.consumer.poll(0):
                self.count += len(list(found.records())) if isinstance(found, Fetched) else 1
        except TransportError as error:
            self.errors.append(error)

    def longest_s(self, until: Callable[[], bool]) -> float:
        return longest_poll_s(self.poll, until)

    def longest_until_s(self, count: int) -> float:
        return self.longest_s(lambda: self.count >= count)


def for_a_while(seconds: float) -> Callable[[], bool]:
    """Is true after a time in which nothing can be seen from outside: a silence."""
    began = time.monotonic()
    return lambda: time.monotonic() > began + seconds


def once_silent(broker: FakeBroker, key: int) -> Callable[[], bool]:
    """Makes the broker silent to requests of a key. Returns whether one has arrived; then the broker answers the next again."""
    usual, asked = broker.script[key], len(broker.asked(key))
    broker.script[key] = silent

    def has_been_asked() -> bool:
        if len(broker.asked(key)) == asked:
            return False
        broker.script[key] = usual
        return True

    return has_been_asked


# A consumer


def test_a_broker_that_accepts_and_is_silent_blocks_no_poll_and_no_other_partition() -> None:
    with deaf_listener() as deaf, GroupBroker(2) as broker, Cluster(broker.address, timeout_s=3.0) as cluster:
        broker.values[0] = [b"a"]
        check_that_only_partition_1_waits(broker, cluster, "127.0.0.1", deaf)


def test_a_silent_name_server_blocks_no_poll_and_no_other_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    with (
        deaf_listener() as deaf,
        slow_names(monkeypatch, partial(is_over.wait, 3)) as host,
        GroupBroker(2) as broker,
        Cluster(broker.address, timeout_s=3.0) as cluster,
    ):
        check_that_only_partition_1_waits(broker, cluster, host, deaf)
        is_over.set()


def check_that_only_partition_1_waits(broker: GroupBroker, cluster: Cluster, host: str, port: int) -> None:
    usual = broker._topic

    def led_by_two(name: str) -> Any:
        topic = usual(name)
        topic.partitions[1].leader_id = 2
        return topic

    broker._topic = led_by_two  # type: ignore[method-assign]
    broker.script[METADATA] = lambda body, version: _with_second(broker._metadata(body, version), host, port)
    broker.values[0] = [b"a"]
    with Consumer(cluster) as consumer:
        consumer.assign({A: 0, B: 0})
        reading = Reading(consumer)
        assert reading.longest_until_s(1) < MOMENT_S
        broker.values[0] += [b"b"] * 20
        assert reading.longest_until_s(21) < MOMENT_S


def _with_second(answer: Any, host: str, port: int) -> Any:
    answer.brokers.append(type(answer.brokers[0])(node_id=2, host=host, port=port))
    return answer


@pytest.mark.parametrize("properties", SECURITY)
def test_a_handshake_without_an_answer_blocks_no_poll(properties: dict[str, str]) -> None:
    with (
        deaf_listener() as deaf,
        GroupBroker(1) as broker,
        Cluster(broker.address, timeout_s=3.0) as cluster,
        Consumer(cluster) as consumer,
    ):
        cluster.refresh(["t"])
        consumer.assign({A: 0})
        cluster.security = Security(properties)
        cluster.metadata.brokers[1] = Address("127.0.0.1", deaf)
        assert Reading(consumer).longest_s(for_a_while(1.0)) < MOMENT_S


def test_a_silent_answer_to_the_question_for_a_leader_blocks_no_poll() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address, timeout_s=1.0) as cluster, Consumer(cluster) as consumer:
        broker.values[0] = [b"a"]
        consumer.assign({A: 0})
        cluster.refresh([])
        cluster.metadata.forget([A])
        reading = Reading(consumer)
        assert reading.longest_s(once_silent(broker, METADATA)) < MOMENT_S
        assert reading.longest_until_s(1) < MOMENT_S


@pytest.mark.parametrize("key", [FIND_COORDINATOR, JOIN, SYNC, OFFSET_FETCH, LIST_OFFSETS])
def test_a_silent_step_of_joining_blocks_no_poll(key: int) -> None:
    with GroupBroker(1) as broker, Cluster(broker.address, timeout_s=1.0) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            reading = Reading(consumer)
            assert reading.longest_s(once_silent(broker, key)) < MOMENT_S
            if key in (JOIN, SYNC):  # an answer may take as long as a rebalance
                assert reading.longest_s(for_a_while(0.3)) < MOMENT_S
                return
            assert reading.longest_until_s(1) < MOMENT_S


def test_a_join_that_takes_long_gives_out_no_record_and_delays_no_other_request() -> None:
    is_over = threading.Event()
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest", session_timeout_ms=60) as consumer:
            consumer.subscribe(["t"])
            reading = Reading(consumer)
            assert reading.longest_until_s(1) < MOMENT_S
            usual, joins = broker.script[JOIN], len(broker.asked(JOIN))

            def late(body: Any, version: int) -> Any:
                is_over.wait(30)
                return usual(body, version)

            broker.script[JOIN] = late
            broker.script[HEARTBEAT] = lambda _body, _version: HeartbeatResponse(error_code=27)
            assert reading.longest_s(lambda: len(broker.asked(JOIN)) > joins) < MOMENT_S
            broker.script[HEARTBEAT] = lambda _body, _version: HeartbeatResponse()
            broker.values[0] += [b"b"]
            began = time.monotonic()
            consumer.commit()
            assert time.monotonic() < began + MOMENT_S and broker.offsets == {0: 1}
            assert reading.longest_s(for_a_while(0.2)) < MOMENT_S and reading.count == 1
            is_over.set()
            assert reading.longest_until_s(2) < MOMENT_S


def test_a_consumer_that_is_closed_while_it_joins_leaves_its_group_at_once() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        with Consumer(cluster, group_id="g", session_timeout_ms=60) as consumer:
            consumer.subscribe(["t"])
            reading = Reading(consumer)
            reading.longest_s(lambda: consumer.positions != {})
            broker.script[HEARTBEAT] = lambda _body, _version: HeartbeatResponse(error_code=27)
            reading.longest_s(once_silent(broker, JOIN))
            began = time.monotonic()
        assert time.monotonic() < began + 5
        assert len(broker.asked(LEAVE)) == 1


@pytest.mark.parametrize("key", [HEARTBEAT, OFFSET_COMMIT])
def test_a_coordinator_that_becomes_silent_blocks_no_poll_and_no_record(key: int) -> None:
    with GroupBroker(1) as broker, Cluster(broker.address, timeout_s=1.0) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest", session_timeout_ms=60, is_auto_commit=True) as consumer:
            consumer.subscribe(["t"])
            reading = Reading(consumer)
            assert reading.longest_until_s(1) < MOMENT_S
            consumer._commit_at = 0.0
            assert reading.longest_s(once_silent(broker, key)) < MOMENT_S
            broker.values[0] += [b"b"] * 5
            assert reading.longest_until_s(6) < MOMENT_S
            if key == OFFSET_COMMIT:
                assert reading.longest_s(lambda: reading.errors != []) < MOMENT_S


def test_half_an_answer_blocks_no_poll() -> None:
    cuts: list[bytes] = []

    def cut(_body: Any, version: int) -> bytes:
        cuts.append(bytes(write_response(FetchResponse, version)(FetchResponse(), 1))[:10])
        return cuts[0]

    with GroupBroker(1) as broker, Cluster(broker.address, timeout_s=1.0) as cluster, Consumer(cluster) as consumer:
        broker.values[0] = [b"a"]
        consumer.assign({A: 0})
        usual, broker.script[FETCH] = broker.script[FETCH], cut
        reading = Reading(consumer)
        assert reading.longest_s(lambda: cuts != []) < MOMENT_S
        broker.script[FETCH] = usual
        assert reading.longest_until_s(1) < MOMENT_S


def test_a_call_that_waits_is_woken_by_the_end_of_a_background_call() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            assert len(list(consumer.poll(20)[0].records())) == 1


# A share consumer


@pytest.fixture
def share_broker() -> Any:
    with FakeShareGroup() as broker:
        yield broker


def share_reading(cluster: Cluster, **options: Any) -> Reading:
    consumer = ShareConsumer(cluster, "g", max_wait_ms=10, **options)
    consumer.subscribe(["t"])
    return Reading(consumer)


@pytest.mark.parametrize("key", [FIND_COORDINATOR, METADATA, SHARE_HEARTBEAT, SHARE_FETCH])
def test_a_silent_step_blocks_no_poll_of_a_share_consumer(share_broker: FakeShareGroup, key: int) -> None:
    share_broker.fetches = [lends(0, 3)]
    with Cluster(share_broker.address, timeout_s=1.0) as cluster:
        reading = share_reading(cluster)
        assert reading.longest_s(once_silent(share_broker, key)) < MOMENT_S
        assert reading.longest_until_s(3) < MOMENT_S
        reading.consumer.close()


def test_a_deaf_leader_blocks_no_poll_of_a_share_consumer(share_broker: FakeShareGroup) -> None:
    with deaf_listener() as deaf, Cluster(share_broker.address, timeout_s=1.0) as cluster:
        reading = share_reading(cluster)
        answer = share_broker.script[METADATA]

        def led_by_second(body: Any, version: int) -> Any:
            found = _with_second(answer(body, version), "127.0.0.1", deaf)
            found.topics[0].partitions[0].leader_id = 2
            return found

        share_broker.script[METADATA] = led_by_second
        assert reading.longest_s(for_a_while(1.5)) < MOMENT_S
        share_broker.script[METADATA], share_broker.fetches = answer, [lends(0, 2)]
        assert reading.longest_until_s(2) < MOMENT_S
        reading.consumer.close()


def test_a_silent_answer_to_renewals_blocks_no_poll(share_broker: FakeShareGroup) -> None:
    share_broker.fetches = [lends(0, 1), lends(1, 0)]
    reports: list[Any] = []
    with Cluster(share_broker.address, timeout_s=1.0) as cluster:
        reading = share_reading(cluster, is_explicit=True, on_acknowledged=lambda *report: reports.append(report))
        consumer = reading.consumer
        assert isinstance(consumer, ShareConsumer)
        found = []
        assert longest_poll_s(lambda: found.extend(consumer.poll(0)), lambda: found != []) < MOMENT_S
        consumer.acknowledge(found[0], RENEW)
        assert reading.longest_s(once_silent(share_broker, ACKNOWLEDGE)) < MOMENT_S
        assert reading.longest_s(lambda: reports != []) < MOMENT_S  # the request timed out
        assert reports[0][2] is not None
        consumer.close()


def test_half_an_answer_blocks_no_poll_of_a_share_consumer(share_broker: FakeShareGroup) -> None:
    usual = share_broker.script[SHARE_FETCH]
    share_broker.fetches = [lends(0, 1)]
    empty = ShareFetchResponse()
    share_broker.script[SHARE_FETCH] = lambda _body, version: bytes(write_response(ShareFetchResponse, version)(empty, 1))[:9]
    with Cluster(share_broker.address, timeout_s=1.0) as cluster:
        reading = share_reading(cluster)
        assert reading.longest_s(lambda: share_broker.asked(SHARE_FETCH) != []) < MOMENT_S
        share_broker.script[SHARE_FETCH] = usual
        assert reading.longest_until_s(1) < MOMENT_S
        reading.consumer.close()
