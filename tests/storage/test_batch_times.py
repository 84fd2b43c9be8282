"""The largest timestamp of a batch if the producer's header has a wrong one: the batch is appended, found by time, and expired correctly.

The batches of Sarama 1.43.3 (github.com/IBM/sarama) were captured from it: three records with the times +0, +500 and +250 ms, and -1 as the
largest timestamp in the header.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.storage.retention import count_expired, kept_by_the_future
from ottla.storage.segment import TIME_INDEX_SUFFIX, Segment
from ottla.storage.segment_check import SegmentCheck
from ottla.storage.time_index_check import TimeIndexCheck
from ottla.wire.batch_header import check_crc, read_batch_header, set_max_timestamp
from ottla.wire.records import CODEC_LZ4, CREATE_TIME, Record, encode_batch, rewrite_batch
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of, read_all

BASE = 1_700_000_000_000
SARAMA = {
    "none": "000000000000000000000054000000000271b627400000000000020000018bcfe56800ffffffffffffffffffffffffffffffffffff000000000000"
    "000314000000046b30047630001600e80702046b31047631001600f40304046b3204763200",
    "lz4": "0000000000000000000000670000000002ed744de70003000000020000018bcfe56800ffffffffffffffffffffffffffffffffffff000000000000"
    "000304224d186470b92300008014000000046b30047630001600e80702046b31047631001600f40304046b3204763200000000008c4a2dcc",
    "zstd": "00000000000000000000006100000000023b17275c0004000000020000018bcfe56800ffffffffffffffffffffffffffffffffffff000000000000"
    "000328b52ffd040019010014000000046b30047630001600e80702046b31047631001600f40304046b320476320066dd4487",
    "gzip": "00000000000000000000006d0000000002180440530001000000020000018bcfe56800ffffffffffffffffffffffffffffffffffff000000000000"
    "00031f8b080000096e8800ff002300dcff14000000046b30047630001600e80702046b31047631001600f40304046b3204763200030009580e9423"
    "000000",
    "snappy": "00000000000000000000005600000000028f16fd3d0002000000020000018bcfe56800ffffffffffffffffffffffffffffffffffff000000000000"
    "0003238814000000046b30047630001600e80702046b31047631001600f40304046b3204763200",
}
PLAIN, COMPACTED, REPACKED = log_settings(), log_settings(is_compacted=True), log_settings(compression_type="lz4")


def sarama(codec: str) -> bytearray:
    batch = bytearray.fromhex(SARAMA[codec])
    assert check_crc(batch, 0, len(batch)) and read_batch_header(batch).max_timestamp == -1
    return batch


def lead(config: LogConfig) -> Leader:
    """Returns the leader of a partition without followers."""
    partition = Partition(LogBuilder(config).log, broker_id=0)
    partition.become_leader(leader_epoch=1, partition_epoch=0, replicas=(0,), isr=(0,), now_ms=0)
    return partition.require_leading()


def append(leader: Leader, batch: bytearray) -> None:
    leader.append(batch, acks=1, now_ms=BASE + 1_000)


@pytest.mark.parametrize("config", [PLAIN, COMPACTED, REPACKED], ids=["plain", "compacted", "repacked"])
@pytest.mark.parametrize("codec", SARAMA)
def test_saramas_batches_are_stored_with_their_largest_timestamp(codec: str, config: LogConfig) -> None:
    leader = lead(config)
    append(leader, sarama(codec))
    header, stored = read_all(leader.log)[0]
    assert check_crc(stored, 0, len(stored))
    assert header.max_timestamp == BASE + 500 and header.timestamp_type == CREATE_TIME
    assert leader.log.max_timestamp_offset() == (BASE + 500, 1, 1)
    assert leader.log.offset_for_timestamp(BASE + 400, end_offset=3) == (BASE + 500, 1, 1)
    assert leader.log.segments[0].largest_timestamp() == BASE + 500


@pytest.mark.parametrize("codec", [0, CODEC_LZ4])
@pytest.mark.parametrize("named", [BASE + 200, BASE + 9_999, BASE])
def test_a_header_that_names_another_record_or_none(codec: int, named: int) -> None:
    """Some producers write the timestamp of the last record, which need not be the newest."""
    batch = encode_batch([Record(0, BASE + time, b"k", b"v") for time in (100, 900, 200)], codec=codec)
    set_max_timestamp(batch, 0, CREATE_TIME, named)
    leader = lead(PLAIN)
    append(leader, batch)
    assert read_all(leader.log)[0][0].max_timestamp == BASE + 900
    assert leader.log.offset_for_timestamp(BASE + 500, end_offset=3) == (BASE + 900, 1, 1)


def test_a_retry_is_found_though_its_header_was_corrected() -> None:
    """I20: the retry has the producer's uncorrected header again."""
    leader = lead(PLAIN)
    batch = batch_of(3, timestamp=BASE, producer_id=7, producer_epoch=0, base_sequence=0)
    set_max_timestamp(batch, 0, CREATE_TIME, -1)
    again = bytearray(batch)
    append(leader, batch)
    assert leader.append(again, acks=1, now_ms=BASE).is_duplicate and leader.log.log_end_offset == 3


