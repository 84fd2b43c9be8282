"""Each record of a producer is reported exactly once, whatever happens to it: a client against a broker that fails in every way.

The simulated client (`test_each_record_is_reported_once`) mixes bad records, records that are too large, refusals, broken connections, a
partition without a leader, an `on_delivery` that raises, all kinds of acknowledgement and all ways to end.
"""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.blocking import producer as producer_module
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Delivery, Producer
from ottla.client.core import backoff
from ottla.client.errors import ClientError, KafkaError, UsageError
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import MetadataResponseTopic
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import read_batch_header, read_records
from tests.client.fake_broker import FakeBroker, HangUp

PRODUCE, INIT_PRODUCER_ID = 0, 22


class Broker(FakeBroker):
    """A broker that judges sizes and sequence numbers as brokers do, and fails as `trouble` says for each request."""

    def __init__(self, partitions: int, *, bytes_max: int = 1 << 20, trouble: Callable[[], str] = lambda: "") -> None:
        super().__init__(
            {PRODUCE: self._produce, INIT_PRODUCER_ID: lambda _body, _version: InitProducerIdResponse(producer_id=9, producer_epoch=0)}
        )
        self.topics["t"] = partitions
        self.bytes_max = bytes_max
        self.trouble = trouble
        self.leaderless: set[int] = set()
        self.values: dict[int, list[bytes | None]] = {number: [] for number in range(partitions)}
        self._places: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(partitions)}

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = super()._topic(name)
        for partition in topic.partitions:
            if partition.partition_index in self.leaderless:
                partition.leader_id = -1
        return topic

    def _produce(self, body: Any, _version: int) -> Any:
        trouble = self.trouble()
        if trouble == "closed before":
            raise HangUp
        results = [
            PartitionProduceResponse(index=data.index, error_code=self._append(data.index, bytes(data.records), trouble), base_offset=7)
            for data in body.topic_data[0].partition_data
        ]
        if trouble == "closed after":
            raise HangUp
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=results)]) if body.acks else None

    def _append(self, partition: int, batch: bytes, trouble: str) -> int:
        header = read_batch_header(batch)
        if trouble == "refused" or partition in self.leaderless:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len(batch) > self.bytes_max:
            return int(ErrorCode.MESSAGE_TOO_LARGE)
        if header.producer_id >= 0:
            place = (header.producer_epoch, header.base_sequence, header.base_sequence + header.record_count)
            known = self._places[partition]
            if place in known[-5:]:
                return 0
            epoch, _, following = known[-1] if known else (0, 0, 0)
            if place[:2] != (epoch, following) and not (place[0] > epoch and place[1] == 0):
                return int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            known.append(place)
        self.values[partition] += [None if record.value is None else bytes(record.value) for record in read_records(batch)]
        return 0


class Reports:
    """What was reported of each value, by an `on_delivery` that may raise."""

    def __init__(self, raises: Callable[[], bool] = lambda: False) -> None:
        self.ends: list[tuple[Any, ClientError | None]] = []
        self._raises = raises

    def __call__(self, delivery: Delivery) -> None:
        self.ends += [(record.value, delivery.error) for record in delivery.records]
        if self._raises():
            raise RuntimeError("the program's own")

    def counts(self) -> Counter[Any]:
        return Counter(value for value, _ in self.ends)

    def good(self) -> list[Any]:
        return [value for value, error in self.ends if error is None]


def test_a_value_of_the_wrong_type_is_refused_by_its_call_and_harms_no_other() -> None:
    reports = Reports()
    with Broker(1) as broker, Cluster(broker.address) as cluster, Producer(cluster, batch_bytes=60, on_delivery=reports) as producer:
        for number in range(15):
            producer.produce("t", b"%d" % number)
            for bad in (("no bytes", None), (b"v", 7), (b"v", None, (("h", 5),)), (b"v", None, ((b"h", b"v"),))):
                with pytest.raises(UsageError):
                    producer.produce("t", bad[0], bad[1], headers=bad[2] if len(bad) > 2 else ())  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="timestamp"):
                producer.produce("t", b"v", timestamp=1 << 64)
        producer.flush()
        assert broker.values[0] == [b"%d" % number for number in range(15)] == reports.good()
        producer.produce("t", bytearray(b"copied"))
    assert broker.values[0][-1] == b"copied"


