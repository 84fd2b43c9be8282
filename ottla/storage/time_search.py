"""Look-ups by time: their budget on the loop, the remembered timestamps of batches, and the questions for the worker process.

The header of a batch names the largest timestamp of its records. It may be wrong, and a few kilobytes may hold millions of records, so a
look-up that must read records has a budget. Beyond it `SearchPaused` is raised. The caller has the worker process answer its question
(`find_time`), passes the answer to `TimeSearch.note`, and repeats the look-up, which continues at the same batch. Batches without a
matching record are remembered, so that later look-ups do not read them again.

A batch that cannot be read (damaged, or it unpacks to more than `ottla.batch.decompressed.max.bytes`) is skipped; `unread` says why.
"""

from __future__ import annotations

from ottla.base.errors import WireError
from ottla.base.immutable import immutable
from ottla.base.types import TopicPartition
from ottla.wire.batch_header import CODEC_MASK, RECORDS_AT, BatchHeader, Buffer, read_batch_header, record_section
from ottla.wire.compression import UnpackedTooLarge
from ottla.wire.record_times import INT64_MAX, record_times

ANSWERS_MAX = 10_000
LOOP_RECORDS_MAX = 10_000
"""Records with timestamps that are read on the loop for one request, at most: about 0.4 µs each."""
LOOP_UNPACKED_BYTES_MAX = 1 << 20
WALKED_BATCHES_MAX = 1_000
WALKED_BYTES_MAX = 8 << 20
"""Bytes of batches that a search passes before other requests are executed. A search also pauses after `WALKED_BATCHES_MAX` batches."""
NO_OFFSET = -1
ABOVE_ALL = INT64_MAX + 1
"""A timestamp that no record reaches, so that the answer has only the largest timestamp."""

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch)"""


@immutable
class FindTime:
    """The question to the worker: find the first record of the batch at or after a timestamp, from an offset on."""

    batch: bytes
    timestamp_ms: int
    start_offset: int
    decompressed_bytes_max: int


@immutable(kw_only=True)
class BatchTimes:
    """The answer: the record (offset -1 if there is none), the largest timestamp among the records that were read from the start offset on,
    or the reason why the batch cannot be read.
    """

    timestamp: int = -1
    offset: int = NO_OFFSET
    max_timestamp: int = -1
    unread: str = ""


def find_time(question: FindTime) -> BatchTimes:
    """Reads the batch up to the wanted record. A batch that cannot be read is not an error; the answer has the reason."""
    try:
        header = read_batch_header(question.batch)
        section = record_section(question.batch, header, question.decompressed_bytes_max)
        return _find_time(header, section, question.timestamp_ms, question.start_offset)
    except WireError as error:
        return BatchTimes(unread=str(error))


def _find_time(header: BatchHeader, section: Buffer, timestamp_ms: int, start_offset: int) -> BatchTimes:
    largest = -1
    for timestamp, offset in record_times(header, section):
        if offset < start_offset:
            continue
        if timestamp > largest:
            largest = timestamp
            if timestamp >= timestamp_ms:
                return BatchTimes(timestamp=timestamp, offset=offset, max_timestamp=largest)
    return BatchTimes(max_timestamp=largest)


class TimeAnswers:
    """Known timestamps of batches, by partition, base offset, CRC and start of the search in the batch. An answer with a record is also
    kept by the wanted timestamp. When there are too many answers, the oldest is evicted."""

    def __init__(self, answers_max: int = ANSWERS_MAX) -> None:
        self._answers_max = answers_max
        self._answers: dict[tuple[object, ...], BatchTimes] = {}

    def get(self, key: tuple[object, ...], timestamp_ms: int) -> BatchTimes | None:
        """Returns the answer, if it is known or if all timestamps of the batch are known to be older. Returns None otherwise."""
        known = self._answers.get(key)
        if known is not None and known.max_timestamp < timestamp_ms:
            return known
        return self._answers.get((*key, timestamp_ms))

    def note(self, key: tuple[object, ...], timestamp_ms: int, answer: BatchTimes) -> None:
        while len(self._answers) >= self._answers_max:
            del self._answers[next(iter(self._answers))]
        self._answers[key if answer.offset == NO_OFFSET else (*key, timestamp_ms)] = answer


class TimeBudget:
    """The records and decompressed bytes that the look-ups of one request may still read on the loop."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.records = LOOP_RECORDS_MAX
        self.bytes = LOOP_UNPACKED_BYTES_MAX


class SearchPaused(Exception):
    """The look-up must continue later: after the question was answered or, if it is None, after other requests were executed."""

    def __init__(self, question: FindTime | None) -> None:
        super().__init__("a look-up by time continues later")
        self.question = question