@pytest.mark.parametrize("config", [PLAIN, COMPACTED, REPACKED], ids=["plain", "compacted", "repacked"])
def test_records_that_do_not_add_up_are_refused(config: LogConfig) -> None:
    batch = batch_of(3)
    batch[61] += 2
    set_max_timestamp(batch, 0, CREATE_TIME, 1_002)  # also updates the CRC
    with pytest.raises(ApiError) as caught:
        append(lead(config), batch)
    assert caught.value.code is ErrorCode.INVALID_RECORD


# Logs that were written before headers were corrected


def old_log(codec: str, *, segments: int = 3) -> LogBuilder:
    """Returns a log of batches with -1 in their header, two in each segment, stored and indexed as by an earlier version."""
    built = LogBuilder(log_settings(segment_bytes=2 * len(sarama(codec)), retention_ms=3_600_000, index_interval_bytes=50))
    for _ in range(2 * segments):
        built.append(sarama(codec))
    assert len(built.log.segments) == segments
    return built


@pytest.mark.parametrize("codec", SARAMA)
@pytest.mark.parametrize("restart", ["clean", "kill"])
def test_an_old_log_is_looked_up_rightly(codec: str, restart: str) -> None:
    built = old_log(codec)
    found = built.reopen() if restart == "clean" else built.kill()
    assert found.max_timestamp_offset() == (BASE + 500, 1, 0)
    assert found.offset_for_timestamp(BASE + 400, end_offset=18) == (BASE + 500, 1, 0)
    assert found.offset_for_timestamp(BASE + 501, end_offset=18) is None
    found.advance_log_start(13)
    assert found.max_timestamp_offset() == (BASE + 500, 13, 0)


def mixed_log(*batches: bytearray) -> LogBuilder:
    """Returns a log of an earlier version: its time indexes have entries only for batches with a right header. Two batches fill a
    segment."""
    built = LogBuilder(log_settings(segment_bytes=2 * len(sarama("lz4")) + 40, index_interval_bytes=50))
    for batch in batches:
        built.append(batch)
    return built


OLDER = partial(batch_of, 2, timestamp=BASE - 1_000)
BEHIND = partial(batch_of, 1, timestamp=BASE + 200)
"""A batch that is older than Sarama's newest record, and newer than its first."""


@pytest.mark.parametrize("other", [OLDER, BEHIND], ids=["older", "behind"])
@pytest.mark.parametrize(("is_first", "is_whole"), [(True, True), (False, True), (True, False)], ids=["sealed", "sealed-last", "active"])
def test_a_check_makes_the_time_index_of_a_mixed_segment_again(other: Any, is_first: bool, is_whole: bool) -> None:
    pair = [sarama("lz4"), other()] if is_first else [other(), sarama("lz4")]
    built = mixed_log(*pair, *(pair if is_whole else ()))
    log = built.reopen()
    segment, end = log.segments[0], log.segments[0].end_offset if is_whole else log.log_end_offset
    assert segment.is_sealed == is_whole
    assert log.offset_for_timestamp(BASE + 400, end_offset=end) is None
    assert check_times(built.disk, segment, end)
    offset = 1 if is_first else pair_count(other()) + 1
    for found in (log, built.reopen()):
        assert found.offset_for_timestamp(BASE + 400, end_offset=end) == (BASE + 500, offset, 0)
        assert found.segments[0].largest_timestamp() == BASE + 500
    assert not check_times(built.disk, built.log.segments[0], end), "it is right now"


def pair_count(batch: bytearray) -> int:
    return read_batch_header(batch).record_count


