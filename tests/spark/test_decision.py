"""The comparison of a batch with the group's committed offsets: every row of the table, and the conflicts with their messages."""

from __future__ import annotations

import pytest

from ottla.client import Committed, TopicPartition
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.decision import BatchOffsets, BatchRange, PlannedBatch, is_committed
from ottla.spark.errors import OffsetConflictError

A, B, C = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("new", 0)


def _batch(
    start: BatchOffsets | None, end: BatchOffsets, *, batch_id: int = 7, has_output: bool = True, trusts_checkpoint: bool = False
) -> PlannedBatch:
    return PlannedBatch("g", "q", batch_id, BatchRange(start, end), has_output, trusts_checkpoint)


def _committed(offsets: BatchOffsets, *, query_id: str = "q", batch_id: int = 6) -> dict[TopicPartition, Committed]:
    text = CommitMetadata(query_id, batch_id, 0).to_text()
    return {partition: Committed(offset, metadata=text) for partition, offset in offsets.items()}


START, END = {A: 5, B: 10}, {A: 8, B: 10}


def test_offsets_at_the_start_mean_send_and_at_the_end_skip() -> None:
    assert not is_committed(_batch(START, END), _committed(START))
    assert is_committed(_batch(START, END), _committed(END))
    assert is_committed(_batch(START, END), _committed(END, query_id="another query", batch_id=0))


def test_an_offset_of_an_earlier_topic_of_the_same_name_counts_for_nothing() -> None:
    """A committed offset of an earlier topic with the same name is ignored: the partitions of the new topic have no start."""
    fresh = _batch({B: 10}, {A: 3, B: 10})._replace(range=BatchRange({}, {A: 3, B: 0}, {"in": "now"}))
    old = {one: Committed(at, metadata=CommitMetadata("q", 6, 0, topic_id="before").to_text()) for one, at in {A: 8, B: 0}.items()}
    assert not is_committed(fresh, old)
    assert not is_committed(fresh, {})
    assert not is_committed(fresh, {one: found._replace(offset=fresh.range.end[one]) for one, found in old.items()})
    done = {one: Committed(at, metadata=CommitMetadata("q", 7, 0, topic_id="now").to_text()) for one, at in fresh.range.end.items()}
    assert is_committed(fresh, done)


def test_topics_of_one_batch_may_have_different_ids() -> None:
    moved_nothing = PlannedBatch("g", "q", 7, BatchRange({A: 5, C: 1}, {A: 5, C: 1}, {"in": "x", "new": "y"}))
    for batch_id, is_done in ((6, False), (7, True)):
        found = {
            one: Committed(at, metadata=CommitMetadata("q", batch_id, 0, topic_id=topic_id).to_text())
            for one, at, topic_id in ((A, 5, "x"), (C, 1, "y"))
        }
        assert is_committed(moved_nothing, found) == is_done


def test_partitions_of_other_topics_are_not_compared() -> None:
    assert not is_committed(_batch(START, END), _committed({**START, TopicPartition("other", 0): 99}))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({A: 6, B: 10}, "in-0 is neither the start nor the end"),
        ({A: 5, B: 9}, "in-1 is neither the start nor the end"),
        ({A: 4, B: 10}, "in-0 is neither the start nor the end"),
        ({A: 5}, "no longer has an offset for in-1"),
        ({}, "no longer has an offset for in-0.*trustCheckpoint=true"),
    ],
)
def test_any_other_offset_is_a_conflict_that_names_all_three(found: BatchOffsets, reason: str) -> None:
    named = r"Committed: .*start of the batch: in-0=5, in-1=10; end: in-0=8"
    with pytest.raises(OffsetConflictError, match=rf"batch 7.*group 'g'.*{reason}.*{named}"):
        is_committed(_batch(START, END), _committed(found))


def test_a_mix_of_start_and_end_is_a_conflict() -> None:
    with pytest.raises(OffsetConflictError, match=r"some partitions are at the start"):
        is_committed(_batch({A: 1, B: 1}, {A: 2, B: 2}), _committed({A: 1, B: 2}))


def test_a_batch_that_ends_before_it_starts_is_a_conflict() -> None:
    with pytest.raises(OffsetConflictError, match=r"ends before it starts in in-0"):
        is_committed(_batch({A: 2}, {A: 1}), _committed({A: 2}))


def test_missing_offsets_are_the_start_of_the_first_batch_only() -> None:
    assert not is_committed(_batch(START, END, batch_id=0), {})
    assert not is_committed(_batch(START, END, trusts_checkpoint=True), {})


def test_a_partition_that_came_with_this_batch_may_have_no_offset() -> None:
    grown = {**END, C: 3}
    assert not is_committed(_batch(START, grown), _committed(START))
    assert is_committed(_batch(START, grown), _committed(grown))
    with pytest.raises(OffsetConflictError, match=r"some partitions are"):
        is_committed(_batch(START, grown), _committed(END))
    with pytest.raises(OffsetConflictError, match=r"new-0 is neither"):
        is_committed(_batch(START, grown), _committed({**START, C: 1}))


@pytest.mark.parametrize(("last", "expected"), [(6, False), (7, True), (8, True)])
def test_metadata_decides_a_batch_that_moves_no_offset(last: int, expected: bool) -> None:
    assert is_committed(_batch(END, END), _committed(END, batch_id=last)) is expected


