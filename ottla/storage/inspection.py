"""Inspects the records of one batch: finds the range of their timestamps, and, if the topic demands it, checks each record or compresses
them with another codec.

The header of a batch names the largest timestamp, and some producers name a wrong one. With `CreateTime` all uncompressed batches are
therefore inspected. A compressed batch is inspected only if the topic demands it for another reason, the header cannot be true, the topic
bounds timestamps, or the batch is small. For other compressed batches the timestamp in the header is used, because decompression would cost
more than all other work on such a batch.

A few kilobytes may unpack to many megabytes and millions of records. A `LoopBudget` therefore limits the work on the loop for each request.
Beyond the budget `inspect_here` raises `WorkerNeeded`, and the caller has `inspect_batch` done in the worker process
(`server/record_worker.py`). A batch that unpacks to more than `ottla.batch.decompressed.max.bytes` is refused in either place.

`validate.py` checks headers. `server/inspections.py` keeps the order of appends meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused, WireError
from ottla.base.immutable import immutable
from ottla.base.log_config import LogConfig
from ottla.wire.batch_header import CODEC_MASK, RECORDS_AT, BatchHeader, Buffer, read_batch_header, record_section
from ottla.wire.compression import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD, UnpackedTooLarge
from ottla.wire.record_times import INT64_MAX, TimeRange, time_range
from ottla.wire.record_validation import UNBOUNDED, TooManySteps, check_record_sizes, validate_section
from ottla.wire.records import recompress_section

LOOP_RECORDS_MAX = 2_000
"""The most records that are checked on the loop for one request, about 1 µs each; also the most header fields of one batch."""
LOOP_BYTES_MAX = 1 << 17
"""The most bytes that are decompressed or compressed on the loop for one request: gzip takes 5 ms for them."""
LOOP_TIMES_MAX = 100_000
"""The most timestamps that are read on the loop for one request, in batches that need no other check. A timestamp takes 0.02
µs among records of equal length, else about 0.1 µs."""
SMALL_RECORDS_MAX = 100
FEW_RECORDS_MAX = 64
"""An uncompressed batch with at most this many records is not charged to the budget (`handlers/records/produce.py`). Reading its timestamps
takes up to 7 µs, less than the rest of the append."""
SMALL_BYTES_MAX = 1 << 12
"""A compressed batch up to this size and `SMALL_RECORDS_MAX` records is looked into while the budget lasts: about 10 to 30 µs."""
USUAL_AHEAD_MS = 3_600_000
"""The default of `message.timestamp.after.max.ms`. A topic with the default bounds trusts the headers of large compressed batches."""
LEVEL_BYTES_MAX = 1 << 14
"""As `LOOP_BYTES_MAX`, for one batch that is compressed at a configured level: zstd's highest level takes 2.5 ms for 16 KiB."""
_CODECS = {"uncompressed": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY, "lz4": CODEC_LZ4, "zstd": CODEC_ZSTD}


@immutable
class Demands:
    """The work that a topic demands for a batch. `codec`: the batch is compressed again with this codec, at `level` if set; None keeps its
    codec. `is_timed`: the range of the timestamps is wanted. `is_optional`: the batch is not inspected when the budget is used up.
    `record_bytes_max`: the largest record of a compressed batch; None: no limit."""

    is_validated: bool
    is_key_required: bool
    codec: int | None
    decompressed_bytes_max: int
    level: int | None = None
    is_timed: bool = True
    is_optional: bool = False
    record_bytes_max: int | None = None

    @property
    def is_mere_look(self) -> bool:
        """Whether only timestamps are read."""
        return not self.is_validated and self.codec is None and self.record_bytes_max is None


class Inspection(NamedTuple):
    """The result of inspecting a batch: the batch compressed with the demanded codec, if it had another one, and the range of its
    timestamps, if wanted."""

    repacked: bytearray | None
    times: TimeRange | None


MERE_LOOK = Demands(False, False, None, 0)


