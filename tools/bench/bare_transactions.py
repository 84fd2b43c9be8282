"""Runs transactions by plain requests, to measure their cost without the pauses of a client.

librdkafka and Java's client wait between the requests of a transaction, which hides the broker's costs. Here each request is sent as soon
as the response to the one before it has arrived: Produce 12 (which adds its partition to the transaction, KIP-890), then EndTxn 5. After
CONCURRENT_TRANSACTIONS it retries immediately.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.client.addresses import Address
from ottla.client.blocking.connection import BlockingConnection
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

PRODUCE, END, INIT, FIND = 12, 5, 4, 2
TRANSACTION_KEY = 1
PASSING = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
SECONDS_MAX = 30


class BareTransactions:
    """One transactional producer on one connection to the only broker."""

    def __init__(self, address: str, topic: str, records: int) -> None:
        host, _, port = address.rpartition(":")
        self._connection = BlockingConnection(Address(host, int(port))).open()
        self._topic = topic
        self._records = [Record(0, 1_700_000_000_000, None, b"x" * 100) for _ in range(records)]
        self._id = uuid.uuid4().hex
        self._ask(FindCoordinatorRequest(key=self._id, key_type=TRANSACTION_KEY), FIND)
        first = self._ask(InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000), INIT)
        self._producer_id, self._epoch = first.producer_id, first.producer_epoch

    def run_one(self) -> None:
        """Runs one transaction, from its first request to the response to EndTxn."""
        producer_id, epoch = self._producer_id, self._epoch
        batch = encode_batch(self._records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
        produce = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=10_000, topic_data=[data])
        end = EndTxnRequest(transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True)
        self._ask(produce, PRODUCE)
        ended = self._ask(end, END)
        self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    def close(self) -> None:
        self._connection.close()

    def _ask(self, request: Any, version: int) -> Any:
        deadline = time.monotonic() + SECONDS_MAX
        while (code := _code_of(answer := self._connection.request(request, version=version))) in PASSING and time.monotonic() < deadline:
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                time.sleep(0.02)
        if code:
            raise RuntimeError(f"{type(request).__name__} was refused: {ErrorCode(code).name}")
        return answer


def _code_of(answer: Any) -> ErrorCode:
    responses = getattr(answer, "responses", None)
    return ErrorCode(responses[0].partition_responses[0].error_code if responses is not None else answer.error_code)
