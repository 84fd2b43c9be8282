"""Record batches that are put aside on the leaders of their partitions, and attached to them later in a transaction; as conversations.

An extension of Ottla's own, for many writers and one transaction: the writers stage their batches in parallel, and the owner of the
transaction attaches chosen batches by a manifest (StageRecords, AttachRecords). Staged bytes are visible to no reader, and expire when they
are not attached. Brokers offer it to connections that ask for extensions; `offers_staging` is False for all others.

Staging may be repeated, since a chunk is known by token, attempt, partition and number: after a failure that may pass, the chunks without
an answer are sent again. A partition whose broker's quota is used up is given up, the others go on. Attaching may be repeated as well: the
leader recognizes duplicates by their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.admin import timeout_ms
from ottla.client.core.backoff import Backoff
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Ask, AskAll, Conversation, Sleep
from ottla.client.errors import RETRIABLE, ClientError, KafkaError, TransportError, refused
from ottla.wire.batch_header import Buffer, iter_batches
from ottla.wire.checksum import crc32c
from ottla.wire.messages import attach_records as attaching
from ottla.wire.messages import stage_records as staging

STAGE_RECORDS, ATTACH_RECORDS = staging.StageRecordsRequest.API_KEY, attaching.AttachRecordsRequest.API_KEY
ATTACH_V2 = 1
"""The version of AttachRecords that belongs to the second transaction protocol."""

IN_FLIGHT_MAX = 5
"""StageRecords requests that leave for one leader before its first answer is awaited."""

STAGE_BYTES_MAX = 1024 * 1024
"""Chunks beyond this wait for the next request; a single larger one is sent alone."""

STAGE_BATCHES_MAX = 1000
"""The record batches that a broker takes in one chunk, and in one request."""

ATTACH_BYTES_MAX = 32 * 1024 * 1024
"""Staged bytes that one request attaches, at most, so that the broker answers well within a request's time."""

ATTACH_CHUNKS_MAX = 2000
"""The chunks of one partition that one request attaches."""


class StagedChunk(NamedTuple):
    """An entry of a manifest: the attempt that staged it, its number, its records and bytes, and the CRC-32C of the bytes."""

    attempt_id: int
    chunk: int
    records: int
    length: int
    crc: int


class Staged(NamedTuple):
    """The result of staging: the manifest of staged chunks, and the reason why the rest of a partition is not staged.

    A partition in `refused` has every chunk before its first refusal in `chunks`, and none after it.
    """

    chunks: dict[TopicPartition, list[StagedChunk]]
    refused: dict[TopicPartition, KafkaError]


def offers_staging(cluster: ClusterCore) -> Conversation[bool]:
    """Whether the cluster takes staged records: it is Ottla, and the client was connected with `with_extensions`."""
    link = yield from cluster.any_link()
    return link.offers(STAGE_RECORDS) and link.offers(ATTACH_RECORDS)


class _StagingLane:
    """The chunks of one partition on their way, and which of them are acknowledged."""

    def __init__(self, partition: TopicPartition, attempt_id: int, chunks: Mapping[int, Buffer]) -> None:
        self.partition = partition
        self.data = list(chunks.values())
        headers = [[header for _, header in iter_batches(data)] for data in self.data]
        self.batches = [len(some) for some in headers]
        self.chunks = [
            StagedChunk(attempt_id, number, sum(one.last_offset_delta + 1 for one in some), len(data), crc32c(data))
            for (number, data), some in zip(chunks.items(), headers, strict=True)
        ]
        self.waiting = list(range(len(self.chunks)))
        self.refusal: KafkaError | None = None

    def refuse(self, error: KafkaError) -> None:
        """Gives up the chunks that are not acknowledged."""
        self.refusal = error

    @property
    def is_done(self) -> bool:
        return not self.waiting or self.refusal is not None

    def staged(self) -> list[StagedChunk]:
        """The chunks before the first that is not acknowledged."""
        return self.chunks[: min(self.waiting, default=len(self.chunks))]


def stage(
    cluster: ClusterCore,
    token: bytes,
    attempt_id: int,
    chunks: Mapping[TopicPartition, Mapping[int, Buffer]],
    *,
    timeout_s: float | None = None,
) -> Conversation[Staged]:
    """Puts chunks aside on the leaders of their partitions, under a token of 16 random bytes and the number of the writer's attempt.

    A chunk is one or more encoded record batches, transactional and without a producer id, and has a number in its partition. The result
    has partitions in `refused` whose quota is used up or whose leader stages nothing. Gives up `timeout_s` after the last progress.
    `KafkaError` when a broker refuses a chunk for good.
    """
    lanes = [_StagingLane(partition, attempt_id, some) for partition, some in chunks.items()]
    limit_s = cluster.timeout_s if timeout_s is None else timeout_s
    backoff = Backoff(cluster.now() + limit_s)
    while under_way := [lane for lane in lanes if not lane.is_done]:
        before = sum(len(lane.waiting) for lane in lanes)
        failure: ClientError | None
        try:
            failure = yield from _stage_round(cluster, under_way, token, attempt_id)
        except (KafkaError, TransportError) as error:
            failure = error
        if sum(len(lane.waiting) for lane in lanes) < before:
            backoff = Backoff(cluster.now() + limit_s)
        if failure is not None:
            yield from _wait(cluster, failure, backoff, [lane.partition for lane in under_way])
    refusals = {lane.partition: lane.refusal for lane in lanes if lane.refusal is not None}
    return Staged({lane.partition: lane.staged() for lane in lanes}, refusals)


