"""Batches reach the leader in order and once, whatever the broker answers."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Delivery, Producer
from ottla.client.core import backoff
from ottla.client.errors import ClientError, UsageError
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import read_batch_header, read_records
from tests.client.fake_broker import FakeBroker, HangUp

PRODUCE, INIT_PRODUCER_ID = 0, 22


class Log:
    """What the broker has taken, and which error it gives to which request."""

    def __init__(self, errors: dict[int, Callable[[], int]] | None = None) -> None:
        self.errors = errors or {}
        self.batches: list[bytes] = []
        self.sequences: list[tuple[int, int]] = []
        self.requests = 0

    def __call__(self, body: Any, _version: int) -> ProduceResponse:
        self.requests += 1
        error = self.errors.get(self.requests, lambda: 0)()
        topics = []
        for topic in body.topic_data:
            partitions = []
            for data in topic.partition_data:
                batch = bytes(data.records)
                header = read_batch_header(batch)
                if not error and (data.index, header.base_sequence) not in self.sequences:
                    self.sequences.append((data.index, header.base_sequence))
                    self.batches.append(batch)
                partitions.append(PartitionProduceResponse(index=data.index, error_code=error, base_offset=7))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in read_records(batch)]


def _broker(log: Log, partitions: int = 1) -> FakeBroker:
    broker = FakeBroker({PRODUCE: log, INIT_PRODUCER_ID: lambda _body, _version: InitProducerIdResponse(producer_id=9, producer_epoch=0)})
    broker.topics["t"] = partitions
    return broker


def _code(code: ErrorCode) -> Callable[[], int]:
    return lambda: int(code)


def test_a_partition_that_the_topic_does_not_have_is_refused_at_once() -> None:
    log = Log()
    with _broker(log, 2) as broker, Cluster(broker.address) as cluster, Producer(cluster, is_idempotent=False) as producer:
        producer.produce("t", b"there", partition=1)
        with pytest.raises(ApiError, match="has 2 partitions, so no partition 2"):
            producer.produce("t", b"not there", partition=2)
        broker.topics["t"] = 3
        producer.produce("t", b"grown", partition=2)
    assert sorted(log.values(), key=str) == [b"grown", b"there"]


def _hang_up() -> int:
    raise HangUp


def test_a_dropped_producer_is_freed_without_the_garbage_collector() -> None:
    """It was in a cycle, so the garbage collector could find its sockets before it, unclosed."""
    with Cluster("127.0.0.1:1") as cluster:
        producer = Producer(cluster)
        found = weakref.ref(producer)
        del producer
        assert found() is None


def test_records_arrive_in_order_with_running_sequences() -> None:
    log = Log()
    with _broker(log) as broker, Cluster(broker.address) as cluster:
        with Producer(cluster, batch_bytes=60) as producer:
            for number in range(20):
                producer.produce("t", b"value %02d" % number, b"k")
        assert producer.delivered == 20
    assert log.values() == [b"value %02d" % number for number in range(20)]
    headers = [read_batch_header(batch) for batch in log.batches]
    assert len(headers) > 3
    starts = [header.base_sequence for header in headers]
    assert starts == [sum(header.record_count for header in headers[:number]) for number in range(len(headers))]
    assert {header.producer_id for header in headers} == {9}


@pytest.mark.parametrize("trouble", [_code(ErrorCode.NOT_LEADER_OR_FOLLOWER), _code(ErrorCode.NOT_ENOUGH_REPLICAS), _hang_up])
def test_failed_batches_are_sent_again_in_order_and_appended_once(trouble: Callable[[], int]) -> None:
    log = Log({2: trouble})
    with _broker(log) as broker, Cluster(broker.address) as cluster:
        with Producer(cluster, batch_bytes=40, in_flight_max=1) as producer:
            for number in range(6):
                producer.produce("t", b"value %02d" % number)
                producer.flush()
        assert producer.delivered == 6
    assert log.values() == [b"value %02d" % number for number in range(6)]


def test_a_duplicate_is_a_success() -> None:
    log = Log({1: _code(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)})
    with _broker(log) as broker, Cluster(broker.address) as cluster, Producer(cluster) as producer:
        producer.produce("t", b"x")
        producer.flush()
        assert producer.delivered == 1


def test_a_final_refusal_is_raised_by_its_name() -> None:
    log = Log({1: _code(ErrorCode.MESSAGE_TOO_LARGE)})
    with _broker(log) as broker, Cluster(broker.address) as cluster, Producer(cluster) as producer:
        producer.produce("t", b"x")
        with pytest.raises(ApiError) as caught:
            producer.flush()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_without_sequences_a_lost_connection_is_not_tried_twice() -> None:
    log = Log({1: _hang_up})
    with _broker(log) as broker, Cluster(broker.address) as cluster, Producer(cluster, is_idempotent=False) as producer:
        producer.produce("t", b"x")
        with pytest.raises(ClientError):
            producer.flush()
        assert log.requests == 1


def test_deliveries_are_reported() -> None:
    reported: list[Delivery] = []
    with _broker(Log()) as broker, Cluster(broker.address) as cluster:
        with Producer(cluster, on_delivery=reported.append) as producer:
            producer.produce("t", b"x", headers=(("h", None),))
        assert [(found.base_offset, found.error, [record.headers for record in found.records]) for found in reported] == [
            (7, None, [(("h", None),)])
        ]


@pytest.mark.parametrize("headers", [5, ("h",), (("h", 5),), ((5, b"h"),)])
def test_headers_of_wrong_types_are_refused(headers: Any) -> None:
    with _broker(Log()) as broker, Cluster(broker.address) as cluster:
        producer = Producer(cluster)
        with producer, pytest.raises(UsageError, match="header"):
            producer.produce("t", b"x", headers=headers)


@pytest.mark.parametrize("wrong", [{"acks": "all"}, {"acks": 2}, {"codec": "zip"}])
def test_options_that_do_not_exist_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"not {next(iter(wrong.values()))!r}"):
        Producer(Cluster("localhost"), **wrong)


def test_plain_values_fill_batch_after_batch() -> None:
    log = Log()
    with _broker(log, partitions=3) as broker, Cluster(broker.address) as cluster:
        with Producer(cluster, batch_bytes=1000) as producer:
            producer.produce_values("t", [b"%05d" % number for number in range(500)])
        assert producer.delivered == 500
    values = log.values()
    assert sorted(value or b"" for value in values) == [b"%05d" % number for number in range(500)]


def test_without_acks_no_answer_is_awaited() -> None:
    with _broker(Log()) as broker, Cluster(broker.address) as cluster, Producer(cluster, acks=0) as producer:
        producer.produce("t", b"x")
        producer.flush()
        assert producer.delivered == 1


class NumberedLog(Log):
    """A broker that refuses values of this length, and then, as brokers do, every sequence number that is not the next."""

    def __init__(self, refused: bytes = b"too large") -> None:
        super().__init__()
        self.refused = refused
        self.next: dict[int, tuple[int, int]] = {}

    def __call__(self, body: Any, version: int) -> ProduceResponse:
        [data] = body.topic_data[0].partition_data
        header = read_batch_header(bytes(data.records))
        epoch, sequence = self.next.get(data.index, (0, 0))
        is_next = (header.producer_epoch, header.base_sequence) in ((epoch, sequence), (epoch + 1, 0))
        code = 0
        if read_records(bytes(data.records))[0].value == self.refused:
            code = int(ErrorCode.MESSAGE_TOO_LARGE)
        elif not is_next:
            code = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        else:
            self.next[data.index] = header.producer_epoch, header.base_sequence + header.record_count
            self.batches.append(bytes(data.records))
        result = PartitionProduceResponse(index=data.index, error_code=code, base_offset=7)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[result])])


def test_a_producer_goes_on_behind_a_batch_that_was_refused() -> None:
    log = NumberedLog()
    with _broker(log) as broker, Cluster(broker.address) as cluster, Producer(cluster) as producer:
        for value in (b"a", b"too large", b"b", b"too large", b"c"):
            producer.produce("t", value)
            try:
                producer.flush()
            except ApiError as error:
                assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert log.values() == [b"a", b"b", b"c"] and producer.delivered == 3
    headers = [read_batch_header(batch) for batch in log.batches]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, 0), (1, 0), (2, 0)]


def test_what_is_under_way_behind_a_refused_batch_is_sent_again() -> None:
    log, ends = NumberedLog(), list[tuple[bytes | None, ErrorCode | None]]()

    def report(delivery: Delivery) -> None:
        error = delivery.error
        ends.append((delivery.records[0].value, error.code if isinstance(error, ApiError) else None))

    with _broker(log) as broker, Cluster(broker.address) as cluster, Producer(cluster, batch_bytes=1, on_delivery=report) as producer:
        for value in (b"a", b"too large", b"b", b"c", b"d"):
            producer.produce("t", value)
    assert log.values() == [b"a", b"b", b"c", b"d"]
    assert sorted(ends, key=str) == [(b"a", None), (b"b", None), (b"c", None), (b"d", None), (b"too large", ErrorCode.MESSAGE_TOO_LARGE)]


class TroubledLog:
    """Two partitions of a broker that judges sequence numbers as brokers do, refuses some values for good, and fails in every way that may
    pass: it refuses, or closes the connection before or after it has appended."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.appended: dict[int, list[tuple[int, int, int, bytes | None]]] = {0: [], 1: []}  # epoch, first and next sequence, value

    def __call__(self, body: Any, _version: int) -> ProduceResponse:
        trouble = self.chance.choice(("none",) * 6 + ("refused", "closed before", "closed after"))
        if trouble == "closed before":
            raise HangUp
        results = [
            PartitionProduceResponse(index=data.index, error_code=self._append(data.index, bytes(data.records), trouble), base_offset=7)
            for data in body.topic_data[0].partition_data
        ]
        if trouble == "closed after":
            raise HangUp
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=results)])

    def _append(self, partition: int, batch: bytes, trouble: str) -> int:
        header, value = read_batch_header(batch), read_records(batch)[0].value
        place = (header.producer_epoch, header.base_sequence, header.base_sequence + header.record_count)
        if trouble == "refused":
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if value is not None and value.startswith(b"bad"):
            return int(ErrorCode.MESSAGE_TOO_LARGE)
        known = self.appended[partition]
        if place in [entry[:3] for entry in known[-5:]]:
            return 0
        last_epoch, _, following, _ = known[-1] if known else (0, 0, 0, None)
        if place[:2] != (last_epoch, following) and not (place[0] > last_epoch and place[1] == 0):
            return int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        known.append((*place, value))
        return 0


@pytest.mark.parametrize("seed", (2, 12, 30, 110, 148, 181, 199, *range(200, 205)))
def test_whatever_fails_each_record_is_appended_once_in_order_or_refused(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.0)
    log, chance, ends = TroubledLog(seed), random.Random(seed), list[tuple[bytes | None, bool]]()
    values = [(chance.randrange(2), b"%s %02d" % (chance.choice((b"good", b"good", b"good", b"bad")), number)) for number in range(40)]
    broker = FakeBroker({PRODUCE: log, INIT_PRODUCER_ID: lambda _body, _version: InitProducerIdResponse(producer_id=9, producer_epoch=0)})
    broker.topics["t"] = 2

    def report(delivery: Delivery) -> None:
        ends.append((delivery.records[0].value, delivery.error is None))

    with broker, Cluster(broker.address) as cluster, Producer(cluster, batch_bytes=1, on_delivery=report) as producer:
        for partition, value in values:
            producer.produce("t", value, partition=partition)
    assert sorted(ends, key=str) == sorted([(value, value.startswith(b"good")) for _, value in values], key=str)
    for partition in (0, 1):
        expected = [value for where, value in values if where == partition and value.startswith(b"good")]
        assert [entry[3] for entry in log.appended[partition]] == expected
