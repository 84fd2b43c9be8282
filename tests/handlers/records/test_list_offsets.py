"""ListOffsets: which special timestamps each version has, and a stored batch whose records cannot be read."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.log_config import LogConfig
from ottla.handlers.context import Pending
from ottla.handlers.records.list_offsets import handle
from ottla.storage.time_search import LOOP_RECORDS_MAX, LOOP_UNPACKED_BYTES_MAX, WALKED_BATCHES_MAX
from ottla.wire.batch_header import RECORDS_AT, BatchHeader, stamp_crc
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.records import CODEC_ZSTD, CREATE_TIME, Record, encode_batch, set_max_timestamp
from tests.fakes.log_settings import log_settings
from tests.handlers.records_world import NOW_MS, RecordsWorld, batch, request


def ask(world: RecordsWorld, *asked: tuple[int, int], version: int = 11) -> list[ListOffsetsPartitionResponse]:
    """Returns the answers for pairs (partition, timestamp) of the topic."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in asked]
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    answer = handle(world.broker, request(version), body)
    assert isinstance(answer, ListOffsetsResponse)
    return list(answer.topics[0].partitions)


class StoredUnseen:
    """An inspector that examines no batch, so a batch with a wrong largest timestamp is stored, as by earlier versions of the broker."""

    def inspect(self, _batch: memoryview, _header: BatchHeader, _config: LogConfig) -> None:
        return None


def append(world: RecordsWorld, data: memoryview) -> None:
    world.partitions[0].require_leading().append(data, acks=1, now_ms=NOW_MS, inspector=StoredUnseen())


def unreadable(*, timestamp: int = NOW_MS) -> memoryview:
    """A batch whose CRC is right and whose first record is nonsense."""
    made = bytearray(encode_batch([Record(0, timestamp, None, b"v" * 20)]))
    made[RECORDS_AT : RECORDS_AT + 2] = b"\xff\xff"
    stamp_crc(made, 0, len(made))
    return memoryview(made)


def test_times_and_special_times() -> None:
    world = RecordsWorld()
    append(world, batch(b"a", b"b"))
    found = ask(world, (0, -2), (1, NOW_MS))
    assert [(one.offset, one.timestamp, one.leader_epoch) for one in found] == [(0, -1, 0), (-1, -1, -1)]
    assert [ask(world, (0, timestamp))[0].offset for timestamp in (-1, -3, -4, -5, -6, NOW_MS)] == [2, 0, 0, -1, -1, 0]


@pytest.mark.parametrize(("timestamp", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_time_is_refused_before_its_version(timestamp: int, first_version: int) -> None:
    world = RecordsWorld()
    assert ask(world, (0, timestamp), version=first_version)[0].error_code == ErrorCode.NONE
    assert ask(world, (0, timestamp), version=first_version - 1)[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_unreadable_batch_is_passed_over_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = RecordsWorld()
    append(world, unreadable())
    append(world, batch(b"a"))
    first, other = ask(world, (0, NOW_MS), (1, NOW_MS))
    assert (first.error_code, first.offset) == (ErrorCode.NONE, 1)
    assert other.error_code == ErrorCode.NONE
    assert "t-0: the batch at offset 0 is skipped: a record is longer than its batch" in caplog.text
    assert ask(world, (0, -1))[0].offset == 2


def test_a_timestamp_beyond_64_bits_is_passed_over() -> None:
    made = bytearray(encode_batch([Record(0, 10, None, b"v")]))
    made[27:43] = ((1 << 63) - 1).to_bytes(8, "big") * 2  # base and largest timestamp
    made[RECORDS_AT + 2] = 2  # the record's own is one above the base
    stamp_crc(made, 0, len(made))
    world = RecordsWorld(config=log_settings(timestamp_after_max_ms=1 << 63))
    append(world, memoryview(made))
    assert ask(world, (0, NOW_MS))[0].offset == -1


# Batches that are too large to be read on the loop

LARGE = LOOP_RECORDS_MAX + 1


def large(*, lie_ms: int = 0, timestamp: int = NOW_MS) -> memoryview:
    """A batch of many records whose header states a largest timestamp that is `lie_ms` too late."""
    made = encode_batch([Record(0, timestamp, None, b"v")] * LARGE, codec=CODEC_ZSTD)
    set_max_timestamp(made, 0, CREATE_TIME, timestamp + lie_ms)
    return memoryview(made)


def begin(world: RecordsWorld, *asked: tuple[int, int]) -> Pending:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in asked]
    answer = handle(world.broker, request(11), ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)]))
    assert isinstance(answer, Pending) and not answer.is_done
    return answer