def test_records_that_cannot_be_encoded_are_reported_and_leave_no_gap() -> None:
    reports = Reports()
    values: list[Any] = [b"a", "text", b"b", ["a list"], b"c"]
    with Broker(1) as broker, Cluster(broker.address) as cluster, Producer(cluster, on_delivery=reports) as producer:
        producer.produce_values("t", values)
        producer.flush()
        producer.produce_values("t", ["alone"])  # type: ignore[list-item]
        producer.flush()
        producer.produce_values("t", [b"d"])
        producer.flush()
        assert broker.values[0] == [b"a", b"b", b"c", b"d"]
    assert sorted(map(str, reports.good())) == sorted(map(str, [b"a", b"b", b"c", b"d"]))
    refused = [(value, error.code) for value, error in reports.ends if isinstance(error, KafkaError)]
    assert refused == [("text", ErrorCode.INVALID_RECORD), (["a list"], ErrorCode.INVALID_RECORD), ("alone", ErrorCode.INVALID_RECORD)]


def test_a_large_record_goes_into_a_batch_of_its_own() -> None:
    with Broker(1, bytes_max=1_048_588) as broker, Cluster(broker.address) as cluster, Producer(cluster, linger_s=60) as producer:
        producer.produce("t", bytes(100_000))
        producer.produce("t", bytes(1_000_000))
        producer.flush()
        assert [len(value or b"") for value in broker.values[0]] == [100_000, 1_000_000]


def test_a_large_value_goes_into_a_batch_of_its_own_without_acknowledgements() -> None:
    values = [bytes(100_000), bytes(1_000_000), b"last"]
    with Broker(1, bytes_max=1_048_588) as broker, Cluster(broker.address) as cluster:
        with Producer(cluster, acks=0, linger_s=60) as producer:
            producer.produce_values("t", values)
        _until(lambda: len(broker.values[0]) == len(values))
        assert broker.values[0] == values


def test_a_record_that_is_too_large_takes_none_of_its_batch_with_it() -> None:
    reports = Reports()
    large = bytes(3000)
    with Broker(1, bytes_max=1000) as broker, Cluster(broker.address) as cluster, Producer(cluster, on_delivery=reports) as producer:
        for value in (b"a", b"b", large, b"c", b"d"):
            producer.produce("t", value)
        producer.flush()
        producer.produce("t", b"e")
        producer.flush()
        assert broker.values[0] == [b"a", b"b", b"c", b"d", b"e"]
    assert [len(value) for value, error in reports.ends if error is not None] == [3000]
    assert reports.counts() == Counter([b"a", b"b", large, b"c", b"d", b"e"])


def test_a_function_that_raises_delays_no_other_report_and_its_error_is_raised() -> None:
    reports = Reports(raises=lambda: True)
    with Broker(8) as broker, Cluster(broker.address) as cluster:
        producer = Producer(cluster, batch_bytes=1000, on_delivery=reports)
        for number in range(80):
            producer.produce("t", b"%d" % number, partition=number % 8)
        with pytest.raises(RuntimeError, match="the program's own"):
            producer.flush()
        assert len(reports.ends) == 80
        producer.close()
    assert reports.counts() == Counter(value for values in broker.values.values() for value in values)


def test_records_that_never_left_over_a_broken_connection_are_reported_without_acknowledgements_too() -> None:
    requests = iter(range(1_000_000))
    reports = Reports()
    with (
        Broker(1, trouble=lambda: "closed before" if next(requests) % 10 == 9 else "") as broker,
        Cluster(broker.address) as cluster,
        Producer(cluster, acks=0, batch_bytes=1, on_delivery=reports) as producer,
    ):
        values = [b"%d" % number for number in range(400)]
        for value in values:
            producer.produce("t", value)
        producer.flush()
        assert reports.counts() == Counter(values)


def test_flush_waits_for_nothing_without_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "_STEP_S", 600.0)
    with Broker(1) as broker, Cluster(broker.address) as cluster, Producer(cluster, acks=0) as producer:
        for number in range(3):
            producer.produce("t", b"%d" % number)
            assert producer.flush() == 0
        assert producer.delivered == 3


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_connection_that_was_closed_while_idle_costs_no_record(acks: int) -> None:
    """Brokers close what was idle for `connections.max.idle.ms`. With acks=0 the next record was lost without a word."""
    reports = Reports()
    values = [b"%d" % number for number in range(6)]
    with Broker(1) as broker, Cluster(broker.address) as cluster:
        producer = Producer(cluster, acks=acks, linger_s=0.0, on_delivery=reports)
        for value in values:
            producer.produce("t", value)
            producer.flush()
            _until(lambda value=value: value in broker.values[0])  # type: ignore[misc]
            connection = producer._routes.connections[1]
            while broker._sockets:
                broker._sockets.pop().shutdown(socket.SHUT_RDWR)
            _until(lambda connection=connection: not connection.is_open)  # type: ignore[misc]
        producer.close()
    assert broker.values[0] == values == reports.good()