class WorkerNeeded(Exception):
    """The batch exceeds the rest of the request's `LoopBudget`, so the worker process must inspect it."""

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
    """The worker's answer: the reason to refuse the batch (`code` is not 0), or the result of inspecting it."""

    demands: Demands
    code: int = 0
    message: str = ""
    faults: dict[int, str] | None = None
    repacked: bytearray | None = None
    times: tuple[int, int] | None = None

    def found(self) -> Inspection:
        return Inspection(self.repacked, None if self.times is None else TimeRange(*self.times))

    def refusal(self) -> ApiError | None:
        if not self.code:
            return None
        if self.faults is not None:
            return RecordsRefused(ErrorCode(self.code), self.message, self.faults)
        return ApiError(ErrorCode(self.code), self.message)


class LoopBudget:
    """The rest of a request's budget of work on the loop: records to check, timestamps to read, bytes to unpack."""

    __slots__ = ("bytes", "steps", "times")

    def __init__(self, steps: int = LOOP_RECORDS_MAX, bytes_: int = LOOP_BYTES_MAX, times: int = LOOP_TIMES_MAX) -> None:
        self.steps = steps
        self.bytes = bytes_
        self.times = times


class Inspector(Protocol):
    """Inspects batches for `replication/leader.py`."""

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> Inspection | None:
        """Returns the result; None if the batch was not inspected. Raises `ApiError` if the batch is refused, or `WorkerNeeded`."""


class InspectHere:
    """Inspects in the calling thread without a budget, for callers that serve no client's request."""

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> Inspection | None:
        demands = demands_of(header, config)
        return None if demands is None else _inspect(batch, header, demands, demands.decompressed_bytes_max, UNBOUNDED)[0]


