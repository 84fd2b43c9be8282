"""The limit on open files includes all logs that are written to, and the slices that readers still use."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.adapters.disk import OsDisk
from ottla.base.errors import ApiError
from ottla.base.log_config import LogConfig
from ottla.base.types import TopicPartition
from ottla.storage.log import Log
from ottla.storage.open_files import LATEST_BYTES_MAX, OpenFiles
from ottla.storage.segment import COPY_BYTES_MAX
from ottla.wire.batch_header import read_batch_header
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import batch_of


def logs_of(tmp_path: Path, count: int, open_files: OpenFiles, config: LogConfig | None = None) -> list[Log]:
    made = []
    for number in range(count):
        key = TopicPartition("t", number)
        made.append(
            Log.open(OsDisk(), f"{tmp_path}/{key}", key, config or log_settings(), now_ms=0, was_clean=True, open_files=open_files)
        )
    return made


def append(log: Log, count: int = 1, value: bytes = b"v" * 20) -> None:
    batch = batch_of(count, value=value)
    log.append(memoryview(batch), read_batch_header(batch), leader_epoch=0, now_ms=0)


def held(logs: list[Log]) -> int:
    return sum(segment.shared is not None for log in logs for segment in log.segments)


def test_written_logs_share_the_bound(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    logs = logs_of(tmp_path, 20, open_files)
    for _ in range(3):
        for log in logs:
            append(log)
            assert held(logs) <= 4 and len(open_files.alive) <= 4
    for log in logs:
        log.flush()
    assert [log.log_end_offset for log in logs] == [3] * 20 and all(log.recovery_point == 3 for log in logs)
    assert held(logs) <= 4


def test_a_log_that_is_written_again_and_again_mostly_keeps_its_file(tmp_path: Path) -> None:
    busy, *others = logs_of(tmp_path, 60, OpenFiles(6))
    reopened = 0
    for log in others:
        before = busy.active.shared
        append(busy)
        reopened += busy.active.shared is not before
        append(log)
    assert reopened <= 4, "first in, first out would have closed it a dozen times"


def test_sealed_segments_have_a_bound_of_their_own_and_give_way_first(tmp_path: Path) -> None:
    open_files = OpenFiles(6, sealed_max=3)
    logs = logs_of(tmp_path, 3, open_files, log_settings(segment_bytes=300))
    for _ in range(12):
        for log in logs:
            append(log, 2)
    assert len(open_files.segments) <= 3 and held(logs) <= 6
    for log in logs:
        for offset in range(0, log.log_end_offset, 2):
            assert log.read(offset, 1 << 20, end_offset=log.log_end_offset) is not None
            assert len(open_files.segments) <= 3 and held(logs) <= 6
    assert all(log.active.shared is not None for log in logs)


def test_a_sealed_segment_that_was_just_opened_stays_open_under_the_lowest_limit(tmp_path: Path) -> None:
    (log,) = logs_of(tmp_path, 1, OpenFiles(1, sealed_max=0), log_settings(segment_bytes=300))
    while len(log.segments) < 3:
        append(log, 2)
    sealed = log.segments[0]
    sealed.file()
    assert sealed.shared is not None


def test_a_reopened_log_goes_on_where_it_was(tmp_path: Path) -> None:
    logs = logs_of(tmp_path, 6, OpenFiles(2))
    for _ in range(5):
        for log in logs:
            append(log, 2)
    found = [log.read(0, 1 << 20, end_offset=10) for log in logs]
    for piece, log in zip(found, logs, strict=True):
        assert piece is not None and len(piece.read()) == log.active.size


def test_readers_get_copies_when_they_hold_too_much(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    logs = logs_of(tmp_path, 30, open_files)
    for log in logs:
        append(log, value=b"x" * 1000)
        append(log, value=b"y" * COPY_BYTES_MAX)
    slices = [log.read(0, 1 << 20, end_offset=2) for log in logs]
    assert len(open_files.alive) <= 2 * 4, "files that only slices hold, and as many again"
    sizes = {len(piece) for piece in slices if piece is not None}
    assert sizes == {logs[0].active.size, COPY_BYTES_MAX}, "a copy is small"
    for piece, log in zip(slices, logs, strict=True):
        assert piece is not None and log.active.file().pread(len(piece), 0) == piece.read()
    large = logs[-1].read(1, 1 << 20, end_offset=2)
    assert large is not None and len(large) > COPY_BYTES_MAX, "the first batch is whole"
    slices.clear()
    piece = None
    assert logs[0].read(0, 1 << 20, end_offset=2) is not None
    assert logs[0].active.shared is not None and not open_files.is_crowded


def at_hand(log: Log, offset: int) -> bytes | None:
    found = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
    assert found is not None
    data = found.at_hand(0)
    assert data is found or data == found.read(), "what is at hand is what the file has"
    return data if isinstance(data, bytes) else None


def test_the_last_batch_is_at_hand_for_its_readers(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    log, other = logs_of(tmp_path, 2, open_files)
    for each in (log, other):
        batch = memoryview(batch_of(1, value=b"a" * 50))
        each.append(batch, read_batch_header(batch), leader_epoch=0, now_ms=0)
        open_files.keep_latest(each.active, batch, 0)
    assert at_hand(other, 0) and at_hand(log, 0) is None, "one batch of all logs"
    append(other)
    assert at_hand(other, 0) is None, "a read of two batches"
    open_files.keep_latest(other.active, memoryview(bytearray(LATEST_BYTES_MAX + 1)), 1)
    assert open_files.latest is None or open_files.latest.length <= LATEST_BYTES_MAX


def test_a_batch_at_hand_is_not_returned_below_the_limits_of_a_read(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    (log,) = logs_of(tmp_path, 1, open_files)
    batch = memoryview(batch_of(2, value=b"a" * 50))
    log.append(batch, read_batch_header(batch), leader_epoch=0, now_ms=0)
    open_files.keep_latest(log.active, batch, 0)
    assert log.read(0, 10, end_offset=2, min_one=False) is None, "it is larger than the limit"
    assert log.read(0, 1 << 20, end_offset=0) is None, "it is not visible yet"
    assert log.read(1, 1 << 20, end_offset=2) is not open_files.latest, "a read within the batch finds it by its position"
    assert log.read(0, 1 << 20, end_offset=2) is open_files.latest
    log.advance_log_start(1)
    with pytest.raises(ApiError):
        log.read(0, 1 << 20, end_offset=2)


def test_a_batch_that_was_cut_off_is_not_at_hand(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    (log,) = logs_of(tmp_path, 1, open_files)
    append(log)
    batch = memoryview(batch_of(1, value=b"a" * 50))
    log.append(batch, read_batch_header(batch), leader_epoch=0, now_ms=0)
    open_files.keep_latest(log.active, batch, 1)
    log.truncate_to(1)
    append(log, value=b"b" * 50)
    assert at_hand(log, 1) is None


def test_a_batch_at_hand_does_not_keep_the_file_of_a_closed_segment_open(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    (log,) = logs_of(tmp_path, 1, open_files)
    batch = memoryview(batch_of(1))
    log.append(batch, read_batch_header(batch), leader_epoch=0, now_ms=0)
    open_files.keep_latest(log.active, batch, 0)
    log.active.release_file()
    assert not open_files.alive


def test_a_small_slice_is_read_and_stays_a_slice_if_it_cannot_be(tmp_path: Path) -> None:
    (log,) = logs_of(tmp_path, 1, OpenFiles(4))
    append(log, value=b"a" * 50)
    found = log.read(0, 1 << 20, end_offset=1)
    assert found is not None and found.at_hand(found.length - 1) is found
    assert found.at_hand(found.length) == found.read()
    found.shared.file.truncate(found.length - 1)
    assert found.at_hand(found.length) is found, "the file has become shorter"
