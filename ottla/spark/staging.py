"""Stages the output of tasks on the brokers; the driver attaches it in its transaction.

A task uploads its encoded batches to the leaders of their partitions, in chunks of about a megabyte, several in flight while it encodes the
next. Its commit message has only the manifest: number, rows, length and checksum of each chunk. The brokers drop chunks that no successful
task has named, after some time.

- An output of less than `STAGED_BYTES_MIN` is sent in the commit message, because an upload would cost more, unless staging is required.
- If a leader refuses a chunk, because its quota is exhausted or because it does not support staging, this chunk and all later ones of the
  partition are sent in the message. Other partitions are still staged.
- With a broker that does not support the extension (any but Ottla), the driver sends everything.

The chunks carry the token of the spool, which is random for each batch and known only to driver and tasks. An attempt id belongs to one
attempt of one task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from types import TracebackType
from typing import NamedTuple

from ottla.client import Client, ClientError, ErrorCode, KafkaError, Staged, StagedChunk, TopicPartition, Transaction, TransportError
from ottla.spark.connections import ask, forget
from ottla.spark.errors import BrokerError, OptionError, SpoolError
from ottla.spark.options import AUTO, FILES, MESSAGES, STAGED, ClusterConnection
from ottla.spark.output_digest import DigestPart, OutputDigest
from ottla.spark.sending import SentSlice, slices
from ottla.spark.spool import Spool, SpoolWriter, StagedOutput, StagedPart, TaskOutput, output_bytes_max, too_large
from ottla.wire.batch_header import Buffer

OPTION = "taskOutput"
CHUNK_BYTES_MAX = 1024 * 1024
CHUNK_BATCHES_MAX = 500
ROUND_BYTES = 4 * 1024 * 1024
"""Bytes of encoded batches uploaded together; as many again may be encoded meanwhile."""

STAGED_BYTES_MIN = 1024 * 1024

StagedBatch = tuple[Buffer, int]
"""An encoded batch and its rows."""


class TaskAttempt(NamedTuple):
    partition_id: int
    attempt_id: int

    @property
    def name(self) -> str:
        return f"{self.partition_id}-{self.attempt_id}"


def open_output(
    way: str, spool: Spool, task: TaskAttempt, connection: ClusterConnection, bytes_max: int | None
) -> SpoolWriter | StagedWriter:
    """Opens a task's output. `way` is the value of the option `taskOutput`; with `auto` it is a file if the task sees the driver's
    directory, else on the brokers if they support staging, else in the message. `bytes_max` overrides the limits of the output.

    Raises `OptionError` for `files` if the task does not see the directory.
    """
    if way in (AUTO, FILES) and spool.is_here():
        return spool.open(task.name, bytes_max)
    if way == FILES:
        raise OptionError(f"{OPTION}={FILES}: an executor does not see the driver's directory {spool.directory}; leave the option out")
    if way == MESSAGES:
        return SpoolWriter(task.name, None, bytes_max)
    return StagedWriter(task, bytes.fromhex(spool.token), connection, bytes_max, is_required=way == STAGED)


class _PartitionOutput:
    def __init__(self) -> None:
        self.waiting: list[StagedBatch] = []
        self.next_chunk = 0
        self.chunks: list[StagedChunk] = []
        self.part = DigestPart()
        self.is_relayed = False


class _Round(NamedTuple):
    """Chunks in flight, and their batches by partition and number of the chunk."""

    answer: Future[Staged]
    batches: dict[TopicPartition, dict[int, list[StagedBatch]]]


class StagedWriter:
    """Stages the batches of one task attempt, with the interface of `SpoolWriter`; `finish` returns the output.

    `is_required` stages even little output, and raises `OptionError` if the brokers do not support it.
    """

    def __init__(
        self, task: TaskAttempt, token: bytes, connection: ClusterConnection, bytes_max: int | None = None, *, is_required: bool = False
    ) -> None:
        self.task = task
        self.rows = self.size_bytes = 0
        self._token = token
        self._connection = connection
        self._bytes_max = output_bytes_max(True) if bytes_max is None else bytes_max
        self._message = SpoolWriter(task.name, None, bytes_max)
        self._is_required = is_required
        self._lanes: dict[TopicPartition, _PartitionOutput] = {}
        self._waiting_bytes = 0
        self._is_relayed = False
        self._client: Client | None = None
        self._round: _Round | None = None
        self._uploader = ThreadPoolExecutor(1, thread_name_prefix="ottla-upload")

    def __enter__(self) -> StagedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._uploader.shutdown(cancel_futures=True)

    def append(self, partition: TopicPartition, data: Buffer, count: int) -> None:
        """Adds an encoded batch of `count` rows. Raises `OutputError` above the limit, `BrokerError` if the upload fails."""
        self.size_bytes += len(data)
        self.rows += count
        if self.size_bytes > self._bytes_max:
            raise too_large(self.size_bytes, self._bytes_max)
        lane = self._lanes.setdefault(partition, _PartitionOutput())
        if self._is_relayed or lane.is_relayed:
            self._message.append(partition, data, count)
            return
        lane.waiting.append((data, count))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= ROUND_BYTES:
            self._upload()

    def finish(self) -> TaskOutput:
        if self._waiting_bytes:
            is_little = self._client is None and self.size_bytes < STAGED_BYTES_MIN
            if is_little and not self._is_required:
                self._relay_everything()
            else:
                self._upload()
        self._await_round()
        output = self._message.finish()
        parts = [StagedPart(at, tuple(lane.chunks), lane.part) for at, lane in self._lanes.items() if lane.chunks]
        if not parts:
            return output
        staged = StagedOutput(self._token, tuple(parts), self.size_bytes - output.size_bytes)
        return dataclasses.replace(output, rows=self.rows, size_bytes=self.size_bytes, staged=staged)

    def _relay_everything(self) -> None:
        self._is_relayed = True
        for partition, lane in self._lanes.items():
            self._relay(partition, lane)

    def _relay(self, partition: TopicPartition, lane: _PartitionOutput, before: Sequence[StagedBatch] = ()) -> None:
        """Moves a partition to the message: its waiting batches and all later ones."""
        lane.is_relayed = True
        for data, count in [*before, *lane.waiting]:
            self._message.append(partition, data, count)
        self._waiting_bytes -= sum(len(data) for data, _ in lane.waiting)
        lane.waiting = []

    def _upload(self) -> None:
        """Starts the upload of the waiting batches, after the previous upload was answered. If the brokers do not support staging, it moves
        the batches to the message.
        """
        self._await_round()
        if not self._is_offered():
            self._relay_everything()
        if not self._waiting_bytes:
            return
        cut = {partition: _cut(lane) for partition, lane in self._lanes.items() if lane.waiting}
        self._waiting_bytes = 0
        chunks = {at: {number: _joined(some) for number, some in parts.items()} for at, parts in cut.items()}
        client = self._client
        assert client is not None, "it has been asked whether staging is offered"
        self._round = _Round(self._uploader.submit(client.stage, self._token, self.task.attempt_id, chunks), cut)

    def _is_offered(self) -> bool:
        if self._client is None:
            self._client, is_offered = ask(self._connection, OPTION, lambda one: (one, one.offers_staging()), use="staging")
            if not is_offered and self._is_required:
                raise OptionError(f"{OPTION}={STAGED}: these brokers stage no records, only Ottla does; leave the option out")
            self._is_relayed = not is_offered
        return not self._is_relayed

    def _await_round(self) -> None:
        current, self._round = self._round, None
        if current is None:
            return
        try:
            staged = current.answer.result()
        except ClientError as error:
            raise self._failed(error) from error
        for partition, batches in current.batches.items():
            lane = self._lanes[partition]
            chunks = staged.chunks[partition]
            lane.chunks += chunks
            for chunk in chunks:
                for data, _ in batches.pop(chunk.chunk):
                    lane.part = lane.part.add(data)
            if batches:
                self._relay(partition, lane, [batch for some in batches.values() for batch in some])

    def _failed(self, error: ClientError) -> BrokerError:
        if isinstance(error, TransportError):
            forget(self._connection)
        return BrokerError(f"{OPTION}: the output of task {self.task.name} was not staged: {error}")


def _cut(lane: _PartitionOutput) -> dict[int, list[StagedBatch]]:
    found: dict[int, list[StagedBatch]] = {}
    size = 0
    for batch in lane.waiting:
        last = found.get(lane.next_chunk - 1)
        if last is None or size + len(batch[0]) > CHUNK_BYTES_MAX or len(last) == CHUNK_BATCHES_MAX:
            last = found[lane.next_chunk] = []
            lane.next_chunk += 1
            size = 0
        last.append(batch)
        size += len(batch[0])
    lane.waiting = []
    return found


def _joined(batches: Sequence[StagedBatch]) -> Buffer:
    return batches[0][0] if len(batches) == 1 else b"".join(data for data, _ in batches)


# The driver's side


class Attachment(NamedTuple):
    """Staged output of tasks, in task order, to be attached in one step."""

    token: bytes
    parts: list[StagedPart]

    def manifest(self) -> dict[TopicPartition, list[StagedChunk]]:
        found: dict[TopicPartition, list[StagedChunk]] = {}
        for part in self.parts:
            found.setdefault(part.partition, []).extend(part.chunks)
        return found

    def add_to(self, digest: OutputDigest) -> None:
        for part in self.parts:
            digest.add_part(part.partition, part.digest)


def attach(transaction: Transaction, attachment: Attachment) -> None:
    """Attaches staged output. Raises `SpoolError` if it was dropped; the batch must then be run again."""
    try:
        transaction.attach(attachment.token, attachment.manifest())
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_STAGE:
            raise
        raise SpoolError(
            "UNKNOWN_STAGE: output that tasks had staged on the brokers no longer exists (a partition's leader moved or was started again, "
            f"or ottla.stage.retention.ms passed): {error.message}. Nothing of the batch is committed; a restart of the query runs it again"
        ) from error


def steps(outputs: Sequence[TaskOutput]) -> Iterator[SentSlice | Attachment]:
    """Yields the slices to send and the output to attach, in task order. A task's staged output precedes its output in the message."""
    for token, group in groupby((output for output in outputs if output.rows), lambda output: output.staged and output.staged.token):
        if not token:
            yield from slices(list(group))
            continue
        parts: list[StagedPart] = []
        for output in group:
            assert output.staged is not None
            parts += output.staged.parts
            if output.index:
                yield Attachment(token, parts)
                yield from slices([output])
                parts = []
        if parts:
            yield Attachment(token, parts)
