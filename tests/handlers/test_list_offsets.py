"""ListOffsets: special times by version, and a stored batch whose records cannot be read."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.list_offsets import handle
from ottla.wire.batch_header import RECORDS_AT, stamp_crc
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.records import Record, encode_batch
from tests.fakes.log_settings import log_settings
from tests.handlers.records_world import NOW_MS, World, batch, request


def ask(world: World, *asked: tuple[int, int], version: int = 11) -> list[ListOffsetsPartitionResponse]:
    """The answers for (partition, timestamp)s of the topic."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in asked]
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    return list(handle(world.broker, request(version), body).topics[0].partitions)


def append(world: World, data: memoryview) -> None:
    world.partitions[0].require_leading().append(data, acks=1, now_ms=NOW_MS)


def unreadable(*, timestamp: int = NOW_MS) -> memoryview:
    """A batch whose CRC is right and whose first record is nonsense."""
    made = bytearray(encode_batch([Record(0, timestamp, None, b"v" * 20)]))
    made[RECORDS_AT : RECORDS_AT + 2] = b"\xff\xff"
    stamp_crc(made, 0, len(made))
    return memoryview(made)


def test_times_and_special_times() -> None:
    world = World()
    append(world, batch(b"a", b"b"))
    found = ask(world, (0, -2), (1, NOW_MS))
    assert [(one.offset, one.timestamp, one.leader_epoch) for one in found] == [(0, -1, 0), (-1, -1, -1)]
    assert [ask(world, (0, timestamp))[0].offset for timestamp in (-1, -3, -4, -5, -6, NOW_MS)] == [2, 0, 0, -1, -1, 0]


@pytest.mark.parametrize(("timestamp", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_time_is_refused_before_its_version(timestamp: int, first_version: int) -> None:
    world = World()
    assert ask(world, (0, timestamp), version=first_version)[0].error_code == ErrorCode.NONE
    assert ask(world, (0, timestamp), version=first_version - 1)[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_unreadable_batch_is_an_error_of_its_partition_only() -> None:
    world = World()
    append(world, unreadable())
    broken, other = ask(world, (0, NOW_MS), (1, NOW_MS))
    assert (broken.error_code, broken.offset) == (ErrorCode.INVALID_RECORD, -1)
    assert other.error_code == ErrorCode.NONE
    assert ask(world, (0, -1))[0].offset == 1, "what needs no look into the batch is answered as ever"


def test_a_timestamp_beyond_64_bits_is_answered() -> None:
    made = bytearray(encode_batch([Record(0, 10, None, b"v")]))
    made[27:43] = ((1 << 63) - 1).to_bytes(8, "big") * 2  # base and largest timestamp
    made[RECORDS_AT + 2] = 2  # the record's own is one above the base
    stamp_crc(made, 0, len(made))
    world = World(config=log_settings(timestamp_after_max_ms=1 << 63))
    append(world, memoryview(made))
    assert ask(world, (0, NOW_MS))[0].error_code == ErrorCode.INVALID_RECORD


def test_a_partition_named_twice_and_one_that_is_not_there() -> None:
    world = World()
    codes = [one.error_code for one in ask(world, (0, -1), (0, -2), (9, -1))]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