class TimeSearch:
    """One look-up. Without a budget it reads every batch in the caller's thread. With `is_exact=False` it asks no question: if a batch is
    beyond the budget, the result is the first record of the batch.
    """

    def __init__(
        self, partition: TopicPartition | None = None, answers: TimeAnswers | None = None, budget: TimeBudget | None = None,
        *, is_exact: bool = True,
    ) -> None:  # fmt: skip
        self._partition = partition
        self._answers = answers or TimeAnswers()
        self._budget = budget
        self._is_exact = is_exact
        self._walked_batches = self._walked_bytes = 0
        self._asked: tuple[tuple[object, ...], int] = ((), 0)
        self._older_than = ABOVE_ALL
        self._older_end = 0
        self.left: tuple[int, int] | None = None
        self.largest: dict[int, int] = {}
        """The largest timestamp of the existing records, by the base offset of each segment that was searched for it."""
        self.unread = ""
        """The reason why the first skipped batch could not be read."""

    def start_for(self, timestamp_ms: int, start_offset: int) -> int:
        """Returns the offset at which to continue. All records below it are known to be older."""
        return max(start_offset, self._older_end) if timestamp_ms >= self._older_than else start_offset

    def walk(self, header: BatchHeader, timestamp_ms: int) -> None:
        """Called for each batch before `judge`. Raises `SearchPaused` if the search has passed enough batches or bytes."""
        if self._has_walked_enough(header):
            self._note_older(header, timestamp_ms)
            raise SearchPaused(None)

    def walk_left(self, header: BatchHeader, largest: int) -> None:
        """Does the work of `walk` in a search for the largest timestamp. `left` keeps the offset at which to continue, and the largest
        timestamp so far."""
        if self._has_walked_enough(header):
            self.left = (header.base_offset, largest)
            raise SearchPaused(None)

    def _has_walked_enough(self, header: BatchHeader) -> bool:
        if self._budget is None or not self._is_exact:
            return False
        self._walked_batches += 1
        self._walked_bytes += header.size_bytes
        if self._walked_batches <= WALKED_BATCHES_MAX and self._walked_bytes <= WALKED_BYTES_MAX:
            return False
        self._walked_batches = self._walked_bytes = 0
        return True

    def judge(
        self, header: BatchHeader, batch: memoryview, timestamp_ms: int, start_offset: int, decompressed_bytes_max: int
    ) -> BatchTimes:
        """Finds the first record of a batch at or after the timestamp. Raises `SearchPaused` with the question if the batch is beyond the
        budget.
        """
        if len(batch) <= RECORDS_AT:
            return BatchTimes()
        key = (self._partition, header.base_offset, header.crc, max(start_offset - header.base_offset, 0))
        answer = self._answers.get(key, timestamp_ms)
        if answer is None:
            answer = self._read(header, batch, timestamp_ms, start_offset, decompressed_bytes_max)
            if answer is None and not self._is_exact:
                return BatchTimes(timestamp=header.max_timestamp, offset=max(header.base_offset, start_offset))
            if answer is None:
                self._asked = (key, timestamp_ms)
                self._note_older(header, timestamp_ms)
                raise SearchPaused(FindTime(bytes(batch), timestamp_ms, start_offset, decompressed_bytes_max))
            if answer.offset == NO_OFFSET:
                self._answers.note(key, timestamp_ms, answer)
        self.unread = self.unread or (answer.unread and f"the batch at offset {header.base_offset} is skipped: {answer.unread}")
        return answer

    def note(self, answer: BatchTimes) -> None:
        """Stores the answer to the question of the last `SearchPaused`."""
        self._answers.note(*self._asked, answer)

    def _read(
        self, header: BatchHeader, batch: memoryview, timestamp_ms: int, start_offset: int, bytes_max: int
    ) -> BatchTimes | None:
        """Reads the batch; returns None if it is beyond the budget."""
        budget, is_packed = self._budget, header.attributes & CODEC_MASK != 0
        bounded_max = bytes_max
        if budget is not None:
            if header.record_count > budget.records or (is_packed and len(batch) > budget.bytes):
                return None
            if is_packed:
                bounded_max = min(bytes_max, budget.bytes)
                budget.bytes -= bounded_max  # a failure may have unpacked all of them
            budget.records -= header.record_count
        try:
            section = record_section(batch, header, bounded_max)
            if budget is not None and is_packed:
                budget.bytes += bounded_max - len(section)
            return _find_time(header, section, timestamp_ms, start_offset)
        except UnpackedTooLarge as error:
            return None if bounded_max < bytes_max else BatchTimes(unread=str(error))
        except WireError as error:
            return BatchTimes(unread=str(error))

    def _note_older(self, header: BatchHeader, timestamp_ms: int) -> None:
        self._older_than, self._older_end = timestamp_ms, header.base_offset


