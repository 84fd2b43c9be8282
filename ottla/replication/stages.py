"""The chunks staged for one partition, in one term of its leader.

A task of a Spark query uploads its record batches in numbered chunks. The key of a chunk is the token of the query's micro-batch, the
number of the task's attempt, and the number of the chunk. Chunks are not in the log, so no client can read them. Later a manifest of chunks
is attached to a transaction (`attaching.py`). The chunks of an attempt are in one file, their index in memory. A token belongs to the
principal that staged chunks under it; the same token of another principal is a different token.

Invariants: a chunk never changes (a repetition must have the same bytes); a manifest matches completely or not at all (`matches`). All
stages are dropped at the end of the term. When a transaction commits, all stages of its tokens are dropped, including stages of attempts
that no manifest named. `stage_space.py` also drops stages that expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.storage.log import Log
from ottla.storage.stage_file import StageFile
from ottla.storage.staged_chunk import CHUNK_BATCHES_MAX, check_chunk
from ottla.wire.checksum import crc32c


class ChunkToken(NamedTuple):
    """The key of staged chunks."""

    principal: str
    secret: bytes


class Chunk(NamedTuple):
    """A staged chunk: its position in the file, its length, number of records and CRC, and the topic's settings that were used to check
    it.
    """

    position: int
    length: int
    records: int
    crc: int
    config: LogConfig


class Listed(Protocol):
    """A chunk in a manifest (`wire.messages.attach_records.StagedChunk`)."""

    attempt_id: int
    chunk: int
    records: int
    length: int
    crc: int


class Space(Protocol):
    """The quotas and the expiry of all stages of the broker (`stage_space.py`)."""

    def new_file(self, directory: str) -> StageFile: ...

    def require_room(self, principal: str, size: int) -> None: ...

    def charge(self, stage: Stage, size: int) -> None: ...

    def touch(self, stage: Stage) -> None: ...

    def forget(self, stage: Stage) -> None: ...


class Stage:
    """All chunks of one attempt under one token."""

    __slots__ = ("_stages", "attempt_id", "charged_bytes", "chunks", "file", "token", "touched_ms")

    def __init__(self, stages: PartitionStages, token: ChunkToken, attempt_id: int, file: StageFile) -> None:
        self._stages = stages
        self.token = token
        self.attempt_id = attempt_id
        self.file = file
        self.chunks: dict[int, Chunk] = {}
        self.charged_bytes = 0
        self.touched_ms = 0

    @property
    def principal(self) -> str:
        return self.token.principal

    def drop(self) -> None:
        self._stages.drop(self)


class Found(NamedTuple):
    """A chunk of a manifest, and the stage that contains it."""

    stage: Stage
    chunk: Chunk

    def read(self, buffer: bytearray) -> memoryview:
        """Reads the chunk's bytes into a buffer that is large enough. Raises `ApiError` UNKNOWN_STAGE if they are damaged or unreadable."""
        stage, chunk = self
        data = memoryview(buffer)[: chunk.length]
        try:
            size = stage.file.read(chunk.position, data)
        except StorageError as error:
            raise ApiError(ErrorCode.UNKNOWN_STAGE, f"a staged chunk cannot be read: {error}") from None
        if size != chunk.length or crc32c(data) != chunk.crc:
            raise ApiError(ErrorCode.UNKNOWN_STAGE, "the bytes of a staged chunk are damaged")
        return data


def matches(chunk: Chunk, listed: Listed) -> bool:
    """Whether a staged chunk equals the one in the manifest."""
    return (chunk.length, chunk.records, chunk.crc) == (listed.length, listed.records, listed.crc)


class PartitionStages:
    """See the module."""

    def __init__(self, space: Space, log: Log) -> None:
        self._space = space
        self._log = log
        self._by_token: dict[ChunkToken, dict[int, Stage]] = {}
        self._attached: dict[int, dict[ChunkToken, None]] = {}  # by producer id: tokens to drop when its transaction commits

    def __len__(self) -> int:
        return sum(map(len, self._by_token.values()))

    def stage(
        self, token: ChunkToken, attempt_id: int, number: int, data: memoryview, *, now_ms: int, batches_max: int = CHUNK_BATCHES_MAX
    ) -> int:
        """Stages one chunk, or finds that it is staged already; returns the number of its batches. `now_ms` is wall time. Raises `ApiError`
        INVALID_RECORD if other bytes are staged under the same number, and KAFKA_STORAGE_ERROR if the write fails.
        """
        if number < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a chunk of number {number}")
        config = self._log.config
        contents = check_chunk(data, config, now_ms=now_ms, batches_max=batches_max)
        crc = crc32c(data)
        stage = self._by_token.get(token, {}).get(attempt_id)
        known = stage.chunks.get(number) if stage is not None else None
        if stage is not None and known is not None:
            if (known.length, known.crc) != (len(data), crc):
                raise ApiError(ErrorCode.INVALID_RECORD, f"chunk {number} of attempt {attempt_id} was staged with other bytes")
            self._space.touch(stage)
            return contents.batches
        self._space.require_room(token.principal, len(data))
        if stage is None:
            stage = Stage(self, token, attempt_id, self._space.new_file(self._log.directory))
        try:
            position = stage.file.append(data)
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"a chunk could not be staged: {error}") from None
        stage.chunks[number] = Chunk(position, len(data), contents.records, crc, config)
        self._by_token.setdefault(token, {})[attempt_id] = stage
        self._space.charge(stage, len(data))
        return contents.batches

    def find(self, token: ChunkToken, manifest: Sequence[Listed]) -> list[Found]:
        """Returns the chunks of a manifest. Refuses all of it with UNKNOWN_STAGE if a chunk is missing or different."""
        attempts = self._by_token.get(token, {})
        found = []
        for listed in manifest:
            stage = attempts.get(listed.attempt_id)
            chunk = stage.chunks.get(listed.chunk) if stage is not None else None
            if stage is None or chunk is None or not matches(chunk, listed):
                what = "is not staged here" if chunk is None else "was staged with other contents than the manifest says"
                message = f"chunk {listed.chunk} of attempt {listed.attempt_id} for {self._log.topic_partition} {what}"
                raise ApiError(ErrorCode.UNKNOWN_STAGE, message)
            found.append(Found(stage, chunk))
        return found

    def use(self, token: ChunkToken, producer_id: int) -> None:
        """Records that the token's chunks are being attached to the producer's transaction. The chunks remain until the transaction
        commits, so that the manifest can be attached again.
        """
        self._attached.setdefault(producer_id, {})[token] = None
        for stage in self._by_token.get(token, {}).values():
            self._space.touch(stage)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Processes a marker for the producer's transaction. After an abort the same manifest may be attached to the next transaction."""
        attached = self._attached.pop(producer_id, {})
        for token in attached if is_commit else ():
            for stage in list(self._by_token.get(token, {}).values()):
                self.drop(stage)

    def drop(self, stage: Stage) -> None:
        """Removes all chunks of an attempt."""
        attempts = self._by_token.get(stage.token, {})
        if attempts.pop(stage.attempt_id, None) is None:
            return
        if not attempts:
            del self._by_token[stage.token]
        self._space.forget(stage)

    def close(self) -> None:
        """Drops everything at the end of the term."""
        for attempts in list(self._by_token.values()):
            for stage in list(attempts.values()):
                self.drop(stage)
        self._attached.clear()