class InspectedEarlier:
    """Uses the worker's answer to the same demands. Without such an answer it inspects on the loop with a full budget, and may raise
    `WorkerNeeded`.
    """

    def __init__(self, answer: Inspected | None) -> None:
        self._answer = answer

    def inspect(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> Inspection | None:
        demands = demands_of(header, config)
        if demands is None:
            return None
        if self._answer is None or self._answer.demands != demands:
            return inspect_here(batch, header, demands, LoopBudget())
        refusal = self._answer.refusal()
        if refusal is not None:
            raise refusal
        return self._answer.found()


def is_inspected(config: LogConfig) -> bool:
    """Whether batches of a log with this configuration may have to be inspected."""
    return not config.is_log_append_time or not is_only_timed(config) or config.record_bytes_max is not None


def is_only_timed(config: LogConfig) -> bool:
    """Whether a log of this configuration demands no check of records and no codec, so that at most timestamps are read."""
    return not config.is_compacted and not config.is_strict and config.compression_type == "producer"


def demands_of(header: BatchHeader, config: LogConfig, *, is_staged: bool = False) -> Demands | None:
    """Returns the work that this batch needs, None if it needs none. `is_staged`: the batch is part of a staged chunk
    (`staged_chunk.py`), keeps its codec, and is not decompressed for bounds of timestamps alone."""
    is_validated, is_timed = config.is_compacted or config.is_strict, not config.is_log_append_time
    record_max = config.record_bytes_max if header.attributes & CODEC_MASK else None
    if is_validated or config.compression_type != "producer" or record_max is not None:
        codec = None if is_staged else _other_codec(header, config)
        if is_validated or codec is not None or record_max is not None:
            level = None if codec is None else config.compression_level
            unpacked_max = config.decompressed_bytes_max
            return Demands(is_validated, config.is_compacted, codec, unpacked_max, level, is_timed, record_bytes_max=record_max)
    if not is_timed:
        return None
    if header.attributes & CODEC_MASK == 0:
        return MERE_LOOK
    if not header.is_largest_time_credible or (has_bounded_times(config) and not is_staged):
        return Demands(False, False, None, config.decompressed_bytes_max)
    if header.record_count <= SMALL_RECORDS_MAX and header.batch_length <= SMALL_BYTES_MAX:
        return Demands(False, False, None, config.decompressed_bytes_max, is_optional=True)
    return None


def look_here(batch: memoryview, header: BatchHeader) -> Inspection:
    """Finds the timestamps of an uncompressed batch. Raises `ApiError` for a bad batch."""
    try:
        times = time_range(batch[RECORDS_AT:], header.base_timestamp, header.record_count, claimed_max=header.max_timestamp)
        return Inspection(None, times)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None


def has_bounded_times(config: LogConfig) -> bool:
    """Whether the topic's bounds for timestamps differ from the defaults, so that every record's timestamp must be checked."""
    return config.timestamp_before_max_ms < INT64_MAX or config.timestamp_after_max_ms != USUAL_AHEAD_MS


def _other_codec(header: BatchHeader, config: LogConfig) -> int | None:
    """Returns the codec that the topic demands, None if the batch has it already or the topic accepts any."""
    codec = _CODECS.get(config.compression_type)
    return None if codec == header.attributes & CODEC_MASK else codec


def repack_own(batch: memoryview, header: BatchHeader, config: LogConfig) -> bytearray | None:
    """Recompresses a batch that the broker itself made; None if it has the topic's codec already. Its records are not checked."""
    codec = _other_codec(header, config)
    if codec is None:
        return None
    return recompress_section(header, record_section(batch, header, config.decompressed_bytes_max), codec, config.compression_level)


def inspect_here(batch: memoryview, header: BatchHeader, demands: Demands, budget: LoopBudget) -> Inspection | None:
    """Returns the result. Raises `ApiError` for a bad batch. Beyond the budget it raises `WorkerNeeded`, or skips an optional look. If the
    batch exceeds the budget while it is read, or is damaged, the budget is charged with the largest amount that may have been spent."""
    if demands is MERE_LOOK and header.record_count <= budget.times:
        budget.times -= header.record_count
        return look_here(batch, header)
    is_packed = header.attributes & CODEC_MASK != 0 or demands.codec is not None
    bytes_left = budget.bytes if demands.level is None else min(budget.bytes, LEVEL_BYTES_MAX)
    steps = budget.times if demands.is_mere_look else budget.steps
    if header.record_count > steps or (is_packed and len(batch) > bytes_left):
        return _skip(demands)
    bytes_max = min(bytes_left, demands.decompressed_bytes_max) if is_packed else demands.decompressed_bytes_max
    if demands.is_mere_look:
        budget.times -= header.record_count
    else:
        budget.steps -= header.record_count
    if is_packed:
        budget.bytes -= bytes_max  # a failure may have unpacked all of them
    try:
        found, size = _inspect(batch, header, demands, bytes_max, steps)
    except UnpackedTooLarge:
        return _skip(demands)
    except TooManySteps:
        budget.steps = 0
        return _skip(demands)
    if is_packed:
        budget.bytes += bytes_max - size
    return found


def _skip(demands: Demands) -> Inspection | None:
    """Returns None if the inspection is optional, else raises `WorkerNeeded`."""
    if demands.is_optional:
        return None
    raise WorkerNeeded(demands) from None


def inspect_batch(order: InspectBatch) -> Inspected:
    """Inspects a batch in the worker process, bounded only by the unpacked size."""
    batch, demands = memoryview(order.batch), order.demands
    try:
        found, _ = _inspect(batch, read_batch_header(batch), demands, demands.decompressed_bytes_max, UNBOUNDED)
    except UnpackedTooLarge as error:
        return Inspected(demands=demands, code=ErrorCode.INVALID_RECORD, message=str(error))
    except ApiError as error:
        faults = error.faults if isinstance(error, RecordsRefused) else None
        return Inspected(demands=demands, code=error.code, message=error.message, faults=faults)
    return Inspected(demands=demands, repacked=found.repacked, times=found.times)


def _inspect(batch: memoryview, header: BatchHeader, demands: Demands, bytes_max: int, steps_max: int) -> tuple[Inspection, int]:
    """Returns the result, and the size of the unpacked records."""
    try:
        section: Buffer = record_section(batch, header, bytes_max)
        if demands.record_bytes_max is not None:
            check_record_sizes(section, header.record_count, demands.record_bytes_max)
        if demands.is_validated:
            section = validate_section(section, header, is_key_required=demands.is_key_required, steps_max=steps_max)
        times = None
        if demands.is_timed:
            times = time_range(section, header.base_timestamp, header.record_count, claimed_max=header.max_timestamp)
    except (UnpackedTooLarge, TooManySteps) as error:
        if bytes_max == demands.decompressed_bytes_max and isinstance(error, UnpackedTooLarge):
            raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None
        raise
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None
    if demands.codec is None:
        return Inspection(None, times), len(section)
    kept = header if times is None else header._replace(max_timestamp=times.largest)
    return Inspection(recompress_section(kept, section, demands.codec, demands.level), times), len(section)
