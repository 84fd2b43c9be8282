"""A broker for tests of StageRecords and AttachRecords: real partitions, and a transaction coordinator that answers when the test says
so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.base.log_config import LogConfig
from ottla.base.types import TopicPartition
from ottla.handlers.context import Pending
from ottla.handlers.records import attach_records, stage_records
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.attach_records import (
    AttachPartition,
    AttachPartitionResult,
    AttachRecordsRequest,
    AttachRecordsResponse,
    AttachTopic,
    StagedChunk,
)
from ottla.wire.messages.stage_records import StagePartition, StageRecordsRequest, StageRecordsResponse, StageTopic
from tests.fakes.answers import answer_of
from tests.handlers.records_world import RecordsWorld, batch, request

TOKEN = b"0123456789abcdef"
PRODUCER = 7


class FakeCoordinator:
    """Admits the partitions that it is asked about, at once or when the test calls `answer`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.code = ErrorCode.NONE
        self.is_slow = False
        self._waiting: list[Callable[[], None]] = []

    def admit(self, name: str, producer_id: int, epoch: int, partitions: list[TopicPartition], is_v2: bool, done: Any) -> None:
        self.asked.append((name, producer_id, epoch, list(partitions), is_v2))
        self._waiting.append(lambda: done(dict.fromkeys(partitions, self.code)))
        if not self.is_slow:
            self.answer()

    def answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()


class StagedWorld(RecordsWorld):
    """One broker with the topic `t`. Requests and answers are encoded and decoded."""

    def __init__(self, *assignments: str, is_flush_on_ack: bool = False, config: LogConfig | None = None) -> None:
        super().__init__(is_flush_on_ack=is_flush_on_ack, config=config)
        self.coordinator = FakeCoordinator()
        broker = self.broker
        broker.config = load(assignments=assignments)[0]
        broker.transactions = self.coordinator
        broker.stages = self.stage_space(broker.config)

    def stage(self, *parts: tuple[int, int, bytes], topic: str = "t", token: bytes = TOKEN, attempt: int = 1, **who: str) -> list[str]:
        """Stages parts (partition, chunk, records) and returns their error codes."""
        partitions = [StagePartition(index=index, chunk=chunk, records=records) for index, chunk, records in parts]
        body = StageRecordsRequest(batch_token=token, attempt_id=attempt, topics=[StageTopic(name=topic, partitions=partitions)])
        read = decoder(StageRecordsRequest, 0)(memoryview(bytearray(encoder(StageRecordsRequest, 0)(body))), 0)[0]
        context = request(0)
        context.connection.principal = who.get("principal", context.connection.principal)
        answer = answer_of(stage_records.handle(self.broker, context, read))
        self.last_stage: StageRecordsResponse = decoder(StageRecordsResponse, 0)(encoder(StageRecordsResponse, 0)(answer), 0)[0]
        assert [(found.name, len(found.partitions)) for found in self.last_stage.topics] == [(topic, len(parts))]
        return [ErrorCode(result.error_code).name for result in self.last_stage.topics[0].partitions]

    def attach(
        self, *parts: tuple[int, int, list[StagedChunk]], version: int = 0, topic: str = "t", principal: str = "", **fields: Any
    ) -> Pending:
        """Sends parts (partition, base sequence, chunks) and returns the pending answer."""
        partitions = [AttachPartition(index=index, base_sequence=sequence, chunks=chunks) for index, sequence, chunks in parts]
        values = {
            "transactional_id": "tx", "producer_id": PRODUCER, "producer_epoch": 0, "acks": -1, "timeout_ms": 1000,
            "batch_token": TOKEN, **fields,
        }  # fmt: skip
        body = AttachRecordsRequest(topics=[AttachTopic(name=topic, partitions=partitions)], **values)
        read = decoder(AttachRecordsRequest, version)(encoder(AttachRecordsRequest, version)(body), 0)[0]
        context = request(version)
        context.connection.principal = principal or context.connection.principal
        answer = answer_of(attach_records.handle(self.broker, context, read))
        if isinstance(answer, Pending):
            return answer
        pending = Pending()
        pending.complete(answer)
        return pending


def results(pending: Pending) -> list[AttachPartitionResult]:
    assert pending.is_done, "there is no answer yet"
    answer: AttachRecordsResponse = decoder(AttachRecordsResponse, 0)(encoder(AttachRecordsResponse, 0)(pending.response), 0)[0]
    return answer.topics[0].partitions


def codes(pending: Pending) -> list[str]:
    return [ErrorCode(result.error_code).name for result in results(pending)]


def staged_batch(*values: bytes) -> bytes:
    return bytes(batch(*values, is_transactional=True))


def listed(number: int, records: bytes, count: int, attempt: int = 1) -> StagedChunk:
    return StagedChunk(attempt_id=attempt, chunk=number, records=count, length=len(records), crc=crc32c(records))
