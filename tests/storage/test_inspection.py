"""An inspection of a batch on the loop ends at its budget. In the worker it has the same result (R8)."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused
from ottla.base.log_config import LogConfig
from ottla.storage.inspection import (
    LOOP_BYTES_MAX,
    LOOP_RECORDS_MAX,
    MERE_LOOK,
    SMALL_RECORDS_MAX,
    Demands,
    InspectBatch,
    Inspected,
    InspectedEarlier,
    InspectHere,
    LoopBudget,
    WorkerNeeded,
    demands_of,
    inspect_batch,
    inspect_here,
    is_inspected,
)
from ottla.wire.records import CODEC_GZIP, CODEC_LZ4, CODEC_ZSTD, Record, encode_batch, read_batch_header, read_records
from tests.fakes.log_settings import log_settings

NOW = 1_700_000_000_000
COMPACTED = log_settings(is_compacted=True)


def batch_of(count: int, *, value: bytes = b"v", codec: int = CODEC_ZSTD, headers: int = 0, key: bytes | None = b"k") -> bytearray:
    record = Record(0, NOW, key, value, (("h", None),) * headers)
    return encode_batch([record] * count, codec=codec)


def demands(batch: bytearray, config: LogConfig = COMPACTED) -> Demands:
    found = demands_of(read_batch_header(batch), config)
    assert found is not None
    return found


def on_the_loop(batch: bytearray, config: LogConfig = COMPACTED, budget: LoopBudget | None = None) -> bytearray | None:
    """Inspects a batch on the loop. Returns the batch compressed with another codec, if the topic demands one."""
    found = inspect_here(memoryview(batch), read_batch_header(batch), demands(batch, config), budget or LoopBudget())
    assert found is not None and found.times == (NOW, NOW)
    return found.repacked


def by_the_worker(batch: bytearray, config: LogConfig = COMPACTED) -> Inspected:
    return inspect_batch(InspectBatch(batch, demands(batch, config)))


@pytest.mark.parametrize("config", [log_settings(), COMPACTED, log_settings(is_log_append_time=True)])
def test_a_compressed_record_may_be_too_large_decompressed(config: LogConfig) -> None:
    """As in Kafka 4.4: an uncompressed batch is bounded by max.message.bytes alone."""
    limited = replace(config, record_bytes_max=512)
    assert is_inspected(limited)
    small, large = (encode_batch([Record(0, NOW, b"k", bytes(size))], codec=CODEC_GZIP) for size in (400, 4096))
    header = read_batch_header(small)
    assert inspect_here(memoryview(small), header, demands(small, limited), LoopBudget()) is not None
    with pytest.raises(ApiError, match=r"record 0 has more than 512 bytes \(max.decompressed.message.bytes\)") as refused:
        inspect_here(memoryview(large), read_batch_header(large), demands(large, limited), LoopBudget())
    assert refused.value.code is ErrorCode.INVALID_RECORD
    answer = by_the_worker(large, limited)
    assert answer.code == ErrorCode.INVALID_RECORD and "512" in answer.message
    plain = encode_batch([Record(0, NOW, b"k", bytes(4096))])
    found = demands_of(read_batch_header(plain), limited)
    assert found is None or found.record_bytes_max is None


def test_append_time_alone_demands_nothing() -> None:
    config = log_settings(is_log_append_time=True)
    assert not is_inspected(config) and demands_of(read_batch_header(batch_of(1)), config) is None
    for settings in ({"is_compacted": True}, {"is_strict": True}, {"compression_type": "lz4"}):
        config = log_settings(is_log_append_time=True, **settings)
        assert is_inspected(config)
        asked = demands_of(read_batch_header(batch_of(1)), config)
        assert asked is not None and not asked.is_timed


@pytest.mark.parametrize("config", [log_settings(), log_settings(compression_type="zstd")])
def test_a_plain_topic_demands_the_timestamps(config: LogConfig) -> None:
    """The timestamps are read in uncompressed batches, in small ones, in batches with an impossible header, and in all batches if the topic
    bounds timestamps."""
    plain, small, large = batch_of(1, codec=0), batch_of(1), batch_of(SMALL_RECORDS_MAX + 1)
    assert is_inspected(config)
    if config.compression_type == "producer":
        assert demands_of(read_batch_header(plain), config) is MERE_LOOK
    assert demands(small, config).is_optional and demands(small, config).is_mere_look
    assert demands_of(read_batch_header(large), config) is None, "its header is believed"
    impossible = read_batch_header(large)._replace(max_timestamp=-1)
    found = demands_of(impossible, config)
    assert found is not None and found.is_mere_look and not found.is_optional
    for bounded in (log_settings(timestamp_before_max_ms=1), log_settings(timestamp_after_max_ms=1)):
        found = demands_of(read_batch_header(large), bounded)
        assert found is not None and found.is_mere_look and not found.is_optional


def test_an_optional_look_is_left_out_when_the_budget_is_used_up() -> None:
    batch = batch_of(1)
    assert inspect_here(memoryview(batch), read_batch_header(batch), demands(batch, log_settings()), LoopBudget(times=0)) is None
    plain = batch_of(1, codec=0)
    with pytest.raises(WorkerNeeded):
        inspect_here(memoryview(plain), read_batch_header(plain), MERE_LOOK, LoopBudget(times=0))


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(LOOP_RECORDS_MAX + 1),
        batch_of(1, value=bytes(LOOP_BYTES_MAX)),
        batch_of(1, headers=LOOP_RECORDS_MAX + 1),
        batch_of(1, headers=LOOP_RECORDS_MAX + 1, codec=0),
    ],
    ids=["records", "bytes", "header fields", "header fields, not packed"],
)
def test_a_large_batch_is_for_the_worker(batch: bytearray) -> None:
    with pytest.raises(WorkerNeeded) as caught:
        on_the_loop(batch)
    assert caught.value.demands == demands(batch)
    assert by_the_worker(batch).refusal() is None


def test_large_records_that_need_not_be_unpacked_are_walked_at_once() -> None:
    assert on_the_loop(batch_of(3, value=bytes(LOOP_BYTES_MAX), codec=0)) is None


def test_the_batches_of_a_request_share_its_budget() -> None:
    budget = LoopBudget()
    half = batch_of(LOOP_RECORDS_MAX // 2)
    on_the_loop(half, budget=budget)
    on_the_loop(half, budget=budget)
    with pytest.raises(WorkerNeeded):
        on_the_loop(batch_of(1), budget=budget)
    budget = LoopBudget()
    packed = batch_of(1, value=bytes(LOOP_BYTES_MAX // 2))
    on_the_loop(packed, budget=budget)
    with pytest.raises(WorkerNeeded):
        on_the_loop(packed, budget=budget)


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_LZ4, CODEC_ZSTD])
@pytest.mark.parametrize("config", [COMPACTED, log_settings(compression_type="snappy")])
def test_r8_a_bomb_is_refused_by_its_unpacked_size(codec: int, config: LogConfig) -> None:
    config = log_settings(is_compacted=config.is_compacted, compression_type=config.compression_type, decompressed_bytes_max=1 << 20)
    bomb = batch_of(1, value=bytes(1 << 20), codec=codec)
    with pytest.raises(WorkerNeeded):
        on_the_loop(bomb, config)
    refused = by_the_worker(bomb, config).refusal()
    assert refused is not None and refused.code is ErrorCode.INVALID_RECORD
    assert refused.message == "a batch unpacks to more than 1048576 bytes"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_many_small_bombs_in_a_request_are_unpacked_up_to_its_budget_together(is_damaged: bool) -> None:
    """Skipped and refused batches are charged to the budget, too."""
    batch = batch_of(1, value=bytes(2 * LOOP_BYTES_MAX if not is_damaged else LOOP_BYTES_MAX // 2), codec=CODEC_GZIP)
    batch[-8:-4] = b"oops" if is_damaged else batch[-8:-4]  # gzip's checksum
    budget, header = LoopBudget(), read_batch_header(batch)
    wanted = Demands(False, False, None, LOOP_BYTES_MAX * 10, is_optional=True)
    for _ in range(3):
        with contextlib.suppress(ApiError):
            assert inspect_here(memoryview(batch), header, wanted, budget) is None
        assert budget.bytes == 0


def test_a_small_bound_refuses_at_once() -> None:
    with pytest.raises(ApiError) as caught:
        on_the_loop(batch_of(1, value=bytes(2_000)), log_settings(is_compacted=True, decompressed_bytes_max=1_000))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_records_without_a_key_are_named_up_to_a_bound() -> None:
    refused = by_the_worker(batch_of(3_000, key=None)).refusal()
    assert isinstance(refused, RecordsRefused)
    assert refused.message == "no key in 3000 of 3000 records; a compacted topic needs keys"
    assert list(refused.faults) == list(range(1_000))


def test_both_places_pack_alike() -> None:
    config = log_settings(compression_type="lz4", is_strict=True)
    batch = batch_of(50)
    here, there = on_the_loop(batch, config), by_the_worker(batch, config).repacked
    found = InspectHere().inspect(memoryview(batch), read_batch_header(batch), config)
    assert found is not None and here == there == found.repacked
    assert here is not None and read_batch_header(here).codec == CODEC_LZ4 and read_records(here) == read_records(batch)


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -5, 15)])
def test_a_level_that_is_set_is_used_in_both_places(codec: str, low: int, high: int) -> None:
    record = Record(0, NOW, b"k", b"".join(b"%d " % (number * number) for number in range(1_000)))
    batch = encode_batch([record])
    sizes = []
    for level in (low, high):
        config = log_settings(compression_type=codec, compression_level=level)
        here, there = on_the_loop(batch, config), by_the_worker(batch, config).repacked
        assert here == there and here is not None and read_records(here) == read_records(batch)
        sizes.append(len(here))
    assert sizes[1] < sizes[0]


def test_with_a_level_that_is_set_less_is_packed_on_the_loop() -> None:
    """A high compression level takes many times as long."""
    batch = batch_of(1, value=bytes(LOOP_BYTES_MAX // 2))
    assert on_the_loop(batch, log_settings(compression_type="gzip")) is not None
    with pytest.raises(WorkerNeeded):
        on_the_loop(batch, log_settings(compression_type="gzip", compression_level=9))


def test_an_answer_is_used_for_what_was_asked_only() -> None:
    large = batch_of(LOOP_RECORDS_MAX + 1)
    earlier = InspectedEarlier(by_the_worker(large))
    assert earlier.inspect(memoryview(large), read_batch_header(large), COMPACTED) == (None, (NOW, NOW))
    with pytest.raises(WorkerNeeded):
        earlier.inspect(memoryview(large), read_batch_header(large), log_settings(compression_type="gzip"))
    assert earlier.inspect(memoryview(large), read_batch_header(large), log_settings()) is None, "nothing is demanded any more"
    keyless = batch_of(LOOP_RECORDS_MAX + 1, key=None)
    with pytest.raises(RecordsRefused):
        InspectedEarlier(by_the_worker(keyless)).inspect(memoryview(keyless), read_batch_header(keyless), COMPACTED)
