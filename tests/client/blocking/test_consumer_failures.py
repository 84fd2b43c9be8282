"""A consumer loses no record and reads none twice, whatever fails between the arrival of records and the call that returns them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.core.fetching import Fetched
from ottla.client.errors import AuthorizationError, ClientError, ConnectError, KafkaError, OffsetOutOfRangeError, TransportError, UsageError
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.client.fake_group import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    GroupBroker,
    committed,
    hang_up,
)

A, B, C = (TopicPartition("t", number) for number in range(3))


def _values(found: Iterable[Fetched]) -> list[bytes]:
    return [bytes(record.value or b"") for fetched in found for record in fetched.records()]


def _read(consumer: Consumer, count: int, errors: list[ClientError] | None = None) -> list[bytes]:
    """Polls until so many records have come; errors are noted, or raised."""
    found: list[bytes] = []
    end = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end:
        try:
            found += _values(consumer.poll(0.05))
        except (KafkaError, TransportError) as error:
            if errors is None:
                raise
            errors.append(error)
    return found


def _until(condition: Callable[[], bool], consumer: Consumer) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        consumer.poll(0.02)


def test_records_that_arrived_beside_an_error_are_returned_before_it_is_raised() -> None:
    with GroupBroker(3) as broker, Cluster(broker.address) as cluster, Consumer(cluster, auto_offset_reset="none") as consumer:
        broker.values[0] = [b"%d" % number for number in range(10)]
        consumer.assign({A: 0, B: 7, C: 0})
        assert _values(consumer.poll(5)) == broker.values[0]
        assert consumer.positions == {A: 10, B: 7, C: 0}
        with pytest.raises(OffsetOutOfRangeError, match="offset 7 of t-1 does not exist"):
            consumer.poll(5)
        broker.values[2] = [b"x"]  # the others are read on, although the error comes again
        assert _read(consumer, 1, []) == [b"x"]
        consumer.seek(B, 0)
        broker.values[1] = [b"y"]
        assert _read(consumer, 1, []) == [b"y"]


def test_an_automatic_commit_that_fails_drops_no_record() -> None:
    with GroupBroker(2) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"%d" % number for number in range(40)]
        denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest", is_auto_commit=True) as consumer:
            consumer.subscribe(["t"])
            found = _read(consumer, 10)
            broker.instead[OFFSET_COMMIT] = [lambda _body, _version: committed(0, 1, code=denied)]
            errors: list[ClientError] = []
            while len(found) < 40:
                consumer._commit_at = 0.0
                found += _read(consumer, 1, errors)
            assert found == broker.values[0]
            while not errors:  # the commit may be under way still
                try:
                    assert consumer.poll(0.05) == []
                except KafkaError as error:
                    errors.append(error)
            assert [type(error) for error in errors] == [AuthorizationError]
            assert broker.offsets.get(0, 0) < 40  # what the last call returned is committed by the next one
        assert broker.offsets[0] == 40


def test_a_commit_except_for_several_batches_of_a_partition_keeps_the_lowest_start() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster, Consumer(cluster, group_id="g") as consumer:
        broker.values[0] = [b"%d" % number for number in range(30)]
        consumer.assign({A: 0})
        batches: list[Fetched] = []
        while len(batches) < 3:
            batches += consumer.poll(1)
        for order in (batches[1:], batches[:0:-1]):
            consumer.commit(except_for=order)
            assert broker.offsets == {0: 10}


@pytest.mark.parametrize("key", [OFFSET_FETCH, LIST_OFFSETS])
def test_a_look_up_that_fails_after_a_join_is_made_again(key: int) -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            broker.instead[key] = [hang_up] * 8
            consumer.subscribe(["t"])
            assert _read(consumer, 1, []) == [b"a"]
            assert len(broker.asked(JOIN)) == 1


def test_a_member_whose_session_expired_begins_at_the_commits_of_others() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"%d" % number for number in range(10)]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest", session_timeout_ms=60) as consumer:
            consumer.subscribe(["t"])
            assert _read(consumer, 10) == broker.values[0]
            broker.offsets[0] = 15  # by another member, which had the partition meanwhile
            broker.values[0] += [b"%d" % number for number in range(10, 20)]
            lost = int(ErrorCode.UNKNOWN_MEMBER_ID)
            broker.instead[HEARTBEAT] = [lambda _body, _version: HeartbeatResponse(error_code=lost)]
            time.sleep(0.1)  # the heartbeat is due
            assert _read(consumer, 5) == [b"%d" % number for number in range(15, 20)]
        assert [member.member_id for member in broker.asked(JOIN)] == ["", ""]


def test_a_lost_member_commits_nothing() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"%d" % number for number in range(10)]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest", session_timeout_ms=60, is_auto_commit=True) as consumer:
            consumer.subscribe(["t"])
            assert _read(consumer, 10) == broker.values[0]
            lost = int(ErrorCode.UNKNOWN_MEMBER_ID)
            broker.instead[HEARTBEAT] = [lambda _body, _version: HeartbeatResponse(error_code=lost)]
            _until(lambda: len(broker.asked(JOIN)) == 2, consumer)
        assert all(body.member_id == "m" for body in broker.asked(OFFSET_COMMIT))


def test_a_member_finds_its_group_again_after_the_death_of_the_coordinator() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address, timeout_s=5) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            broker.instead[JOIN] = [hang_up, hang_up, hang_up]
            consumer.subscribe(["t"])
            assert _read(consumer, 1) == [b"a"]
        assert len(broker.asked(FIND_COORDINATOR)) >= 3


def test_a_coordinator_that_is_not_among_the_brokers_is_asked_for_again() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"a"]
        with Consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            cluster.metadata.coordinators[0, "g"] = 77  # a broker that has died since
            consumer.subscribe(["t"])
            assert _read(consumer, 1) == [b"a"]


def test_heartbeats_without_an_answer_do_not_prolong_the_membership() -> None:
    with (
        GroupBroker(1) as broker,
        Cluster(broker.address) as cluster,
        Consumer(cluster, group_id="g", auto_offset_reset="earliest", session_timeout_ms=900) as consumer,
    ):
        consumer.subscribe(["t"])
        _until(lambda: consumer.positions == {A: 0}, consumer)
        membership = consumer.membership
        assert membership is not None
        broker.instead[HEARTBEAT] = [hang_up] * 1000
        _until(membership.may_have_expired, consumer)
        broker.instead[HEARTBEAT] = []
        _until(lambda: not membership.may_have_expired(), consumer)


def test_a_group_reads_partitions_that_were_added_later() -> None:
    with (
        GroupBroker(1) as broker,
        Cluster(broker.address) as cluster,
        Consumer(cluster, group_id="g", auto_offset_reset="earliest", metadata_age_s=0.0) as consumer,
    ):
        consumer.subscribe(["t", "later"])
        _until(lambda: consumer.positions == {A: 0}, consumer)
        joins = len(broker.asked(JOIN))
        for _ in range(5):
            consumer.poll(0.01)
        assert len(broker.asked(JOIN)) == joins  # as long as there are no others
        broker.topics["t"] = 2
        _until(lambda: consumer.positions == {A: 0, B: 0}, consumer)
        broker.topics["later"] = 1
        _until(lambda: TopicPartition("later", 0) in consumer._order, consumer)


def test_an_exception_in_the_block_leaves_the_group_and_commits_nothing() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        broker.values[0] = [b"a"]
        with (
            pytest.raises(RuntimeError),
            Consumer(cluster, group_id="g", auto_offset_reset="earliest", is_auto_commit=True) as consumer,
        ):
            consumer.subscribe(["t"])
            assert _read(consumer, 1) == [b"a"]
            raise RuntimeError
        assert len(broker.asked(LEAVE)) == 1 and broker.offsets == {}


def test_a_partition_without_a_leader_delays_no_other() -> None:
    with GroupBroker(2) as broker, Cluster(broker.address) as cluster, Consumer(cluster) as consumer:
        usual = broker._topic

        def without_leader(name: str) -> object:
            topic = usual(name)
            topic.partitions[1].leader_id = -1
            return topic

        broker._topic = without_leader  # type: ignore[assignment, method-assign]
        broker.values[0] = [b"a"]
        consumer.assign({A: 0, B: 0})
        assert _read(consumer, 1) == [b"a"]
        broker._topic = usual  # type: ignore[method-assign]
        broker.values[1] = [b"b"]
        assert _read(consumer, 1) == [b"b"]


def test_wrong_usage_is_refused_in_one_line() -> None:
    with GroupBroker(1) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(UsageError, match="earliest, latest, none, not 'Earliest'"):
            Consumer(cluster, auto_offset_reset="Earliest")
        for assignors in (["Range"], []):
            with pytest.raises(UsageError, match="a list of range, roundrobin, cooperative-sticky"):
                Consumer(cluster, group_id="g", assignors=assignors)
        with Consumer(cluster, group_id="g") as consumer:
            for topics in ([], [""]):
                with pytest.raises(UsageError, match="names of one or more topics"):
                    consumer.subscribe(topics)
            with pytest.raises(UsageError, match="t-0 is not being read"):
                consumer.seek(A, 0)
        with Consumer(cluster) as consumer, pytest.raises(UsageError, match="needs a group"):
            consumer.subscribe(["t"])


def test_a_cluster_that_is_gone_is_an_error_of_poll() -> None:
    with GroupBroker(1) as broker:
        cluster = Cluster(broker.address, timeout_s=2)
        consumer = Consumer(cluster)
        consumer.assign({A: 0})
        consumer.poll(0.0)
    with cluster, consumer:
        end = time.monotonic() + 20
        with pytest.raises(ConnectError):
            while time.monotonic() < end:
                consumer.poll(0.1)
