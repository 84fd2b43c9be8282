"""DescribeSegments: which segments and index entries of a log an answer has, and how large an answer may be."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.records import describe_segments
from ottla.handlers.records.describe_segments import handle
from ottla.wire.messages.describe_segments import DescribeSegmentsRequest, DescribeSegmentsResponse
from tests.fakes.log_settings import log_settings
from tests.handlers.records_world import NOW_MS, RecordsWorld, batch, request


@pytest.fixture
def world() -> RecordsWorld:
    """Partition 0 has 30 batches of one record, several of them in a segment, with an index entry for almost each of them."""
    world = RecordsWorld(config=log_settings(segment_bytes=1_000, index_interval_bytes=1))
    for number in range(30):
        world.partitions[0].require_leading().append(batch(b"%d" % number), acks=1, now_ms=NOW_MS)
    return world


def ask(world: RecordsWorld, *, partition: int = 0, first_offset: int = 0, index_of: int = -1) -> DescribeSegmentsResponse:
    body = DescribeSegmentsRequest(topic="t", partition=partition, first_offset=first_offset, index_of=index_of)
    return handle(world.broker, request(0), body)


def test_the_segments_of_a_log_follow_each_other(world: RecordsWorld) -> None:
    found = ask(world).segments
    assert len(found) > 2 and found[0].base_offset == 0 and found[-1].end_offset == 30
    assert [one.end_offset for one in found[:-1]] == [one.base_offset for one in found[1:]]
    assert [one.is_active for one in found] == [False] * (len(found) - 1) + [True]
    assert sum(one.size_bytes for one in found) == sum(segment.size for segment in world.partitions[0].log.segments)
    inside = found[1].base_offset + 1
    assert [one.base_offset for one in ask(world, first_offset=inside).segments] == [one.base_offset for one in found[1:]]
    assert len(ask(world, first_offset=10**9).segments) == 1 and len(ask(world, first_offset=-5).segments) == len(found)


def test_an_entry_of_an_index_is_the_position_of_a_batch(world: RecordsWorld) -> None:
    log = world.partitions[0].log
    segment = ask(world).segments[1]
    answer = ask(world, index_of=segment.base_offset)
    assert len(answer.offset_entries) > 1
    for entry in answer.offset_entries:
        header = log.segments[1].header_at(entry.position)
        assert header.base_offset <= entry.offset <= header.last_offset
    assert [(one.timestamp, segment.base_offset <= one.offset < segment.end_offset) for one in answer.time_entries] == [(NOW_MS, True)]
    assert ask(world, index_of=3_333).offset_entries == [] and not answer.is_cut


def test_an_answer_is_bounded_and_says_that_it_is_cut(world: RecordsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_segments, "SEGMENTS_MAX", 2)
    cut = ask(world)
    assert len(cut.segments) == 2 and cut.is_cut
    monkeypatch.setattr(describe_segments, "SEGMENTS_MAX", 1_000)
    monkeypatch.setattr(describe_segments, "ENTRIES_MAX", 1)
    cut = ask(world, index_of=0)
    assert len(cut.offset_entries) == 1 and cut.is_cut and not ask(world).is_cut


def test_a_partition_of_another_broker_is_refused(world: RecordsWorld) -> None:
    assert ask(world, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