def _wait(cluster: ClusterCore, failure: ClientError, backoff: Backoff, partitions: Iterable[TopicPartition]) -> Conversation[None]:
    """Waits before the next try, which asks for the leaders again. Raises a permanent failure, and any failure after the deadline."""
    may_pass = isinstance(failure, TransportError) or (isinstance(failure, KafkaError) and failure.code in RETRIABLE)
    if not may_pass or backoff.is_exhausted(cluster.now()):
        raise failure
    cluster.metadata.forget(partitions)
    yield Sleep(backoff.next_s())


def _stage_round(
    cluster: ClusterCore, under_way: Sequence[_StagingLane], token: bytes, attempt_id: int
) -> Conversation[ClientError | None]:
    """Sends what may be under way at once, takes in all answers, and returns the first failure that is no lane's own."""
    by_partition = {lane.partition: lane for lane in under_way}
    asks: list[Ask] = []
    planned: list[list[tuple[_StagingLane, int]]] = []
    for broker_id, partitions in (yield from cluster.by_leader(by_partition)).items():
        link = yield from cluster.link(broker_id)
        lanes = [by_partition[partition] for partition in partitions]
        if not link.offers(STAGE_RECORDS):
            for lane in lanes:
                lane.refuse(refused(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {link.address} stages no records"))
            continue
        for chosen in _stage_requests(lanes):
            asks.append(Ask(link, _stage_request(chosen, token, attempt_id)))
            planned.append(chosen)
    failure: ClientError | None = None
    for chosen, answer in zip(planned, (yield AskAll(tuple(asks))), strict=True):
        failed = _settle_stage(chosen, answer)
        failure = failure or failed
    return failure


def _stage_requests(lanes: Sequence[_StagingLane]) -> Iterator[list[tuple[_StagingLane, int]]]:
    """The chunks of the next requests to one leader, at most one a partition in each."""
    left = {lane.partition: list(lane.waiting) for lane in lanes}
    for _ in range(IN_FLIGHT_MAX):
        chosen: list[tuple[_StagingLane, int]] = []
        size = batches = 0
        for lane in lanes:
            waiting = left[lane.partition]
            if not waiting:
                continue
            after, batches_after = size + len(lane.data[waiting[0]]), batches + lane.batches[waiting[0]]
            if not chosen or (after <= STAGE_BYTES_MAX and batches_after <= STAGE_BATCHES_MAX):
                size, batches = after, batches_after
                chosen.append((lane, waiting.pop(0)))
        if not chosen:
            return
        yield chosen


def _stage_request(chosen: Sequence[tuple[_StagingLane, int]], token: bytes, attempt_id: int) -> staging.StageRecordsRequest:
    topics: dict[str, list[staging.StagePartition]] = {}
    for lane, at in chosen:
        part = staging.StagePartition(index=lane.partition.partition, chunk=lane.chunks[at].chunk, records=lane.data[at])
        topics.setdefault(lane.partition.topic, []).append(part)
    return staging.StageRecordsRequest(
        batch_token=token,
        attempt_id=attempt_id,
        topics=[staging.StageTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _settle_stage(chosen: Sequence[tuple[_StagingLane, int]], answer: Any) -> ClientError | None:
    """Notes what one answer acknowledges, and lanes that have no more room; the first failure besides."""
    if isinstance(answer, ClientError):
        return answer
    codes = _codes(answer)
    failure: ClientError | None = None
    for lane, at in chosen:
        code, message = codes.get(lane.partition, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
        if not code:
            lane.waiting.remove(at)
            continue
        error = _refusal(code, message, lane.partition)
        if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            lane.refuse(error)
        else:
            failure = failure or error
    return failure


def _codes(answer: Any) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
    """Error code and message of each partition in an answer."""
    return {
        TopicPartition(topic.name, one.index): (error_code(one.error_code), one.error_message)
        for topic in answer.topics
        for one in topic.partitions
    }


def _refusal(code: ErrorCode, message: str | None, partition: TopicPartition) -> KafkaError:
    return refused(code, f"{partition}: {message}" if message else str(partition))


# Attaching


class AttachPiece(NamedTuple):
    """Chunks of one partition that one request attaches, from this sequence number on."""

    base_sequence: int
    chunks: Sequence[StagedChunk]

    @property
    def size_bytes(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


class Producing(NamedTuple):
    """The transaction that staged chunks are attached to, and the token that they were staged under.

    With the second transaction protocol (`uses_v2`) attaching adds the partition to the transaction, as producing does.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    token: bytes
    uses_v2: bool


def pieces(chunks: Iterable[StagedChunk]) -> Iterator[list[StagedChunk]]:
    """Chunks in order, cut to what one request attaches."""
    piece: list[StagedChunk] = []
    size = 0
    for chunk in chunks:
        if piece and (size + chunk.length > ATTACH_BYTES_MAX or len(piece) == ATTACH_CHUNKS_MAX):
            yield piece
            piece, size = [], 0
        piece.append(chunk)
        size += chunk.length
    if piece:
        yield piece


def attach(
    cluster: ClusterCore, producing: Producing, wanted: Mapping[TopicPartition, Sequence[AttachPiece]], *, timeout_s: float | None = None
) -> Conversation[dict[TopicPartition, int]]:
    """Appends staged chunks and returns the offset of each partition's first record, -1 where a repeated request does not show it.

    Gives up `timeout_s` after the last progress. `KafkaError` UNKNOWN_STAGE if staged bytes expired or differ from the manifest.
    """
    left = {partition: list(some) for partition, some in wanted.items() if some}
    offsets: dict[TopicPartition, int] = {}
    limit_s = cluster.timeout_s if timeout_s is None else timeout_s
    backoff = Backoff(cluster.now() + limit_s)
    while left:
        before = sum(map(len, left.values()))
        failure: ClientError | None
        try:
            failure = yield from _attach_round(cluster, producing, left, offsets)
        except (KafkaError, TransportError) as error:
            failure = error
        left = {partition: some for partition, some in left.items() if some}
        if sum(map(len, left.values())) < before:
            backoff = Backoff(cluster.now() + limit_s)
        if failure is not None:
            yield from _wait(cluster, failure, backoff, left)
    return offsets


def _attach_round(
    cluster: ClusterCore, producing: Producing, left: Mapping[TopicPartition, list[AttachPiece]], offsets: dict[TopicPartition, int]
) -> Conversation[ClientError | None]:
    """One request to each leader; takes the pieces that are appended out of `left`, and returns the first failure."""
    asks: list[Ask] = []
    for broker_id, partitions in (yield from cluster.by_leader(left)).items():
        link = yield from cluster.link(broker_id)
        if not link.offers(ATTACH_RECORDS):
            raise refused(ErrorCode.UNKNOWN_STAGE, f"the broker at {link.address} leads {partitions[0]} now and attaches no records")
        request = _attach_request(producing, left, partitions, timeout_ms(cluster))
        asks.append(Ask(link, request, ATTACH_V2 if producing.uses_v2 else 0))
    failure: ClientError | None = None
    for ask, answer in zip(asks, (yield AskAll(tuple(asks))), strict=True):
        failed = _settle_attach(ask.body, answer, left, offsets)
        failure = failure or failed
    return failure


def _settle_attach(
    asked: Any, answer: Any, left: Mapping[TopicPartition, list[AttachPiece]], offsets: dict[TopicPartition, int]
) -> ClientError | None:
    """Takes what one answer acknowledges out of `left`; the first failure, one that will not pass before others."""
    if isinstance(answer, ClientError):
        return answer
    codes = _codes(answer)
    starts = {TopicPartition(topic.name, one.index): one.base_offset for topic in answer.topics for one in topic.partitions}
    failure: KafkaError | None = None
    for topic in asked.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.index)
            code, message = codes.get(partition, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
            if not code:
                offsets.setdefault(partition, starts[partition])
                left[partition].pop(0)
            elif failure is None or failure.is_retriable:
                failure = _refusal(code, message, partition)
    return failure


def _attach_request(
    producing: Producing, left: Mapping[TopicPartition, Sequence[AttachPiece]], partitions: Iterable[TopicPartition], wait_ms: int
) -> attaching.AttachRecordsRequest:
    """The next pieces of some partitions, as many as one request may have."""
    topics: dict[str, list[attaching.AttachPartition]] = {}
    size = 0
    for partition in partitions:
        piece = left[partition][0]
        if size and size + piece.size_bytes > ATTACH_BYTES_MAX:
            break
        size += piece.size_bytes
        chunks = [attaching.StagedChunk(**chunk._asdict()) for chunk in piece.chunks]
        part = attaching.AttachPartition(index=partition.partition, base_sequence=piece.base_sequence, chunks=chunks)
        topics.setdefault(partition.topic, []).append(part)
    return attaching.AttachRecordsRequest(
        transactional_id=producing.transactional_id,
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
        acks=-1,
        timeout_ms=wait_ms,
        batch_token=producing.token,
        topics=[attaching.AttachTopic(name=topic, partitions=some) for topic, some in topics.items()],
    )
