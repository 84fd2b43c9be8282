"""Looks into the records of one batch, where a topic asks for it: walks all of them, compresses them anew.

A few kilobytes may unpack to many megabytes and millions of records, so how much of that is done on the loop is bounded by a `LoopBudget`
for each request. Beyond it `inspect_here` raises `WorkerNeeded`, and the caller has `inspect_batch` done in the worker process
(`server/record_worker.py`). A batch that unpacks to more than `ottla.batch.decompressed.max.bytes` is refused in either place.

Left out: what needs no look behind the header (`validate.py`), the order of appends meanwhile (`server/inspections.py`).
"""

from __future__ import annotations

from typing import Protocol

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused, WireError
from ottla.base.immutable import immutable
from ottla.base.log_config import LogConfig
from ottla.wire.batch_header import CODEC_MASK, BatchHeader, Buffer, read_batch_header, record_section
from ottla.wire.compression import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD, UnpackedTooLarge
from ottla.wire.record_validation import UNBOUNDED, TooManySteps, validate_section
from ottla.wire.records import recompress_section

LOOP_RECORDS_MAX = 2_000
"""Records and header fields that one request may have walked on the loop: about 1 µs each."""
LOOP_BYTES_MAX = 1 << 17
"""Bytes that one request may have unpacked or compressed on the loop: gzip takes 5 ms for them."""
LEVEL_BYTES_MAX = 1 << 14
"""The same for one batch where a level is set: the highest of zstd takes 2.5 ms for so much."""
_CODECS = {"uncompressed": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY, "lz4": CODEC_LZ4, "zstd": CODEC_ZSTD}


@immutable
class Demands:
    """What a topic demands for a batch. `codec`: it is stored under another one than it was sent with; `level`, where one is set."""

    is_validated: bool
    is_key_required: bool
    codec: int | None
    decompressed_bytes_max: int
    level: int | None = None


class WorkerNeeded(Exception):
    """The batch is too large to be inspected on the loop."""

    def __init__(self, demands: Demands) -> None:
        super().__init__("a batch is too large to be inspected on the loop")
        self.demands = demands


@immutable
class InspectBatch:
    """The order to the worker."""

    batch: bytes | bytearray
    demands: Demands


@immutable(kw_only=True)
class Inspected:
    """The worker's answer: the reason to refuse the batch (`code` is not 0), or the batch under another codec, if one was demanded."""

    demands: Demands
    code: int = 0
    message: str = ""
    faults: dict[int, str] | None = None
    repacked: bytearray | None = None

    def refusal(self) -> ApiError | None:
        if not self.code:
            return None
        if self.faults is not None:
            return RecordsRefused(ErrorCode(self.code), self.message, self.faults)
        return ApiError(ErrorCode(self.code), self.message)


class LoopBudget:
    """What one request may still have done on the loop."""

    __slots__ = ("bytes", "steps")

    def __init__(self, steps: int = LOOP_RECORDS_MAX, bytes_: int = LOOP_BYTES_MAX) -> None:
        self.steps = steps
        self.bytes = bytes_


class Inspector(Protocol):
    """Looks into a batch for `replication/leader.py`."""

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> bytearray | None:
        """The batch under the topic's codec if that is another one, else None. Raises `ApiError` (refused) or `WorkerNeeded`."""


class InspectHere:
    """Looks into every batch where it is called, however long that takes: for callers that are no request."""

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> bytearray | None:
        demands = demands_of(header, config)
        return None if demands is None else _inspect(batch, header, demands, demands.decompressed_bytes_max, UNBOUNDED)[0]


class InspectedEarlier:
    """Uses the worker's answer, where there is one; a small batch without one is looked into where it is called."""

    def __init__(self, answer: Inspected | None) -> None:
        self._answer = answer

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> bytearray | None:
        demands = demands_of(header, config)
        if demands is None:
            return None
        if self._answer is None or self._answer.demands != demands:
            return inspect_here(batch, header, demands, LoopBudget())
        refusal = self._answer.refusal()
        if refusal is not None:
            raise refusal
        return self._answer.repacked


def is_inspected(config: LogConfig) -> bool:
    """Whether a log of this configuration demands a look into batches."""
    return config.is_compacted or config.is_strict or config.compression_type != "producer"


def demands_of(header: BatchHeader, config: LogConfig) -> Demands | None:
    """What must be done with this batch; None if nothing."""
    is_validated = config.is_compacted or config.is_strict
    codec = _other_codec(header, config)
    if not is_validated and codec is None:
        return None
    level = None if codec is None else config.compression_level
    return Demands(is_validated, config.is_compacted, codec, config.decompressed_bytes_max, level)


def _other_codec(header: BatchHeader, config: LogConfig) -> int | None:
    """The codec that the topic demands, None if the batch has it or any will do."""
    codec = _CODECS.get(config.compression_type)
    return None if codec == header.attributes & CODEC_MASK else codec


def repack_own(batch: memoryview, header: BatchHeader, config: LogConfig) -> bytearray | None:
    """A batch of the broker's own under the topic's codec; None if it has that. Its records were just encoded, so none is looked at."""
    codec = _other_codec(header, config)
    if codec is None:
        return None
    return recompress_section(header, record_section(batch, header, config.decompressed_bytes_max), codec, config.compression_level)


def inspect_here(batch: memoryview, header: BatchHeader, demands: Demands, budget: LoopBudget) -> bytearray | None:
    """The batch under another codec, if one is demanded. Raises `ApiError` for a bad one, and `WorkerNeeded` beyond the budget."""
    is_packed = header.attributes & CODEC_MASK != 0 or demands.codec is not None
    room = budget.bytes if demands.level is None else min(budget.bytes, LEVEL_BYTES_MAX)
    if header.record_count > budget.steps or (is_packed and len(batch) > room):
        raise WorkerNeeded(demands)
    bytes_max = min(room, demands.decompressed_bytes_max) if is_packed else demands.decompressed_bytes_max
    try:
        repacked, size = _inspect(batch, header, demands, bytes_max, budget.steps)
    except (UnpackedTooLarge, TooManySteps):
        raise WorkerNeeded(demands) from None
    budget.steps -= header.record_count
    if is_packed:
        budget.bytes -= size
    return repacked


def inspect_batch(order: InspectBatch) -> Inspected:
    """The worker's part: everything, within the bound on the unpacked size."""
    batch, demands = memoryview(order.batch), order.demands
    try:
        repacked, _ = _inspect(batch, read_batch_header(batch), demands, demands.decompressed_bytes_max, UNBOUNDED)
    except UnpackedTooLarge as error:
        return Inspected(demands=demands, code=ErrorCode.INVALID_RECORD, message=str(error))
    except ApiError as error:
        faults = error.faults if isinstance(error, RecordsRefused) else None
        return Inspected(demands=demands, code=error.code, message=error.message, faults=faults)
    return Inspected(demands=demands, repacked=repacked)


def _inspect(batch: memoryview, header: BatchHeader, demands: Demands, bytes_max: int, steps_max: int) -> tuple[bytearray | None, int]:
    """The batch under the demanded codec, and the size of its unpacked records."""
    try:
        section: Buffer = record_section(batch, header, bytes_max)
        if demands.is_validated:
            section = validate_section(section, header, is_key_required=demands.is_key_required, steps_max=steps_max)
    except (UnpackedTooLarge, TooManySteps) as error:
        if bytes_max == demands.decompressed_bytes_max and isinstance(error, UnpackedTooLarge):
            raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None
        raise
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None
    repacked = None if demands.codec is None else recompress_section(header, section, demands.codec, demands.level)
    return repacked, len(section)