def check_times(disk: Disk, segment: Segment, end_offset: int) -> bool:
    """Checks a segment. Returns whether its time index was wrong and was rebuilt."""
    times = TimeIndexCheck(disk, segment)
    check = SegmentCheck(disk, segment.path(""), segment.base_offset, end_offset, segment.size, times=times, may_end_early=False)
    while check.run(1):
        pass
    assert not check.damaged
    return times.mend(segment)


def test_what_is_appended_during_a_check_is_in_the_new_index() -> None:
    built = mixed_log(sarama("lz4"), OLDER())
    built.reopen()
    segment = built.log.active
    times = TimeIndexCheck(built.disk, segment)
    check = SegmentCheck(built.disk, segment.path(""), 0, 5, segment.size, times=times, may_end_early=False)
    built.log.configure(log_settings(index_interval_bytes=50))
    built.append(batch_of(1, timestamp=BASE - 500))
    built.append(batch_of(1, timestamp=BASE + 900))
    assert built.log.active is segment and not check.run(1 << 20) and not check.damaged
    assert times.mend(segment)
    for found in (built.log, built.reopen()):
        assert found.max_timestamp_offset() == (BASE + 900, 6, 0)
        assert found.offset_for_timestamp(BASE + 400, end_offset=7) == (BASE + 500, 1, 0)
        assert found.offset_for_timestamp(BASE + 501, end_offset=7) == (BASE + 900, 6, 0)


def test_an_old_log_expires_by_its_records() -> None:
    built = old_log("none")
    built.now_ms = BASE + 10 * 86_400_000
    found = built.reopen()
    bounds = {"high_watermark": 18, "log_start_offset": 0, "log_end_offset": 18}
    assert count_expired(found.segments, found.config, now_ms=BASE + 3_600_400, **bounds) == 0
    assert count_expired(found.segments, found.config, now_ms=BASE + 3_600_501, **bounds) == 3


def test_the_indexes_of_an_old_segment_are_made_once() -> None:
    built = old_log("lz4")
    found = built.reopen()
    assert found.max_timestamp_offset() is not None
    assert [note for note in found.recovery_notes if "time index is empty" in note]
    again = built.reopen()
    assert again.max_timestamp_offset() == (BASE + 500, 1, 0) and not again.recovery_notes
    assert size_of(built.disk, again.segments[0].path(TIME_INDEX_SUFFIX)) > 0


def size_of(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def test_a_follower_indexes_an_old_leaders_batches_by_their_records() -> None:
    leader = old_log("zstd")
    follower = LogBuilder()
    follower.log.append_as_follower(memoryview(b"".join(data for _, data in read_all(leader.log))))
    assert follower.log.max_timestamp_offset() == (BASE + 500, 1, 0)
    assert read_all(follower.log)[0][0].max_timestamp == -1, "its bytes are the leader's"


# Logs whose record with the largest timestamp was removed


@pytest.mark.parametrize("is_reopened", [False, True])
def test_the_newest_record_where_compaction_kept_a_header_only(is_reopened: bool) -> None:
    built = LogBuilder(log_settings(is_compacted=True, segment_bytes=300))
    built.append_many(6, timestamp=5_000)
    emptied = batch_of(2, timestamp=9_000, producer_id=5, producer_epoch=0, base_sequence=0)
    built.append(rewrite_batch(read_batch_header(emptied), []))
    built.append_many(2, timestamp=3_000)
    found = built.reopen() if is_reopened else built.log
    assert found.max_timestamp_offset() == (5_050, 5, 0)


def test_a_segment_with_headers_only_has_no_newest_record() -> None:
    built = LogBuilder(log_settings(is_compacted=True))
    emptied = batch_of(2, timestamp=9_000, producer_id=5, producer_epoch=0, base_sequence=0)
    built.append(rewrite_batch(read_batch_header(emptied), []))
    assert built.log.max_timestamp_offset() is None


# Timestamps in the future (KAFKA-18929)


def test_a_segment_that_the_future_keeps_is_found() -> None:
    built = LogBuilder(log_settings(retention_ms=1_000))
    built.append(batch_of(1, timestamp=10_000_000))
    segments = built.log.segments
    assert kept_by_the_future(segments, built.log.config, 9_000_000) == (0, 10_000_000)
    assert kept_by_the_future(segments, built.log.config, 9_950_000) is None, "the clocks of clients differ by so much"
    assert kept_by_the_future(segments, log_settings(retention_ms=-1), 0) is None
    assert kept_by_the_future(segments, log_settings(is_deleted=False), 0) is None
    assert kept_by_the_future(LogBuilder().log.segments, built.log.config, 0) is None