def test_a_large_batch_is_read_by_the_worker() -> None:
    world = RecordsWorld()
    append(world, batch(b"early"))
    append(world, large(timestamp=NOW_MS + 5))
    answer = begin(world, (0, NOW_MS + 5), (1, -1))
    world.threads.run_all()
    first, other = answer.response.topics[0].partitions
    assert (first.offset, first.timestamp, first.leader_epoch) == (1, NOW_MS + 5, 0)
    assert other.offset == 0
    assert ask(world, (0, NOW_MS + 5))[0].offset == 1, "the same question has its answer"
    assert len(world.threads.record_worker.orders) == 1


def test_batches_that_lie_about_their_time_are_read_once() -> None:
    world = RecordsWorld()
    for _ in range(4):
        append(world, large(lie_ms=1_000))
    append(world, batch(b"a"))
    answer = begin(world, (0, NOW_MS + 1))
    world.threads.run_all()
    assert answer.response.topics[0].partitions[0].offset == -1
    assert len(world.threads.record_worker.orders) == 4
    assert [ask(world, (0, NOW_MS + later))[0].offset for later in (1, 2, 999)] == [-1, -1, -1]
    assert len(world.threads.record_worker.orders) == 4


def test_small_batches_that_lie_share_one_budget_and_are_read_once() -> None:
    world = RecordsWorld()
    half = encode_batch([Record(0, NOW_MS, None, b"v")] * (LARGE // 2), codec=CODEC_ZSTD)
    set_max_timestamp(half, 0, CREATE_TIME, NOW_MS + 1_000)
    for _ in range(4):
        append(world, memoryview(bytearray(half)))
    answer = begin(world, (0, NOW_MS + 1))
    world.threads.run_all()
    assert answer.response.topics[0].partitions[0].offset == -1
    assert len(world.threads.record_worker.orders) == 2, "two fit into the budget of the request"
    assert ask(world, (0, NOW_MS + 1))[0].offset == -1


def test_batches_that_unpack_to_many_bytes_share_one_budget() -> None:
    world = RecordsWorld()
    packed = encode_batch([Record(0, NOW_MS, None, bytes(LOOP_UNPACKED_BYTES_MAX * 2 // 3))], codec=CODEC_ZSTD)
    set_max_timestamp(packed, 0, CREATE_TIME, NOW_MS + 1_000)
    for _ in range(3):
        append(world, memoryview(bytearray(packed)))
    answer = begin(world, (0, NOW_MS + 1))
    world.threads.run_all()
    assert answer.response.topics[0].partitions[0].offset == -1
    assert len(world.threads.record_worker.orders) == 2, "one fits into the budget of the request"


def test_a_walk_over_many_batches_is_done_in_pieces() -> None:
    world = RecordsWorld()
    lie = encode_batch([Record(0, NOW_MS, None, b"v")])
    set_max_timestamp(lie, 0, CREATE_TIME, NOW_MS + 1_000)
    for _ in range(WALKED_BATCHES_MAX + 10):
        append(world, memoryview(bytearray(lie)))
    answer = begin(world, (0, NOW_MS + 1))
    world.timers.advance(0)
    assert answer.is_done and answer.response.topics[0].partitions[0].offset == -1


def test_a_lost_worker_is_an_error_of_the_partition() -> None:
    world = RecordsWorld()
    world.threads.record_worker.is_lost = True
    append(world, large())
    answer = begin(world, (0, NOW_MS), (1, -1))
    world.threads.run_all()
    assert [one.error_code for one in answer.response.topics[0].partitions] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_a_client_that_is_gone_is_not_answered() -> None:
    world = RecordsWorld()
    append(world, large())
    answer = begin(world, (0, NOW_MS))
    assert answer.abandon is not None
    answer.abandon()
    world.threads.run_all()
    assert not answer.is_done


def test_the_newest_record_behind_the_start_of_the_log_may_be_in_a_large_batch() -> None:
    world = RecordsWorld()
    append(world, large())
    world.partitions[0].log.advance_log_start(LARGE - 1)
    answer = begin(world, (0, -3))
    world.threads.run_all()
    assert answer.response.topics[0].partitions[0].offset == LARGE - 1


def test_a_partition_named_twice_and_one_that_is_not_there() -> None:
    world = RecordsWorld()
    codes = [one.error_code for one in ask(world, (0, -1), (0, -2), (9, -1))]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_partition_named_twice_under_two_entries_of_its_topic() -> None:
    world = RecordsWorld()
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = handle(world.broker, request(11), ListOffsetsRequest(topics=[topic, topic]))
    assert isinstance(answer, ListOffsetsResponse)
    assert [one.partitions[0].error_code for one in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2
