"""Stages record batches on the leaders of their partitions, and attaches (appends) them later in a transaction. The functions are
conversations: generators without I/O (`conversation.py`). Staging is Ottla's extension of Kafka's protocol, for many writers and one
transaction: the writers stage their batches in parallel (StageRecords), and the owner of the transaction attaches chosen batches by a
manifest (AttachRecords). Staged bytes are not visible to readers, and expire if they are not attached. Brokers offer this only to
connections that ask for extensions (`offers_staging`).

Staging may be repeated, because token, attempt, partition and number identify a chunk: after a temporary failure the unacknowledged chunks
are sent again. If a broker's quota is exhausted, the staging of this partition ends, and other partitions continue. Attaching may be
repeated too: the leader recognizes duplicates by their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Deadline
from ottla.client.core.cluster import ClusterCore, decisive
from ottla.client.core.conversation import Ask, AskAll, Conversation
from ottla.client.core.topic_lists import each_partition, topic_list
from ottla.client.errors import ClientError, KafkaError, refused
from ottla.wire.batch_header import Buffer, iter_batches
from ottla.wire.checksum import crc32c
from ottla.wire.messages import attach_records as attaching
from ottla.wire.messages import stage_records as staging

STAGE_RECORDS, ATTACH_RECORDS = staging.StageRecordsRequest.API_KEY, attaching.AttachRecordsRequest.API_KEY
ATTACH_V2 = 1
"""The version of AttachRecords that belongs to the second transaction protocol."""

IN_FLIGHT_MAX = 5
"""Maximum number of StageRecords requests to one leader before the client waits for answers."""

STAGE_BYTES_MAX = 1024 * 1024
"""Size limit of a request's chunks, in bytes. A single larger chunk is sent alone."""

STAGE_BATCHES_MAX = 1000
"""Maximum number of record batches that a broker accepts in one chunk, and in one request."""

ATTACH_BYTES_MAX = 32 * 1024 * 1024
"""Maximum staged bytes that one request attaches, so that the broker answers before the request times out. A single larger chunk is
attached alone.
"""

ATTACH_CHUNKS_MAX = 2000
"""Maximum number of chunks of one partition that one request attaches."""


class StagedChunk(NamedTuple):
    """An entry of a manifest: the attempt that staged it, its number, its records and bytes, and the CRC-32C of the bytes."""

    attempt_id: int
    chunk: int
    records: int
    length: int
    crc: int


class Staged(NamedTuple):
    """The result of staging: the manifest of staged chunks, and the errors of partitions that are not completely staged.

    For a partition in `refused`, `chunks` has the chunks before the first unacknowledged one.
    """

    chunks: dict[TopicPartition, list[StagedChunk]]
    refused: dict[TopicPartition, KafkaError]


def offers_staging(cluster: ClusterCore) -> Conversation[bool]:
    """Whether the cluster accepts staged records: its brokers are Ottla's, and the client was connected with `with_extensions`."""
    link = yield from cluster.any_link()
    return link.offers(STAGE_RECORDS) and link.offers(ATTACH_RECORDS)


class _StagingLane:
    """The chunks of one partition, and which of them are not acknowledged yet."""

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
        """Gives up the unacknowledged chunks."""
        self.refusal = error

    @property
    def is_done(self) -> bool:
        return not self.waiting or self.refusal is not None

    def staged(self) -> list[StagedChunk]:
        """Returns the chunks before the first unacknowledged one."""
        return self.chunks[: min(self.waiting, default=len(self.chunks))]


def stage(
    cluster: ClusterCore,
    token: bytes,
    attempt_id: int,
    chunks: Mapping[TopicPartition, Mapping[int, Buffer]],
    *,
    timeout_s: float | None = None,
) -> Conversation[Staged]:
    """Stages chunks on the leaders of their partitions, under a token of 16 random bytes and the number of the writer's attempt.

    A chunk is one or more encoded record batches, transactional and without a producer id, and has a number in its partition. `refused` in
    the result has the partitions with an exhausted quota or a leader without staging. Raises `KafkaError` if a broker refuses a chunk
    permanently, and the last error if no chunk is acknowledged for `timeout_s`, with all look-ups and connections.
    """
    return _stage(cluster, token, attempt_id, chunks, cluster.deadline(timeout_s))