def test_a_partition_that_was_gone_and_is_back_has_older_metadata() -> None:
    """A partition that was missing for some batches has older metadata, because these batches were committed without its offset."""
    back = _committed({B: 10}, batch_id=3)
    assert not is_committed(_batch(END, END), {**_committed({A: 8}, batch_id=6), **back})
    assert is_committed(_batch(END, END), {**_committed({A: 8}, batch_id=8), **back})
    with pytest.raises(OffsetConflictError, match=r"moves no offset.*batch 3 of query q, batch 5 of query q"):
        is_committed(_batch(END, END), {**_committed({A: 8}, batch_id=5), **back})
    with pytest.raises(OffsetConflictError, match=r"moves no offset"):
        is_committed(_batch(END, END), {**_committed({A: 8}, query_id="another"), **back})


@pytest.mark.parametrize(("query_id", "last"), [("q", 5), ("another", 6), ("another", 7)])
def test_a_batch_that_moves_no_offset_must_follow_the_last_one(query_id: str, last: int) -> None:
    with pytest.raises(OffsetConflictError, match=rf"moves no offset.*batch {last} of query {query_id}"):
        is_committed(_batch(END, END), _committed(END, query_id=query_id, batch_id=last))


def test_offsets_that_another_tool_committed_do_not_decide_a_batch_that_moves_none() -> None:
    with pytest.raises(OffsetConflictError, match=r"moves no offset.*: none"):
        is_committed(_batch(END, END), {A: Committed(8), B: Committed(10)})


def test_the_first_batch_may_move_no_offset_after_another_query() -> None:
    assert not is_committed(_batch(END, END, batch_id=0), _committed(END, query_id="another", batch_id=40))
    assert not is_committed(_batch(END, END, batch_id=0), {})
    assert is_committed(_batch(END, END, batch_id=0), _committed(END, batch_id=0))


def test_a_first_batch_of_unknown_start() -> None:
    assert not is_committed(_batch(None, END, batch_id=0), {})
    assert is_committed(_batch(None, END, batch_id=0), _committed(END, batch_id=0))
    assert not is_committed(_batch(None, END, batch_id=0, has_output=False), _committed(END, query_id="another"))
    with pytest.raises(OffsetConflictError, match=r"start of the batch is not known.*unknown"):
        is_committed(_batch(None, END, batch_id=0), _committed(END, query_id="another"))
    with pytest.raises(OffsetConflictError, match=r"start of the batch is not known"):
        is_committed(_batch(None, END, batch_id=0), _committed(START))
    with pytest.raises(OffsetConflictError, match=r"no entry 6"):
        is_committed(_batch(None, END), _committed(END))


def _apart(offsets: BatchOffsets, apart: str, *, query_id: str = "q", batch_id: int = 6) -> dict[TopicPartition, Committed]:
    text = CommitMetadata(query_id, batch_id, 0, apart=apart).to_text()
    return {partition: Committed(offset, metadata=text) for partition, offset in offsets.items()}


@pytest.mark.parametrize(
    ("start", "before"), [(START, "x"), (START, ""), (END, "x")], ids=["both apart", "level before", "only the faster moves"]
)
def test_metadata_decides_where_sources_of_one_partition_stand_apart(start: BatchOffsets, before: str) -> None:
    batch = _batch(start, END)._replace(range=BatchRange(start, END, apart=(before, "y")))
    assert not is_committed(batch, _apart(start, before, batch_id=6))
    assert is_committed(batch, _apart(END, "y", batch_id=7))
    others = [
        _apart(start, "z", batch_id=6), _apart(END, "z", batch_id=7), _apart(END, "y", batch_id=8), _apart(start, before, batch_id=5),
        _apart(start, before, query_id="another", batch_id=6), _apart({A: 1, B: 10}, before, batch_id=6), {},
    ]  # fmt: skip
    for other in others:
        with pytest.raises(OffsetConflictError, match=r"read the same partition at different offsets"):
            is_committed(batch, other)
    assert not is_committed(batch._replace(trusts_checkpoint=True), {})


def test_sources_that_come_level_again_are_decided_by_metadata_too() -> None:
    batch = _batch(END, END)._replace(range=BatchRange(END, END, apart=("x", "")))
    assert not is_committed(batch, _apart(END, "x", batch_id=6))
    assert is_committed(batch, _apart(END, "", batch_id=7))
    with pytest.raises(OffsetConflictError):
        is_committed(batch, _apart(END, "", batch_id=6))


def test_a_partition_that_is_gone_is_not_compared_where_sources_stand_apart() -> None:
    batch = _batch(START, END)._replace(range=BatchRange({**START, C: 4}, END, apart=("x", "y")))
    assert not is_committed(batch, _apart({**START, C: 4}, "x"))


def test_the_first_batch_of_sources_that_stand_apart() -> None:
    batch = _batch(None, END, batch_id=0)._replace(range=BatchRange(None, END, apart=("", "y")))
    assert not is_committed(batch, {})
    assert is_committed(batch, _apart(END, "y", batch_id=0))


def test_a_source_without_partitions_has_nothing_to_commit() -> None:
    assert is_committed(_batch({}, {}, has_output=False), {})
    with pytest.raises(OffsetConflictError, match=r"no partition"):
        is_committed(_batch({}, {}), {})


def test_long_lists_of_partitions_are_cut() -> None:
    many = {TopicPartition("in", number): 1 for number in range(30)}
    with pytest.raises(OffsetConflictError, match=r"and 25 more"):
        is_committed(_batch(many, many), {})
