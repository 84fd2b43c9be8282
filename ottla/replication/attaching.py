"""Attaches a manifest of staged chunks to a log. The batches get the producer's id, epoch and sequences, and are appended one at a time.

A retry is first compared with the producer's last sequence in this epoch. If the whole manifest is in the log, no stage is needed, so a
retry succeeds at a new leader too, which has no stages. If only a part is in the log, the rest is appended. The rest is refused with
UNKNOWN_STAGE if a chunk of it is not staged, and with OUT_OF_ORDER_SEQUENCE_NUMBER if the part in the log ends within a batch of the
manifest. Every append is checked like a Produce (`Leader.append`): sequences, epoch, transaction, in-sync replicas.

The work is spread over iterations of the event loop. Between two batches the leader's term or the transaction may end, or the stage may be
dropped; then the rest is refused. Batches already appended belong to the transaction and are committed or aborted with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.immutable import immutable
from ottla.base.log_config import LogConfig
from ottla.replication.leader import ALL_IN_SYNC, Leader
from ottla.replication.stages import ChunkToken, Found, Listed
from ottla.replication.verification import VerificationGuard
from ottla.storage.staged_chunk import CHUNK_RECORDS_MAX, batches_of
from ottla.wire.batch_header import SEQUENCE_MASK, BatchHeader, read_batch_header, stamp_producer

MANIFEST_CHUNKS_MAX = 10_000
UNKNOWN_OFFSET = -1


@immutable(kw_only=True)
class Manifest:
    """The chunks that become the next records of one producer in a partition, starting at `base_sequence`."""

    token: ChunkToken
    producer_id: int
    producer_epoch: int
    base_sequence: int
    chunks: Sequence[Listed]
    is_transaction_v2: bool


class Attached(NamedTuple):
    """The result: all records of the manifest are in the log. The base offset is -1 if an earlier attempt appended the first of them."""

    base_offset: int
    last_offset: int


def check_manifest(manifest: Manifest) -> int:
    """Returns the number of records in a manifest. Raises `ApiError` INVALID_REQUEST for an invalid manifest, without a look at the
    stages.
    """
    if manifest.producer_id < 0 or manifest.producer_epoch < 0 or not 0 <= manifest.base_sequence <= SEQUENCE_MASK:
        identity = f"producer {manifest.producer_id} epoch {manifest.producer_epoch}"
        raise _invalid(f"{identity} wants to attach from sequence {manifest.base_sequence} on")
    if not 0 < len(manifest.chunks) <= MANIFEST_CHUNKS_MAX:
        raise _invalid(f"a manifest of {counted(len(manifest.chunks), 'chunk')}, 1 to {MANIFEST_CHUNKS_MAX} are allowed")
    seen: set[tuple[int, int]] = set()
    records = 0
    for listed in manifest.chunks:
        place = listed.attempt_id, listed.chunk
        if place in seen:
            raise _invalid(f"chunk {listed.chunk} of attempt {listed.attempt_id} is listed twice in the manifest")
        seen.add(place)
        if listed.records < 1 or listed.length < 1 or listed.chunk < 0:
            raise _invalid(f"chunk {listed.chunk} of {counted(listed.records, 'record')} in {listed.length} bytes")
        records += listed.records
    if records > CHUNK_RECORDS_MAX:
        raise _invalid(f"a manifest of {counted(records, 'record')}, {CHUNK_RECORDS_MAX} are allowed")
    return records


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


class InspectedWhenStaged:
    """`storage.inspection.Inspector` for staged chunks: their records were inspected when they were staged, and keep their codec.

    A second inspection would block the event loop; a hostile batch could block it for a long time. If the topic's settings have changed
    since and now demand checks of records, `inspect` refuses the batch with UNKNOWN_STAGE.
    """

    def __init__(self, config: LogConfig) -> None:
        self._config = config

    def inspect(self, _batch: memoryview, _header: BatchHeader, config: LogConfig) -> None:
        if config is not self._config and (config.is_compacted or config.is_strict):
            raise ApiError(ErrorCode.UNKNOWN_STAGE, "the topic's settings have changed since these records were staged")


class Attaching:
    """Attaches one manifest to the log of a leader. `done` is called once, with the result or the error."""

    def __init__(
        self,
        leader: Leader,
        manifest: Manifest,
        guard: VerificationGuard | None,
        *,
        wall_ms: Callable[[], int],
        done: Callable[[Attached | ApiError], None],
    ) -> None:
        self._leader = leader
        self._manifest = manifest
        self._guard = guard
        self._wall_ms = wall_ms
        self._done = done
        self._base_offset = UNKNOWN_OFFSET
        self._position = 0  # records of the manifest before the next batch

    def steps(self) -> Iterator[None]:
        """Attaches the manifest, at most one batch in a step (`base/loop/turns.py`)."""
        try:
            yield from self._attach()
            self._done(Attached(self._base_offset, self._last_offset()))
        except ApiError as error:
            self._done(error)

    def _attach(self) -> Iterator[None]:
        leader, manifest = self._leader, self._manifest
        count = check_manifest(manifest)
        yield
        producers = leader.log.producers
        appended = producers.count_appended(manifest.producer_id, manifest.producer_epoch, manifest.base_sequence, count)
        if appended == count:
            return
        rest = self._skip(appended)
        stages = leader.stages
        if stages is None:
            raise ApiError(ErrorCode.UNKNOWN_STAGE, f"nothing was staged for {leader.log.topic_partition} in this leader epoch")
        found = stages.find(manifest.token, rest)
        stages.use(manifest.token, manifest.producer_id)
        yield
        buffer = bytearray(max(one.chunk.length for one in found))  # one buffer for all chunks: allocating costs more than copying
        for one in found:
            yield from self._append_chunk(one, one.read(buffer), appended)

    def _skip(self, appended: int) -> Sequence[Listed]:
        """Returns the chunks that are not completely in the log."""
        for index, listed in enumerate(self._manifest.chunks):
            if self._position + listed.records > appended:
                return self._manifest.chunks[index:]
            self._position += listed.records
        raise AssertionError("a manifest that is whole in the log has no rest")

    def _append_chunk(self, found: Found, data: memoryview, appended: int) -> Iterator[None]:
        inspector = InspectedWhenStaged(found.chunk.config)
        for batch in batches_of(data):
            count = read_batch_header(batch).record_count
            if self._position >= appended:
                self._append(batch, inspector)
            elif self._position + count > appended:
                message = f"{appended} records are in the log already, which does not end a batch of the manifest"
                raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
            self._position += count
            yield

    def _append(self, batch: memoryview, inspector: InspectedWhenStaged) -> None:
        leader, manifest = self._leader, self._manifest
        guard, self._guard = self._guard, None
        if guard is None and not leader.has_open_transaction(manifest.producer_id, manifest.producer_epoch):
            who = f"producer {manifest.producer_id} epoch {manifest.producer_epoch}"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"the transaction of {who} ended before all was attached")
        stamp_producer(
            batch, 0, len(batch), producer_id=manifest.producer_id, producer_epoch=manifest.producer_epoch,
            base_sequence=(manifest.base_sequence + self._position) & SEQUENCE_MASK,
        )  # fmt: skip
        result = leader.append(
            batch, acks=ALL_IN_SYNC, now_ms=self._wall_ms(), is_transaction_v2=manifest.is_transaction_v2, guard=guard,
            inspector=inspector, is_intact=True, principal=manifest.token.principal,
        )  # fmt: skip
        if self._position == 0:
            self._base_offset = result.base_offset

    def _last_offset(self) -> int:
        """Returns the last offset of the producer's last batch, which must be replicated before the answer. The batch may belong to a later
        manifest."""
        entry = self._leader.log.producers.get(self._manifest.producer_id)
        assert entry is not None and entry.batches, "an attached manifest has left no batch"
        return entry.batches[-1].last_offset