def _stage(
    cluster: ClusterCore, token: bytes, attempt_id: int, chunks: Mapping[TopicPartition, Mapping[int, Buffer]], deadline: Deadline
) -> Conversation[Staged]:
    lanes = [_StagingLane(partition, attempt_id, some) for partition, some in chunks.items()]
    yield from cluster.in_rounds(
        lambda: _stage_round(cluster, lanes, token, attempt_id),
        left=lambda: [lane.partition for lane in lanes if not lane.is_done],
        size=lambda: sum(len(lane.waiting) for lane in lanes),
        deadline=deadline,
    )
    refusals = {lane.partition: lane.refusal for lane in lanes if lane.refusal is not None}
    return Staged({lane.partition: lane.staged() for lane in lanes}, refusals)


def _stage_round(
    cluster: ClusterCore, lanes: Sequence[_StagingLane], token: bytes, attempt_id: int
) -> Conversation[ClientError | None]:
    """Sends the next requests to all leaders and processes their answers. Returns the decisive failure; None if there is none, or if
    partitions were only given up because of a quota.
    """
    by_partition = {lane.partition: lane for lane in lanes if not lane.is_done}
    asks: list[Ask] = []
    planned: list[list[tuple[_StagingLane, int]]] = []
    for broker_id, partitions in (yield from cluster.by_leader(by_partition)).items():
        link = yield from cluster.link(broker_id)
        led = [by_partition[partition] for partition in partitions]
        if not link.offers(STAGE_RECORDS):
            for lane in led:
                lane.refuse(refused(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {link.address} stages no records"))
            continue
        for chosen in _stage_requests(led):
            asks.append(Ask(link, _stage_request(chosen, token, attempt_id), None, cluster.timeout_s))
            planned.append(chosen)
    answers = yield AskAll(tuple(asks))
    return decisive([_settle_stage(chosen, answer) for chosen, answer in zip(planned, answers, strict=True)])


def _stage_requests(lanes: Sequence[_StagingLane]) -> Iterator[list[tuple[_StagingLane, int]]]:
    """Yields the chunks of the next requests to one leader, at most one chunk of each partition in a request."""
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
    parts = {
        lane.partition: staging.StagePartition(index=lane.partition.partition, chunk=lane.chunks[at].chunk, records=lane.data[at])
        for lane, at in chosen
    }
    return staging.StageRecordsRequest(batch_token=token, attempt_id=attempt_id, topics=topic_list(staging.StageTopic, parts))


def _settle_stage(chosen: Sequence[tuple[_StagingLane, int]], answer: Any) -> ClientError | None:
    """Notes the acknowledged chunks of one answer, and gives up partitions with an exhausted quota. Returns the decisive failure of the
    other partitions, or None.
    """
    if isinstance(answer, ClientError):
        return answer
    codes = _codes(answer)
    failures: list[ClientError] = []
    for lane, at in chosen:
        code, message = codes.get(lane.partition, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
        if not code:
            lane.waiting.remove(at)
            continue
        error = _refusal(code, message, lane.partition)
        if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            lane.refuse(error)
        else:
            failures.append(error)
    return decisive(failures)


def _codes(answer: Any) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
    return {partition: (error_code(one.error_code), one.error_message) for partition, one in each_partition(answer.topics)}


def _refusal(code: ErrorCode, message: str | None, partition: TopicPartition) -> KafkaError:
    return refused(code, f"{partition}: {message}" if message else str(partition))


# Attaching


class AttachPiece(NamedTuple):
    """Chunks of one partition that one request attaches, and their first sequence number."""

    base_sequence: int
    chunks: Sequence[StagedChunk]

    @property
    def size_bytes(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


class Producing(NamedTuple):
    """The transaction that gets the staged chunks, and the chunks' token.

    With version 2 of the transaction protocol (`uses_v2`) AttachRecords adds the partition to the transaction, like Produce.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    token: bytes
    uses_v2: bool


def pieces(chunks: Iterable[StagedChunk]) -> Iterator[list[StagedChunk]]:
    """Divides chunks, in order, into lists that one request can attach."""
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
    cluster: ClusterCore, producing: Producing, wanted: Mapping[TopicPartition, Sequence[AttachPiece]], deadline: Deadline
) -> Conversation[dict[TopicPartition, int]]:
    """Appends staged chunks. Returns the offset of each partition's first record, -1 if the answer to a repeated request does not contain
    it. Raises `KafkaError` UNKNOWN_STAGE if staged bytes have expired or differ from the manifest, or if a new leader attaches no records,
    and the last error at the deadline, which each appended piece renews.
    """
    left = {partition: list(some) for partition, some in wanted.items() if some}
    offsets: dict[TopicPartition, int] = {}
    yield from cluster.in_rounds(
        lambda: _attach_round(cluster, producing, {partition: some for partition, some in left.items() if some}, offsets, deadline),
        left=lambda: [partition for partition, some in left.items() if some],
        size=lambda: sum(map(len, left.values())),
        deadline=deadline,
    )
    return offsets


def _attach_round(
    cluster: ClusterCore,
    producing: Producing,
    left: Mapping[TopicPartition, list[AttachPiece]],
    offsets: dict[TopicPartition, int],
    deadline: Deadline,
) -> Conversation[ClientError | None]:
    """Sends one request to each leader and removes appended pieces from `left`. Returns the decisive failure, or None."""
    asks: list[Ask] = []
    for broker_id, partitions in (yield from cluster.by_leader(left)).items():
        link = yield from cluster.link(broker_id)
        if not link.offers(ATTACH_RECORDS):
            raise refused(ErrorCode.UNKNOWN_STAGE, f"the broker at {link.address} leads {partitions[0]} now and attaches no records")
        request = _attach_request(producing, left, partitions, deadline.left_ms())
        asks.append(Ask(link, request, ATTACH_V2 if producing.uses_v2 else 0, cluster.timeout_s))
    answers = yield AskAll(tuple(asks))
    return decisive([_settle_attach(ask.body, answer, left, offsets) for ask, answer in zip(asks, answers, strict=True)])


def _settle_attach(
    asked: Any, answer: Any, left: Mapping[TopicPartition, list[AttachPiece]], offsets: dict[TopicPartition, int]
) -> ClientError | None:
    """Removes the acknowledged pieces of one answer from `left`. Returns the decisive failure, or None."""
    if isinstance(answer, ClientError):
        return answer
    codes = _codes(answer)
    starts = {partition: one.base_offset for partition, one in each_partition(answer.topics)}
    failures: list[ClientError] = []
    for partition, _ in each_partition(asked.topics):
        code, message = codes.get(partition, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
        if not code:
            offsets.setdefault(partition, starts[partition])
            left[partition].pop(0)
        else:
            failures.append(_refusal(code, message, partition))
    return decisive(failures)


def _attach_request(
    producing: Producing, left: Mapping[TopicPartition, Sequence[AttachPiece]], partitions: Iterable[TopicPartition], wait_ms: int
) -> attaching.AttachRecordsRequest:
    """Returns a request with the next pieces of some partitions, up to `ATTACH_BYTES_MAX`."""
    parts = {}
    size = 0
    for partition in partitions:
        piece = left[partition][0]
        if size and size + piece.size_bytes > ATTACH_BYTES_MAX:
            break
        size += piece.size_bytes
        chunks = [attaching.StagedChunk(**chunk._asdict()) for chunk in piece.chunks]
        parts[partition] = attaching.AttachPartition(index=partition.partition, base_sequence=piece.base_sequence, chunks=chunks)
    return attaching.AttachRecordsRequest(
        transactional_id=producing.transactional_id,
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
        acks=-1,
        timeout_ms=wait_ms,
        batch_token=producing.token,
        topics=topic_list(attaching.AttachTopic, parts),
    )
