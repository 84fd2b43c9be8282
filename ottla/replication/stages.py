"""The chunks that are staged for one partition, in one term of its leader.

A task uploads its record batches in numbered chunks under its batch token and its attempt; they are in no log, so no client can read them.
Later a manifest of chunks is attached to a transaction (`attaching.py`). Chunks stand in a file for each attempt, the index of them in
memory. The token belongs to the principal that has staged under it: under another principal's name it is another token.

Invariants: a chunk never changes (a repetition must have the same bytes); a manifest matches whole or not at all (`matches`). Everything
goes with the term of leadership, and what a token has here goes when the transaction that it was attached to is committed, that of
attempts that no manifest named included.
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


class Token(NamedTuple):
    """Under which a batch is staged."""

    principal: str
    secret: bytes


class Chunk(NamedTuple):
    """A staged chunk: where it stands in its file, what it is known by, and the topic's settings under which it was checked."""

    position: int
    length: int
    records: int
    crc: int
    config: LogConfig


class Listed(Protocol):
    """A chunk as a manifest names it (`wire.messages.attach_records.StagedChunk`)."""

    attempt_id: int
    chunk: int
    records: int
    length: int
    crc: int


class Space(Protocol):
    """The room on the broker (`stage_space.py`)."""

    def new_file(self, directory: str) -> StageFile: ...

    def require_room(self, principal: str, size: int) -> None: ...

    def charge(self, stage: Stage, size: int) -> None: ...

    def touch(self, stage: Stage) -> None: ...

    def forget(self, stage: Stage) -> None: ...


class Stage:
    """All chunks of one attempt under one token."""

    __slots__ = ("_stages", "attempt_id", "charged_bytes", "chunks", "file", "token", "touched_ms")

    def __init__(self, stages: PartitionStages, token: Token, attempt_id: int, file: StageFile) -> None:
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
    """A chunk of a manifest, and the stage that has it."""

    stage: Stage
    chunk: Chunk

    def read(self, buffer: bytearray) -> memoryview:
        """The chunk's bytes as they were staged, in a buffer that has room for them. Refuses damaged ones with UNKNOWN_STAGE."""
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
    """Whether a staged chunk is the one that the manifest means."""
    return (chunk.length, chunk.records, chunk.crc) == (listed.length, listed.records, listed.crc)


class PartitionStages:
    """See the module."""

    def __init__(self, space: Space, log: Log) -> None:
        self._space = space
        self._log = log
        self._by_token: dict[Token, dict[int, Stage]] = {}
        self._attached: dict[int, dict[Token, None]] = {}  # by producer id: what is dropped when its transaction ends

    def __len__(self) -> int:
        return sum(map(len, self._by_token.values()))

    def stage(
        self, token: Token, attempt_id: int, number: int, data: memoryview, *, now_ms: int, batches_max: int = CHUNK_BATCHES_MAX
    ) -> int:
        """Puts one chunk aside, or finds that it is there already; returns the number of its batches. `now_ms` is wall time."""
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

    def find(self, token: Token, manifest: Sequence[Listed]) -> list[Found]:
        """The chunks of a manifest. Refuses it whole with UNKNOWN_STAGE if one of them is missing or another."""
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

    def use(self, token: Token, producer_id: int) -> None:
        """What the token has here is being attached to the producer's transaction: it stays for a retry, until that is committed."""
        self._attached.setdefault(producer_id, {})[token] = None
        for stage in self._by_token.get(token, {}).values():
            self._space.touch(stage)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """A marker has ended the producer's transaction here. After an abort the same manifest may be attached to the next transaction."""
        for token in self._attached.pop(producer_id, {}) if is_commit else ():
            for stage in list(self._by_token.get(token, {}).values()):
                self.drop(stage)

    def drop(self, stage: Stage) -> None:
        """Removes all of an attempt."""
        attempts = self._by_token.get(stage.token, {})
        if attempts.pop(stage.attempt_id, None) is None:
            return
        if not attempts:
            del self._by_token[stage.token]
        self._space.forget(stage)

    def close(self) -> None:
        """The term of leadership is over."""
        for attempts in list(self._by_token.values()):
            for stage in list(attempts.values()):
                self.drop(stage)
        self._attached.clear()
