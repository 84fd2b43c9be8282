"""Checks what ends a producer's transaction: a successor and the transaction timeout do, a late EndTxn does not."""

from __future__ import annotations

import time
from typing import Any

from ottla.base.errors import ApiError, ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.cli.check.eos.verdict import Broken, NotSupported
from ottla.cli.check.eos.world import WAIT_SECONDS, World, shown
from ottla.client.blocking.cluster import TRANSACTION
from ottla.client.errors import RETRIABLE
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

PRODUCE_WITHOUT_ADD = 12  # the first version of Produce that adds a partition to a transaction by itself (KIP-890)
END_WITH_NEW_EPOCH = 5  # the first version of EndTxn whose answer has the epoch of the next transaction


def zombie_is_fenced(world: World) -> str:
    """A second producer with the same transactional id aborts the first one's transaction and fences the first."""
    topic = world.topic("zombie")
    zombie = world.transactional("zombie")
    zombie.begin_transaction()
    world.write(zombie, topic, "open-when-replaced")
    successor = world.transactional("zombie")
    successor.begin_transaction()
    world.write(successor, topic, "successor")
    taken: list[str] = []
    zombie.produce(topic, "zombie", partition=0, on_delivery=lambda error, _: taken.append("zombie") if error is None else None)
    try:
        zombie.flush(WAIT_SECONDS)
        zombie.commit_transaction(WAIT_SECONDS)
    except world.kafka.KafkaException as error:
        refusal = error.args[0]
    else:
        raise Broken("the replaced producer could commit")
    if taken:
        raise Broken("a record of the replaced producer was taken")
    successor.commit_transaction(WAIT_SECONDS)
    world.write(world.producer(), topic, "end")
    world.expect(topic, ["successor", "end"])
    return f"its commit was refused: {refusal.name().lstrip('_')}"


# A delayed EndTxn


class _Producer:
    """A transactional producer whose requests are sent one by one, which no stock client allows."""

    def __init__(self, world: World, suffix: str) -> None:
        self.world = world
        self.cluster = world.cluster
        self.name = f"{world.name}-{suffix}"
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = self.cluster.retrying(lambda: self._errors_of(self._request(request)))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def _request(self, request: Any, version: int | None = None) -> Any:
        return self.cluster.connection(self.cluster.coordinator(TRANSACTION, self.name)).request(request, version=version)

    @staticmethod
    def _errors_of(answer: Any) -> Any:
        if answer.error_code:
            raise ApiError(error_code(answer.error_code))
        return answer

    def write(self, topic: str, value: str) -> None:
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [Record(0, now_ms, None, value.encode())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=[data])

        def attempt() -> None:
            connection = self.cluster.connection(self.cluster.leader(TopicPartition(topic, 0)))
            answer = connection.request(request, version=PRODUCE_WITHOUT_ADD)
            code = error_code(answer.responses[0].partition_responses[0].error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code)

        self.cluster.retrying(attempt)
        self.sequence += 1

    def end_request(self, *, is_commit: bool) -> EndTxnRequest:
        ids = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return EndTxnRequest(transactional_id=self.name, committed=is_commit, **ids)

    def send(self, request: EndTxnRequest) -> EndTxnResponse:
        def attempt() -> EndTxnResponse:
            answer: EndTxnResponse = self._request(request, END_WITH_NEW_EPOCH)
            if error_code(answer.error_code) in RETRIABLE:
                raise ApiError(error_code(answer.error_code))
            return answer

        return self.cluster.retrying(attempt)

    def abort(self) -> None:
        answer = self._errors_of(self.send(self.end_request(is_commit=False)))
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0


def late_end_touches_nothing(world: World) -> str:
    """An EndTxn(commit) for a first, aborted transaction arrives late. It must not end the producer's second transaction (KIP-890)."""
    connection = world.cluster.any_connection()
    if not connection.offers(EndTxnRequest.API_KEY, END_WITH_NEW_EPOCH) or not _has_second_version(connection):
        raise NotSupported("no transaction.version 2: an EndTxn that comes late ends the producer's next transaction (KIP-890)")
    topic = world.topic("late")
    producer = _Producer(world, "late")
    producer.write(topic, "first")
    late = producer.end_request(is_commit=True)
    producer.abort()
    producer.write(topic, "second")
    answer = producer.send(late)
    seen = world.read(topic)
    if seen:
        raise Broken(f"it ended the next transaction: read_committed readers got {shown(seen)}")
    if not answer.error_code:
        raise Broken("a commit of an aborted transaction was answered with success")
    producer.abort()
    world.write(world.producer(), topic, "end")
    world.expect(topic, ["end"])
    return f"it was refused: {error_code(answer.error_code).name}"


def _has_second_version(connection: Any) -> bool:
    return any(one.name == "transaction.version" and one.max_version_level >= 2 for one in connection.api_versions.finalized_features)


TIMEOUT_MS = 1_000
LOOK_SECONDS = 10  # how often Apache Kafka looks for timed-out transactions by default
PATIENCE_SECONDS = 8


def time_out_is_enforced(world: World) -> str:
    """The transaction is aborted soon after its time-out, readers continue, and its producer cannot commit."""
    topic = world.topic("timeout")
    producer = world.transactional("timeout", timeout_ms=TIMEOUT_MS)
    producer.begin_transaction()
    world.write(producer, topic, "forgotten")
    world.write(world.producer(), topic, "behind")
    start = time.monotonic()
    world.expect(topic, ["behind"], TIMEOUT_MS / 1000 + LOOK_SECONDS + PATIENCE_SECONDS)
    seconds = time.monotonic() - start
    try:
        producer.commit_transaction(WAIT_SECONDS)
    except world.kafka.KafkaException as error:
        refusal = error.args[0]
    else:
        raise Broken("the producer could commit what had timed out")
    return f"aborted {seconds:.0f} s after a time-out of {TIMEOUT_MS / 1000:g} s; the commit was refused: {refusal.name().lstrip('_')}"
