"""Look-ups read as few bytes in a long log as in a short one. The tests count bytes, not seconds."""

from __future__ import annotations

from random import Random

import pytest

from ottla.storage.segment import LOOKUP_BYTES
from ottla.storage.timestamps import LOOK_BYTES
from tests.fakes.disk import MemDisk, MemFile
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of
from tools.bench.log_length import log_length

INTERVAL = 500


class CountingFile:
    """Counts the bytes that are read from segments."""

    def __init__(self, file: MemFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, position: int) -> bytes:
        CountingDisk.bytes_read += length
        return self._file.pread(length, position)


class CountingDisk(MemDisk):
    bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> MemFile:
        file = super().open(path, create=create)
        return CountingFile(file) if path.endswith(".log") else file  # type: ignore[return-value]


def built(batches: int, segment_bytes: int) -> LogBuilder:
    log = LogBuilder(log_settings(segment_bytes=segment_bytes, index_interval_bytes=INTERVAL), disk=CountingDisk("/data"))
    for number in range(batches):
        log.append(batch_of(1, timestamp=1_000 + number))
    return log


def read_for(work: object, arguments: list[int]) -> int:
    """Returns the largest number of bytes that one call has read."""
    assert callable(work)
    most = 0
    for argument in arguments:
        CountingDisk.bytes_read = 0
        assert work(argument) is not None
        most = max(most, CountingDisk.bytes_read)
    return most


@pytest.mark.parametrize("batches", [600, 6_000])
@pytest.mark.parametrize("segment_bytes", [50_000, 1 << 30])
def test_a_look_up_reads_a_bounded_piece(batches: int, segment_bytes: int) -> None:
    log = built(batches, segment_bytes).log
    offsets = [Random(1).randrange(batches) for _ in range(200)]
    for segment in log.segments:
        segment.load_indexes()
    read = read_for(lambda offset: log.read(offset, 1000, end_offset=batches), offsets)
    assert read <= 2 * LOOKUP_BYTES, "a piece for each end of the slice"
    by_time = read_for(lambda offset: log.offset_for_timestamp(1_000 + offset, end_offset=batches), offsets)
    assert by_time <= LOOKUP_BYTES + 6 * LOOK_BYTES
    assert read_for(lambda offset: log.read(offset, 1000, end_offset=batches), [batches - 1] * 3) == 0, "the end is remembered"


def test_the_measurement_runs() -> None:
    rows = log_length([20, 600], 20_000)
    assert [what for what, _, _ in rows][:1] == ["fetch at the end, 20 batches"] and len(rows) == 8
    assert all(cost > 0 for _, _, cost in rows)
