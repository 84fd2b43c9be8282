"""A look into a batch on the loop ends at its budget, and comes to the same result in the worker (section 7: R8)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused
from ottla.base.log_config import LogConfig
from ottla.storage.inspection import (
    LOOP_BYTES_MAX,
    LOOP_RECORDS_MAX,
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
    return inspect_here(memoryview(batch), read_batch_header(batch), demands(batch, config), budget or LoopBudget())


def by_the_worker(batch: bytearray, config: LogConfig = COMPACTED) -> Inspected:
    return inspect_batch(InspectBatch(batch, demands(batch, config)))


def test_a_plain_topic_demands_nothing() -> None:
    assert not is_inspected(log_settings())
    assert demands_of(read_batch_header(batch_of(1)), log_settings()) is None
    assert demands_of(read_batch_header(batch_of(1)), log_settings(compression_type="zstd")) is None, "it has that codec already"
    for config in (COMPACTED, log_settings(is_strict=True), log_settings(compression_type="lz4")):
        assert is_inspected(config)
        assert demands_of(read_batch_header(batch_of(1)), config) is not None


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
    assert here == there == InspectHere().inspect(memoryview(batch), read_batch_header(batch), config)
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
    """A high one takes many times as long."""
    batch = batch_of(1, value=bytes(LOOP_BYTES_MAX // 2))
    assert on_the_loop(batch, log_settings(compression_type="gzip")) is not None
    with pytest.raises(WorkerNeeded):
        on_the_loop(batch, log_settings(compression_type="gzip", compression_level=9))


def test_an_answer_is_used_for_what_was_asked_only() -> None:
    large = batch_of(LOOP_RECORDS_MAX + 1)
    earlier = InspectedEarlier(by_the_worker(large))
    assert earlier.inspect(memoryview(large), read_batch_header(large), COMPACTED) is None
    with pytest.raises(WorkerNeeded):
        earlier.inspect(memoryview(large), read_batch_header(large), log_settings(compression_type="gzip"))
    assert earlier.inspect(memoryview(large), read_batch_header(large), log_settings()) is None, "nothing is demanded any more"
    keyless = batch_of(LOOP_RECORDS_MAX + 1, key=None)
    with pytest.raises(RecordsRefused):
        InspectedEarlier(by_the_worker(keyless)).inspect(memoryview(keyless), read_batch_header(keyless), COMPACTED)