def _until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_partition_without_a_leader_waits_alone_and_poll_does_not_block() -> None:
    reports = Reports()
    with Broker(3) as broker, Cluster(broker.address) as cluster, Producer(cluster, batch_bytes=1, on_delivery=reports) as producer:
        broker.leaderless = {1}
        longest = 0.0
        for number in range(30):
            begin = time.monotonic()
            producer.produce("t", b"%d" % number, partition=number % 3)
            producer.poll(0)
            longest = max(longest, time.monotonic() - begin)
        end = time.monotonic() + 20
        while len(reports.ends) < 20 and time.monotonic() < end:
            producer.poll(0.01)
        assert sorted(reports.good()) == sorted(b"%d" % number for number in range(30) if number % 3 != 1)
        assert longest < 1.0  # a few milliseconds on an idle machine
        broker.leaderless = set()
        producer.flush()
        assert broker.values[1] == [b"%d" % number for number in range(30) if number % 3 == 1]


def test_a_producer_learns_that_a_topic_grew() -> None:
    with Broker(8) as broker, Cluster(broker.address) as cluster:
        broker.topics["t"] = 1
        with Producer(cluster, batch_bytes=1, metadata_age_s=0.0) as producer:
            producer.produce("t", b"before", b"key")
            broker.topics["t"] = 8
            for number in range(10_000):
                producer.produce("t", b"%d" % number, b"key %d" % number)
                producer.poll(0.01)
                if sum(1 for values in broker.values.values() if values) > 4:
                    break
        assert sum(1 for values in broker.values.values() if values) > 4


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_an_exception_in_the_block_reports_what_was_not_sent(error: type[BaseException] | None) -> None:
    reports = Reports()
    with Broker(1) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(error or RuntimeError), Producer(cluster, on_delivery=reports) as producer:
            producer.produce("t", b"a")
            raise error or RuntimeError
        assert broker.values[0] == [] and [(value, str(failed)) for value, failed in reports.ends] == [
            (b"a", "the producer was closed before the record was sent")
        ]


def _trouble(chance: random.Random) -> Callable[[], str]:
    return lambda: chance.choice(("",) * 8 + ("refused", "closed before", "closed after"))


def _value(chance: random.Random, number: int) -> Any:
    kind = chance.random()
    return f"text {number}" if kind < 0.05 else b"%d %s" % (number, bytes(2000) if kind < 0.12 else b"")


def _session(broker: Broker, producer: Producer, chance: random.Random) -> list[Any]:
    """Produces, polls and flushes by chance; the values that the producer took."""
    values: list[Any] = []
    for number in range(60):
        broker.leaderless = {0} if chance.random() < 0.3 else set()
        value = _value(chance, number)
        try:
            if chance.random() < 0.5:
                producer.produce_values("t", [value])
            else:
                producer.produce("t", value, partition=chance.randrange(3))
        except (RuntimeError, UsageError):
            continue
        values.append(value)
        if chance.random() < 0.3:
            with suppress(RuntimeError):
                producer.poll(0)
    broker.leaderless = set()
    return values


@pytest.mark.parametrize("seed", range(24))
def test_each_record_is_reported_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.0)
    monkeypatch.setattr(producer_module, "_STEP_S", 0.05)
    chance = random.Random(seed)
    acks = chance.choice((-1, -1, 1, 0))
    has_raising = chance.random() < 0.5
    reports = Reports(raises=lambda: has_raising and chance.random() < 0.2)
    with Broker(3, bytes_max=1500, trouble=_trouble(random.Random(seed + 1000))) as broker, Cluster(broker.address) as cluster:
        producer = Producer(cluster, acks=acks, batch_bytes=chance.choice((1, 100, 5000)), on_delivery=reports)
        values = _session(broker, producer, chance)
        try:
            if chance.random() < 0.7:
                producer.close()
            else:
                producer.__exit__(ValueError)
        except RuntimeError:
            assert has_raising
        assert producer._queue.is_empty and producer._queue.size_bytes == 0
    counted = reports.counts()
    assert counted == Counter(values)
    appended = Counter(value for some in broker.values.values() for value in some)
    if acks == -1:
        assert all(count == 1 for count in appended.values())
        assert all(value in appended for value in reports.good())
