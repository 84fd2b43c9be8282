"""A transactional producer against a scripted coordinator: nothing is written outside of a transaction, and every end has a way on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.errors import KafkaError, OutcomeUnknownError
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import Record, encode_batch, read_batch_header
from tests.client.fake_broker import FakeBroker, HangUp

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 22, 24, 26
A = TopicPartition("t", 0)


class Coordinating(FakeBroker):
    """One transactional id of the first protocol; batches are judged by their sequence numbers. `loses_ends`: answers to ends are lost."""

    def __init__(self) -> None:
        super().__init__(
            {
                PRODUCE: self._produce,
                10: self.coordinator,
                INIT_PRODUCER_ID: self._initialize,
                ADD_PARTITIONS: lambda _body, _version: AddPartitionsToTxnResponse(),
                END_TXN: self._end,
            }
        )
        self.topics["t"] = 1
        self.epoch = -1
        self.loses_ends = self.refuses_batches = False
        self.ends: list[bool] = []
        self.appended: list[tuple[int, int]] = []

    def _initialize(self, _body: Any, _version: int) -> InitProducerIdResponse:
        self.epoch += 1
        return InitProducerIdResponse(producer_id=9, producer_epoch=self.epoch)

    def _end(self, body: Any, _version: int) -> EndTxnResponse:
        self.ends.append(body.committed)
        if self.loses_ends:
            raise HangUp
        return EndTxnResponse(producer_id=-1, producer_epoch=-1)

    def _produce(self, body: Any, _version: int) -> ProduceResponse:
        header = read_batch_header(bytes(body.topic_data[0].partition_data[0].records))
        following = sum(count for epoch, count in self.appended if epoch == header.producer_epoch)
        code = 0
        if self.refuses_batches:
            code = int(ErrorCode.INVALID_REQUIRED_ACKS)
        elif header.base_sequence != following:
            code = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        else:
            self.appended.append((header.producer_epoch, header.record_count))
        result = PartitionProduceResponse(index=0, error_code=code, base_offset=7)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[result])])


@pytest.fixture
def broker() -> Iterator[Coordinating]:
    with Coordinating() as broker:
        yield broker


def test_a_record_without_a_transaction_is_refused(broker: Coordinating) -> None:
    with Cluster(broker.address) as cluster, Producer(cluster, transactional_id="x") as producer:
        for write in (
            lambda: producer.produce("t", b"v"),
            lambda: producer.produce_values("t", [b"v"]),
            lambda: producer.send_offsets("g", {A: 1}),
        ):
            with pytest.raises(KafkaError, match="call begin"):
                write()
        producer.begin()
        producer.produce("t", b"v")
        producer.commit()
        with pytest.raises(KafkaError, match="call begin"):
            producer.produce("t", b"v")
        with pytest.raises(KafkaError, match="call begin"):
            producer.send_offsets("g", {A: 1})
    assert len(broker.appended) == 1 and broker.ends == [True]


def test_a_step_without_a_transaction_is_refused(broker: Coordinating) -> None:
    with Client(Cluster(broker.address)) as client:
        transaction = client.transaction("x", may_use_v2=False)
        transaction.initialize()
        batch = encode_batch([Record(0, 0, None, b"v", ())])
        for step in (
            lambda: transaction.add_partitions([A]),
            lambda: transaction.produce({A: [batch]}),
            lambda: transaction.commit_offsets("g", {A: 1}),
        ):
            with pytest.raises(KafkaError, match="call begin"):
                step()
    assert broker.appended == [] and not broker.asked(ADD_PARTITIONS)


@pytest.mark.parametrize("way_on", ["begin", "abort"])
def test_a_commit_without_any_answer_has_an_unknown_outcome_and_a_way_on(broker: Coordinating, way_on: str) -> None:
    with Cluster(broker.address, timeout_s=0.5) as cluster, Producer(cluster, transactional_id="x") as producer:
        producer.begin()
        producer.produce("t", b"v")
        broker.loses_ends = True
        with pytest.raises(OutcomeUnknownError, match="no answer to the commit of 'x'"):
            producer.commit()
        broker.loses_ends = False
        if way_on == "abort":
            producer.abort()
        producer.begin()
        producer.produce("t", b"w")
        producer.commit()
    assert broker.epoch == 1 and broker.appended == [(0, 1), (1, 1)]


def test_a_refused_batch_and_an_abort_leave_later_transactions_whole(broker: Coordinating) -> None:
    with Client(Cluster(broker.address)) as client:
        transaction = client.transaction("x", may_use_v2=False)
        transaction.initialize()
        broker.refuses_batches = True
        transaction.begin()
        with pytest.raises(KafkaError, match="INVALID_REQUIRED_ACKS"):
            transaction.produce({A: [encode_batch([Record(0, 0, None, b"v", ())])]})
        with pytest.raises(KafkaError, match="abort it"):
            transaction.commit()
        transaction.abort()
        broker.refuses_batches = False
        for _ in range(3):
            with transaction:
                transaction.produce({A: [encode_batch([Record(0, 0, None, b"v", ())])]})
    assert broker.appended == [(1, 1)] * 3 and broker.ends == [False, True, True, True]


def test_an_exception_in_the_block_ends_the_open_transaction(broker: Coordinating) -> None:
    with Cluster(broker.address) as cluster:
        with pytest.raises(RuntimeError), Producer(cluster, transactional_id="x") as producer:
            producer.begin()
            producer.produce("t", b"v")
            raise RuntimeError
        assert broker.epoch == 1 and broker.appended == []
