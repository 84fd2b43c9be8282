"""Plans the compaction of a log that is due, and installs the result.

Compaction has three steps, so that the loop keeps serving. `plan_in_steps` on the loop makes a plain job from the segments' sizes and
times, the aborted transactions and the producers. `segment_rewriter.compact` does the job in a worker process. `install` on the loop puts
the new segments in place, unless the old segments have changed since the plan. The first dirty offset of each log is stored in Kafka's
`cleaner-offset-checkpoint` of the log directory, which is written after each installation. Losing it costs one larger round.

Invariants (I8): a round never touches the active segment, records at or above the last stable offset (their transaction may still commit or
abort), or records younger than `min.compaction.lag.ms`. A segment that a round may touch is dirty if it ends above the first dirty offset.
A log is due when the dirty segments' part of the bytes exceeds `min.cleanable.dirty.ratio`, or when the first batch of the oldest dirty
segment is older than `max.compaction.lag.ms`.

`segment_rewriter.py` decides which records are kept, and `server/compaction_schedule.py` when to plan.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator

from ottla.base.loop.turns import pieces_of, run_steps
from ottla.storage.aborted import AbortedTransaction
from ottla.storage.log import Log
from ottla.storage.producers import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.segment_rewriter import KEYS_MAX, CompactionJob, CompactionResult, SegmentFile, remove_cleaned

SEGMENTS_PER_STEP = 500
PRODUCERS_PER_STEP = 500


def plan_compaction(
    log: Log, *, first_dirty_offset: int, last_stable_offset: int, now_ms: int, keys_max: int = KEYS_MAX
) -> CompactionJob | None:
    """Runs all steps of `plan_in_steps` at once."""
    steps = plan_in_steps(
        log, first_dirty_offset=first_dirty_offset, last_stable_offset=last_stable_offset, now_ms=now_ms, keys_max=keys_max
    )
    return run_steps(steps)


def plan_in_steps(
    log: Log, *, first_dirty_offset: int, last_stable_offset: int, now_ms: int, keys_max: int = KEYS_MAX
) -> Generator[None, None, CompactionJob | None]:
    """Returns the job of the next round for this log, or None when the log is not due. Raises `StorageError`."""
    if log.is_broken or not log.config.is_compacted:
        return None
    segments = yield from _cleanable(log, last_stable_offset, now_ms)
    if not segments:
        return None
    # The offset is outside of the log if the log was truncated or deleted since it was noted. Then all segments are dirty.
    dirty_from = first_dirty_offset if log.segments[0].base_offset <= first_dirty_offset <= log.log_end_offset else 0
    dirty = [segment for segment in segments if segment.end_offset > dirty_from]
    if not dirty or not _is_due(log, segments, dirty, now_ms):
        return None
    directory, files, end_offset = log.directory, tuple(_as_file(segment) for segment in segments), segments[-1].end_offset
    aborted = yield from _aborted(log, end_offset)
    kept_batches, kept_markers = yield from _kept(log.producers, end_offset)
    return CompactionJob(
        directory=directory,
        segments=files,
        first_dirty_offset=dirty_from,
        aborted=aborted,
        kept_batches=kept_batches,
        kept_markers=kept_markers,
        now_ms=now_ms,
        config=log.config,
        keys_max=keys_max,
    )


def install(log: Log, job: CompactionJob, result: CompactionResult) -> list[str] | None:
    """Puts the result in place. Returns the paths of the old files, which the caller removes after `file.delete.delay.ms`. Returns None and
    drops the result if the log has meanwhile been moved or broken, or has lost or changed one of the segments (retention, truncation,
    deletion).
    """
    old = log.segments[: len(result.old)]
    is_same = tuple(_as_file(segment) for segment in old) == result.old and log.directory == job.directory
    if not is_same or log.is_broken or not all(segment.is_sealed for segment in old):
        if log.directory == job.directory:
            remove_cleaned(log.disk, log.directory)
        return None
    return log.replace_segments(old, result.bases)


def _as_file(segment: Segment) -> SegmentFile:
    return SegmentFile(base_offset=segment.base_offset, end_offset=segment.end_offset, size=segment.size)


def _cleanable(log: Log, last_stable_offset: int, now_ms: int) -> Generator[None, None, list[Segment]]:
    """Returns the sealed segments before the first one that reaches above the last stable offset or is younger than
    `min.compaction.lag.ms`.
    """
    found: list[Segment] = []
    lag_ms = log.config.min_compaction_lag_ms
    for piece in pieces_of(log.segments[:-1], SEGMENTS_PER_STEP):
        for segment in piece:
            if segment.end_offset > last_stable_offset or (lag_ms > 0 and segment.largest_timestamp() > now_ms - lag_ms):
                return found
            found.append(segment)
        yield
    return found


def _is_due(log: Log, segments: list[Segment], dirty: list[Segment], now_ms: int) -> bool:
    dirty_bytes = sum(segment.size for segment in dirty)
    if dirty_bytes > log.config.min_cleanable_dirty_ratio * sum(segment.size for segment in segments):
        return True
    oldest_ms = dirty[0].first_batch_timestamp()
    return dirty_bytes > 0 and 0 <= oldest_ms < now_ms - log.config.max_compaction_lag_ms


def _aborted(log: Log, end_offset: int) -> Generator[None, None, tuple[AbortedTransaction, ...]]:
    """Returns every aborted transaction that began below `end_offset`. Its marker may be in a later segment, which this round does not
    compact.
    """
    found: list[AbortedTransaction] = []
    for segment in [segment for segment in log.segments if segment.has_aborted]:
        found += [entry for entry in log.aborted_of(segment) if entry.first_offset < end_offset]
        yield
    return tuple(found)


def _kept(producers: ProducerStates, end_offset: int) -> Generator[None, None, tuple[array[int], array[int]]]:
    """Returns two lists for the job. The first has the last batches of each producer, so that the check for duplicates can be restored from
    the log alone (I20). The second has the producers without such a batch. The epoch of such a producer is only in its marker, and without
    the marker an older epoch would no longer be fenced (I21).

    Both are flat arrays (producer id, last offset or epoch, ...), which are cheap to send to the worker. Producers may write between the
    steps; that never adds to what must be kept below `end_offset`.
    """
    batches, markers = array("q"), array("q")
    for piece in pieces_of(producers.active(), PRODUCERS_PER_STEP):
        for entry in piece:
            if not entry.batches:
                markers.extend((entry.producer_id, entry.epoch))
            for batch in entry.batches:
                if batch.last_offset < end_offset:
                    batches.extend((entry.producer_id, batch.last_offset))
        yield
    return batches, markers
